"""A model of a workspace and its history: dicts of each path's content and each transaction's changes.

It computes the result of an edit, an undo or a redo in the simplest way. `git merge-file` merges two changes
of one content. The model has no opinion (`Unforeseen`) on the undo of moved files, unless they are unchanged
since the move.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
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
    """The content of a path: a file's bytes, or the target of a symlink."""

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
Changes = dict[str, Held | None]  # path → content afterwards, None for a deletion


class No(Exception):
    """The daemon must refuse this, with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Unforeseen(Exception):
    """The model has no opinion."""


@dataclass
class Step:
    """One transaction: the content of each path before and after."""

    kind: str
    before: Changes
    after: Changes
    moves: dict[str, str] = field(default_factory=dict)  # new path → old path
    undoes: tuple[int, ...] = ()
    session: str | None = None
    parts: dict[int, frozenset[str]] = field(default_factory=dict)  # partly undone ones: these paths
    undone: dict[str, int] = field(default_factory=dict)  # undone path → the transaction that undid it
    ways: dict[str, str] = field(init=False)  # old path → new path, also for a move onto a file
    recorded: dict[str, str] = field(init=False)  # those of the ways that do not rest on a guess
    mingled: set[str] = field(default_factory=set)  # paths at the ends of moves, also those onto a file

    def __post_init__(self) -> None:
        """Find the moves. A move onto a file is recorded as a deletion and a change: compare contents."""
        self.mingled |= {*self.moves, *self.moves.values()}
        self.ways = {source: to for to, source in self.moves.items()}
        self.recorded = dict(self.ways)
        for source, held in self.before.items():
            for to, now in self.after.items():
                if source != to and held is not None and now is not None and held.content == now.content:
                    self.mingled |= {source, to}
        gone = [(held, path) for path, held in self.before.items() if self.after[path] is None]
        come = [(held, path) for path, held in self.after.items() if self.before[path] is not None]
        changed = {path for held, path in come if held is not None}
        if self.kind == "restore" and gone and changed:  # It moves files back even if they have changed.
            self.mingled |= changed | {path for _, path in gone}
        for held, source in gone:
            places = [to for now, to in come if now == held]
            if len(places) == [one for one, _ in gone].count(held) == 1:
                self.ways.setdefault(source, places[0])

    @property
    def undone_by(self) -> int | None:
        """Return the transaction that undid the last path, or None if not all are undone."""
        return max(self.undone.values()) if len(self.undone) == len(self.after) and self.undone else None

    def in_force(self) -> frozenset[str]:
        """Return the paths that are not undone."""
        return frozenset(self.after.keys() - self.undone.keys())


def version_at(files: Mapping[str, Held | None], path: str) -> str | None:
    held = files.get(path)
    return None if held is None else held.version


def merged_with(files: Files, changes: Changes) -> Files:
    """Return the files with these changes applied."""
    result = dict(files)
    for path, held in changes.items():
        result.pop(path, None)
        if held is not None:
            result[path] = held
    return result


def differences(before: Files, after: Files) -> Changes:
    return {p: after.get(p) for p in before.keys() | after.keys() if before.get(p) != after.get(p)}


def folders_of(path: str) -> list[str]:
    """Return the folders above a path, topmost first."""
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


def is_below(path: str, above: Iterable[str]) -> bool:
    """Return whether a path is one of these or below one."""
    return not {path, *folders_of(path)}.isdisjoint(above)


def has_files_in_files(files: Iterable[str]) -> bool:
    """Return whether one path would be both a file and a folder."""
    there = set(files)
    return any(not there.isdisjoint(folders_of(path)) for path in there)


# ── Edits ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Sheet:
    """The files while a changeset is planned. `seen` has the session's known version of each path."""

    start: Files
    seen: Mapping[str, str | None]
    folders: frozenset[str] = frozenset()  # on the disk, including empty ones
    now: Files = field(init=False)
    known: dict[str, set[str | None]] = field(default_factory=dict)  # named paths
    moved: set[str] = field(default_factory=set)  # both paths of each move
    based: set[str] = field(default_factory=set)  # those with an explicit base

    def __post_init__(self) -> None:
        self.now = dict(self.start)

    def follow(self, path: str) -> str:
        """Return the path with every symlink followed, including the last name."""
        return self.resolve(path, is_last_followed=True)

    def resolve(self, path: str, *, is_last_followed: bool = False) -> str:
        """Resolve name by name, as in path_resolution(7)."""
        resolved, left, links = list[str](), path.split("/")[::-1], 0
        while left:
            name = left.pop()
            if name == "..":
                if not resolved:
                    raise No("path_outside")
                resolved.pop()
                continue
            here = "/".join([*resolved, name])
            held = self.now.get(here)
            if held is None or held.mode != "120000" or not (left or is_last_followed):
                resolved.append(name)
                continue
            links += 1
            if links > LINKS_MAX:
                raise No("path_outside")  # a loop of symlinks
            left += held.content.decode().split("/")[::-1]
        if not resolved:
            raise No("path_outside")
        return "/".join(resolved)

    def at(self, path: str) -> Held | None:
        """Return the content of a path. Raises No for a folder that stays in this changeset."""
        if path not in self.now and path in self.folders:
            named = self.start.keys() | self.known.keys()
            is_thinned = any(is_below(gone, [path]) for gone in named - self.now.keys())
            if not is_thinned:
                raise No("not_a_file")
            if any(is_below(there, [path]) for there in self.now):
                raise Unforeseen  # one of two names: a folder, and no file
        return self.now.get(path)

    def finish(self) -> None:
        """Refuse a changeset that makes a path both a file and a folder."""
        if has_files_in_files(self.now):
            raise No("not_a_file")

    def judge(self, path: str, base: str | UnsetType | None) -> None:
        """Refuse an edit whose base is not the present content."""
        self.at(path)
        if base is not UNSET:
            self.based.add(path)
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
        if self.at(path) is None:
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
                path = self.resolve(edit.path)
                self.existing(path, edit.base)
                del self.now[path]
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
        held = self.at(path)
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
        """Apply a patch of one file by `Lines.patch`. It fits the content from which it was made."""
        path, old, new = PATCHES[edit.patch]
        if old is None:
            assert new is not None
            path = self.follow(path)
            if self.at(path) is not None:
                raise No("file_exists")
            self.judge(path, None)
            self.put(path, new, "100644")
            return
        path = self.follow(path) if new is not None else self.resolve(path)
        held = self.existing(path)
        if held.content != old:
            raise Unforeseen  # it may still fit
        if new is None:
            del self.now[path]
        else:
            self.now[path] = Held(new, held.mode)

    def move(self, edit: messages.Move) -> None:
        path, to = self.resolve(edit.path), self.resolve(edit.to)
        if path == to:
            raise No("invalid_params")
        held = self.existing(path, edit.base)
        del self.now[path]
        if self.at(to) is not None:
            if not edit.overwrite:
                raise No("file_exists")
            self.judge(to, UNSET)
        self.moved |= {path, to}
        self.known[to] = self.known[path] | {held.version}
        self.now[to] = held

    def symlink(self, edit: messages.Symlink) -> None:
        path, link = self.resolve(edit.path), Held(edit.target.encode(), "120000")
        held = self.at(path)
        if held is not None and edit.base in (UNSET, None):
            if edit.base is None or held != link:
                raise No("file_exists")
            self.known.setdefault(path, set())
            return
        self.judge(path, edit.base)
        self.now[path] = link


