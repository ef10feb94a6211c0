"""The methods for a person who steers agents: pauses of sessions, and marks of reviewed work.

A session may neither resume itself nor mark its own work. While it has an open proposal, the kin of its
author's processes needs the PIN, as for a decision about that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.advice import Advice, method_term
from editd.engine.sessions import refused_by
from editd.errors import InvalidParams, UnknownSession
from editd.server import convert
from editd.store.session_store import Pause, ReviewNote
from editd.wire import messages

if TYPE_CHECKING:
    from editd.server.connection import ClientState
    from editd.server.methods import Services

REASON_CHARACTERS_MAX = 1_000
MARKS_MAX = 10_000  # in one request


# ── pauses ──


def pause(
    services: Services, params: messages.SessionPause, caller: ClientState
) -> messages.SessionPauseResult:
    name = params.session
    if len(params.reason) > REASON_CHARACTERS_MAX:
        raise InvalidParams(f"`reason` has at most {REASON_CHARACTERS_MAX} characters.")
    _check_known(services, name)
    if name in services.guard.sessions.paused:  # another pause may be a looser one
        services.gate.check_person(name, caller, "change its own pause")
    made = Pause(name, params.action, params.reason, _person(services, caller), services.guard.clock.now_us())
    services.guard.sessions.pause(made)
    ended = services.leases.end_of(name, refused_by(made)) if params.end_leases else []
    services.subscriptions.tell("session", {"what": "paused", "session": name})
    return messages.SessionPauseResult(paused=convert.pause(made), leases=ended)


def resume(services: Services, params: messages.SessionResume, caller: ClientState) -> messages.Empty:
    name = params.session
    services.gate.check_person(name, caller, "resume itself")
    services.guard.sessions.resume(name)
    services.subscriptions.tell("session", {"what": "resumed", "session": name})
    return messages.Empty()


def _check_known(services: Services, name: str) -> None:
    """Raise UnknownSession for a name that is not open and has no work, such as one with a typing error."""
    is_known = (
        services.guard.sessions.get(name) is not None
        or services.engine.history.index.first_of(name) is not None
        or any(agent.session == name for agent in services.spans.agents())
    )
    if not is_known:
        raise UnknownSession(
            f"There is no session {name!r}.",
            hint=Advice(method_term("session.list"), " lists them."),
            data={"session": name},
        )


def _person(services: Services, caller: ClientState) -> str:
    return services.sessions.actor(None, caller) or convert.ANYBODY


# ── marks ──


def mark(services: Services, params: messages.ReviewMark, caller: ClientState) -> messages.ReviewMarkResult:
    seqs = sorted(set(params.transactions))
    if not 1 <= len(seqs) <= MARKS_MAX:
        raise InvalidParams(f"`transactions` names between 1 and {MARKS_MAX} transactions.")
    index, registry = services.engine.history.index, services.guard.registry
    authors = index.authors(seqs)
    if missing := set(seqs) - authors.keys():
        services.engine.history.find(min(missing))  # raises UnknownTransaction
    for session in sorted({session for session in authors.values() if session is not None}):
        services.gate.check_person(session, caller, "mark its own work as reviewed")
    note = ReviewNote(_person(services, caller), services.guard.clock.now_us())
    changed = registry.mark(seqs, note if params.reviewed else None)
    if changed and index.knows_marks:
        index.mark(changed, is_reviewed=params.reviewed)
    if changed:
        event = "marked" if params.reviewed else "unmarked"
        services.subscriptions.tell("review", {"what": event, "transactions": changed, "by": note.actor})
    return messages.ReviewMarkResult(marked=len(changed))


def know_marks(services: Services) -> None:
    """Give the index the marks, before its first query of unreviewed work."""
    index = services.engine.history.index
    if not index.knows_marks:
        index.mark(services.guard.registry.list_marked())
