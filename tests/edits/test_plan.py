"""Tests of `edits.plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.edits import plan as plans
from editd.edits.diff import unified_diff
from editd.edits.plan import plan
from editd.errors import (
    Ambiguous,
    BaseRequired,
    Conflict,
    FileExists,
    FileMissing,
    InvalidParams,
    MalformedEdit,
    NoMatch,
    NotAFile,
    NotText,
    PathOutside,
    Refused,
    Stale,
    TooLarge,
)
from editd.values.content import EXECUTABLE, FILE, FileState
from editd.values.transaction import Base
from support.edit_messages import (
    chmod,
    delete,
    edit_text,
    move,
    patch,
    replace,
    symlink,
    text_edit,
    write,
)
from support.in_memory import InMemory, Told, base_of, link_to, path_of

if TYPE_CHECKING:
    from editd.values.transaction import Outcome
    from editd.wire.messages import AnyEdit, OnStale

Files = Mapping[str, "FileState | bytes | None"]


def states(files: Files) -> dict[str, FileState]:
    return {
        path: FileState(held) if isinstance(held, bytes) else held
        for path, held in files.items()
        if held is not None
    }


def planned(files: Files, *edits: AnyEdit, told: Told | None = None, on_stale: OnStale = "reject") -> Outcome:
    return plan(edits, InMemory(states(files)), told or Told(), on_stale=on_stale)


def check(
    files: Files,
    edits: AnyEdit | list[AnyEdit],
    expected: Files,
    *,
    told: Told | None = None,
    on_stale: OnStale = "reject",
) -> Outcome:
    """The changes are exactly those `expected`, each from what was there before; None is "no such file"."""
    edits = edits if isinstance(edits, list) else [edits]
    result = planned(files, *edits, told=told, on_stale=on_stale)
    before, after = states(files), states(expected)
    assert {change.path.text: change.after for change in result.changes} == {
        path: after.get(path) for path in expected
    }
    assert [change.before for change in result.changes] == [
        before.get(change.path.text) for change in result.changes
    ]
    assert [change.path for change in result.changes] == sorted(change.path for change in result.changes)
    assert all(change.before == change.after == before.get(change.path.text) for change in result.unchanged)
    assert list(result.reports) == sorted(change.path for change in (*result.changes, *result.unchanged))
    return result


def refusal(
    kind: type[Refused], files: Files, *edits: AnyEdit, told: Told | None = None, on_stale: OnStale = "reject"
) -> Refused:
    with pytest.raises(kind) as caught:
        planned(files, *edits, told=told, on_stale=on_stale)
    assert caught.value.hint
    return caught.value


A, B, C, D = (path_of(name) for name in "abcd")
ONE, TWO = b"one\n", b"two\n"


# ── write ──────────────────────────────────────────────────────────────────────────────────────


def test_a_new_file_is_written() -> None:
    check({}, write(A, ONE), {"a": ONE})
    check({}, write(A, ONE, base=Base(None), mode=EXECUTABLE), {"a": FileState(ONE, EXECUTABLE)})


@pytest.mark.parametrize("kind", ["replace", "text", "patch"])
def test_the_edits_of_a_request_do_not_read_a_file_without_an_end(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: 3,000 edits of a file of 10 MB, for which all other edits waited for minutes."""
    monkeypatch.setattr(plans, "WORK_BYTES_MAX", 10_000)
    lines = b"".join(b"%03d\n" % number for number in range(500))
    edits: dict[str, AnyEdit] = {
        "replace": replace(A, "007\n", "007\n"),
        "text": edit_text(A, [text_edit((7, 0), (7, 3), "007")], base_of(lines)),
        "patch": patch("--- a/a\n+++ b/a\n@@ -8,1 +8,1 @@\n-007\n+007\n"),
    }
    told = Told(read={"a": lines})
    assert not planned({"a": lines}, *[edits[kind]] * 5, told=told).changes
    with pytest.raises(TooLarge, match="read at most 10000") as caught:
        planned({"a": lines}, *[edits[kind]] * 6, told=told)
    assert (caught.value.data["bytes"], caught.value.data["bytes_max"]) == (12_000, 10_000)


