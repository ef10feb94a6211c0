"""Anything in any order, against a model of dicts: files, history and refusals are what the model says.

One daemon for each example, real in all: its socket, its signals, git's own merge as the oracle. What
other programs write is known to the model at once and to the daemon whenever it comes to look; so a
transaction of kind `outside` may come at any time, and must then tell what is on the disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import UNSET

from editd.wire.messages import (
    AnyEdit,
    ApplyResult,
    Chmod,
    Delete,
    EditText,
    Move,
    Patch,
    Position,
    Replace,
    Symlink,
    TextEdit,
    Transaction,
    Write,
)
from editd_client.errors import EditdError, Unreachable
from support.crash_checks import fsck, strays
from support.workplace import workplace
from support.workspace_model import (
    Changes,
    Files,
    Held,
    History,
    No,
    Sheet,
    Step,
    Unforeseen,
    differences,
    merge,
    merged_with,
    patch_of,
    version_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client

EXAMPLES, EXAMPLES_LONG = 2, 1000
STEPS = 40
RESTARTS_MAX = 2  # in one example; a start takes as long as a hundred edits

PATHS = ["a", "b", "d/a", "d/e/ä \udcff", "link"]
SOME_LINES = [b"%d x\n" % n for n in range(12)]
TARGETS = ["a", "d/a", "b", "link"]
WORDS = ["x", "y", "z"]

paths = st.sampled_from(PATHS)
lines = st.lists(st.sampled_from(WORDS), min_size=8, max_size=12).map(
    lambda words: b"".join(b"%d %s\n" % (n, word.encode()) for n, word in enumerate(words))
)
odd_contents = st.sampled_from([b"", b"\0\xff1", b"\0\xff2", b"no end", b"1 \xff\n"])
contents: st.SearchStrategy[bytes] = st.one_of(lines, lines, lines, lines, lines, odd_contents)
WAYS = ["apply", "apply", "apply", "staged", "dry run"]
rarely = st.sampled_from([False] * 5 + [True])
modes: st.SearchStrategy[Literal["100644", "100755"]] = st.sampled_from(["100644", "100755"])
picks = st.integers(0, 1 << 16)  # one of a choice that is only known when it is made


def varied(data: st.DataObject, content: bytes) -> bytes:
    """The same text with one line changed, left out or put in, so that two such changes mostly merge."""
    lines_there = content.splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines_there)))
    new = data.draw(st.sampled_from([[], [b"%d X\n" % place], [b"%d Y\n" % place], [b"new\n"]]))
    return b"".join(lines_there[:place] + new + lines_there[place + data.draw(st.integers(0, 1)) :])


def text_of(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


class Workspace(RuleBasedStateMachine):
    """The daemon and the model beside each other."""

    @initialize(files=st.dictionaries(st.sampled_from(PATHS[:-1]), contents, max_size=4))
    def begin(self, files: dict[str, bytes]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="editd-model-"))
        self.cleanup = contextlib.ExitStack()
        self.cleanup.callback(shutil.rmtree, self.folder)
        self.place = self.cleanup.enter_context(workplace(self.folder / "place"))
        self.disk: Files = {}
        files = {"a": b"".join(SOME_LINES)} | files
        for path, content in files.items():
            self.write_outside(path, Held(content))
        self.history = History.of(self.disk)
        self.seen: dict[str, str | None] = {}
        self.restarts = 0
        self.client: Client = self.place.start()
        self.client.settle()
        self.refused("nothing_to_undo", self.client.undo)
        self.refused("nothing_to_undo", self.client.redo)

    def teardown(self) -> None:
        if not hasattr(self, "client"):
            return
        try:
            self.settle()
            for seq in range(self.history.head + 1):
                self.read_at(seq)
            assert self.client.check().problems == []
            self.client.close()
            self.place.stop()
            fsck(self.place)
            assert strays(self.place.root) == []
        finally:
            self.cleanup.close()

    # ── Edits ──────────────────────────────────────────────────────────────────────────────────

    @rule(data=st.data(), ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=4))
    def edit(self, data: st.DataObject, ways: list[str]) -> None:
        """Some changesets one after another."""
        for how in ways:
            self.edit_once(data, how)

    def edit_once(self, data: st.DataObject, how: str) -> None:
        """A changeset of every kind of edit, each drawn to fit more often than not."""
        edits, sheet = list[AnyEdit](), Sheet(self.disk, self.seen)
        refusal: str | None = None
        for _ in range(data.draw(st.sampled_from([1, 1, 2, 3]))):
            edit = self.draw_edit(data, sheet)
            edits.append(edit)
            note(f"{how}: {edit}")
            try:
                sheet.make(edit)
            except No as no:
                refusal = no.name
                break
            except Unforeseen:
                return
        ask = {"apply": self.ask_apply, "dry run": self.ask_dry, "staged": self.ask_staged}[how]
        if refusal is not None:
            self.refused(refusal, lambda: ask(edits))
            return
        answer = ask(edits)
        if how == "dry run":
            assert answer.transaction is None
            told = {file.path: file.version for file in answer.files if file.change is not None}
            assert (
                told.items()
                <= {p: version_at(sheet.now, p) for p in differences(self.disk, sheet.now)}.items()
            )
            return
        self.done("edit", answer, sheet.now)
        for path in sheet.known:
            self.seen[path] = version_at(sheet.now, path)

    def ask_apply(self, edits: list[AnyEdit]) -> ApplyResult:
        return self.client.apply(edits)

    def ask_dry(self, edits: list[AnyEdit]) -> ApplyResult:
        return self.client.apply(edits, dry_run=True)

    def ask_staged(self, edits: list[AnyEdit]) -> ApplyResult:
        """One edit after another into a changeset, then all at once."""
        changeset = self.client.begin().changeset
        for edit in edits:
            self.client.stage(changeset, [edit])
        return self.client.commit(changeset)

    def draw_edit(self, data: st.DataObject, sheet: Sheet) -> AnyEdit:
        op = data.draw(
            st.sampled_from(["write", "replace", "text", "patch", "delete", "move", "chmod", "symlink"])
        )
        there = sorted(sheet.now)
        path = data.draw(st.sampled_from(there) if there and not data.draw(rarely) else paths)
        target = path
        with contextlib.suppress(No):
            target = sheet.follow(path)
        held = sheet.now.get(target)
        base = self.draw_base(data, target, sheet)
        match op:
            case "write":
                force = data.draw(st.booleans())
                content = text_of(self.draw_content(data, held))
                mode = data.draw(st.one_of(st.just(UNSET), modes))
                return Write(
                    path=path, content=content, mode=mode, force=force, base=UNSET if force else base
                )
            case "replace":
                words = held.content.decode().splitlines() if held is not None and held.is_text else []
                old = data.draw(st.sampled_from([*words, *WORDS]) if all(words) else st.sampled_from(WORDS))
                new = data.draw(st.sampled_from(WORDS)) + data.draw(st.sampled_from(["", "\nmore"]))
                return Replace(path=path, old=old, new=new, count=data.draw(st.integers(1, 2)), base=base)
            case "text" if (
                held is not None and held.is_text and (not held.content or held.content[-1:] == b"\n")
            ):
                line = data.draw(st.integers(0, held.content.count(b"\n")))
                end = data.draw(st.integers(line, held.content.count(b"\n")))
                start, stop = Position(line=line, character=0), Position(line=end, character=0)
                edits = [TextEdit(start=start, end=stop, text=data.draw(st.sampled_from(["", "new\n"])))]
                return EditText(path=path, base=held.version, edits=edits)
            case "patch":
                new_content = self.draw_content(data, held) or None
                old_content = None if held is None or not held.content else held.content
                named = target if held is not None and new_content is not None else path
                is_plain = named.isascii() and (held is None or held.mode != "120000")
                if old_content != new_content and is_plain and (held is None or held.content):
                    return Patch(patch=patch_of(named, old_content, new_content))
            case "delete":
                own = sheet.now.get(path)
                return Delete(path=path, base=UNSET if base is UNSET or own is None else own.version)
            case "move":
                to, overwrite = data.draw(paths), data.draw(st.booleans())
                return Move(path=path, to=to, overwrite=overwrite)
            case "symlink":
                own = sheet.now.get(path)
                link_base = UNSET if own is None or data.draw(st.booleans()) else own.version
                return Symlink(
                    path="link",
                    target=data.draw(st.sampled_from(TARGETS)),
                    base=link_base if path == "link" else UNSET,
                )
        return Chmod(path=path, executable=data.draw(st.booleans()))

    def draw_content(self, data: st.DataObject, held: Held | None) -> bytes:
        """Mostly a little change of what is there."""
        if held is None or not held.is_text or not data.draw(st.integers(0, 7)):
            return data.draw(contents)
        return varied(data, held.content)

    def draw_base(self, data: st.DataObject, path: str, sheet: Sheet) -> Any:
        """Mostly what is right; at times none, or what the path held at some time, or that it is missing."""
        which = data.draw(st.sampled_from(["right", "right", "right", "none", "old", "missing"]))
        if which == "none":
            return UNSET
        if which == "missing":
            return None
        if which == "old":
            old = self.history.states[data.draw(picks) % len(self.history.states)]
            return version_at(old, path)
        return version_at(sheet.start, path)

    @rule(
        path=st.sampled_from(["a", "b"]),
        places=st.lists(st.integers(0, len(SOME_LINES) - 1), min_size=2, max_size=5, unique=True),
        by_others=st.booleans(),
        pick=picks,
    )
    def change_lines(self, path: str, places: list[int], by_others: bool, pick: int) -> None:
        """Line after line of a text, a transaction each, then one of them undone: what merging is for."""
        held = self.disk.get(path)
        if held is None or held.mode == "120000" or not held.is_text:
            self.write_outside(path, Held(b"".join(SOME_LINES)))
            self.settle()
        first = self.history.head + 1
        for number, place in enumerate(places):
            held = self.disk[path]
            there = held.content.splitlines(keepends=True)
            there[place : place + 1] = [b"%d %d\n" % (place, len(self.history.steps))]
            changed = Held(b"".join(there), held.mode)
            if by_others and number % 2:
                self.write_outside(path, changed)
            else:
                edit = Write(path=path, content=text_of(changed.content), base=held.version)
                self.done("edit", self.client.apply([edit]), merged_with(self.disk, {path: changed}))
        seq = first + pick % (self.history.head + 1 - first)
        self.take_back("undo", lambda: [seq], False, lambda: self.client.undo(seq), is_named=True)

    @rule(data=st.data(), path=paths)
    def merge_edit(self, data: st.DataObject, path: str) -> None:
        """A whole file, made for what was there some time ago, merged with what is there now."""
        sheet = Sheet(self.disk, self.seen)
        with contextlib.suppress(No):
            path = sheet.follow(path)
        held = self.disk.get(path)
        old = [state[path] for state in self.history.states if path in state]
        if held is None or held.mode == "120000" or not old:
            return
        base = old[data.draw(picks) % len(old)]
        content = self.draw_content(data, base)
        edit = Write(path=path, content=text_of(content), base=base.version)
        try:
            merged = merge(Held(base.content, held.mode), held, Held(content, held.mode))
        except No as no:
            self.refused(no.name, lambda: self.client.apply([edit], on_stale="merge"))
            return
        answer = self.client.apply([edit], on_stale="merge")
        assert answer.merged == ([path] if base.version != held.version else [])
        self.done("edit", answer, merged_with(self.disk, {path: merged}))
        self.seen[path] = version_at(self.disk, path)

    # ── Undo ───────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: self.history.has("edit"))
    @rule(last=st.sampled_from([1, 1, 1, 2, 3]), force=rarely)
    def undo(self, last: int, force: bool) -> None:
        self.take_back(
            "undo",
            lambda: self.history.newest("edit", last),
            force,
            lambda: self.client.undo(last=last, on_conflict="force" if force else "fail"),
        )

    @precondition(lambda self: self.history.head > 0)
    @rule(pick=picks, is_any=rarely)
    def undo_named(self, pick: int, is_any: bool) -> None:
        """Whatever its kind: from outside, an undo, a redo; at times one that is undone, or that is not."""
        self.catch_up()
        in_force = [n for n, step in enumerate(self.history.steps) if n and step.undone_by is None]
        some = list(range(self.history.head + 2)) if is_any else in_force
        seq = some[pick % len(some)]
        self.take_back(
            "undo", lambda: self.history.named(seq), False, lambda: self.client.undo(seq), is_named=True
        )

    @precondition(lambda self: self.history.has("undo"))
    @rule(force=rarely)
    def redo(self, force: bool) -> None:
        self.take_back(
            "redo",
            lambda: self.history.newest("undo"),
            force,
            lambda: self.client.redo(on_conflict="force" if force else "fail"),
        )

    def take_back(
        self,
        kind: str,
        choose: Callable[[], list[int]],
        force: bool,
        ask: Callable[[], ApplyResult],
        *,
        is_named: bool = False,
    ) -> None:
        chosen = list[int]()
        try:
            chosen = choose()
            expected = self.history.without(chosen, self.disk, force=force)
        except No as no:
            self.refused(no.name, ask)
            return
        except Unforeseen:
            self.take_back_unforeseen(kind, chosen, ask)
            return
        if expected != self.disk:
            self.done(kind, ask(), expected, chosen)
        elif is_named:
            self.refused("nothing_to_undo", ask)
        else:  # It goes on to the next that has an effect, if there is one.
            self.take_back_unforeseen(kind, chosen, ask)

    def take_back_unforeseen(self, kind: str, chosen: list[int], ask: Callable[[], ApplyResult]) -> None:
        """Files were moved: it may do or not, and if it does, to undo it again gives all of it back."""
        before = dict(self.disk)
        try:
            answer = ask()
        except EditdError as error:
            if error.name not in ("conflict", "nothing_to_undo"):
                raise
            self.catch_up()
            return
        made = answer.transaction
        assert made is not None
        assert {*chosen} <= {*made.undoes}
        self.done(kind, answer, merged_with(self.disk, self.told(made)), list(made.undoes))
        self.done("undo", self.client.undo(made.seq), before, [made.seq])

    # ── Others, and the end of the daemon ──────────────────────────────────────────────────────

    @rule(data=st.data(), path=paths, is_deleted=st.sampled_from([False, False, True]), settled=st.booleans())
    def outside(self, data: st.DataObject, path: str, is_deleted: bool, settled: bool) -> None:
        """An editor or a shell writes, or deletes, without asking."""
        content = self.draw_content(data, self.disk.get(path))
        self.write_outside(path, None if is_deleted else Held(content, data.draw(modes)))
        if settled:
            self.settle()

    @rule(leads=st.sampled_from(TARGETS))
    def link_outside(self, leads: str) -> None:
        self.write_outside("link", Held(leads.encode(), "120000"))

    def write_outside(self, path: str, held: Held | None) -> None:
        target = self.place.root / path
        target.unlink(missing_ok=True)
        self.disk.pop(path, None)
        if held is None:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if held.mode == "120000":
            target.symlink_to(held.content.decode())
        else:
            target.write_bytes(held.content)
            target.chmod(int(held.mode[-3:], 8))
        self.disk[path] = held

    @rule()
    def settle(self) -> None:
        self.client.settle()
        self.catch_up()
        assert self.history.states[-1] == self.disk, "all is recorded"

    @rule(kill=st.booleans())
    @precondition(lambda self: self.restarts < RESTARTS_MAX)
    def restart(self, kill: bool) -> None:
        self.client.close()
        if kill:
            self.place.kill()
        else:
            self.place.stop()
        self.come_back()
        self.settle()  # it looks around by itself, too: what is numbered when must not depend on the clock

    def come_back(self) -> None:
        self.client = self.place.start()
        self.seen.clear()
        self.restarts += 1

    @rule(
        written=st.dictionaries(st.sampled_from(PATHS[:-1]), contents, min_size=1, max_size=3),
        delay=st.floats(0, 0.004),
    )
    @precondition(lambda self: self.restarts < RESTARTS_MAX)
    def kill_under_it(self, written: dict[str, bytes], delay: float) -> None:
        """SIGKILL while an edit is made; asked for again with its id, it is done once (C7)."""
        edits = [Write(path=path, content=text_of(content), force=True) for path, content in written.items()]
        self.settle()
        sheet = Sheet(self.disk, {})
        try:
            for edit in edits:
                sheet.make(edit)
        except No:
            return  # by a link in a circle
        client, request = self.client, f"request {self.restarts}"

        def ask() -> None:
            with contextlib.suppress(Unreachable):
                client.apply(edits, request_id=request)

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(delay)  # the moment is what is drawn here
        self.place.kill()
        thread.join()
        client.close()
        self.come_back()
        self.done("edit", self.client.apply(edits, request_id=request), sheet.now)
        for path in sheet.known:
            self.seen[path] = version_at(self.disk, path)

    # ── Reading ────────────────────────────────────────────────────────────────────────────────

    @rule(path=paths)
    def read(self, path: str) -> None:
        try:
            real = Sheet(self.disk, {}).follow(path)
            if real not in self.disk:
                raise No("file_missing")
        except No as no:
            self.refused(no.name, lambda: self.client.read(path))
            return
        answer, held = self.client.read(path), self.disk[real]
        assert (text_of(held.content), held.version, held.mode) == (
            answer.content,
            answer.version,
            answer.mode,
        )
        self.seen[real] = held.version
        self.catch_up()
        assert self.history.states[-1][real] == held, "what was read is in the history"

    @rule(pick=picks)
    def read_back(self, pick: int) -> None:
        self.read_at(pick % (self.history.head + 1))

    def read_at(self, seq: int) -> None:
        for path in PATHS:
            held = self.history.states[seq].get(path)
            if held is None:
                with pytest.raises(EditdError) as refused:
                    self.client.read(path, at=seq)
                assert refused.value.name == "file_missing"
            else:
                answer = self.client.read(path, at=seq)
                assert (answer.content, answer.mode) == (text_of(held.content), held.mode)

    @rule(first=picks, second=picks)
    def diff(self, first: int, second: int) -> None:
        start, end = sorted((first % (self.history.head + 1), second % (self.history.head + 1)))
        answer = self.client.diff(start, end)
        expected = differences(self.history.states[start], self.history.states[end])
        assert {file.path: file.version for file in answer.files} == {
            path: None if held is None else held.version for path, held in expected.items()
        }

    @invariant()
    def files_are_what_the_model_says(self) -> None:
        if hasattr(self, "client"):
            found: Files = {}
            for folder, _, names in os.walk(self.place.root):
                for name in names:
                    path = Path(folder, name)
                    if not name.startswith(".editd-"):
                        found[str(path.relative_to(self.place.root))] = held_at(path)
            assert found == self.disk

    # ── What the daemon says, and the model ────────────────────────────────────────────────────

    def refused(self, name: str, ask: Callable[[], object]) -> None:
        note(f"to be refused: {name}")
        with pytest.raises(EditdError) as refused:
            ask()
        assert refused.value.name == name, refused.value.message
        self.catch_up()

    def done(self, kind: str, answer: ApplyResult, expected: Files, undone: list[int] | None = None) -> None:
        """The model takes the step; the daemon's log must have it as its newest."""
        changes = differences(self.disk, expected)
        made = answer.transaction
        if made is None:
            assert not changes
            assert kind == "edit"
            self.catch_up()
            return
        self.disk = expected
        self.seen |= {path: version_at(expected, path) for path in changes}
        self.catch_up(made.seq)
        assert (made.kind, made.undoes) == (kind, undone or [])
        assert self.told(made) == changes
        step = self.history.steps[made.seq]
        assert step.after == changes

    def catch_up(self, own: int | None = None) -> None:
        """Take in what the log has new: no gap, each from what the one before left, `outside` as on disk."""
        log = self.client.log(limit=10_000).transactions[::-1]
        assert [made.seq for made in log] == list(range(len(log)))
        for made in log[self.history.head + 1 :]:
            assert made.kind == "outside" or made.seq == own, made
            after, before = self.told(made), self.history.states[-1]
            for change in made.files:
                source = change.from_ if isinstance(change.from_, str) else change.path
                assert change.base == version_at(before, source), made
            moves = {change.path: change.from_ for change in made.files if isinstance(change.from_, str)}
            self.history.add(
                Step(made.kind, {path: before.get(path) for path in after}, after, moves, tuple(made.undoes))
            )
        for made, step in zip(log, self.history.steps, strict=True):
            assert made.undone_by == step.undone_by, made

    def told(self, made: Transaction) -> Changes:
        """What a transaction says that it changed, its versions read back."""
        changes: Changes = {}
        for change in made.files:
            if isinstance(change.from_, str):
                changes[change.from_] = None
        for change in made.files:
            changes[change.path] = None
            if change.version is not None:
                read = self.client.read(change.path, at=made.seq)
                assert (read.version, read.mode) == (change.version, change.mode)
                changes[change.path] = Held(read.content.encode("utf-8", "surrogateescape"), read.mode)
        return changes


def held_at(path: Path) -> Held:
    if path.is_symlink():
        return Held(os.fsencode(os.readlink(path)), "120000")
    return Held(path.read_bytes(), "100755" if path.stat().st_mode & 0o100 else "100644")


@pytest.mark.timeout(7200)
def test_whatever_is_done_the_files_and_the_history_are_what_the_model_says(is_long: bool) -> None:
    run_state_machine_as_test(
        Workspace,
        settings=settings(
            max_examples=EXAMPLES_LONG if is_long else EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ],
            print_blob=True,
        ),
    )
