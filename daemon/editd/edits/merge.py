"""The three-way merge: two sets of changes from one base, joined if they do not collide.

`merge` joins contents by lines. Its result equals git merge-file's, to the byte: both use xdiff.
`merge_lines` also joins changes of adjacent lines, a conflict in git.
`merge_states` joins whole file states: existence, mode, content, and symlink targets, never by lines.

Never leaves conflict markers: a merge that is not clean returns the colliding lines.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pygit2
from msgspec import Struct
from pygit2.enums import FileMode, ObjectType

from editd.edits.comparison import limit
from editd.edits.line_changes import Collision, Winner, hunks_between, is_same, join, touching
from editd.edits.replace import describe_lines
from editd.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.values.content import FileState

HUNKS_MAX = 10  # of one file in a `conflict`
_HINT = "Read the file again, and make the edit for its current content."


class Merged(Struct, frozen=True, tag=True):
    """The result of a clean merge."""

    content: bytes


class Region(Struct, frozen=True):
    """Lines of ours, from 1, both included, that both sides changed; for deleted lines, the line before."""

    start_line: int
    end_line: int


class MergeConflict(Struct, frozen=True, tag=True):
    """The result of a merge that is not clean; without regions if a content has a NUL, so no lines.

    `collisions` are changes of the same lines; without them only adjacent lines were changed.
    """

    regions: tuple[Region, ...]
    collisions: tuple[Collision, ...] = ()


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merged | MergeConflict:
    """Join the changes base→ours and base→theirs; contents with a NUL only if one side is unchanged."""
    if theirs in (ours, base):
        return Merged(ours)
    if base == ours:
        return Merged(theirs)
    if any(b"\0" in side for side in (base, ours, theirs)):
        return MergeConflict(())
    return _merged_texts(base, ours, theirs)


@limit(Merged | MergeConflict)
def _merged_texts(base: bytes, ours: bytes, theirs: bytes) -> Merged | MergeConflict:
    content = _merge_by_git(base, ours, theirs)
    if content is not None:
        return Merged(content)
    collisions = join(base, ours, theirs).collisions
    return MergeConflict(_regions(base, ours, theirs) or _all_lines(ours), collisions)


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> Merged | MergeConflict:
    """Join as `merge` does, and also changes of adjacent lines: only changes of the same line conflict."""
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
    """Join the changes from `base` to `ours` (the current file) and to `theirs` (the requested one).

    None means that the file does not exist. Raises Conflict if they collide. Its data is
    `{files: [{path, reason, lines: [{start_line, end_line}]}]}` with the lines of `ours`;
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
        return ours.with_mode(mode).with_content(merged.content)
    if not merged.regions:
        raise _conflict(path, "binary", f"{path} is not text, and both sides changed it.")
    shown = describe_lines(*((region.start_line, region.end_line) for region in merged.regions[:10]))
    lines = "the same lines" if merged.collisions else "neighbouring lines"
    message = f"{path} does not merge: both sides changed {lines}, {shown}."
    raise _conflict(path, "lines", message, merged)


def resolved_states(
    base: FileState | None, ours: FileState | None, theirs: FileState | None, winner: Winner
) -> FileState | None:
    """Join two states that collide: `winner` wins the lines that both changed, other changes are all kept.

    If `theirs` deleted the file, the file remains with the lines that `ours` added. A state that is
    missing or not text goes to the winner as a whole.
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
    return ours.with_mode(mode).with_content(content)


def _conflict(path: str, reason: str, message: str, collided: MergeConflict | None = None) -> Conflict:
    regions, collisions = ((), ()) if collided is None else (collided.regions, collided.collisions)
    lines = [{"start_line": region.start_line, "end_line": region.end_line} for region in regions]
    file: dict[str, Any] = {"path": path, "reason": reason, "lines": lines}
    if collisions:
        file["hunks"] = [collision.hunk() for collision in collisions[:HUNKS_MAX]]
    return Conflict(message, hint=_HINT, data={"files": [file]})


class _Memory(pygit2.OdbBackend):
    """An object database in memory for the three blobs of a merge: libgit2 merges only stored blobs."""

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
        """Do nothing: no other process adds objects."""


@cache
def _repository() -> tuple[Any, _Memory]:
    """Return a repository in memory and its blobs, shared by all merges: the engine has one thread."""
    repository, memory, odb = pygit2.Repository(), _Memory(), pygit2.Odb()
    odb.add_backend(memory, 1)
    repository.set_odb(odb)
    return repository, memory


def _merge_by_git(*sides: bytes) -> bytes | None:
    """Merge base, ours and theirs with libgit2; None for a conflict."""
    try:
        for side in sides:
            side.decode()
    except UnicodeDecodeError:
        # pygit2 decodes the result as UTF-8. Latin-1 maps each byte to one character and keeps line
        # ends, so that the lines before and after correspond.
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
    """Return the lines of ours that collide: changes that touch one of theirs, as in xdl_merge."""
    others = hunks_between(base, theirs)
    return tuple(
        Region(max(hunk.first_line, 1), max(hunk.first_line + len(hunk.lines) - 1, hunk.first_line, 1))
        for hunk, near in touching(hunks_between(base, ours), others)
        if any(not is_same(hunk, other) for other in near)
    )


def _all_lines(content: bytes) -> tuple[Region, ...]:
    return (Region(1, content.count(b"\n") + 1),)