def test_over_a_file_that_was_not_read_a_base_or_force_is_needed() -> None:
    refusal(BaseRequired, {"a": ONE}, write(A, TWO))
    check({"a": ONE}, write(A, TWO, base=base_of(ONE)), {"a": TWO})
    check({"a": ONE}, write(A, TWO, force=True), {"a": TWO})
    check({"a": ONE}, write(A, TWO), {"a": TWO}, told=Told(read={"a": ONE}))


def test_replacing_a_text_does_not_make_a_file_known() -> None:
    refusal(BaseRequired, {"a": ONE}, replace(A, "one", "1"), write(A, TWO))


def test_writing_what_is_there_is_no_change_and_no_error() -> None:
    result = check({"a": ONE}, write(A, ONE), {})
    assert [change.path for change in result.unchanged] == [A]
    check({"a": ONE}, write(A, ONE), {}, told=Told(read={"a": TWO}))
    check({"a": ONE}, write(A, ONE, mode=EXECUTABLE, force=True), {"a": FileState(ONE, EXECUTABLE)})


def test_base_null_means_that_the_file_must_not_exist() -> None:
    refusal(FileExists, {"a": ONE}, write(A, ONE, base=Base(None)))
    refusal(FileExists, {"a": ONE}, write(A, TWO, base=Base(None), force=True))


def test_mode_and_permissions_are_kept() -> None:
    state = FileState(ONE, EXECUTABLE, 0o750)
    result = check({"a": state}, write(A, TWO, base=base_of(ONE)), {"a": FileState(TWO, EXECUTABLE)})
    assert result.changes[0].after is not None
    assert result.changes[0].after.permissions == 0o750
    result = planned({"a": state}, write(A, TWO, base=base_of(ONE), mode=FILE))
    assert result.changes[0].after is not None
    assert (result.changes[0].after.mode, result.changes[0].after.permissions) == (FILE, 0o640)


# ── staleness ──────────────────────────────────────────────────────────────────────────────────


def edits_with(base: Base | None) -> list[AnyEdit]:
    return [
        write(A, b"three\n", base=base),
        replace(A, "two", "2", base=base),
        delete(A, base=base),
        move(A, B, base=base),
    ]


def test_a_base_that_is_not_current_is_stale() -> None:
    for edit in [*edits_with(base_of(ONE)), edit_text(A, (), base_of(ONE)), symlink(A, "x", base_of(ONE))]:
        stale = refusal(Stale, {"a": TWO}, edit)
        assert stale.data == {"path": "a", "base": base_of(ONE).version, "current": base_of(TWO).version}


def test_what_the_session_last_saw_is_the_base_where_none_is_given() -> None:
    for edit in [*edits_with(None), chmod(A, executable=True)]:
        refusal(Stale, {"a": TWO}, edit, told=Told(read={"a": ONE}))
        planned({"a": TWO}, edit, told=Told(read={"a": TWO}))


def test_with_neither_the_edit_is_never_stale() -> None:
    check({"a": TWO}, replace(A, "two", "2"), {"a": b"2\n"})


def test_a_replacement_that_its_text_guards_is_made_on_what_is_there_now() -> None:
    told = Told(contents=[BASE], read={"a": BASE})
    guarded = replace(A, "d", "D", guard="text")
    made = plan([guarded], InMemory(states({"a": THERE})), told)
    assert [change.after and change.after.content for change in made.changes] == [b"A\nb\nc\nD\n"]
    stale: list[list[AnyEdit]] = [
        [replace(A, "d", "D", base=base_of(BASE), guard="text")],
        [guarded, replace(A, "c", "C")],
        [guarded, write(A, b"all of it")],
        [guarded, move(A, B)],
    ]
    for edits in stale:
        with pytest.raises(Stale):
            plan(edits, InMemory(states({"a": THERE})), told)
    with pytest.raises(BaseRequired):
        plan([guarded, write(A, b"all of it")], InMemory(states({"a": THERE})), Told())
    again = replace(A, "c", "C", guard="text")
    plan([guarded, again], InMemory(states({"a": THERE})), told)
    with pytest.raises(Stale):
        plan([guarded], InMemory(states({"a": THERE})), told, on_stale="reject")
    merged = plan([guarded], InMemory(states({"a": THERE})), told, on_stale="merge")
    assert merged.merged == (A,)


