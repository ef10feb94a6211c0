"""Tests of `edits.pending_changes`: one edit after the other is one changeset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from editd.edits.pending_changes import Owner, PendingChanges
from editd.edits.plan import plan
from editd.errors import NotAFile, PathOutside, Refused
from editd.values.content import Change, FileState
from editd.wire import messages
from support.in_memory import InMemory, Told, link_to, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.edits.overlay import Snapshot
    from editd.values.path import WorkspacePath

OWNER = Owner("session", "claude-1")
NAMES = st.sampled_from(["a", "b", "c", "d/e", "d/f"])
EDITS = st.one_of(
    st.builds(messages.Write, path=NAMES, content=st.sampled_from(["1\n", "2\n"]), force=st.just(value=True)),
    st.builds(messages.Delete, path=NAMES),
    st.builds(messages.Move, path=NAMES, to=NAMES, overwrite=st.booleans()),
    st.builds(messages.Chmod, path=NAMES, executable=st.booleans()),
)
FILES = st.dictionaries(NAMES, st.sampled_from([b"1\n", b"3\n", b"4\n"]))


def planned(edits: Sequence[messages.AnyEdit], snapshot: Snapshot) -> tuple[Change[FileState], ...]:
    return plan(tuple(edits), snapshot, Told()).changes


def file_at(files: InMemory, path: WorkspacePath) -> FileState | None:
    try:
        return files.at(path)
    except (NotAFile, PathOutside):
        return None


@given(FILES, st.lists(EDITS, min_size=2, max_size=6))
def test_edits_on_top_of_pending_changes_are_one_changeset(
    texts: dict[str, bytes], edits: list[messages.AnyEdit]
) -> None:
    files = InMemory({path: FileState(text) for path, text in texts.items()})
    pending = PendingChanges(OWNER)
    accepted: list[messages.AnyEdit] = []
    for edit in edits:
        try:
            more = planned([edit], pending.over(files))
            at_once = planned([*accepted, edit], files)
        except Refused:
            continue
        accepted.append(edit)
        pending = pending.then(more, lambda path: file_at(files, path))
        assert pending.states == {change.path: change.after for change in at_once}
        assert all(change.before == file_at(files, change.path) for change in pending.changes)


def test_a_file_that_moves_twice_is_one_move_and_one_that_comes_back_is_no_change() -> None:
    files = InMemory({"a": FileState(b"1")})
    pending = PendingChanges(OWNER)
    for path, to in (("a", "b"), ("b", "c")):
        pending = pending.then(planned([messages.Move(path=path, to=to)], pending.over(files)), files.at)
    state = FileState(b"1")
    assert pending.changes == (
        Change(path_of("a"), state, None),
        Change(path_of("c"), None, state, path_of("a")),
    )
    back = planned([messages.Move(path="c", to="a")], pending.over(files))
    assert pending.then(back, files.at).changes == ()


def test_the_snapshot_is_not_read_for_a_changed_path() -> None:
    class Unreadable(InMemory):
        def at(self, path: WorkspacePath) -> FileState | None:
            raise AssertionError(path)

    state = FileState(b"1")
    pending = PendingChanges(
        OWNER,
        (
            Change(path_of("a"), None, state),
            Change(path_of("b"), state, None),
            Change(path_of("l"), None, link_to("a")),
        ),
    )
    files = pending.over(Unreadable({}))
    assert [files.at(path_of(name)) for name in "abl"] == [state, None, link_to("a")]
    assert files.resolve(path_of("l")) == path_of("l")
    assert files.link(path_of("l")) == "a"


def test_a_file_with_conflicts_is_named() -> None:
    left = PendingChanges(OWNER, left_out=(path_of("a"),))
    assert left.warnings == ("a: others have changed it, and hunks that no longer fit are left out",)
    assert left.then((), lambda _: None).warnings == left.warnings
