"""The method `session.list`: the open sessions, the closed ones, and the work and the activity of each."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from editd.engine.undo_selection import ROLLED_BACK
from editd.server import convert
from editd.server.methods.transaction_log import LINES_SECONDS, UNCOUNTED, lines_of
from editd.store.index_tables import LogQuery, SessionWork, UndoQuery
from editd.store.transaction_record import rfc3339
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Collection

    from editd.engine.sessions import OpenSession
    from editd.server.connection import Answer, ClientState
    from editd.server.methods import Services
    from editd.values.glob import Glob
    from editd.values.transaction import Transaction

    Worked = tuple[SessionWork, messages.SessionEntry]  # a session of the history, and its entry if closed

LOT = 200  # transactions that are counted at once, so that other requests come in between


def session_list(services: Services, params: messages.SessionList, _caller: ClientState) -> Answer:
    names = {session.session.name for session in services.guard.sessions}
    if params.all or params.closed is not None or services.guard.sessions.paused.keys() - names:
        return _with_history(services, params)
    entries = _with_pauses(services, _open(services))
    if params.stat or params.activity:
        return _all_with_counts(services, params, entries)
    return messages.SessionListResult(sessions=entries)


async def _with_history(services: Services, params: messages.SessionList) -> messages.SessionListResult:
    """List closed sessions, too. A thread reads them from the history, because that may take long."""
    closed = await services.queue.run_in_thread(partial(_work_by_name, services))
    entries = await services.queue.run(lambda: _with_pauses(services, _list(services, params, closed)))
    if params.stat or params.activity:
        return await _all_with_counts(services, params, entries)
    return messages.SessionListResult(sessions=entries)


def _work_by_name(services: Services) -> dict[str, Worked]:
    return {work.name: (work, _closed_entry(work)) for work in services.engine.history.index.sessions()}


def _list(
    services: Services, params: messages.SessionList, closed: dict[str, Worked]
) -> list[messages.SessionEntry]:
    entries = _open(services)
    entries += _paused_names(services, closed, {entry.session for entry in entries})
    if params.all or params.closed is not None:
        since_us = 0 if params.closed is None else convert.time_us(params.closed)
        known = {entry.session for entry in entries}
        waiting = services.proposals.waiting_sessions()
        proposing = {
            name: (work, _closed_entry(work)) for name, work in waiting.items() if name not in closed
        }
        entries += [
            entry
            for name, (work, entry) in (proposing | closed).items()
            if name not in known and (work.last_us >= since_us or name in waiting)
        ]
        entries.sort(key=lambda entry: entry.used, reverse=True)
    return entries


def _open(services: Services) -> list[messages.SessionEntry]:
    return [_entry(session) for session in services.guard.sessions]


def _paused_names(
    services: Services, closed: dict[str, Worked], known: Collection[str]
) -> list[messages.SessionEntry]:
    """Return the paused sessions that are not open: the word of a person about them holds even so."""
    pauses = services.guard.sessions.paused
    return [
        closed[name][1]
        if name in closed
        else _closed_entry(SessionWork(name, name, pauses[name].since_us, pauses[name].since_us))
        for name in sorted(pauses.keys() - known)
    ]


def _with_pauses(services: Services, entries: list[messages.SessionEntry]) -> list[messages.SessionEntry]:
    pauses = services.guard.sessions.paused
    return [
        replace(entry, paused=convert.pause(pauses[entry.session])) if entry.session in pauses else entry
        for entry in entries
    ]


async def _all_with_counts(
    services: Services, params: messages.SessionList, entries: list[messages.SessionEntry]
) -> messages.SessionListResult:
    until = time.monotonic() + LINES_SECONDS
    counted: list[messages.SessionEntry] = []
    for entry in entries:
        counted_entry = await _with_counts(services, entry, until)
        if params.activity:
            activity = await services.queue.run(partial(_activity, services, counted_entry))
            counted_entry = replace(counted_entry if params.stat else entry, activity=activity)
        counted.append(counted_entry)
    return messages.SessionListResult(sessions=counted)


def _activity(services: Services, entry: messages.SessionEntry) -> messages.SessionActivity:
    """Return what a session does at present; `entry` has the counts of its work."""
    index, name = services.engine.history.index, entry.session
    newest = index.log(LogQuery(sessions=(name,)), 1)
    edits = LogQuery(sessions=(name,), kinds=("edit", "exec"))
    proposals = services.proposals.open_of(name)
    running, wait = services.spans.running(name), services.guard.leases.waiting_of(name)
    waits: Literal["review", "lease"] | None = None
    since = running[-1].since_us if running else None
    if wait is not None:
        waits, since = "lease", wait.since_us
    if (reviewed_since := services.proposals.waited_since(proposals)) is not None:
        waits, since = "review", reviewed_since
    return messages.SessionActivity(
        last=_last(newest[0]) if newest else None,
        edits=index.count_matching(edits),
        in_force=index.count_matching(replace(edits, is_in_force=True)),
        added=entry.added if isinstance(entry.added, int) else None,
        deleted=entry.removed if isinstance(entry.removed, int) else None,
        proposals=proposals,
        leases=[lease.id for lease in services.guard.leases if lease.session == name],
        running=[span.command for span in running],
        waits_for=waits,
        since=None if since is None else rfc3339(since),
        wants=[] if wait is None else [glob.text for glob in wait.paths],
        holders=[] if wait is None else services.guard.leases.holders(wait),
        missed=services.spans.missed(name),
    )


def _last(newest: Transaction) -> messages.LastTransaction:
    return messages.LastTransaction(
        seq=newest.seq,
        time=rfc3339(newest.time_us),
        kind=newest.kind,
        path=newest.touches[0].path.text if newest.touches else None,
        message=newest.authorship.message,
    )


async def _with_counts(
    services: Services, entry: messages.SessionEntry, until: float
) -> messages.SessionEntry:
    """Count the session's edits in force, their files and their lines."""
    work = _Counts()
    chosen = UndoQuery(ROLLED_BACK, (entry.session,))
    while oldest := await services.queue.run_in_thread(partial(_count, services, chosen, work, until)):
        chosen = replace(chosen, until=oldest - 1)
    return _add_counts(entry, work)


