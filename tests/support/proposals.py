"""Proposals for tests: a proposed file, its hunks, and what was decided on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.edits.proposed_hunks import proposed_files
from editd.values.content import Change, FileState
from editd.values.path import WorkspacePath
from editd.values.proposal import Proposal, ProposalNumber
from editd.values.transaction import Authorship, Seq

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.values.proposal import HunkId, ProposedFile, Verdict

PATH, OTHER = WorkspacePath("f"), WorkspacePath("g")
LINES = b"a\nb\nc\nd\ne\n"


def split(base: bytes, proposed: bytes) -> ProposedFile:
    (file,) = proposed_files([Change(PATH, FileState(base), FileState(proposed))])
    return file


def decided(file: ProposedFile, hunks: Iterable[HunkId], verdict: Verdict) -> ProposedFile:
    chosen = set(hunks)
    marked = (replace(one, verdict=verdict) if one.id in chosen else one for one in file.hunks)
    return replace(file, hunks=tuple(marked))


def content(state: FileState | None) -> bytes:
    assert state is not None
    return state.content


def ids(file: ProposedFile) -> list[HunkId]:
    return [hunk.id for hunk in file.hunks]


def proposal_of(actor: str = "them", session: str | None = None) -> Proposal:
    """An open proposal that the store has not numbered yet."""
    author = Authorship(actor, session, "why", "request")
    return Proposal(ProposalNumber(0), "open", "edit", author, None, "request", Seq(3), 1, 1)
