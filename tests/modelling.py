"""A model of a workspace and its history: dicts of what each path holds, and what each transaction changed.

Says what an edit, an undo or a redo must lead to, in the plainest way that can be thought of. What two
changes of one content make together is asked of `git merge-file`. Of an undo of files that were moved it
says nothing except where nobody has touched them since: `Unforeseen`.
"""

from __future__ import annotations

import posixpath
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType

from editd.values.content import version_of
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LINKS_MAX = 40
Mode = Literal["100644", "100755", "120000"]


@dataclass(frozen=True, slots=True)
class Held:
    """What a path holds: a file's bytes, or where a symlink leads."""

    content: bytes
    mode: Mode = "100644"

    @property
    def version(self) -> str:
        return version_of(self.content)

    @property
    def is_text(self) -> bool:
        try:
            return "\0" not in self.content.decode()
        except UnicodeDecodeError:
            return False


Files = dict[str, Held]
Changes = dict[str, Held | None]  # a path → what it holds then; None for nothing


class No(Exception):
    """The daemon must refuse this, by this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Unforeseen(Exception):
    """The model has no opinion."""


@dataclass
class Step:
    """One transaction: for each path what it held before and after."""

    kind: str
    before: Changes
    after: Changes
    moves: dict[str, str] = field(default_factory=dict)  # new path → old path
    undoes: tuple[int, ...] = ()
    undone_by: int | None = None


def version_at(files: Mapping[str, Held | None], path: str) -> str | None:
    held = files.get(path)
    return None if held is None else held.version


def merged_with(files: Files, changes: Changes) -> Files:
    """The files with these changes made."""
    result = dict(files)
    for path, held in changes.items():
        result.pop(path, None)
        if held is not None:
            result[path] = held
    return result


def differences(before: Files, after: Files) -> Changes:
    return {p: after.get(p) for p in before.keys() | after.keys() if before.get(p) != after.get(p)}


# ── Edits ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Sheet:
    """The files while a changeset is worked out; `seen` is what the session knows of each path."""

    start: Files
    seen: dict[str, str | None]
    now: Files = field(init=False)
    known: dict[str, set[str | None]] = field(default_factory=dict)  # the paths that were named

    def __post_init__(self) -> None:
        self.now = dict(self.start)

    def follow(self, path: str) -> str:
        for _ in range(LINKS_MAX):
            held = self.now.get(path)
            if held is None or held.mode != "120000":
                return path
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), held.content.decode()))
        raise No("path_outside")  # in a circle

    def judge(self, path: str, base: str | UnsetType | None) -> None:
        """Refuse what was made for something that is not there any more."""
        if path in self.known:
            fine = self.known[path] | {version_at(self.start, path), version_at(self.now, path)}
            if base is not UNSET and base not in fine:
                raise No("stale")
        else:
            expected = base if not isinstance(base, UnsetType) else self.seen.get(path, UNSET)
            self.known[path] = set() if isinstance(expected, UnsetType) else {expected}
            if expected is not UNSET and expected != version_at(self.start, path):
                raise No("stale")

    def existing(self, path: str, base: str | UnsetType | None = UNSET) -> Held:
        self.judge(path, base)
        if path not in self.now:
            raise No("file_missing")
        return self.now[path]

    def put(self, path: str, content: bytes, mode: Mode) -> None:
        self.known.setdefault(path, set()).add(version_of(content))
        self.now[path] = Held(content, mode)

    def make(self, edit: messages.AnyEdit) -> None:
        match edit:
            case messages.Write():
                self.write(edit)
            case messages.Replace():
                path = self.follow(edit.path)
                held = self.existing(path, edit.base)
                self.now[path] = Held(replaced(held, edit), held.mode)
            case messages.EditText():
                path = self.follow(edit.path)
                held = self.existing(path, edit.base)
                self.now[path] = Held(inserted(held, edit), held.mode)
            case messages.Patch():
                self.patch(edit)
            case messages.Delete():
                self.existing(edit.path, edit.base)
                del self.now[edit.path]
            case messages.Move():
                self.move(edit)
            case messages.Chmod():
                path = self.follow(edit.path)
                held = self.existing(path)
                self.now[path] = Held(held.content, "100755" if edit.executable else "100644")
            case messages.Symlink():
                self.symlink(edit)

    def write(self, edit: messages.Write) -> None:
        path, content = self.follow(edit.path), edit.content.encode("utf-8", "surrogateescape")
        held = self.now.get(path)
        mode: Mode = edit.mode if edit.mode is not UNSET else "100644" if held is None else held.mode
        if held is not None and edit.base is UNSET and held == Held(content, mode):
            self.known.setdefault(path, set()).add(held.version)
            return
        if not edit.force:
            if held is not None and edit.base is None:
                raise No("file_exists")
            if held is not None and edit.base is UNSET and not self.known.get(path) and path not in self.seen:
                raise No("base_required")
            self.judge(path, edit.base)
        self.put(path, content, mode)

    def patch(self, edit: messages.Patch) -> None:
        """Of one file, as `Lines.patch` writes it: it fits where the file holds what it was made from."""
        old, new = PATCHES[edit.patch]
        path = edit.patch.splitlines()[0].removeprefix("diff --git a/").partition(" b/")[0]
        if old is None:
            assert new is not None
            path = self.follow(path)
            if path in self.now:
                raise No("file_exists")
            self.judge(path, None)
            self.put(path, new, "100644")
            return
        path = self.follow(path) if new is not None else path
        held = self.existing(path)
        if held.content != old:
            raise Unforeseen  # it may fit all the same
        if new is None:
            del self.now[path]
        else:
            self.now[path] = Held(new, held.mode)

    def move(self, edit: messages.Move) -> None:
        if edit.path == edit.to:
            raise No("invalid_params")
        held = self.existing(edit.path, edit.base)
        if edit.to in self.now:
            if not edit.overwrite:
                raise No("file_exists")
            self.judge(edit.to, UNSET)
        self.known[edit.to] = self.known[edit.path] | {held.version}
        self.now[edit.to] = self.now.pop(edit.path)

    def symlink(self, edit: messages.Symlink) -> None:
        link, held = Held(edit.target.encode(), "120000"), self.now.get(edit.path)
        if held is not None and edit.base in (UNSET, None):
            if edit.base is None or held != link:
                raise No("file_exists")
            self.known.setdefault(edit.path, set())
            return
        self.judge(edit.path, edit.base)
        self.now[edit.path] = link


def replaced(held: Held, edit: messages.Replace) -> bytes:
    if not held.is_text:
        raise No("not_text")
    count = held.content.count(edit.old.encode())
    if count != edit.count:
        raise No("no_match" if not count else "ambiguous" if edit.count == 1 else "count_mismatch")
    return held.content.replace(edit.old.encode(), edit.new.encode())


def inserted(held: Held, edit: messages.EditText) -> bytes:
    """Each of the edits stands for one whole line of a text that ends in a line end."""
    if not held.is_text:
        raise No("not_text")
    lines = held.content.splitlines(keepends=True)
    for one in sorted(edit.edits, key=lambda one: one.start.line, reverse=True):
        lines[one.start.line : one.end.line] = [one.text.encode()]
    return b"".join(lines)


PATCHES: dict[str, tuple[bytes | None, bytes | None]] = {}  # each patch that was made: from what, to what


def patch_of(path: str, old: bytes | None, new: bytes | None) -> str:
    """One file's change as git writes it, in an empty folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for side, content in (("a", old), ("b", new)):
            if content is not None:
                file = Path(folder, side, path)
                file.parent.mkdir(parents=True)
                file.write_bytes(content)
        sides = [
            f"a/{path}" if old is not None else "/dev/null",
            f"b/{path}" if new is not None else "/dev/null",
        ]
        argv = ["git", "diff", "--no-index", "--no-prefix", "--binary", "--no-renames", *sides]
        done = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
    # Where one side is missing, git takes the other's name for both, its folder included.
    text = done.stdout.decode("utf-8", "surrogateescape")
    for wrong, right in (
        (f"git b/{path} b/{path}", f"git a/{path} b/{path}"),
        (f"git a/{path} a/{path}", f"git a/{path} b/{path}"),
    ):
        text = text.replace(wrong, right, 1)
    PATCHES[text] = (old, new)
    return text


