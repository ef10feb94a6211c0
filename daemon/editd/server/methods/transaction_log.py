"""The methods `log` and `log.count`, and the count of a transaction's lines.

A short answer is made in the turn of its request. A long one is made in the engine's thread, some
transactions at a time, so that other requests come in between. Many files make a short list long, too.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from editd.advice import Advice, argument_term
from editd.edits.diff import line_counts
from editd.engine.undo_selection import times_warning
from editd.errors import ContentExcluded, ContentForgotten, InvalidParams, Timeout, TooLarge
from editd.server import convert
from editd.server.methods.oversight import know_marks
from editd.store.path_history import in_recorded_form
from editd.store.recorded_state import recorded_state
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.server.connection import Answer, ClientState
    from editd.server.methods import Services
    from editd.store.index_tables import LogQuery
    from editd.values.content import Entry
    from editd.values.transaction import Transaction

    LogAnswer = messages.LogResult | messages.BriefLogResult

LOG_TRANSACTIONS_MAX = 10_000  # in one answer; `before` continues it
STAT_TRANSACTIONS_MAX = 200  # whose lines one `log` counts
AT_ONCE = 100  # transactions of a short answer, and of a step of a long one
FILES_AT_ONCE = 1_000  # of all transactions of a short answer, or of a step
SLICE_SECONDS = 0.02  # of the engine's time, before other requests get theirs
LINES_SECONDS = 5.0  # for counting the lines of an answer; the rest of it gets none
UNCOUNTED = (ContentExcluded, ContentForgotten, Timeout, TooLarge)  # no content, or too much: no count


class LogRow(Struct, frozen=True):
    """A transaction of a log, as the history has it and as a message."""

    transaction: Transaction
    shown: messages.Transaction
    files: tuple[int, str | None]  # their number and the first path, for a brief log


def log(services: Services, params: messages.Log, caller: ClientState) -> Answer:
    if not 1 <= params.limit <= LOG_TRANSACTIONS_MAX:
        raise InvalidParams(f"`limit` is between 1 and {LOG_TRANSACTIONS_MAX}.")
    if params.stat and params.limit > STAT_TRANSACTIONS_MAX:
        raise InvalidParams(
            f"With `stat`, `limit` is at most {STAT_TRANSACTIONS_MAX}.",
            hint=Advice(argument_term("before"), " continues the list."),
        )
    wanted = _wanted(services, params, caller)
    if params.stat or params.limit > AT_ONCE:
        return _long_log(services, params, wanted)
    transactions, more = services.queries.transactions(wanted, params.limit, files=False)
    if services.engine.history.index.is_wide(_seqs(transactions), FILES_AT_ONCE):
        return _long_log(services, params, wanted)
    return _answer(services, params, _rows(services, params, transactions), more=more)


async def _long_log(services: Services, params: messages.Log, wanted: LogQuery) -> LogAnswer:
    run = services.queue.run_in_thread
    select = partial(services.queries.transactions, wanted, params.limit, files=False)
    left, more = await run(select)
    rows: list[LogRow] = []
    while left:
        step, left = await run(partial(_step, services, params, left))
        rows += step
    if params.stat:
        rows = await _with_lines(services, rows)
    return _answer(services, params, rows, more=more)


def _step(
    services: Services, params: messages.Log, left: list[Transaction]
) -> tuple[list[LogRow], list[Transaction]]:
    """Return the rows of the first transactions, and the transactions that are left after some time."""
    until = time.monotonic() + SLICE_SECONDS
    rows: list[LogRow] = []
    while left and time.monotonic() < until:
        is_wide = services.engine.history.index.is_wide(_seqs(left[:AT_ONCE]), FILES_AT_ONCE)
        few, left = (left[:1], left[1:]) if is_wide else (left[:AT_ONCE], left[AT_ONCE:])
        rows += _rows(services, params, few)
    return rows, left


def _rows(services: Services, params: messages.Log, heads: Sequence[Transaction]) -> list[LogRow]:
    """Return the rows of transactions that have no touches yet."""
    registry, index = services.guard.registry, services.engine.history.index
    seqs = _seqs(heads)
    transactions = list(heads)
    if params.stat or not params.brief:
        transactions = index.transactions(seqs)[::-1]
    published, marked = registry.publications_of(seqs), registry.marks_of(seqs)
    landed = index.log_numbers_of(seqs) if services.shared_log.is_joined else {}
    counts = index.file_counts(seqs) if params.brief else {}
    shown = [
        convert.transaction_result(one, published.get(one.seq), landed.get(one.seq), marked.get(one.seq))
        for one in transactions
    ]
    return [
        LogRow(one, with_notes(services, message, one), counts.get(one.seq, (0, None)))
        for one, message in zip(transactions, shown, strict=True)
    ]


def _seqs(transactions: Sequence[Transaction]) -> list[int]:
    return [int(one.seq) for one in transactions]


def _answer(
    services: Services, params: messages.Log, rows: Sequence[LogRow], *, more: bool
) -> messages.LogResult | messages.BriefLogResult:
    warnings = _times_warning(services, params)
    if not params.brief:
        return messages.LogResult(transactions=[row.shown for row in rows], more=more, warnings=warnings)
    brief = [convert.brief_transaction(row.shown, *row.files) for row in rows]
    return messages.BriefLogResult(transactions=brief, more=more, warnings=warnings)


def _times_warning(services: Services, params: messages.LogFilter) -> list[str] | UnsetType:
    return [*times_warning(params.since, params.until, services.engine.history)] or UNSET


def with_notes(services: Services, shown: messages.Transaction, found: Transaction) -> messages.Transaction:
    """Return a transaction with the contents that the history lacks, and what stays on this host."""
    engine = services.engine
    if engine.history.has_gaps:
        shown = convert.with_gaps(shown, found, engine.history)
    return shown if engine.unshared is None else convert.with_unshared(shown, found, engine.unshared)


async def _with_lines(services: Services, rows: Sequence[LogRow]) -> list[LogRow]:
    """Add the lines that each transaction added and deleted."""
    until = time.monotonic() + LINES_SECONDS
    counted: list[LogRow] = []
    for row in rows:
        added = removed = None
        if time.monotonic() < until:
            with contextlib.suppress(*UNCOUNTED):
                count = partial(lines_as_made, services, row.transaction)
                added, removed = await services.queue.run_in_thread(count)
        counted.append(replace(row, shown=replace(row.shown, added=added, deleted=removed)))
    return counted


def lines_as_made(services: Services, transaction: Transaction) -> tuple[int, int]:
    """Count the lines of a transaction, whether or not a part of it was undone later."""
    touches = tuple(replace(one, undone_by=None) for one in transaction.touches)
    return lines_of(services, replace(transaction, touches=touches))


def lines_of(services: Services, transaction: Transaction) -> tuple[int, int]:
    """Return the numbers of lines that a transaction added and removed."""
    history = services.engine.history
    counts = [
        line_counts(recorded_state(before, history), recorded_state(after, history))
        for before, after in _pairs(transaction)
    ]
    return sum(added for added, _ in counts), sum(removed for _, removed in counts)


def _pairs(transaction: Transaction) -> Iterator[tuple[Entry | None, Entry | None]]:
    """The states before and after, path by path; a moved file is one pair."""
    touches = {touch.path: touch for touch in transaction.touches if touch.undone_by is None}
    moved = {touch.source for touch in touches.values() if touch.source in touches}
    for path, touch in touches.items():
        source = None if touch.source is None else touches.get(touch.source)
        if source is not None and touch.before is None:
            yield source.before, touch.after
        elif path not in moved or touch.after is not None:
            yield touch.before, touch.after


def log_count(services: Services, params: messages.LogCount, caller: ClientState) -> messages.LogCountResult:
    history = services.engine.history
    return messages.LogCountResult(
        count=history.index.count_matching(_wanted(services, params, caller)), head=history.head,
        warnings=_times_warning(services, params),
    )  # fmt: skip


def _wanted(services: Services, params: messages.LogFilter, caller: ClientState) -> LogQuery:
    if params.unreviewed:
        know_marks(services)
    query, history = convert.wanted(params), services.engine.history
    if params.prompt:
        query = replace(query, of_turns=_turns_with(services, params.prompt, caller))
    return replace(query, paths=tuple(in_recorded_form(path, history) for path in query.paths))


def _turns_with(services: Services, text: str, caller: ClientState) -> tuple[tuple[str, int], ...]:
    """Return the turns whose prompt has a text, of those that the connection may read."""
    turns, gate = services.turns, services.gate
    if gate.sees_all_prompts(caller):
        return tuple(turns.store.with_text(text, None))
    own = caller.session
    if own is None or not gate.sees_prompts(own, turns.process_of(own), caller):
        return ()
    return tuple(turns.store.with_text(text, [own]))
