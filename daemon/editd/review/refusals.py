"""The refusals of what a proposal does not allow in its state, or to its author."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.errors import Decided, InvalidParams, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.values.proposal import Decision, HunkId, Proposal, ProposedFile
    from editd.values.transaction import Authorship

TEXT_CHARACTERS_MAX = 100_000  # of a comment


def check_is_revisable(proposal: Proposal, author: Authorship) -> None:
    """Raise PermissionDenied for another author's proposal, and InvalidParams for one that is no edit."""
    number, theirs = proposal.number, proposal.authorship
    is_own = author.session == theirs.session and (author.session is not None or author.actor == theirs.actor)
    if not is_own:
        raise PermissionDenied(
            f"Proposal {number} is by {theirs.session or theirs.actor}.",
            hint="Propose an edit of your own, or comment on it.",
            data={"proposal": number, "session": author.session},
        )
    if proposal.is_decided_whole:
        raise InvalidParams(
            f"Proposal {number} is no edit, so no edit can replace it.",
            hint="Withdraw it, and propose anew.",
            data={"proposal": number, "kind": proposal.kind},
        )


def check_is_submitted(proposal: Proposal) -> None:
    """Raise PermissionDenied for a draft."""
    if proposal.state == "draft":
        raise PermissionDenied(
            f"Proposal {proposal.number} is a draft.",
            hint="Wait until its author submits it.",
            data={"proposal": proposal.number, "state": proposal.state},
        )


def check_is_settled(proposal: Proposal) -> None:
    """Raise InvalidParams for a proposal that waits: it cannot be reopened."""
    if not proposal.is_settled:
        raise InvalidParams(
            f"Proposal {proposal.number} is {proposal.state}.",
            hint="Only a settled proposal can be reopened.",
            data={"proposal": proposal.number, "state": proposal.state},
        )


def check_comment(
    proposal: Proposal,
    files: Sequence[ProposedFile],
    text: str,
    hunk: HunkId | None,
    path: str | None,
    line: int | None,
) -> None:
    """Raise InvalidParams for a comment without text, or on a place that the proposal lacks."""
    number = proposal.number
    if not text.strip():
        raise InvalidParams("A comment needs text.")
    check_length(text)
    if hunk is not None:
        check_has_hunk(proposal, files, hunk)
    if path is not None and all(path != file.path.text for file in files):
        raise InvalidParams(f"Proposal {number} has no file {path}.", data={"proposal": number, "path": path})
    if line is not None and (path is None or line < 1):
        raise InvalidParams("`line` needs `path`, and is counted from 1.")


def decided(proposal: Proposal, decisions: Sequence[Decision]) -> Decided:
    """Return the refusal of a request about a settled proposal."""
    by = decisions[-1].by.actor if decisions else None
    return Decided(
        f"Proposal {proposal.number} is {proposal.state}" + (f", by {by}." if by else "."),
        hint="Nothing was changed. Look at what it has become.",
        data={
            "proposal": proposal.number,
            "state": proposal.state,
            "by": by,
            "seq": decisions[-1].seq if decisions else None,
        },
    )


def check_has_hunk(proposal: Proposal, files: Sequence[ProposedFile], hunk: HunkId) -> None:
    """Raise InvalidParams if a proposal has no such hunk."""
    if all(hunk != one.id for file in files for one in file.hunks):
        number = proposal.number
        raise InvalidParams(f"Proposal {number} has no hunk {hunk}.", data={"proposal": number, "hunk": hunk})


def check_length(comment: str) -> None:
    if len(comment) > TEXT_CHARACTERS_MAX:
        raise InvalidParams(f"A comment has at most {TEXT_CHARACTERS_MAX} characters.")