def test_a_file_that_is_gone_or_came_is_stale_too() -> None:
    assert refusal(Stale, {}, write(A, TWO, base=base_of(ONE))).data["current"] is None
    refusal(Stale, {}, write(A, TWO), told=Told(read={"a": ONE}))
    refusal(Stale, {"a": ONE}, write(A, TWO), told=Told(read={"a": None}))
    refusal(Stale, {}, delete(A, base=base_of(ONE)))


def test_force_stands_in_for_a_base_and_makes_none_void() -> None:
    refusal(Stale, {"a": TWO}, write(A, b"3", base=base_of(ONE), force=True))
    check({"a": TWO}, write(A, b"3", base=base_of(TWO), force=True), {"a": b"3"})
    check({"a": TWO}, write(A, b"3", force=True), {"a": b"3"}, told=Told(read={"a": ONE}))


def test_a_changeset_never_makes_itself_stale() -> None:
    base = base_of(ONE)
    check({"a": ONE}, [replace(A, "one", "2", base=base), replace(A, "2", "3", base=base)], {"a": b"3\n"})
    check({"a": ONE}, [replace(A, "one", "two"), replace(A, "two", "3", base=base)], {"a": b"3\n"})
    check({"a": ONE}, [replace(A, "one", "two"), replace(A, "two", "3", base=base_of(TWO))], {"a": b"3\n"})
    check({"a": ONE}, [delete(A), write(A, TWO, base=Base(None))], {"a": TWO})
    check({"a": ONE}, [move(A, B), replace(B, "one", "2", base=base)], {"a": None, "b": b"2\n"})
    refusal(Stale, {"a": ONE}, replace(A, "one", "2"), replace(A, "2", "3", base=base_of(b"other")))


def test_positions_that_an_earlier_edit_of_the_changeset_has_moved_are_stale() -> None:
    first = text_edit((0, 0), (0, 3), "1")
    refusal(Stale, {"a": ONE}, replace(A, "one", "zero one"), edit_text(A, (first,), base=base_of(ONE)))


BASE = b"a\nb\nc\nd\n"
THERE = b"A\nb\nc\nd\n"
OLD = Told(contents=[BASE])


def test_a_stale_edit_is_merged_where_that_is_asked_for_and_clean() -> None:
    for edit in (
        replace(A, "d", "D", base=base_of(BASE)),
        write(A, b"a\nb\nc\nD\n", base=base_of(BASE)),
        edit_text(A, (text_edit((3, 0), (3, 1), "D"),), base_of(BASE)),
    ):
        result = check({"a": THERE}, edit, {"a": b"A\nb\nc\nD\n"}, told=OLD, on_stale="merge")
        assert result.merged == (A,)


def test_several_edits_of_a_stale_path_are_made_on_its_base_and_merged_once() -> None:
    base = base_of(BASE)
    edits: list[AnyEdit] = [
        replace(A, "d", "D", base=base),
        replace(A, "D", "E", base=base),
        chmod(A, executable=True),
    ]
    after = FileState(b"A\nb\nc\nE\n", EXECUTABLE)
    check({"a": THERE}, edits, {"a": after}, told=OLD, on_stale="merge")


def test_a_stale_patch_is_merged_by_what_the_session_saw() -> None:
    told = Told(contents=[BASE], read={"a": BASE})
    edit = patch("--- a/a\n+++ b/a\n@@ -1,4 +1,4 @@\n a\n b\n c\n-d\n+D\n")
    check({"a": THERE}, edit, {"a": b"A\nb\nc\nD\n"}, told=told, on_stale="merge")
    refusal(Stale, {"a": THERE}, edit, told=told)


