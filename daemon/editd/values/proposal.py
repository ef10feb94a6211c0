"""A proposal: an edit that was planned like any other, and waits for a reviewer before it lands.

A proposed file is decided hunk by hunk. Its base, its proposed state and the places of its hunks never
change: a hunk that has landed is only marked so. The base plus the landed hunks, plus those that are
left, is therefore always the proposed state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NewType

from msgspec import Struct

if TYPE_CHECKING:
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath

HunkId = NewType("HunkId", str)
"""16 hex digits, made of the path and the old and new lines, without line numbers."""

HunkKind = Literal["lines", "file", "mode", "move"]
Verdict = Literal["landed", "rejected"]
HunkState = Literal["fits", "there", "conflict", "landed", "rejected"]


class ProposedHunk(Struct, frozen=True):
    """One part of a proposed file that is decided on its own.

    The numbers are lines, half open, from 0: `start` and `end` of the base, `new_start` and `new_end` of
    the proposed content. They are 0 unless the kind is `lines`.
    """

    id: HunkId
    number: int  # from 1 in the proposal
    kind: HunkKind
    start: int = 0
    end: int = 0
    new_start: int = 0
    new_end: int = 0
    verdict: Verdict | None = None  # None is undecided


class ProposedFile(Struct, frozen=True):
    """The proposed change of one path, as its hunks.

    A file that is added, deleted, or becomes another kind of file has one hunk, of kind `file`. Any other
    has a hunk for its move from `source`, one for its mode, and one of kind `lines` for each run of
    changed lines. Binary content is one hunk of kind `file`, as are too many runs of lines.
    """

    path: WorkspacePath
    source: WorkspacePath | None
    base: FileState | None  # None is "no such file"
    proposed: FileState | None
    hunks: tuple[ProposedHunk, ...]

    @property
    def is_whole(self) -> bool:
        """Whether its only hunk is the whole state of the file, with the mode."""
        return is_whole(self.base, self.proposed)

    @property
    def undecided(self) -> tuple[ProposedHunk, ...]:
        return tuple(hunk for hunk in self.hunks if hunk.verdict is None)

    @property
    def move(self) -> ProposedHunk | None:
        """The hunk of its move, which all its other hunks need."""
        return next((hunk for hunk in self.hunks if hunk.kind == "move"), None)


def is_whole(base: FileState | None, proposed: FileState | None) -> bool:
    """Return whether a change adds or deletes a file, or changes a symlink: nothing that has lines."""
    return base is None or proposed is None or base.is_symlink or proposed.is_symlink
