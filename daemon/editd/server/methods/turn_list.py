"""The method `turns`: the prompts of agents, each with the transactions that followed it.

The text of a prompt is for the owner and for the turn's own session, and so are the agent's own ids.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.errors import InvalidParams
from editd.server import convert
from editd.server.methods.transaction_log import (
    LINES_SECONDS,
    STAT_TRANSACTIONS_MAX,
    UNCOUNTED,
    lines_as_made,
)
from editd.store.transaction_record import rfc3339
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.server.connection import Answer, ClientState
    from editd.server.methods import Services
    from editd.store.index_tables import TurnWork
    from editd.store.turn_store import Turn

TURNS_MAX = 1_000  # in one answer


def turns(services: Services, params: messages.Turns, caller: ClientState) -> Answer:
    limit_max = STAT_TRANSACTIONS_MAX if params.stat else TURNS_MAX
    if not 1 <= params.limit <= limit_max:
        raise InvalidParams(f"`limit` is between 1 and {limit_max}.")
    before_us = None if params.before is None else convert.time_us(params.before)
    listed = services.turns.store.before(params.session, before_us, params.limit + 1)
    entries = entries_of(services, listed[: params.limit], caller)
    answer = messages.TurnsResult(turns=entries, more=len(listed) > params.limit)
    return _with_lines(services, answer) if params.stat else answer


def entries_of(services: Services, listed: Sequence[Turn], caller: ClientState) -> list[messages.TurnEntry]:
    """Return turns with their transactions, and with their prompts for a client that may read them."""
    numbers: dict[str, list[int]] = {}
    for turn in listed:
        numbers.setdefault(turn.session, []).append(turn.number)
    work: dict[tuple[str, int], list[TurnWork]] = {}
    outcomes: dict[tuple[str, int], dict[str, int]] = {}
    for session, own in numbers.items():
        first, last = min(own), max(own)
        for one in services.engine.history.index.of_turns(session, first, last):
            work.setdefault((session, one.turn), []).append(one)
        calls = services.turns.store.outcomes(session, first, last)
        outcomes |= {(session, number): counts for number, counts in calls.items()}
    waiting = _waiting(services)
    readable = {session for session in numbers if sees_prompts(services, session, caller)}
    return [
        _entry(
            turn, work.get(key, ()), waiting.get(key, []), outcomes.get(key, {}),
            is_readable=turn.session in readable,
        )
        for turn in listed
        for key in [(turn.session, turn.number)]
    ]  # fmt: skip


def sees_prompts(services: Services, session: str, caller: ClientState) -> bool:
    """Return whether a connection may read the prompts of a session."""
    return services.gate.sees_prompts(session, services.turns.process_of(session), caller)


def _waiting(services: Services) -> dict[tuple[str, int], list[int]]:
    """Return the open proposals of each turn."""
    waiting: dict[tuple[str, int], list[int]] = {}
    proposals = services.engine.landing.proposals
    for proposal in () if proposals is None else proposals.store.open.values():
        author = proposal.authorship
        if author.session is not None and author.turn is not None:
            waiting.setdefault((author.session, author.turn.number), []).append(int(proposal.number))
    return waiting


def _entry(
    turn: Turn,
    work: Sequence[TurnWork],
    proposals: list[int],
    calls: dict[str, int],
    *,
    is_readable: bool,
) -> messages.TurnEntry:
    parent = None if turn.parent is None else messages.TurnOf(session=turn.parent[0], turn=turn.parent[1])
    return messages.TurnEntry(
        session=turn.session,
        turn=turn.number,
        agent=turn.agent,
        model=turn.model,
        source=turn.source,
        parent=parent,
        began=rfc3339(turn.began_us),
        ended=None if turn.ended_us is None else rfc3339(turn.ended_us),
        reason=turn.reason,
        characters=turn.characters,
        redactions=turn.redactions,
        prompt=turn.prompt if is_readable else None,
        conversation=turn.conversation if is_readable else None,
        native=turn.native if is_readable else None,
        transcript=turn.transcript if is_readable else None,
        transactions=[
            messages.TurnTransaction(seq=one.seq, kind=one.kind, message=one.message, undone_by=one.undone_by)
            for one in work
        ],
        proposals=proposals,
        calls=calls,
    )


async def _with_lines(services: Services, answer: messages.TurnsResult) -> messages.TurnsResult:
    """Add the lines that each transaction added and deleted, as `log` does."""
    until = time.monotonic() + LINES_SECONDS
    counted: list[messages.TurnEntry] = []
    for turn in answer.turns:
        transactions = []
        for one in turn.transactions:
            added = deleted = None
            if time.monotonic() < until:
                with contextlib.suppress(*UNCOUNTED):
                    count = partial(_lines_of, services, one.seq)
                    added, deleted = await services.queue.run_in_thread(count)
            transactions.append(replace(one, added=added, deleted=deleted))
        counted.append(replace(turn, transactions=transactions))
    return replace(answer, turns=counted)


def _lines_of(services: Services, seq: int) -> tuple[int, int]:
    return lines_as_made(services, services.engine.history.find(seq))