def test_a_merge_that_collides_is_a_conflict_that_names_every_file() -> None:
    base = base_of(BASE)
    conflict = refusal(
        Conflict, {"a": THERE, "b": THERE}, replace(A, "a", "x", base=base), replace(B, "a", "y", base=base),
        told=OLD, on_stale="merge",
    )  # fmt: skip
    assert [file["path"] for file in conflict.data["files"]] == ["a", "b"]
    assert conflict.data["files"][0] == {
        "path": "a", "reason": "lines", "lines": [{"start_line": 1, "end_line": 1}],
        "base": base.version, "current": base_of(THERE).version, "hunks": ["@@ -1,1 +1,1 @@\n-a\n+A\n"],
    }  # fmt: skip


def test_deleting_what_has_changed_since_is_a_conflict_even_with_merge() -> None:
    refusal(Conflict, {"a": THERE}, delete(A, base=base_of(BASE)), told=OLD, on_stale="merge")
    refusal(Conflict, {}, replace(A, "d", "D", base=base_of(BASE)), told=OLD, on_stale="merge")
    check({}, delete(A, base=base_of(BASE)), {}, told=OLD, on_stale="merge")


def test_a_base_that_nobody_knows_cannot_be_merged() -> None:
    refusal(Stale, {"a": THERE}, replace(A, "d", "D", base=base_of(b"?")), told=OLD, on_stale="merge")


def test_a_stale_file_is_moved_as_it_is_there_now() -> None:
    edits: list[AnyEdit] = [replace(A, "d", "D", base=base_of(BASE)), move(A, B)]
    result = check({"a": THERE}, edits, {"a": None, "b": b"A\nb\nc\nD\n"}, told=OLD, on_stale="merge")
    assert result.merged == (B,)
    check({"a": THERE}, move(A, B, base=base_of(BASE)), {"a": None, "b": THERE}, told=OLD, on_stale="merge")
    refusal(Stale, {}, move(A, B, base=base_of(BASE)), told=OLD, on_stale="merge")
    refusal(FileMissing, {}, move(A, B), on_stale="merge")


# ── replace and text ───────────────────────────────────────────────────────────────────────────


def test_replacements_are_counted() -> None:
    result = check({"a": b"x x\n"}, [replace(A, "x", "y", 2), replace(A, "y\n", "z\n")], {"a": b"y z\n"})
    assert result.reports[A].replacements == 3


def test_encoding_mark_and_line_ends_stay() -> None:
    bom = b"\xef\xbb\xbf"
    check({"a": bom + b"a\r\nb\r\n"}, replace(A, "a\nb", "a\nB"), {"a": bom + b"a\r\nB\r\n"})
    utf16 = "\ufeffé\r\nb".encode("utf-16-le")
    check({"a": utf16}, replace(A, "é\n", "è\n"), {"a": "\ufeffè\r\nb".encode("utf-16-le")})


def test_content_that_is_no_text_is_refused() -> None:
    refusal(NotText, {"a": b"\xff\0"}, replace(A, "x", "y"))
    refusal(NotText, {"a": b"\xff"}, edit_text(A, (), base_of(b"\xff")))
    fallback = plan(
        [replace(A, "é", "e")], InMemory(states({"a": b"\xe9"})), Told(), fallback_encoding="latin-1"
    )
    assert fallback.changes[0].after == FileState(b"e")


def test_a_file_that_is_not_there_is_refused() -> None:
    edits: list[AnyEdit] = [
        replace(A, "x", "y"), edit_text(A, (), Base(None)), delete(A), move(A, B), chmod(A, executable=True),
        patch("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n"),
    ]  # fmt: skip
    for edit in edits:
        refusal(FileMissing, {}, edit)


