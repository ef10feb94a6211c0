"""The right to decide about a proposal, and to act as its author. Pure.

The author's session decides nothing about its own work, nor does a connection that has proposed edits.
The kin of an author's process need the PIN (`lineage`). An answer that an MCP client gives for its user
decides only if the configuration trusts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.advice import Advice, command_term, method_term, step_term
from editd.errors import PermissionDenied
from editd.review.lineage import common_program

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from editd.system.process import Process
    from editd.values.proposal import Proposal, ProposalNumber


class Candidate(Struct, frozen=True):
    """The facts about a connection that decide whether it is a reviewer or an author."""

    session: str | None
    processes: Callable[[], Sequence[Process]]  # its process, and those above it
    is_pin_set: Callable[[], bool]
    proposed: Collection[int] = ()  # the proposals that it has made
    has_pin: bool = False  # it has given the PIN


def check_elicited(number: ProposalNumber, needs: str, *, is_trusted: bool) -> None:
    """Raise PermissionDenied for an answer of an MCP client unless the configuration trusts it."""
    if not is_trusted:
        raise PermissionDenied(
            "An answer that an MCP client gives for its user decides nothing.",
            hint='`review.elicitation = "trusted"` in your configuration changes that.',
            data={"proposal": number, "needs": needs},
        )


def check_reviewer(candidate: Candidate, proposal: Proposal, authors: Iterable[Sequence[Process]]) -> None:
    """Raise PermissionDenied if a connection may not decide about a proposal.

    `authors` are the processes of its authors, each with those above it.
    """
    number, author = proposal.number, proposal.authorship.session
    if candidate.session is not None and candidate.session == author:
        raise PermissionDenied(
            f"Proposal {number} is of session {author}, which may not decide about it.",
            hint=Advice("Ask a reviewer. ", method_term("proposal.withdraw"), " takes it back."),
            data={"proposal": number},
        )
    if candidate.proposed:
        raise PermissionDenied(
            "This connection has proposed edits itself, and may not decide.",
            hint="Decide on a connection of your own.",
            data={"proposal": number},
        )
    check_kin(candidate, authors, f"decide about proposal {number}")


def check_grant(candidate: Candidate, session: str | None, authors: Iterable[Sequence[Process]]) -> None:
    """Raise PermissionDenied if a connection may not let edits of a session through; of all, for None."""
    if candidate.session is not None and session in (None, candidate.session):
        raise PermissionDenied(
            "A session may not let its own edits through.",
            hint="Ask a reviewer.",
            data={"session": candidate.session},
        )
    check_kin(candidate, authors, "let edits of it through")


def check_person(
    candidate: Candidate, session: str, authors: Iterable[Sequence[Process]], action: str
) -> None:
    """Raise PermissionDenied if the session is the caller's own, or its kin's and the PIN is missing."""
    if candidate.session == session:
        raise PermissionDenied(
            f"The session {session!r} may not {action}.", hint="Ask a person.", data={"session": session}
        )
    check_kin(candidate, authors, f"do that for the session {session!r}")


def check_kin(candidate: Candidate, authors: Iterable[Sequence[Process]], action: str) -> None:
    """Raise PermissionDenied if a connection is of an author's kin, and has not given the PIN."""
    if candidate.has_pin:
        return
    own = candidate.processes()
    program = next((name for line in authors if (name := common_program(line, own))), None)
    if program is None:
        return
    needs_pin = candidate.is_pin_set()
    raise PermissionDenied(
        f"{program} has started both this program and the author's, so it may {action} only with the PIN.",
        hint=Advice(step_term("give_pin"), ", or use a terminal of your own.")
        if needs_pin
        else Advice("Set a PIN with ", command_term("review pin"), ", or use a terminal of your own."),
        data={"needs_pin": needs_pin, "program": program},
    )


def is_author(
    candidate: Candidate, proposal: Proposal, opened_us: int | None, *, is_trusted: Callable[[], bool]
) -> bool:
    """Return whether a connection is the author's of a proposal: it has made it, or acts in its session.

    `opened_us` is the time when a session of that name was opened, None if none is open. A later session
    of the name is another author. Without an open session, the connection must be the owner's, or the
    agent's of that session (`is_trusted`).
    """
    if proposal.number in candidate.proposed:
        return True
    session = proposal.authorship.session
    if session is None or session != candidate.session:
        return False
    return is_trusted() if opened_us is None else opened_us <= proposal.created_us


def check_author(number: ProposalNumber, *, is_author: bool) -> None:
    """Raise PermissionDenied unless the author of a proposal asks."""
    if not is_author:
        raise PermissionDenied(
            f"Proposal {number} is not of this session.",
            hint=Advice(method_term("proposal.reject"), " decides about the work of others."),
            data={"proposal": number},
        )