def replaced(held: Held, edit: messages.Replace) -> bytes:
    if not held.is_text:
        raise No("not_text")
    count = held.content.count(edit.old.encode())
    if count != edit.count:
        raise No("no_match" if not count else "ambiguous" if edit.count == 1 else "count_mismatch")
    return held.content.replace(edit.old.encode(), edit.new.encode())


def inserted(held: Held, edit: messages.EditText) -> bytes:
    """Return the text with one whole line inserted. The text must end with a line end."""
    if not held.is_text:
        raise No("not_text")
    lines = held.content.splitlines(keepends=True)
    for one in sorted(edit.edits, key=lambda one: one.start.line, reverse=True):
        lines[one.start.line : one.end.line] = [one.text.encode()]
    return b"".join(lines)


PATCHES: dict[str, tuple[str, bytes | None, bytes | None]] = {}  # patch → path, content before, content after


def patch_of(path: str, old: bytes | None, new: bytes | None) -> str:
    """Return git's patch for the change of one file. Runs git in an empty folder."""
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
    # If one side is missing, git uses the name of the other for both, with its folder.
    text = done.stdout.decode("utf-8", "surrogateescape")
    for wrong, right in (
        (f"git b/{path} b/{path}", f"git a/{path} b/{path}"),
        (f"git a/{path} a/{path}", f"git a/{path} b/{path}"),
        ('git "b/', 'git "a/'),
    ):
        text = text.replace(wrong, right, 1)
    quoted = text.partition("\n")[0].partition(' "a/')[2].partition('" "')[0]
    text = text.replace(f'" "a/{quoted}"', f'" "b/{quoted}"', 1)
    PATCHES[text] = (path, old, new)
    return text


# ── Merging and undoing ────────────────────────────────────────────────────────────────────────


def merge(base: Held | None, ours: Held | None, theirs: Held | None, *, is_undo: bool = False) -> Held | None:
    """Merge two changed versions of `base`. Raises No for a collision; neighbours collide in edits only."""
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
    return Held(merge_contents(base.content, ours.content, theirs.content, is_undo=is_undo), mode)