def test_a_search_that_fails_refuses_the_whole_changeset() -> None:
    refusal(NoMatch, {"a": ONE}, write(B, ONE), replace(A, "absent", "x"))
    refusal(Ambiguous, {"a": b"x\nx\n"}, replace(A, "x", "y"))


# ── delete, move, chmod, symlink ───────────────────────────────────────────────────────────────


def test_a_file_is_deleted() -> None:
    check({"a": ONE}, delete(A, base=base_of(ONE)), {"a": None})
    check({}, [write(A, ONE), delete(A)], {})


def test_a_move_is_two_changes_and_the_new_one_names_its_source() -> None:
    result = check({"a": ONE}, move(A, B), {"a": None, "b": ONE})
    assert [change.source for change in result.changes] == [None, A]
    assert result.changes[1].kind == "renamed"


def test_a_move_stays_one_through_edits_and_further_moves() -> None:
    result = check({"a": ONE}, [move(A, B), replace(B, "one", "1"), move(B, C)], {"a": None, "c": b"1\n"})
    assert result.changes[1].source == A
    assert result.reports[C].replacements == 1
    result = check({"a": ONE}, [move(A, B), move(B, A)], {})
    assert [change.path for change in result.unchanged] == [A, B]


def test_a_move_is_none_where_something_else_stands_at_its_source() -> None:
    result = check({"a": ONE}, [move(A, B), write(A, TWO)], {"a": TWO, "b": ONE})
    assert [change.source for change in result.changes] == [None, None]
    result = check({"a": ONE, "b": TWO}, [move(A, C), move(B, A), move(C, B)], {"a": TWO, "b": ONE})
    assert [change.kind for change in result.changes] == ["modified", "modified"]


def test_what_was_written_where_a_file_has_left_is_no_part_of_its_move() -> None:
    edits: list[AnyEdit] = [move(A, B), write(A, TWO), move(A, C)]
    result = check({"a": ONE}, edits, {"a": None, "b": ONE, "c": TWO})
    assert [change.source for change in result.changes] == [None, A, None]


def test_a_move_onto_a_file_needs_overwrite() -> None:
    refusal(FileExists, {"a": ONE, "b": TWO}, move(A, B))
    check({"a": ONE, "b": TWO}, move(A, B, overwrite=True), {"a": None, "b": ONE})
    check({"a": ONE, "b": TWO}, [delete(B), move(A, B)], {"a": None, "b": ONE})
    refusal(Stale, {"a": ONE, "b": TWO}, move(A, B, overwrite=True), told=Told(read={"b": ONE}))
    refusal(InvalidParams, {"a": ONE}, move(A, A))


def test_chmod_changes_the_mode_alone() -> None:
    result = check({"a": ONE}, chmod(A, executable=True), {"a": FileState(ONE, EXECUTABLE)})
    assert result.changes[0].kind == "mode"
    check({"a": ONE}, chmod(A, executable=False), {})


def test_a_symlink_is_made_and_may_dangle() -> None:
    check({}, symlink(A, "../elsewhere"), {"a": link_to("../elsewhere")})
    refusal(FileExists, {"a": ONE}, symlink(A, "b"))
    refusal(FileExists, {"a": ONE}, symlink(A, "b", base=Base(None)))
    check({"a": ONE}, symlink(A, "b", base=base_of(ONE)), {"a": link_to("b")})
    check({"a": link_to("b")}, symlink(A, "b"), {})
    for target in ("", "a\0b", "x" * 5000, "\ud800"):
        refusal(InvalidParams, {}, symlink(A, target))


# ── symlinks and folders on the way ────────────────────────────────────────────────────────────

LINKED: Files = {"link": link_to("dir/real"), "dir/real": ONE}
LINK = path_of("link")


