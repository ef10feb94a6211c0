"""The three-way merge: changes made twice from one base, joined where they do not collide.

`merge` joins contents by lines and gives what `git merge-file` gives, to the byte, for it is the
same xdiff (libgit2's). `merge_states` joins what a path holds: also whether it is there, its mode,
and the target of a symlink, which is never merged by lines.

Never leaves conflict markers: where it does not merge cleanly, it says where.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pygit2
from msgspec import Struct
from pygit2.enums import DiffOption, FileMode, ObjectType

from editd.edits.lines import numbered
from editd.edits.mode import with_mode
from editd.errors import Conflict

if TYPE_CHECKING:
    from editd.values.content import FileState

_HINT = "Read the file again and make the edit for what it holds now."


class Merged(Struct, frozen=True):
    """What came of it where nothing collided."""

    content: bytes


class Region(Struct, frozen=True):
    """Lines of ours, from 1, both included, that both sides changed; where ours deleted, the line before."""

    start_line: int
    end_line: int


class Collided(Struct, frozen=True):
    """It does not merge cleanly; no regions where the content has no lines (a NUL in it)."""

    regions: tuple[Region, ...]


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merged | Collided:
    """Join the changes base→ours and base→theirs; contents with a NUL only where that is trivial."""
    if theirs in (ours, base):
        return Merged(ours)
    if base == ours:
        return Merged(theirs)
    sides = (base, ours, theirs)
    if any(b"\0" in side for side in sides):
        return Collided(())
    try:
        for side in sides:
            side.decode()
    except UnicodeDecodeError:
        # pygit2 decodes the result as UTF-8. Latin-1 gives every byte a character and leaves line
        # ends alone, so that lines are the same lines before and after.
        merged = _merge_utf8(*(side.decode("latin-1").encode() for side in sides))
        content = None if merged is None else merged.decode().encode("latin-1")
    else:
        content = _merge_utf8(*sides)
    return Collided(_regions(*sides) or _all_lines(ours)) if content is None else Merged(content)


def merge_states(
    base: FileState | None, ours: FileState | None, theirs: FileState | None, *, path: str = "The file"
) -> FileState | None:
    """Join what `ours` (what is there) and `theirs` (what is asked for) made of `base`.

    None stands for "no such file". Conflict where they collide, its data
    `{files: [{path, reason, lines: [{start_line, end_line}]}]}`, the lines being those of `ours`;
    `reason` is `lines`, `binary`, `symlink`, `added`, `deleted` or `mode`.
    """
    if theirs in (ours, base):
        return ours
    if base == ours:
        return theirs
    if ours is None or theirs is None:
        done, undone = ("deleted", "changes") if ours is None else ("changed", "deletes")
        raise _conflict(path, "deleted", f"{path} was {done} meanwhile, and this edit {undone} it.")
    if base is None:
        raise _conflict(path, "added", f"{path} was added meanwhile, with other content.")
    mode = ours.mode if theirs.mode == base.mode else theirs.mode
    if ours.mode not in (base.mode, mode):
        raise _conflict(path, "mode", f"{path} was made a file of another kind meanwhile.")
    both_changed = base.content not in (ours.content, theirs.content) and ours.content != theirs.content
    if both_changed and any(state.is_symlink for state in (base, ours, theirs)):
        raise _conflict(path, "symlink", f"{path} is a symbolic link, and both sides changed it.")
    merged = merge(base.content, ours.content, theirs.content)
    if isinstance(merged, Merged):
        return with_mode(ours, mode).with_content(merged.content)
    if not merged.regions:
        raise _conflict(path, "binary", f"{path} is not text, and both sides changed it.")
    shown = numbered(*((region.start_line, region.end_line) for region in merged.regions[:10]))
    raise _conflict(path, "lines", f"{path} does not merge: both sides changed its {shown}.", merged.regions)


def _conflict(path: str, reason: str, message: str, regions: tuple[Region, ...] = ()) -> Conflict:
    lines = [{"start_line": region.start_line, "end_line": region.end_line} for region in regions]
    return Conflict(message, hint=_HINT, data={"files": [{"path": path, "reason": reason, "lines": lines}]})


class _Memory(pygit2.OdbBackend):
    """Objects for libgit2, which merges nothing but blobs of a repository: three at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.blobs: dict[str, bytes] = {}

    def read_cb(self, oid: pygit2.Oid) -> tuple[int, bytes]:
        return int(ObjectType.BLOB), self.blobs[str(oid)]

    def read_header_cb(self, oid: pygit2.Oid) -> tuple[int, int]:
        return int(ObjectType.BLOB), len(self.blobs[str(oid)])

    def exists_cb(self, oid: pygit2.Oid) -> bool:
        return str(oid) in self.blobs

    def refresh_cb(self) -> None:
        """Nothing comes in from elsewhere."""


@cache
def _repository() -> tuple[Any, _Memory]:
    """The repository that exists in memory only, and its blobs. One for all: the engine is one thread."""
    repository, memory, odb = pygit2.Repository(), _Memory(), pygit2.Odb()
    odb.add_backend(memory, 1)
    repository.set_odb(odb)
    return repository, memory


def _merge_utf8(*sides: bytes) -> bytes | None:
    repository, memory = _repository()
    entries = []
    for side in sides:
        blob = pygit2.hash(side)
        memory.blobs[str(blob)] = side
        entries.append(pygit2.IndexEntry("", blob, FileMode.BLOB))
    try:
        result = repository.merge_file_from_index(*entries)
    finally:
        memory.blobs.clear()
    return result.contents.encode() if result.automergeable else None


class _Hunk(Struct, frozen=True):
    """One contiguous change: which lines of the base (half open, from 0), and what they became."""

    start: int
    end: int
    first_line: int  # of the new side, from 1
    lines: tuple[bytes, ...]


def _regions(base: bytes, ours: bytes, theirs: bytes) -> tuple[Region, ...]:
    """The lines of ours that collide: its hunks that touch one of theirs, as xdl_merge has it."""
    others = _hunks(base, theirs)
    return tuple(
        Region(max(hunk.first_line, 1), max(hunk.first_line + len(hunk.lines) - 1, hunk.first_line, 1))
        for hunk in _hunks(base, ours)
        if any(
            hunk.start <= other.end and other.start <= hunk.end and not _same(hunk, other) for other in others
        )
    )


def _all_lines(content: bytes) -> tuple[Region, ...]:
    return (Region(1, content.count(b"\n") + 1),)


def _same(first: _Hunk, second: _Hunk) -> bool:
    return (first.start, first.end, first.lines) == (second.start, second.end, second.lines)


def _hunks(before: bytes, after: bytes) -> list[_Hunk]:
    lines = [line + b"\n" for line in after.split(b"\n")[:-1]] + [after.rpartition(b"\n")[2]]
    patch = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT, context_lines=0)
    found = []
    for hunk in patch.hunks:
        start = hunk.old_start - (1 if hunk.old_lines else 0)
        new = tuple(lines[hunk.new_start - 1 : hunk.new_start - 1 + hunk.new_lines]) if hunk.new_lines else ()
        found.append(_Hunk(start, start + hunk.old_lines, hunk.new_start, new))
    return found