def merge_contents(base: bytes, ours: bytes, theirs: bytes, *, is_undo: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            Path(folder, name).write_bytes(content)
        argv = ["git", "merge-file", "-p", "ours", "base", "theirs"]
        done = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
        if done.returncode == 0:
            return done.stdout
        is_text = not any(b"\0" in side for side in (base, ours, theirs))
        joined = join_neighbours(Path(folder), ours, base, theirs) if is_undo and is_text else None
    if joined is None:
        raise No("conflict")
    return joined


Hunk = tuple[int, int, tuple[bytes, ...]]  # base lines (half open), and their replacement


def join_neighbours(folder: Path, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """Apply all hunks of both sides. Return None if two of them change one line or insert at one point."""
    lines = base.splitlines(keepends=True)
    back = hunks(folder, base, theirs)
    whole = [moved_aside(hunk, lines, back) for hunk in hunks(folder, base, ours)]
    mine = [part for hunk in whole for part in line_by_line(hunk, back)]
    for other in back:
        met = [one for one in mine if is_meeting(one, other)]
        if met and not is_same(met, other, lines):
            return None
        mine = [one for one in mine if one not in met]
    for start, end, new in sorted(mine + back, reverse=True):
        lines[start:end] = new
    return None if any(not line.endswith(b"\n") for line in lines[:-1]) else b"".join(lines)


def hunks(folder: Path, before: bytes, after: bytes) -> list[Hunk]:
    for name, text in (("before", before), ("after", after)):
        (folder / name).write_bytes(text)
    argv = ["git", "diff", "--no-index", "-U0", "--no-indent-heuristic", "--no-color", "before", "after"]
    told = subprocess.run(argv, cwd=folder, capture_output=True, check=False).stdout
    lines = after.splitlines(keepends=True)
    found = []
    for header in re.findall(rb"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", told):
        old, old_lines, new, new_lines = (int(number) if number else 1 for number in header)
        start = old if old_lines == 0 else old - 1
        found.append(
            (start, start + old_lines, tuple(lines[new - 1 : new - 1 + new_lines]) if new_lines else ())
        )
    return found


def line_by_line(hunk: Hunk, others: list[Hunk]) -> list[Hunk]:
    """Split a hunk of equally many lines into single lines, unless a line is inserted between them."""
    start, end, new = hunk
    if end - start != len(new) or any(start < first == last < end for first, last, _ in others):
        return [hunk]
    return [(start + number, start + number + 1, (line,)) for number, line in enumerate(new)]


def is_same(parts: list[Hunk], other: Hunk, lines: list[bytes]) -> bool:
    """Return whether these hunks together make the same change as the other hunk."""
    start, end, new = other
    made = lines[start:end]
    for first, last, part in sorted(parts, reverse=True):
        if first < start or last > end:
            return False
        made[first - start : last - start] = part
    return tuple(made) == new


def is_meeting(one: Hunk, other: Hunk) -> bool:
    (start, end, _), (start_, end_, _) = one, other
    return (
        start == end == start_ == end_
        or max(start, start_) < min(end, end_)
        or (start == end and start_ < start < end_)
        or (start_ == end_ and start < start_ < end)
    )


def moved_aside(hunk: Hunk, lines: list[bytes], others: list[Hunk]) -> Hunk:
    """Return the insertion moved before or after another hunk's lines, if the text stays the same."""
    start, end, new = hunk
    for first, last, _ in others:
        if start == end and first < start < last:
            after = [*lines[:start], *new, *lines[start:]]
            for at in (first, last):
                moved = tuple(after[at : at + len(new)])
                if [*lines[:at], *moved, *lines[at:]] == after:
                    return at, at, moved
    return hunk


@dataclass
class History:
    """All transactions in order. Number 0 is the baseline."""

    steps: list[Step] = field(default_factory=list)
    states: list[Files] = field(default_factory=list)
    unsure: set[tuple[int, str]] = field(default_factory=set)  # Their undone marks depend on a guessed move.

    @classmethod
    def of(cls, baseline: Files) -> History:
        return cls([Step("baseline", {}, {})], [dict(baseline)])

    @property
    def head(self) -> int:
        return len(self.steps) - 1

    def add(self, step: Step) -> None:
        self._add_ways_back(step)
        self.steps.append(step)
        self.states.append(merged_with(self.states[-1], step.after))
        if step.undoes:
            self._mark()

    def _add_ways_back(self, undo: Step) -> None:
        """Have the files that an undo puts back come from where the undone transactions had moved them.

        The log has no move back if the undone move was onto a file: that file is back, too.
        """
        back = [path for path, held in undo.before.items() if held is None]
        for source in back:
            way = recorded = source
            for seq in sorted(undo.undoes):
                step = self.steps[seq]
                chosen = undo.parts.get(seq, step.after.keys())
                way = step.ways.get(way, way) if way in chosen else way
                recorded = step.recorded.get(recorded, recorded) if recorded in chosen else recorded
            for ways, to in ((undo.ways, way), (undo.recorded, recorded)):
                if to != source and to in undo.after and source not in ways.values():
                    ways.setdefault(to, source)

    def trust(self, marks: Mapping[tuple[int, str], int]) -> None:
        """Replace the unsure marks by the daemon's, given by step and path. Work out anew what follows."""
        self._mark(marks)

    def _mark(self, trusted: Mapping[tuple[int, str], int] | None = None) -> None:
        """Mark the undo that is in force for each path, the newest of several. Start at the newest step.

        An undo that changed nothing at a path is in force there until all of it is undone. With `trusted`,
        these marks replace the unsure ones.
        """
        self.unsure.clear()
        for step in self.steps:
            step.undone = {}
        for by in range(self.head, 0, -1):
            undo = self.steps[by]
            if trusted is not None:
                for path in [path for seq, path in self.unsure if seq == by]:
                    undo.undone.pop(path, None)
                    if (by, path) in trusted:
                        undo.undone[path] = trusted[by, path]
            for seq in undo.undoes if undo.in_force() else ():
                for path in undo.parts.get(seq, self.steps[seq].after):
                    is_gone = self.steps[seq].after.get(path) is None
                    here = path if is_gone else self._moved(path, seq, by)
                    told = path if is_gone else self._moved(path, seq, by, is_guessed=False)
                    is_undone, is_told = (
                        (to if to in undo.after else path) not in undo.undone for to in (here, told)
                    )
                    if is_undone:
                        self.steps[seq].undone.setdefault(path, by)
                    if is_undone != is_told:
                        self.unsure.add((seq, path))

    def _moved(self, path: str, after: int, before: int, *, is_guessed: bool = True) -> str:
        """Return the path, before one transaction, of the file that has `path` after another.

        A file that is deleted or overwritten keeps its last path. It is there again once that path gets one
        of its contents. Until then it does not go the way of another file that has its path.
        """
        contents, is_there = set[bytes](), True
        for number in range(after, before):
            step = self.steps[number]
            ways = step.ways if is_guessed else step.recorded
            is_taken = path in ways.values()
            if number > after and is_there:
                is_there = path in ways or not is_taken
                path = ways.get(path, path)
            held = self.states[number].get(path)
            is_back = path in step.after and not is_taken and held is not None and held.content in contents
            is_there = held is not None and (is_there or is_back)
            if held is not None and is_there:
                contents.add(held.content)
        return path

    def newest(self, kind: str, count: int = 1) -> list[int]:
        """Return the newest transactions of a kind in force, newest first."""
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

    def without(
        self,
        seqs: Sequence[int],
        now: Files,
        *,
        force: bool = False,
        parts: Mapping[int, frozenset[str]] = MappingProxyType({}),
    ) -> Files:
        """Return `now` without these transactions, newest first. `parts` limits some of them to paths.

        Raises No or Unforeseen.
        """
        result, collides = dict(now), False
        for seq in seqs:
            step, paths = self.steps[seq], parts.get(seq, self.steps[seq].in_force())
            before, after = ({p: s[p] for p in paths} for s in (step.before, step.after))
            if self._has_moves(seq, paths):
                if any(result.get(path) != held for path, held in after.items()) or self._moved_on(
                    seq, paths
                ):
                    raise Unforeseen
                result = merged_with(result, before)
                continue
            for path in paths:
                try:
                    held = merge(after[path], result.get(path), before[path], is_undo=True)
                except No:
                    collides = True
                    held = before[path]
                result = merged_with(result, {path: held})
        if has_files_in_files(result) or (collides and not force):
            raise No("conflict")
        if collides:
            raise Unforeseen  # only the colliding lines are restored
        return result

    def restored(self, to: int, now: Files, paths: Sequence[str] | None = None) -> Files:
        """Return `now` with these paths, and everything below them, as they were after `to`."""
        then = self.states[to]
        wanted = {p for p in now.keys() | then.keys() if paths is None or is_below(p, paths)}
        result = merged_with(now, {path: then.get(path) for path in wanted})
        if has_files_in_files(result):
            raise No("conflict")
        return result

    def _has_moves(self, seq: int, paths: Iterable[str]) -> bool:
        return not self.steps[seq].mingled.isdisjoint(paths) or self._moved_on(seq, paths)

    def _moved_on(self, seq: int, paths: Iterable[str]) -> bool:
        """Return whether any file that it touched was moved since."""
        return any(not step.mingled.isdisjoint(paths) for step in self.steps[seq + 1 :])