def test_content_is_edited_where_a_link_leads_and_the_link_is_kept() -> None:
    for edit in (
        write(LINK, b"1\n", base=base_of(ONE)),
        replace(LINK, "one", "1"),
        edit_text(LINK, (text_edit((0, 0), (0, 3), "1"),), base_of(ONE)),
        patch("--- a/link\n+++ b/link\n@@ -1 +1 @@\n-one\n+1\n"),
    ):
        result = check(LINKED, edit, {"dir/real": b"1\n"})
        assert "link" in result.reports[path_of("dir/real")].warnings[0]
    check(LINKED, chmod(LINK, executable=True), {"dir/real": FileState(ONE, EXECUTABLE)})
    check({"link": link_to("new")}, write(LINK, ONE), {"new": ONE})


def test_deleting_and_moving_act_on_the_link_itself() -> None:
    check(LINKED, delete(LINK), {"link": None})
    check(LINKED, move(LINK, B), {"link": None, "b": link_to("dir/real")})


def test_links_that_the_changeset_makes_are_followed_by_what_comes_after() -> None:
    check(
        {"dir/x": ONE},
        [symlink(A, "dir"), replace(path_of("a/x"), "one", "1")],
        {"a": link_to("dir"), "dir/x": b"1\n"},
    )
    check(LINKED, [delete(LINK), write(LINK, TWO)], {"link": TWO})
    refusal(PathOutside, {}, symlink(A, "/etc"), write(path_of("a/passwd"), ONE))


def test_a_path_is_never_both_a_file_and_a_folder() -> None:
    below = path_of("a/b")
    refusal(NotAFile, {"a": ONE}, write(below, ONE))
    refusal(NotAFile, {}, write(A, ONE), write(below, ONE))
    refusal(NotAFile, {}, write(below, ONE), write(A, ONE))
    refusal(NotAFile, {"a/b": ONE}, write(A, ONE))
    check({"a": ONE}, [delete(A), write(below, ONE)], {"a": None, "a/b": ONE})
    check({"a": ONE}, [move(A, C), move(C, below)], {"a": None, "a/b": ONE})


def test_a_folder_whose_files_go_may_give_way_to_a_file() -> None:
    below, beside = path_of("a/b"), path_of("a/c")
    check({"a/b": ONE}, [delete(below), write(A, TWO)], {"a": TWO, "a/b": None})
    files: Files = {"a/b": ONE, "a/c": ONE}
    check(files, [delete(below), write(A, TWO), delete(beside)], {"a": TWO, "a/b": None, "a/c": None})
    refusal(NotAFile, files, delete(below), write(A, TWO), replace(beside, "one", "1"))
    new = git("a", "new file mode 100644", "--- /dev/null", "+++ b/a", "@@ -0,0 +1 @@", "+two")
    gone = git("a/b", "deleted file mode 100644", "--- a/a/b", "+++ /dev/null", "@@ -1 +0,0 @@", "-one")
    check({"a/b": ONE}, patch(new + gone), {"a": TWO, "a/b": None})


# ── patches ────────────────────────────────────────────────────────────────────────────────────


def git(path: str, *lines: str, to: str | None = None) -> str:
    return "\n".join([f"diff --git a/{path} b/{to or path}", *lines, ""])


def test_a_patch_of_several_files_is_made_whole() -> None:
    diff = (
        git("a", "--- a/a", "+++ b/a", "@@ -1 +1 @@", "-one", "+1")
        + git("b", "new file mode 100755", "--- /dev/null", "+++ b/b", "@@ -0,0 +1 @@", "+two")
        + git("c", "deleted file mode 100644", "--- a/c", "+++ /dev/null", "@@ -1 +0,0 @@", "-one")
        + git("d", "old mode 100644", "new mode 100755")
    )
    files = {"a": ONE, "c": ONE, "d": ONE}
    check(
        files,
        patch(diff),
        {"a": b"1\n", "b": FileState(TWO, EXECUTABLE), "c": None, "d": FileState(ONE, EXECUTABLE)},
    )