def _count(services: Services, chosen: UndoQuery, work: _Counts, until: float) -> int:
    """Count the next transactions; return the oldest of them, 0 if there are no more."""
    lot = services.engine.history.index.in_force(chosen, LOT)
    if not lot:
        return 0
    counts = [(0, 0)] * len(lot)
    for number, transaction in enumerate(lot):
        work.is_whole = work.is_whole and time.monotonic() < until
        if work.is_whole:
            try:
                counts[number] = lines_of(services, transaction)
            except UNCOUNTED:
                work.is_whole = False
    # Nothing is added before the last line is counted, because a comparison may begin the lot again.
    work.edits += len(lot)
    work.added += sum(added for added, _ in counts)
    work.removed += sum(removed for _, removed in counts)
    for transaction in lot:
        work.paths.update(touch.path.raw for touch in transaction.touches if touch.undone_by is None)
    commits = services.guard.registry.publications_of([int(transaction.seq) for transaction in lot]).values()
    work.published.update((publication.commit, publication.branch) for publication in commits)
    return int(lot[-1].seq)


class _Counts(Struct):
    """The size of a session's work in force."""

    edits: int = 0
    paths: set[bytes] = set()
    added: int = 0
    removed: int = 0
    is_whole: bool = True  # whether the lines of all edits are counted
    published: set[tuple[str, str]] = set()


def _add_counts(entry: messages.SessionEntry, work: _Counts) -> messages.SessionEntry:
    return replace(
        entry,
        edits=work.edits,
        files=len(work.paths),
        added=work.added if work.is_whole else None,
        removed=work.removed if work.is_whole else None,
        published=[messages.Published(commit=oid, branch=branch) for oid, branch in sorted(work.published)],
    )


def _entry(opened: OpenSession) -> messages.SessionEntry:
    session = opened.session
    return messages.SessionEntry(
        session=session.name,
        actor=session.actor,
        scope=messages.Scope(write=_texts(session.bounds.write), read=_texts(session.bounds.read)),
        on_stale=session.on_stale,
        unread=session.unread,
        ttl=session.ttl,
        created=rfc3339(session.created_us),
        used=rfc3339(opened.used_us),
        connections=len(opened.connections),
        in_doubt=session.is_in_doubt,
        kind=session.kind,
        state="connected" if opened.connections else "open",
    )


def _closed_entry(work: SessionWork) -> messages.SessionEntry:
    """Describe a session that the history knows and that is not open."""
    return messages.SessionEntry(
        session=work.name,
        actor=work.actor,
        scope=messages.Scope(),
        on_stale=None,
        unread="allow",
        ttl=0.0,
        created=rfc3339(work.first_us),
        used=rfc3339(work.last_us),
        connections=0,
        in_doubt=False,
        state="closed",
    )


def _texts(globs: tuple[Glob, ...] | None) -> list[str] | None:
    return None if globs is None else [glob.text for glob in globs]
