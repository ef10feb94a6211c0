"""A model of undo that follows files, not paths: each file has a number that it keeps through moves.

A transaction has the state of each changed file before and after: a path, bytes and a mode, or nothing. To
undo it, each of the three is set back if it is as the transaction left it, and merged otherwise. Two changes
of one text are merged by `git merge-file` and `git diff`. Written from docs/protocol.md, not from the engine.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.workspace_model import join_neighbours

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path

FileId = int


@dataclass(frozen=True)
class Held:
    """A file: its path, its bytes, and whether it is executable."""

    path: str
    content: bytes
    is_executable: bool = False

    def is_like(self, other: Held) -> bool:
        """Return whether these are equal except for the path."""
        return (self.content, self.is_executable) == (other.content, other.is_executable)


Files = dict[FileId, Held]


class NoOpinion(Exception):
    """Two different answers are right."""


class Collision(Exception):
    """An undo does not merge at these paths."""

    def __init__(self, paths: set[str]) -> None:
        super().__init__(paths)
        self.paths = paths


@dataclass
class Step:
    """One transaction."""

    session: str | None
    changes: dict[FileId, tuple[Held | None, Held | None]]
    undoes: list[tuple[int, FileId, FileId]] = field(
        default_factory=list
    )  # transaction, file, its present file
    undone: dict[FileId, int] = field(default_factory=dict)  # undone file → the undo
    absent: dict[FileId, tuple[Held, set[str]]] = field(default_factory=dict)  # of files that it brought back
    has_untold_moves: bool = False  # an undo of moves onto a file, or its undo: the history has no move back

    @property
    def in_force(self) -> frozenset[FileId]:
        return frozenset(self.changes.keys() - self.undone.keys())

    def paths_of(self, file: FileId) -> set[str]:
        return {held.path for held in self.changes[file] if held is not None}

    def joined(self, paths: Iterable[str]) -> frozenset[FileId]:
        """Return the files in force at these paths, and those that share a path: undone together.

        Raises NoOpinion if they share it by a move that the history does not have.
        """
        wanted, chosen = set(paths), set[FileId]()
        while more := {file for file in self.in_force - chosen if self.paths_of(file) & wanted}:
            chosen |= more
            wanted |= {path for file in more for path in self.paths_of(file)}
        if (
            self.has_untold_moves
            and wanted > set(paths)
            and any(len(self.paths_of(file)) > 1 for file in chosen)
        ):
            raise NoOpinion
        return frozenset(chosen)


Targets = list[tuple[int, frozenset[FileId]]]


@dataclass
class Lineages:
    """The present files, the deleted ones, and all transactions."""

    folder: Path  # for git to work in
    files: Files = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    last: dict[FileId, Held] = field(default_factory=dict)  # also of deleted files
    held: dict[FileId, set[tuple[str, bytes]]] = field(default_factory=dict)  # its contents at each path
    vacant: dict[FileId, set[str]] = field(default_factory=dict)  # of deleted files: paths free since
    put_back: set[int] = field(default_factory=set)  # undos of moves onto a file, their undos, and so on
    ends: dict[FileId, tuple[int, Held]] = field(default_factory=dict)  # for transactions before this one
    doubtful: dict[FileId, int] = field(default_factory=dict)  # which file is which is a guess since then
    texts: dict[tuple[bytes, bytes, bytes], bytes | None] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, texts: Mapping[str, bytes]) -> Lineages:
        model = cls(folder)
        model._become({number: Held(path, text) for number, (path, text) in enumerate(texts.items())})
        return model

    def tree(self, files: Files | None = None) -> dict[str, tuple[bytes, bool]]:
        """Return the content of each path."""
        return {
            held.path: (held.content, held.is_executable)
            for held in (self.files if files is None else files).values()
        }

    def file_at(self, path: str) -> FileId:
        return next(file for file, held in self.files.items() if held.path == path)

    def arriving(self, path: str, content: bytes) -> FileId:
        """Return the number of a new file: its old number if a deleted file comes back unchanged."""
        alike = [file for file, held in self.held.items() if (path, content) in held]
        back = [file for file in alike if path in self.vacant.get(file, ()) and self.last[file].path == path]
        if len(alike) > 1 or alike != back:
            raise NoOpinion
        return back[0] if back else 1 + max(self.last)

    def record(
        self, seq: int, files: Files, session: str | None, undoes: list[tuple[int, FileId, FileId]]
    ) -> None:
        """Add a transaction that results in these files."""
        is_put_back = any(self._is_put_back(file, held.path, undoes) for file, held in files.items())
        if is_put_back or any(below in self.put_back for below, _, _ in undoes):
            self.put_back.add(seq)
        files, undoes = self._as_told(seq, files, undoes)
        changed = {
            file: (self.files.get(file), files.get(file))
            for file in self.files.keys() | files.keys()
            if self.files.get(file) != files.get(file)
        }
        self._note_doubts(seq, files)
        absent = {file: (self._end(file, 0), self.vacant[file]) for file in files.keys() & self.vacant.keys()}
        self.steps[seq] = Step(session, changed, undoes, absent=absent, has_untold_moves=seq in self.put_back)
        self._become(files)
        for below, file, _ in undoes:
            if file in changed and file not in files:
                self._forget_return(below, file)
            self._mark(below, {file}, seq)

    def _as_told(
        self, seq: int, files: Files, undoes: list[tuple[int, FileId, FileId]]
    ) -> tuple[Files, list[tuple[int, FileId, FileId]]]:
        """Renumber files whose moves the history does not record, because another file has their old path.

        At such a path a file counts as newly written, as at the paths of two swapped files.
        """
        there = {held.path for held in files.values()}
        before = {held.path: file for file, held in self.files.items()}
        told: Files = {}
        renumbered: dict[FileId, FileId] = {}
        untold: list[FileId] = []
        for file, held in files.items():
            old = self.files.get(file)
            is_alone = old is None or old.path == held.path or old.path not in there
            is_change = old is None or self.files.get(before.get(held.path, file)) != held
            if is_change and (is_alone or self._is_put_back(file, held.path, undoes)):
                told[file] = held
            else:
                untold.append(file)
        for file in untold:
            held = files[file]
            number = before.get(held.path)
            if number is None:
                number = self.arriving(held.path, held.content)
                number = number if number in self.last else 1 + max([*self.last, *files, *told])
            if number in told:
                raise NoOpinion
            told[number] = held
            renumbered[file] = number
            if undoes and number != file:
                self.doubtful |= {file: seq, number: seq}
        return told, [(below, file, renumbered.get(found, found)) for below, file, found in undoes]

    def _is_put_back(self, file: FileId, path: str, undoes: list[tuple[int, FileId, FileId]]) -> bool:
        """Return whether an undo moves a file back to its old path, over another one."""
        for seq, moved, found in undoes:
            before, after = self.steps[seq].changes[moved]
            if moved == found == file and before is not None and after is not None and before.path == path:
                return file in self.files and after.path == self.files[file].path
        return False

    def _become(self, files: Files) -> None:
        moved = {
            path
            for file in self.files.keys() | files.keys()
            for path in (side[file].path for side in (self.files, files) if file in side)
            if self.files.get(file) != files.get(file)
        }
        gone = self.files.keys() - files.keys()
        for vacant in self.vacant.values():
            vacant.difference_update(moved)
        for file in gone:
            self.vacant[file] = {path for path, _ in self.held[file]}
        for file, held in files.items():
            self.vacant.pop(file, None)
            self.ends.pop(file, None)
            self.last[file] = held
            self.held.setdefault(file, set()).add((held.path, held.content))
        self.files = files

    def _end(self, file: FileId, seq: int) -> Held:
        """Return a deleted file as it was last, for a transaction that changed it."""
        before, end = self.ends.get(file, (0, self.last[file]))
        return end if seq < before else self.last[file]

    def _note_doubts(self, seq: int, files: Files) -> None:
        """Note the deleted files whose content a file at their path gets: is it the other or the same?"""
        for file, held in files.items():
            if file in self.files and self.files[file].content != held.content:
                gone = [other for other in self.vacant if (held.path, held.content) in self.held[other]]
                self.doubtful |= dict.fromkeys(gone, seq)

    def _mark(self, seq: int, files: set[FileId], by: int | None) -> None:
        """Mark files of a transaction as undone or in force, and mark its undone files the opposite way.

        Files that it had undone without a change of its own are marked with the last of its files.
        """
        step = self.steps[seq]
        for file in files:
            if by is None:
                step.undone.pop(file, None)
            else:
                step.undone[file] = by
        is_all = not (step.undone if by is None else step.in_force)
        for below, file, found_as in step.undoes:
            if found_as in files or (is_all and found_as not in step.changes):
                self._mark(below, {file}, seq if by is None else None)

    def _forget_return(self, below: int, file: FileId) -> None:
        """Have a file that is gone again end where it did before the undo that brought it back."""
        step = self.steps[below]
        if step.undoes and file in step.absent:
            end, vacant = step.absent[file]
            self.ends[file] = below, end
            later = [one for seq, one in self.steps.items() if seq >= below]
            touched = {path for one in later for other in one.changes for path in one.paths_of(other)}
            self.vacant[file] = vacant - touched

    # ── undoing ──

    def without(self, targets: Targets) -> tuple[Files, list[tuple[int, FileId, FileId]]]:
        """Return the files without these transactions, newest first, and the present file of each.

        Raises Collision for the first one that does not merge, or NoOpinion.
        """
        files = dict(self.files)
        last = dict(self.last)
        undoes: list[tuple[int, FileId, FileId]] = []
        for seq, chosen in sorted(targets, key=lambda target: -target[0]):
            collisions: set[str] = set()
            back: dict[FileId, Held | None] = {}
            step = self.steps[seq]
            is_as_left = all(files.get(file) == step.changes[file][1] for file in chosen)
            if seq in self.put_back and (chosen != step.changes.keys() or not is_as_left):
                raise NoOpinion  # the history does not record it as a move
            for file in chosen:
                if seq < self.doubtful.get(file, 0):
                    raise NoOpinion
                before, after = self.steps[seq].changes[file]
                end = self._end(file, seq) if last[file] is self.last[file] else last[file]
                found = file if file in files else _stand_in(files, end if after else before, chosen)
                if found is None:
                    found = file
                elif found != file and before is not None and after is not None and before.path != after.path:
                    raise NoOpinion
                if found in back:
                    raise NoOpinion
                undoes.append((seq, file, found))
                try:
                    back[found] = self._back(files.get(found), end, before, after)
                except Collision as collision:
                    collisions |= collision.paths
                    if before is not None and (after is None or before.path != after.path):
                        back[found] = before
            collisions |= _taken(files, back)
            if collisions:
                raise Collision(collisions)
            files = {file: held for file, held in files.items() if file not in back}
            files |= {file: held for file, held in back.items() if held is not None}
            last |= files
        return files, undoes

    def _back(self, now: Held | None, last: Held, before: Held | None, after: Held | None) -> Held | None:
        """Return the state of a file without one of its changes."""
        if after is None:
            assert before is not None
            if now is not None and now.path != before.path:
                raise NoOpinion  # it came back, and was moved: is it to come back once more?
            if now is not None and not now.is_like(before):
                raise Collision({before.path})
            return before
        if before is None:
            if now is not None and not now.is_like(after):
                raise Collision({now.path})
            return None
        if now is None:
            raise Collision({last.path})
        content = self._merged(now.content, after.content, before.content)
        if content is None:
            raise Collision({now.path})
        is_moved = before.path != after.path
        is_executable = (
            before.is_executable if before.is_executable != after.is_executable else now.is_executable
        )
        return Held(before.path if is_moved else now.path, content, is_executable)

    def _merged(self, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
        if base in (ours, theirs) or ours == theirs:
            return theirs if base == ours else ours
        sides = (ours, base, theirs)
        if sides not in self.texts:
            self.texts[sides] = merge_file(self.folder, *sides)
        return self.texts[sides]


def _stand_in(files: Files, gone: Held | None, but: Container[FileId]) -> FileId | None:
    """Return the file that is now at the path of a deleted one."""
    assert gone is not None
    return next((file for file, held in files.items() if held.path == gone.path and file not in but), None)


def _taken(files: Files, back: Mapping[FileId, Held | None]) -> set[str]:
    """Return the paths that a file needs and another file has."""
    stay = {held.path for file, held in files.items() if file not in back}
    wanted = [held.path for held in back.values() if held is not None]
    return {path for path in wanted if path in stay or wanted.count(path) > 1}


# ── Merging two changes of one text ─────────────────────────────────────────────────


def merge_file(folder: Path, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
        (folder / name).write_bytes(text)
    argv = ["git", "merge-file", "-p", "-q", "ours", "base", "theirs"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
    assert done.returncode < 128, done.stderr
    return done.stdout if done.returncode == 0 else join_neighbours(folder, ours, base, theirs)
