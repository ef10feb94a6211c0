"""The methods of the history: `log`, `show`, `gc`, `blame`, and `session.list` with each session's work."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct
from msgspec.structs import replace

from editd.edits.diff import line_counts
from editd.engine.external_changes import recorded_state
from editd.engine.queries import LineBlame, changes_of
from editd.engine.undo import numbered_hunks
from editd.engine.undo_selection import ROLLED_BACK
from editd.errors import FileMissing, InvalidParams, NotText, PathIgnored, Timeout
from editd.server import convert
from editd.store.commit_message import rfc3339
from editd.store.index import UndoQuery
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from editd.engine.sessions import OpenSession
    from editd.server.connection import Answer, ClientState
    from editd.server.methods import Services
    from editd.store.index import SessionWork
    from editd.values.content import Version
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry, Transaction

LOG_TRANSACTIONS_MAX = 10_000  # in one answer; `before` continues it
SLICE_SECONDS = 0.02  # of the engine's time, before other requests get theirs
BLAME_SECONDS_MAX = 60.0  # some 50,000 versions of a file of 1,000 lines
LOT = 200  # transactions that are counted at once, so that other requests come in between
LINES_SECONDS = 5.0  # for counting the lines of all sessions; later ones get none


def log(services: Services, params: messages.Log, _caller: ClientState) -> messages.LogResult:
    if not 1 <= params.limit <= LOG_TRANSACTIONS_MAX:
        raise InvalidParams(f"`limit` is between 1 and {LOG_TRANSACTIONS_MAX}.")
    found, more = services.queries.transactions(convert.wanted(params), params.limit)
    published = services.guard.registry.published([int(tx.seq) for tx in found])
    shown = [convert.transaction_result(tx, published.get(int(tx.seq))) for tx in found]
    return messages.LogResult(transactions=shown, more=more)


def show(services: Services, params: messages.Show, _caller: ClientState) -> messages.ShowResult:
    found = services.engine.history.find(params.tx)
    diff = convert.diff_of(changes_of(found, services.engine.history)) if params.diff else None
    published = services.guard.registry.published([int(found.seq)]).get(int(found.seq))
    shown = convert.transaction_result(found, published)
    hunks = [
        messages.Hunk(path=path.text, hunk=number, diff=text)
        for path, number, text in (numbered_hunks(services.engine.history, found) if params.hunks else ())
    ]
    return messages.ShowResult(transaction=shown, diff=diff, hunks=hunks if params.hunks else UNSET)


async def gc(services: Services, params: messages.Gc, _caller: ClientState) -> messages.GcResult:
    return messages.GcResult(**await services.retention.run(is_dry=params.dry_run))


def blame(
    services: Services, params: messages.Blame, _caller: ClientState
) -> Awaitable[messages.BlameResult]:
    path = services.engine.tree.resolve(convert.path(params.path))
    version = _recorded(services, path)
    return _blamed(services, path, version, LineBlame(services.engine.history, path, version))


def _recorded(services: Services, path: WorkspacePath) -> Version:
    """Record the current content, as `read` does, and return its version. Raises Refused."""
    state = services.engine.look(path)
    data = {"path": path.text}
    if state is None:
        raise FileMissing(f"{path} does not exist.", hint="Run `log` to see its deletion.", data=data)
    entry = services.engine.history.entry(path)
    if entry is None:
        raise PathIgnored(
            f"{path} is not in the history: git ignores it, and no edit has touched it.",
            hint="Edit the file to add it to the history.",
            data=data,
        )
    if b"\0" in state.content:
        raise NotText(
            f"{path} has a NUL in it, and no lines.", hint="Run `log` to see its authors.", data=data
        )
    return entry.version


async def _blamed(
    services: Services, path: WorkspacePath, version: Version, lines: LineBlame
) -> messages.BlameResult:
    loop = asyncio.get_running_loop()
    until = loop.time() + BLAME_SECONDS_MAX
    while not await services.queue.run_in_thread(partial(lines.run_for, SLICE_SECONDS)):
        if loop.time() > until:
            raise Timeout(
                f"{path} has too many versions to go through within {BLAME_SECONDS_MAX:g} s.",
                hint="Run `log` with this path to list its transactions.",
                data={"path": path.text},
            )
        await asyncio.sleep(0)  # requests that wait for a turn go first
    return messages.BlameResult(
        version=version, lines=await services.queue.run(partial(_blame_lines, services, lines))
    )


def _blame_lines(services: Services, lines: LineBlame) -> list[messages.BlameLine]:
    made = {seq: services.engine.history.index.made(seq) for seq in set(lines.seqs)}
    return [
        messages.BlameLine(
            line=number,
            seq=seq,
            actor=made[seq].actor,
            session=made[seq].session,
            time=rfc3339(made[seq].time_us),
        )
        for number, seq in enumerate(lines.seqs, 1)
    ]


def session_list(services: Services, params: messages.SessionList, _caller: ClientState) -> Answer:
    entries = [_entry(session) for session in services.guard.sessions]
    if params.all:
        known = {entry.session for entry in entries}
        entries += [
            _closed(work) for work in services.engine.history.index.sessions() if work.name not in known
        ]
        entries.sort(key=lambda entry: entry.used, reverse=True)
    return (
        _all_with_counts(services, entries) if params.stat else messages.SessionListResult(sessions=entries)
    )


async def _all_with_counts(
    services: Services, entries: list[messages.SessionEntry]
) -> messages.SessionListResult:
    until = time.monotonic() + LINES_SECONDS
    counted = [await _with_counts(services, entry, until) for entry in entries]
    return messages.SessionListResult(sessions=counted)


async def _with_counts(
    services: Services, entry: messages.SessionEntry, until: float
) -> messages.SessionEntry:
    """Count the session's edits in force, their files and their lines."""
    work = _Counts()
    chosen = UndoQuery(ROLLED_BACK, (entry.session,))
    while oldest := await services.queue.run(partial(_count, services, chosen, work, until)):
        chosen = replace(chosen, until=oldest - 1)
    return _counted(entry, work)


