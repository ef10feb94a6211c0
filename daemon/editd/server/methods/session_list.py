"""The method `session.list`, with closed sessions and the size of each session's work on request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from editd.edits.diff import line_counts
from editd.engine.external_changes import recorded_state
from editd.engine.undo_selection import ROLLED_BACK
from editd.store.commit_message import rfc3339
from editd.store.index import UndoQuery
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from editd.engine.access import AccessControl
    from editd.engine.engine import Engine
    from editd.engine.sessions import OpenSession
    from editd.server.dispatch import ClientState, MethodCall
    from editd.server.engine_queue import EngineQueue
    from editd.store.index import Index, SessionWork
    from editd.values.glob import Glob
    from editd.values.transaction import Entry, Transaction

LOT = 200  # transactions at once, so that other requests come in between
LINES_SECONDS = 5.0  # for counting the lines of all sessions; later ones get none


class SessionListMethod:
    def __init__(
        self,
        engine: Engine,
        guard: AccessControl,
        queue: EngineQueue,
        later: Callable[[Coroutine[Any, Any, None], MethodCall], None],
    ) -> None:
        """`later` runs the slow part of a request, and answers with its refusal."""
        self._engine = engine
        self._guard = guard
        self._queue = queue
        self._later = later
        self.methods: dict[type[messages.Params], Callable[[Any, ClientState, MethodCall], None]] = {
            messages.SessionList: self._list
        }

    def _list(self, params: messages.SessionList, caller: ClientState, call: MethodCall) -> None:
        del caller
        entries = [_entry(session) for session in self._guard.sessions]
        if params.all:
            known = {entry.session for entry in entries}
            entries += [_closed(work) for work in self._index.sessions() if work.name not in known]
            entries.sort(key=lambda entry: entry.used, reverse=True)
        if not params.stat:
            call.reply(messages.SessionListResult(sessions=entries))
            return

        async def answer() -> None:
            until = time.monotonic() + LINES_SECONDS
            counted = [await self._with_counts(entry, until) for entry in entries]
            call.reply(messages.SessionListResult(sessions=counted))

        self._later(answer(), call)

    async def _with_counts(self, entry: messages.SessionEntry, until: float) -> messages.SessionEntry:
        """Count the session's edits in force, their files and their lines."""
        work = _Counts()
        chosen = UndoQuery(ROLLED_BACK, (entry.session,))
        while True:
            await self._queue.idle()
            lot = self._index.in_force(chosen, LOT)
            if not lot:
                break
            for transaction in lot:
                work.edits += 1
                work.paths.update(touch.path.raw for touch in transaction.touches if touch.undone_by is None)
                work.is_whole = work.is_whole and time.monotonic() < until
                if work.is_whole:
                    self._count_lines(transaction, work)
            commits = self._guard.registry.published([int(transaction.seq) for transaction in lot]).values()
            work.published.update((found.commit, found.branch) for found in commits)
            chosen = replace(chosen, until=int(lot[-1].seq) - 1)
        return _counted(entry, work)

    def _count_lines(self, transaction: Transaction, work: _Counts) -> None:
        history = self._engine.history
        for before, after in _pairs(transaction):
            states = recorded_state(before, history), recorded_state(after, history)
            added, removed = line_counts(*states)
            work.added += added
            work.removed += removed

    @property
    def _index(self) -> Index:
        return self._engine.history.index


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
