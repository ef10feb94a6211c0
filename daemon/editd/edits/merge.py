"""The three-way merge: changes made twice from one base, joined where they do not collide.

`merge` joins contents by lines and gives what `git merge-file` gives, to the byte, for it is the
same xdiff (libgit2's). `merge_states` joins what a path holds: also whether it is there, its mode,
and the target of a symlink, which is never merged by lines. `merge_lines` is git's merge where that is clean;
beyond that, it joins changes of neighbouring lines, which git takes for a conflict.

Never leaves conflict markers: where it does not merge cleanly, it says where.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pygit2
from msgspec import Struct
from pygit2.enums import FileMode, ObjectType

from editd.edits.line_changes import Collision, Winner, hunks_between, join
from editd.edits.lines import numbered
from editd.edits.mode import with_mode
from editd.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.edits.line_changes import LineChange
    from editd.values.content import FileState

HUNKS_MAX = 10  # of one file in a `conflict`
_HINT = "Read the file again and make the edit for what it holds now."


class Merged(Struct, frozen=True):
    """What came of it where nothing collided."""

    content: bytes


class Region(Struct, frozen=True):
    """Lines of ours, from 1, both included, that both sides changed; where ours deleted, the line before."""

    start_line: int
    end_line: int


class MergeConflict(Struct, frozen=True):
    """It does not merge cleanly; no regions where the content has no lines (a NUL in it).

    `collisions` are those of the same lines; without them only neighbouring lines were changed.
    """

    regions: tuple[Region, ...]
    collisions: tuple[Collision, ...] = ()


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merged | MergeConflict:
    """Join the changes base→ours and base→theirs; contents with a NUL only where that is trivial."""
    if theirs in (ours, base):
        return Merged(ours)
    if base == ours:
        return Merged(theirs)
    if any(b"\0" in side for side in (base, ours, theirs)):
        return MergeConflict(())
    content = _merge_by_git(base, ours, theirs)
    if content is not None:
        return Merged(content)
    collisions = join(base, ours, theirs).collisions
    return MergeConflict(_regions(base, ours, theirs) or _all_lines(ours), collisions)


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> Merged | MergeConflict:
    """Join as `merge` does, and where that does not, all that is not a change of the same lines."""
    merged = merge(base, ours, theirs)
    if isinstance(merged, Merged) or not merged.regions:
        return merged
    if merged.collisions:
        regions = tuple(Region(one.first_line, one.last_line) for one in merged.collisions)
        return MergeConflict(regions, merged.collisions)
    return Merged(join(base, ours, theirs).content)


def merge_states(
    base: FileState | None,
    ours: FileState | None,
    theirs: FileState | None,
    *,
    path: str = "The file",
    merge: Callable[[bytes, bytes, bytes], Merged | MergeConflict] = merge,
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
    lines = "the same lines" if merged.collisions else "neighbouring lines"
    message = f"{path} does not merge: both sides changed {lines}, {shown}."
    raise _conflict(path, "lines", message, merged)


def resolved_states(
    base: FileState | None, ours: FileState | None, theirs: FileState | None, winner: Winner
) -> FileState | None:
    """Join two states that collide: `winner` has the lines that both changed, and each keeps its others.

    A file that `theirs` does not have stays for the lines of `ours` that are new in it. What is no text,
    or not there, goes to the winner as a whole.
    """
    kept = ours if winner == "ours" else theirs
    if base is None or ours is None or (theirs is None and winner == "ours"):
        return kept
    contents = base.content, ours.content, b"" if theirs is None else theirs.content
    states = [state for state in (base, ours, theirs) if state is not None]
    if any(state.is_symlink for state in states) or any(b"\0" in content for content in contents):
        return kept
    content = join(*contents, winner).content
    if theirs is None and not content:
        return None
    mode = ours.mode if kept is None or theirs is None or theirs.mode == base.mode else kept.mode
    return with_mode(ours, mode).with_content(content)


def _conflict(path: str, reason: str, message: str, collided: MergeConflict | None = None) -> Conflict:
    regions, collisions = ((), ()) if collided is None else (collided.regions, collided.collisions)
    lines = [{"start_line": region.start_line, "end_line": region.end_line} for region in regions]
    file: dict[str, Any] = {"path": path, "reason": reason, "lines": lines}
    if collisions:
        file["hunks"] = [collision.hunk() for collision in collisions[:HUNKS_MAX]]
    return Conflict(message, hint=_HINT, data={"files": [file]})


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


def _merge_by_git(*sides: bytes) -> bytes | None:
    """What git makes of base, ours and theirs; None for a conflict."""
    try:
        for side in sides:
            side.decode()
    except UnicodeDecodeError:
        # pygit2 decodes the result as UTF-8. Latin-1 gives every byte a character and leaves line
        # ends alone, so that lines are the same lines before and after.
        merged = _merge_utf8(*(side.decode("latin-1").encode() for side in sides))
        return None if merged is None else merged.decode().encode("latin-1")
    return _merge_utf8(*sides)


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


def _regions(base: bytes, ours: bytes, theirs: bytes) -> tuple[Region, ...]:
    """The lines of ours that collide: its hunks that touch one of theirs, as xdl_merge has it."""
    others = hunks_between(base, theirs)
    return tuple(
        Region(max(hunk.first_line, 1), max(hunk.first_line + len(hunk.lines) - 1, hunk.first_line, 1))
        for hunk in hunks_between(base, ours)
        if any(
            hunk.start <= other.end and other.start <= hunk.end and not _same(hunk, other) for other in others
        )
    )


def _all_lines(content: bytes) -> tuple[Region, ...]:
    return (Region(1, content.count(b"\n") + 1),)


def _same(first: LineChange, second: LineChange) -> bool:
    return (first.start, first.end, first.lines) == (second.start, second.end, second.lines)