# ── Merging and undoing ────────────────────────────────────────────────────────────────────────


def merge(base: Held | None, ours: Held | None, theirs: Held | None) -> Held | None:
    """Join what became of `base` on two sides. Raises No where they collide."""
    if theirs in (ours, base):
        return ours
    if base == ours:
        return theirs
    if base is None or ours is None or theirs is None:
        raise No("conflict")
    mode = ours.mode if theirs.mode == base.mode else theirs.mode
    if ours.mode not in (base.mode, mode):
        raise No("conflict")
    if base.content == ours.content:
        return Held(theirs.content, mode)
    if theirs.content in (ours.content, base.content):
        return Held(ours.content, mode)
    if "120000" in (base.mode, ours.mode, theirs.mode):
        raise No("conflict")
    return Held(merge_contents(base.content, ours.content, theirs.content), mode)


def merge_contents(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            Path(folder, name).write_bytes(content)
        argv = ["git", "merge-file", "-p", "ours", "base", "theirs"]
        done = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
    if done.returncode:
        raise No("conflict")
    return done.stdout


@dataclass
class History:
    """All transactions in their order; number 0 is the baseline."""

    steps: list[Step] = field(default_factory=list)
    states: list[Files] = field(default_factory=list)

    @classmethod
    def of(cls, baseline: Files) -> History:
        return cls([Step("baseline", {}, {})], [dict(baseline)])

    @property
    def head(self) -> int:
        return len(self.steps) - 1

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.states.append(merged_with(self.states[-1], step.after))
        for undone in step.undoes:
            self._mark(undone, self.head)

    def _mark(self, seq: int, by: int | None) -> None:
        """It is undone, or in force again; what it had undone itself is then the reverse."""
        step = self.steps[seq]
        step.undone_by = by
        for below in step.undoes:
            self._mark(below, seq if by is None else None)

    def newest(self, kind: str, count: int = 1) -> list[int]:
        """The newest transactions of a kind that are not undone, newest first."""
        steps = range(self.head, 0, -1)
        return [n for n in steps if self.steps[n].kind == kind and self.steps[n].undone_by is None][:count]

    def has(self, kind: str) -> bool:
        return bool(self.newest(kind))

    def named(self, seq: int) -> list[int]:
        if not 0 <= seq <= self.head:
            raise No("unknown_transaction")
        if seq == 0 or self.steps[seq].undone_by is not None:
            raise No("nothing_to_undo")
        return [seq]

    def without(self, seqs: Sequence[int], now: Files, *, force: bool = False) -> Files:
        """What `now` is without these transactions, newest first. Raises No and Unforeseen."""
        result, collides = dict(now), False
        for seq in seqs:
            step = self.steps[seq]
            if self._has_moves(seq, step.before):
                if any(result.get(path) != held for path, held in step.after.items()) or self._moved_on(seq):
                    raise Unforeseen
                result = merged_with(result, step.before)
                continue
            for path, before in step.before.items():
                try:
                    held = merge(step.after[path], result.get(path), before)
                except No:
                    collides = True
                    held = before
                result = merged_with(result, {path: held})
        if collides and not force:
            raise No("conflict")
        return result

    def _has_moves(self, seq: int, paths: Iterable[str]) -> bool:
        return bool(self.steps[seq].moves) or self._moved_on(seq)

    def _moved_on(self, seq: int) -> bool:
        """Has any file that it touched been moved away since?"""
        left = {source for step in self.steps[seq + 1 :] for source in step.moves.values()}
        return not left.isdisjoint(self.steps[seq].after)