def test_a_patch_renames_copies_and_makes_links() -> None:
    rename = git(
        "a", "rename from a", "rename to b", "--- a/a", "+++ b/b", "@@ -1 +1 @@", "-one", "+1", to="b"
    )
    assert check({"a": ONE}, patch(rename), {"a": None, "b": b"1\n"}).changes[1].source == A
    copy = git("a", "copy from a", "copy to b", to="b")
    check({"a": FileState(ONE, EXECUTABLE)}, patch(copy), {"b": FileState(ONE, EXECUTABLE)})
    link = git(
        "l",
        "new file mode 120000",
        "--- /dev/null",
        "+++ b/l",
        "@@ -0,0 +1 @@",
        "+x",
        "\\ No newline at end of file",
    )
    check({}, patch(link), {"l": link_to("x")})
    retarget = git(
        "l", "index 1234567..89abcde 120000", "--- a/l", "+++ b/l", "@@ -1 +1 @@",
        "-x", "\\ No newline at end of file", "+y", "\\ No newline at end of file",
    )  # fmt: skip
    check({"l": link_to("x"), "x": ONE}, patch(retarget), {"l": link_to("y")})


def test_renames_and_copies_are_of_what_was_there_before_the_patch() -> None:
    edited = git("a", "--- a/a", "+++ b/a", "@@ -1 +1 @@", "-one", "+1")
    copy = git("a", "copy from a", "copy to b", to="b")
    check({"a": ONE}, patch(edited + copy), {"a": b"1\n", "b": ONE})
    ring = git("a", "rename from a", "rename to b", to="b") + git("b", "rename from b", "rename to a", to="a")
    check({"a": ONE, "b": TWO}, patch(ring), {"a": TWO, "b": ONE})
    new = git("a", "new file mode 100644", "--- /dev/null", "+++ b/a", "@@ -0,0 +1 @@", "+one")
    check({}, patch(new + git("a", "rename from a", "rename to c", to="c")), {"c": ONE})


def test_a_patch_that_does_not_fit_is_refused() -> None:
    new = git("a", "new file mode 100644", "--- /dev/null", "+++ b/a", "@@ -0,0 +1 @@", "+one")
    refusal(FileExists, {"a": ONE}, patch(new))
    refusal(FileExists, {"a": ONE, "b": ONE}, patch(git("a", "rename from a", "rename to b", to="b")))
    refusal(NoMatch, {"a": TWO}, patch("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+1\n"))
    refusal(NoMatch, {"a": TWO}, patch(git("a", "deleted file mode 100644")))
    refusal(MalformedEdit, {"a": ONE}, patch("no diff"))
    refusal(InvalidParams, {}, patch(git("l", "new file mode 120000")))


def test_a_patch_of_a_text_in_another_encoding_is_made_on_its_text() -> None:
    diff = patch("--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-é\n+è\n b\n")
    check({"a": "\ufeffé\r\nb\r\n".encode("utf-16-le")}, diff, {"a": "\ufeffè\r\nb\r\n".encode("utf-16-le")})
    check({"a": "\ufeffé\nb\n".encode()}, diff, {"a": "\ufeffè\nb\n".encode()})


def test_fuzz_and_offset_are_reported() -> None:
    result = check({"a": b"0\none\n"}, patch("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+1\n"), {"a": b"0\n1\n"})
    assert result.reports[A].warnings


NAMES = st.sampled_from(["a", "b", "d/c", "d/e f"])
FILES = st.dictionaries(
    NAMES,
    st.builds(
        FileState, st.lists(st.sampled_from([b"a\n", b"b\r\n", b"\xff\n"]), max_size=6).map(b"".join),
        st.sampled_from([FILE, EXECUTABLE]),
    ),
)  # fmt: skip


@given(FILES, FILES)
def test_the_diff_of_any_two_trees_is_a_patch_from_one_to_the_other(
    before: dict[str, FileState], after: dict[str, FileState]
) -> None:
    paths = sorted({*before, *after})
    diff = "".join(unified_diff(path_of(path), before.get(path), after.get(path)) for path in paths)
    if diff:
        check(
            before,
            patch(diff),
            {path: after.get(path) for path in paths if before.get(path) != after.get(path)},
        )
    else:
        assert before == after