def _count(services: Services, chosen: UndoQuery, work: _Counts, until: float) -> int:
    """Count the next transactions; return the oldest of them, 0 if there are no more."""
    lot = services.engine.history.index.in_force(chosen, LOT)
    if not lot:
        return 0
    for transaction in lot:
        work.edits += 1
        work.paths.update(touch.path.raw for touch in transaction.touches if touch.undone_by is None)
        work.is_whole = work.is_whole and time.monotonic() < until
        if work.is_whole:
            _count_lines(services, transaction, work)
    commits = services.guard.registry.published([int(transaction.seq) for transaction in lot]).values()
    work.published.update((found.commit, found.branch) for found in commits)
    return int(lot[-1].seq)


def _count_lines(services: Services, transaction: Transaction, work: _Counts) -> None:
    history = services.engine.history
    for before, after in _pairs(transaction):
        states = recorded_state(before, history), recorded_state(after, history)
        added, removed = line_counts(*states)
        work.added += added
        work.removed += removed


class _Counts(Struct):
    """The size of a session's work in force."""

    edits: int = 0
    paths: set[bytes] = set()
    added: int = 0
    removed: int = 0
    is_whole: bool = True  # whether the lines of all edits are counted
    published: set[tuple[str, str]] = set()


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


def _counted(entry: messages.SessionEntry, work: _Counts) -> messages.SessionEntry:
    return replace(
        entry,
        edits=work.edits,
        files=len(work.paths),
        added=work.added if work.is_whole else None,
        removed=work.removed if work.is_whole else None,
        published=[messages.Published(commit=oid, branch=branch) for oid, branch in sorted(work.published)],
    )


def _entry(found: OpenSession) -> messages.SessionEntry:
    session = found.session
    return messages.SessionEntry(
        session=session.name,
        actor=session.actor,
        scope=messages.Scope(write=_texts(session.bounds.write), read=_texts(session.bounds.read)),
        on_stale=session.on_stale,
        unread=session.unread,
        ttl=session.ttl,
        created=rfc3339(session.created_us),
        used=rfc3339(found.used_us),
        connections=len(found.connections),
        in_doubt=session.is_in_doubt,
        state="connected" if found.connections else "open",
    )


def _closed(work: SessionWork) -> messages.SessionEntry:
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
