"""The methods `exec.*`, `claim` and `seen`: the work of an agent's own tools and commands, by its reports.

A span begins and ends when all changes made before are recorded. A span with paths looks at its files only. A
command's span waits for the watcher, and pauses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from editd.advice import GIVE_SESSION
from editd.edits.tool_change import CallText, is_called_for, is_written
from editd.engine.answers import explained
from editd.engine.ended_keys import EndedKeys
from editd.engine.exec_spans import (
    LOST,
    Claims,
    ExecSpan,
    ExecSpans,
    changes_since,
    check_id,
    claim_authorship,
    in_doubt_authorship,
    new_span,
)
from editd.errors import FileMissing, InvalidParams, PermissionDenied, Refused, Stale
from editd.server import convert
from editd.server.engine_queue import Alarm, wait_event
from editd.store.recorded_state import shown_state
from editd.store.transaction_record import rfc3339
from editd.system.process import process_at
from editd.system.process_tree import open_process
from editd.wire import messages
from editd.wire.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from editd.engine.access import AccessControl
    from editd.engine.engine import Engine
    from editd.engine.turns import SessionTurns
    from editd.server.connection import Answer, ClientState
    from editd.server.engine_queue import EngineQueue
    from editd.server.gate import Gate
    from editd.server.methods.sessions import SessionMethods
    from editd.server.missed_calls import MissedCalls
    from editd.server.watcher import WorkspaceWatcher
    from editd.values.content import Change, Entry
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Seq, Transaction

log = logging.getLogger(__name__)

EDIT_SECONDS = 60.0  # the life of a span with a key whose end is lost
COMMAND_SECONDS = 3600.0
SECONDS_MAX = 86400.0
WAIT_SECONDS = 2.0  # for another session's edit of the same file
AGENTS_MAX = 100  # in `status`
CLAIM_SECONDS_MAX = 60.0
UNRECORDED_SHOWN_MAX = 100  # files in an answer
SEEN_AT_ONCE = 500  # files of one `seen`, before other requests get their turn


class Opening(Struct, eq=False):
    """A span that is about to open: its files, and the `whole` ones, with symlinks followed."""

    span: ExecSpan
    caller: ClientState
    files: Sequence[WorkspacePath]
    whole: Sequence[WorkspacePath]
    wait_seconds: float


class KnownAgent(Struct, frozen=True):
    """An agent that announces its own work, the last method that it called, and its process."""

    name: str
    session: str
    event: str
    time_us: int
    process: tuple[int, int] | None
    missed: int = 0  # calls whose beginning or end did not come

    def entry(self) -> messages.AgentEntry:
        """Return the entry of `status`, with the number of the process while that runs."""
        is_running = self.process is not None and _process(self.process[0]) == self.process
        return messages.AgentEntry(
            name=self.name,
            session=self.session,
            event=self.event,
            time=rfc3339(self.time_us),
            pid=self.process[0] if self.process is not None and is_running else None,
            missed=self.missed,
        )


class ExecMethods:
    serial_seconds = 0.0  # that a command waits for others'

    def __init__(
        self,
        engine: Engine,
        queue: EngineQueue,
        watching: WorkspaceWatcher,
        sessions: SessionMethods,
        guard: AccessControl,
        gate: Gate,
        missed_calls: MissedCalls,
        spans: ExecSpans,
        turns: SessionTurns,
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`spans` are those that the previous daemon has left open. They end in time. `start` runs a task."""
        self._gate = gate
        self._missed_calls = missed_calls
        self._untold: dict[str, int] = {}  # missed calls that no answer to their session has named
        self._engine = engine
        self._queue = queue
        self._watching = watching
        self._sessions = sessions
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._spans = spans
        self._turns = turns
        self._ended_keys = EndedKeys()
        self._openings: list[Opening] = []  # not open yet, the oldest first
        self._changed = Alarm()  # set, and replaced, when a span or an opening has ended
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watched: set[tuple[int, int]] = set()  # processes, by pid and start
        self._start = start
        self._agents: OrderedDict[str, KnownAgent] = OrderedDict()
        sessions.on_end.append(self._session_ended)
        for span in self._spans.open.values():
            if not span.is_watched:
                self._watching.pause()
            self._limit(span)

    def recorded(self, transaction: Transaction) -> None:
        self._spans.recorded(transaction)

    def running(self, session: str) -> list[ExecSpan]:
        """Return the commands that run in a session, the newest last."""
        return [span for span in self._spans.open.values() if span.session == session]

    def agents(self) -> list[messages.AgentEntry]:
        """Return the agents that tell about themselves, the last heard first."""
        self._take_missed()
        return [agent.entry() for agent in reversed(self._agents.values())]

    def missed(self, session: str) -> int:
        """Return how many calls of a session's agent had a beginning or an end that did not come."""
        self._take_missed()
        known = self._agents.get(session)
        return 0 if known is None else known.missed

    def leave(self, caller: ClientState) -> None:
        """End the spans of a closed connection; they keep their commands' changes."""
        self._lose(self._spans.of(caller.number))

    def finish(self) -> None:
        """End the spans of all connections, because the daemon ends. A span with a key stays."""
        self._lose([span for span in self._spans.open.values() if span.key is None])

    # ── begin ──

    def begin(self, params: messages.ExecBegin, caller: ClientState) -> Awaitable[messages.ExecBeginResult]:
        session = caller.session_of(params.session)
        self._guard.sessions.check_not_paused(session)
        actor = self._sessions.actor(params.session, caller) or convert.ANYBODY
        reader = caller.reader(session)
        places = self._places(params)
        whole = [places[path] for path in map(convert.path, params.whole) if path in places]
        if len(whole) < len(params.whole):
            raise InvalidParams("`whole` names a path that `paths` does not.", hint="Put it into both.")
        paths = None if params.paths is None else frozenset((*places, *places.values()))
        span = new_span(
            caller.number, reader, actor, session, redact(params.command), paths, params.key,
            self._turns.current(session, params.native_turn),
        )  # fmt: skip
        if params.call is not None and session is not None:
            span.call = check_id(params.call, "call")
            self._turns.note_call(session, span.turn, span.call)
        span.since_us, span.ends_us = self._guard.clock.now_us(), self._end_us(params)
        span.process = None if params.pid is None else _process(params.pid)
        wait_seconds = _seconds(params.wait, "wait", self.serial_seconds if paths is None else WAIT_SECONDS)
        if params.key is not None:
            self._note_agent(params, actor, session, span.process)
            self._gate.note_agent(session, params.pid, caller)
        return self._begun(Opening(span, caller, list(places.values()), whole, wait_seconds))

    def _places(self, params: messages.ExecBegin) -> dict[WorkspacePath, WorkspacePath]:
        """Return the paths of a request, and where their symlinks lead."""
        if params.paths is None:
            return {}
        if not params.paths:
            raise InvalidParams("`paths` is empty.", hint="Leave it out for a command.")
        return {path: self._engine.tree.resolve(path) for path in convert.paths(params.paths, "`paths`")}

    def _end_us(self, params: messages.ExecBegin) -> int | None:
        if params.ttl is None and params.key is None:
            return None
        seconds = _seconds(params.ttl, "ttl", COMMAND_SECONDS if params.paths is None else EDIT_SECONDS)
        return self._guard.clock.now_us() + int(seconds * 1_000_000)

    async def _begun(self, opening: Opening) -> messages.ExecBeginResult:
        span, waited = opening.span, 0.0
        known = None if span.key is None else self._spans.with_key(span.key)
        if known is not None:
            return messages.ExecBeginResult(exec=self._spans.verify(known, span.reader).name, waited=0.0)
        if self._is_late(span.session, span.key):
            self._may_open(span)
            return messages.ExecBeginResult(exec=span.name, waited=0.0)
        self._openings.append(opening)
        try:
            if self._is_blocked(opening):
                await self._queue.run(lambda: self._permit(opening, ()))
                waited = await self._wait(opening)
            if span.paths is None:
                await self._watching.settle()
            opened = await self._queue.run(lambda: self._open(opening))
        finally:
            self._openings.remove(opening)
            self._note_change()
        return messages.ExecBeginResult(
            exec=opened.name, waited=round(waited, 3), unrecorded=_texts(opened.unrecorded)
        )

    async def _wait(self, opening: Opening) -> float:
        """Wait for the spans of other sessions that are in the way. Return the seconds."""
        began = self._loop.time()
        until = began + opening.wait_seconds
        while (left := until - self._loop.time()) > 0 and self._is_blocked(opening):
            await wait_event(self._changed, left)
        return self._loop.time() - began

    def _is_blocked(self, opening: Opening) -> bool:
        """Return whether another session's span, open or waiting for longer, is in the way."""
        span = opening.span
        earlier = self._openings[: self._openings.index(opening)]
        return self._spans.are_in_way_of(span.reader, span.paths) or any(
            other.span.is_in_way_of(span.reader, span.paths) for other in earlier
        )

    def _open(self, opening: Opening) -> ExecSpan:
        """Open a span, with all earlier changes to its files recorded. Raises Refused."""
        if opening.caller.is_gone:
            raise Refused("The connection is closed.")
        span = opening.span
        if not self._may_open(span):
            return span  # its end came while it waited
        self._permit(opening, opening.whole)
        if span.paths is not None:
            for lost in self._spans.leftovers(span.reader, span.paths, span.key):
                self._note_lost(lost)
                self._forget(lost)
        span.head = self._engine.history.head
        opened = self._spans.add(span)
        if opened is span:
            if span.paths is None:
                self._watching.pause()
                entry = self._engine.history.entry
                files = self._watching.unrecorded_files()
                span.unrecorded = {path: facts for path, facts in files.items() if entry(path) is None}
            self._limit(span)
        return opened

    def _may_open(self, span: ExecSpan) -> bool:
        """Return whether a span may open: not if the end of its call has come before."""
        if span.key is None or span.session is None:
            return True
        return self._ended_keys.begin((span.session, span.key), self._guard.clock.now_us())

    def _is_late(self, session: str | None, key: str | None) -> bool:
        """Return whether the call with a key has ended without a bracket."""
        if session is None or key is None:
            return False
        return self._ended_keys.is_late((session, key), self._guard.clock.now_us())

    def _note_lost(self, span: ExecSpan) -> None:
        """Note a span that ends before the end of its call."""
        if span.session is not None and span.key is not None:
            self._ended_keys.lose((span.session, span.key), self._guard.clock.now_us())

    def _note_end(self, params: messages.ExecEnd, session: str | None, spans: Sequence[ExecSpan]) -> None:
        """Note an end that met no bracket, so that its late beginning opens none."""
        if session is None or params.exec is not None:
            return
        if params.all:
            for span in spans:
                self._note_lost(span)
            waiting = [one.span.key for one in self._openings if one.span.session == session]
        else:
            waiting = [] if spans else [params.key]
        for key in waiting:
            if key is not None:
                self._ended_keys.end((session, key), self._guard.clock.now_us())

    def _permit(self, opening: Opening, whole: Sequence[WorkspacePath]) -> None:
        """Record the files of a span, and verify that its tool may change them. Raises Refused."""
        if not opening.files:
            return
        view, span = self._engine.recorder.look_at(opening.files), opening.span
        states = {path: view.file_at(path) for path in opening.files}
        try:
            self._guard.permit_tool(span.session, span.reader, states, whole, self._engine.landing.rules)
        except Stale as stale:
            raise explained(stale, self._engine.history, view.file_at, self._engine.decoder) from None

    # ── the agent asks ──

    def ask(self, params: messages.ExecAsk, caller: ClientState) -> Awaitable[messages.Empty]:
        """Note that an agent asks its user about a bracket."""
        session = self._own_session(params, caller)
        known = self._spans.keyed_spans(session)
        named = [span for span in known if span.key == params.key]
        self._note_agent(params, self._sessions.actor(params.session, caller), session)

        is_over = not named and self._is_late(session, params.key)

        def asked() -> messages.Empty:
            for span in () if is_over else named or known:
                if span.asked is None and span.name in self._spans.open:
                    self._ask(span)
            return messages.Empty()

        return self._queue.run(asked)

    def _ask(self, span: ExecSpan) -> None:
        was_watched = span.is_watched
        seconds = max(COMMAND_SECONDS, EDIT_SECONDS)  # the user may think for a while
        ends_us = self._guard.clock.now_us() + int(seconds * 1_000_000)
        self._spans.ask(span, int(self._engine.history.head), max(ends_us, span.ends_us or 0))
        if not was_watched:
            self._watching.resume()
        if (timer := self._timers.pop(span.name, None)) is not None:
            timer.cancel()
        self._limit(span)
        self._note_change()

    def _own_session(self, params: messages.ExecAsk | messages.ExecEnd, caller: ClientState) -> str:
        """Return the session whose brackets a request is about. Raises InvalidParams, PermissionDenied."""
        session = caller.session_of(params.session)
        if session is None:
            raise InvalidParams("This needs a session.", hint=GIVE_SESSION)
        if caller.session not in (None, session):
            raise PermissionDenied(
                f"The session {caller.session!r} may not end the brackets of {session!r}.",
                hint="Its own hook ends them.",
                data={"session": session},
            )
        return session

    # ── end ──

    def end(self, params: messages.ExecEnd, caller: ClientState) -> Awaitable[messages.ExecEndResult]:
        spans = self._named(params, caller)
        for span in spans:
            span.how = LOST if params.status is None else f"exit status {params.status}"
            if span.call is not None and span.session is not None and params.status is not None:
                outcome: messages.CallOutcome = "ran" if params.status == 0 else "failed"
                self._turns.note_call(span.session, span.turn, span.call, outcome=outcome)
        session = caller.session_of(params.session)
        self._note_end(params, session, spans)
        actor = self._sessions.actor(params.session, caller)
        if params.exec is None:
            self._note_agent(params, actor, session)
        texts = self._texts(params)
        if params.key is not None and not spans and params.command is not None and session is not None:
            paths = frozenset(texts) or None
            missed = new_span(
                caller.number, caller.reader(session), actor or convert.ANYBODY, session,
                redact(params.command), paths, params.key, self._turns.current(session),
            )  # fmt: skip
            return self._with_missed(session, self._repaired(missed, texts, is_done=params.status == 0))
        ended = self._ended(spans, texts, has_seen=params.seen, is_done=self._is_done(params))
        return ended if params.exec is not None else self._with_missed(session, ended)

    async def _with_missed(
        self, session: str | None, answer: Awaitable[messages.ExecEndResult]
    ) -> messages.ExecEndResult:
        """Add to an answer the number of the session's earlier calls that were missed without a word."""
        result = await answer
        self._take_missed()
        count = 0 if session is None else self._untold.pop(session, 0)
        if not count:
            return result
        calls = "1 earlier call" if count == 1 else f"{count} earlier calls"
        warning = f"{calls} of this session did not reach editd in time: their changes may be outside."
        return replace(result, warnings=[*result.warnings, warning])

    def _take_missed(self) -> None:
        """Count the calls that the hooks have noted, except calls with a span that is still open."""
        for call in self._missed_calls.take():
            if self._spans.with_key(call.key) is not None:
                continue
            if call.session not in self._agents:
                self._note_known(
                    KnownAgent(call.agent, call.session, "exec.end", self._guard.clock.now_us(), None)
                )
            self._count_missed(call.session)
            self._untold[call.session] = self._untold.get(call.session, 0) + 1

    @staticmethod
    def _is_done(params: messages.ExecEnd) -> bool:
        """Return whether a request tells that the tool has run."""
        return params.status is not None and not params.all

    def _texts(self, params: messages.ExecEnd) -> dict[WorkspacePath, list[CallText]]:
        """Return the texts of a tool's call, by its paths and the targets of their symlinks."""
        texts: dict[WorkspacePath, list[CallText]] = {}
        for one in params.made:
            path = convert.path(one.path)
            for each in {path, self._engine.tree.resolve(path)}:
                texts.setdefault(each, []).append(CallText(one.new, one.old))
        return texts

    async def _repaired(
        self, span: ExecSpan, texts: Mapping[WorkspacePath, Sequence[CallText]], *, is_done: bool
    ) -> messages.ExecEndResult:
        """Attribute the change of a tool whose beginning did not come, by the tool's own texts."""

        def repaired() -> messages.ExecEndResult:
            if texts and is_done:
                self._engine.recorder.look_at(sorted(texts))
                since_us = self._guard.clock.now_us() - int(CLAIM_SECONDS_MAX * 1_000_000)
                span.asked = self._engine.history.index.at_time(since_us) or 0
                self._claim_asked(span, texts)
                self._note_own(span)
                span.seqs += [] if span.seqs else self._own_since(span, texts)
            result = self._result([span])
            if result.transactions or (texts and not is_done):
                return result
            self._note_missed(span)
            return replace(result, warnings=[_missed_text(span)])

        return await self._queue.run(repaired)

    def _claim_asked(self, span: ExecSpan, texts: Mapping[WorkspacePath, Sequence[CallText]]) -> bool:
        """Attribute to an asked span the unattributed changes that fit its texts, or of a command, in doubt.

        Return False if its files changed, and no change fits.
        """
        assert span.asked is not None, "it is asked"
        free = changes_since(self._engine.history, span.asked, span.paths)
        is_changed = bool(free)
        if span.paths is None:
            author = in_doubt_authorship(span)
        else:
            assert span.session is not None, "a span with a key has a session"
            author = claim_authorship(span.actor, span.session, span.command, span.turn)
            free = [one for one in free if self._fits(one, texts)]
        if free:
            seqs = [one.seq for one in free]
            self._engine.recorder.claim(author, seqs)
            span.seqs += map(int, seqs)
        return bool(free) or not is_changed

    def _fits(self, made: Transaction, texts: Mapping[WorkspacePath, Sequence[CallText]]) -> bool:
        """Return whether each change of a transaction is the change that the tool was called for."""
        history = self._engine.history

        def content(entry: Entry | None) -> bytes | None:
            state = shown_state(entry, history)
            return None if state is None else state.content

        def is_missing(entry: Entry | None) -> bool:
            return entry is not None and history.is_dropped(entry.version)

        fallback = self._engine.decoder.fallback
        removed = [touch.before for touch in made.touches if touch.after is None]

        def is_explained(touch: Change[Entry]) -> bool:
            known = texts.get(touch.path, ())
            if touch.after is not None and (is_missing(touch.before) or is_missing(touch.after)):
                return is_written(touch.after.version, known, fallback)
            is_target = touch.before is None and any(text.old is not None for text in known)
            return any(
                is_called_for(content(before), content(touch.after), known, fallback)
                for before in (removed if is_target else [touch.before])
            )

        return all(map(is_explained, made.touches))

    def _own_since(self, span: ExecSpan, texts: Mapping[WorkspacePath, Sequence[CallText]]) -> list[int]:
        """Return the session's own changes that fit: a newer bracket of the session for a file had them."""
        history = self._engine.history
        seqs = {seq for path in texts for seq in history.index.touches_after(path, span.asked or 0)}
        made = map(history.find, sorted(seqs))
        return [
            int(one.seq)
            for one in made
            if (one.kind, one.authorship.session) == ("exec", span.session) and self._fits(one, texts)
        ]

    def _named(self, params: messages.ExecEnd, caller: ClientState) -> list[ExecSpan]:
        """Return the spans that a request ends. Raises InvalidParams, PermissionDenied."""
        if (params.exec is not None) + (params.key is not None) + params.all != 1:
            raise InvalidParams("`exec.end` needs one of `exec`, `key` and `all`.")
        if params.exec is not None:
            session = caller.session_of(params.session)
            span = self._spans.open.get(params.exec)
            if span is None or span.key is None or span.session != session:
                return [self._spans.get(params.exec, caller.number)]
            self._own_session(params, caller)
            return [span]
        session = self._own_session(params, caller)
        return [span for span in self._spans.keyed_spans(session) if params.all or span.key == params.key]

    async def _ended(
        self,
        spans: Sequence[ExecSpan],
        texts: Mapping[WorkspacePath, Sequence[CallText]],
        *,
        has_seen: bool,
        is_done: bool,
    ) -> messages.ExecEndResult:
        await self._settle_and_end(spans)

        def result() -> messages.ExecEndResult:
            warnings: list[str] = []
            for span in spans:
                if span.asked is not None and is_done and not self._claim_asked(span, texts):
                    warnings.append(_unexplained_text(span))
                    self._note_missed(span)
                if has_seen:
                    self._note_own(span)
            return replace(self._result(spans), warnings=warnings)

        return await self._queue.run(result)

    def _result(self, spans: Sequence[ExecSpan]) -> messages.ExecEndResult:
        seqs = sorted({seq for span in spans for seq in span.seqs})
        newest = convert.transaction_result(self._engine.history.find(seqs[-1])) if seqs else None
        return messages.ExecEndResult(
            transaction=newest, transactions=seqs, unrecorded=_texts(self._lost(spans))
        )

    def _lost(self, spans: Sequence[ExecSpan]) -> list[WorkspacePath]:
        """Return the files whose content from before the spans is nowhere any more."""
        known = {path: facts for span in spans for path, facts in span.unrecorded.items()}
        return [path for path, facts in known.items() if self._facts(path) != facts]

    def _facts(self, path: WorkspacePath) -> tuple[int, int] | None:
        try:
            status = self._engine.tree.entry(path)
        except Refused:
            return None
        return None if status is None else (status.size, status.mtime_ns)

    def _note_own(self, span: ExecSpan) -> None:
        """Note that the session knows its own last change of each file, but not a later one by others."""
        history = self._engine.history
        for path in span.paths or ():
            for seq in reversed(history.index.touches_after(path, span.head)):
                transaction = history.find(seq)
                if transaction.kind == "exec" and transaction.authorship.session == span.session:
                    after = next(touch.after for touch in transaction.touches if touch.path == path)
                    version = None if after is None else after.version
                    self._engine.seen.note(span.reader, path, convert.seen_mark(version))
                    break

    async def _settle_and_end(self, spans: Sequence[ExecSpan]) -> None:
        paths = {path for span in spans for path in span.paths or ()}
        try:
            if any(span.paths is None for span in spans):
                await self._watching.settle()
            elif paths:
                await self._queue.run(lambda: self._engine.recorder.look_at(sorted(paths)))
        finally:
            await self._queue.run(lambda: self._forget_all(spans))

    def _forget_all(self, spans: Sequence[ExecSpan]) -> None:
        for span in spans:
            self._forget(span)

    def _forget(self, span: ExecSpan) -> None:
        if not self._spans.end(span.name):
            return
        if not span.is_watched:
            self._watching.resume()
        timer = self._timers.pop(span.name, None)
        if timer is not None:
            timer.cancel()
        self._note_change()

    def _note_change(self) -> None:
        """Wake the requests that wait for the end of a span, to look whether it was in their way."""
        changed, self._changed = self._changed, Alarm()
        changed.set()

    # ── ends that no client reports ──

    def _limit(self, span: ExecSpan) -> None:
        """End a span at its time, and with its process."""
        if span.ends_us is not None:
            seconds = max(0.0, (span.ends_us - self._guard.clock.now_us()) / 1_000_000)
            self._timers[span.name] = self._loop.call_later(seconds, self._lose, [span])
        if span.process is not None and span.process not in self._watched:
            self._watch(span.process)

    def _watch(self, process: tuple[int, int]) -> None:
        """End the spans of a process when it ends. The pidfd outlives them, since more are to come."""
        descriptor = -1
        try:
            descriptor = open_process(process[0])
            is_same = _process(process[0]) == process
        except ProcessLookupError:
            is_same = False
        except OSError as error:
            log.warning("the process %d cannot be watched: %s", process[0], error)
            return

        def ended() -> None:
            self._watched.discard(process)
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
                os.close(descriptor)
            self._lose([span for span in self._spans.open.values() if span.process == process])

        self._watched.add(process)
        if is_same:
            self._loop.add_reader(descriptor, ended)
        else:
            ended()

    def _lose(self, spans: Sequence[ExecSpan]) -> None:
        """End spans whose end is not known, with what was changed until now."""
        for span in spans:
            span.how = LOST
            self._note_lost(span)
            if span.key is not None and span.asked is None and span.session is not None:
                self._note_missed(span)
                self._untold[span.session] = self._untold.get(span.session, 0) + 1
        if spans:
            self._start(self._end_lost(spans))

    async def _end_lost(self, spans: Sequence[ExecSpan]) -> None:
        try:
            await self._settle_and_end(spans)
        except (Refused, OSError):
            return  # no client waits for an answer
        except Exception:  # our bug
            log.exception("the end of a command could not be recorded")

    def _session_ended(self, session: str) -> None:
        self._lose(self._spans.keyed_spans(session))

    def _note_missed(self, span: ExecSpan) -> None:
        """Count for `status` a call whose changes may be recorded as outside."""
        if span.session is not None:
            self._count_missed(span.session)

    def _count_missed(self, session: str) -> None:
        known = self._agents.get(session)
        if known is not None:
            self._agents[session] = replace(known, missed=known.missed + 1)

    # ── claims ──

    def claim(self, params: messages.Claim, caller: ClientState) -> Awaitable[messages.ClaimResult]:
        """Attribute earlier unattributed changes to the session, which reports them only now."""
        session = caller.session_of(params.session)
        if session is None:
            raise InvalidParams("`claim` needs a session.", hint=GIVE_SESSION)
        since_us, now_us = convert.time_us(params.since), self._guard.clock.now_us()
        if now_us - since_us > CLAIM_SECONDS_MAX * 1_000_000:
            raise InvalidParams(
                f"`since` is more than {CLAIM_SECONDS_MAX:g} seconds ago.",
                hint="Claim a change right after it was made.",
            )
        if not params.paths:
            raise InvalidParams("`paths` is empty.", hint="Name the files that were changed.")
        places = {path: self._engine.tree.resolve(path) for path in convert.paths(params.paths, "`paths`")}
        paths = frozenset((*places, *places.values()))
        author = claim_authorship(
            self._sessions.actor(params.session, caller) or convert.ANYBODY,
            session,
            redact(params.command),
            self._turns.ended_since(session, since_us),
        )
        self._note_agent(params, author.actor, session)

        def claimed() -> messages.ClaimResult:
            self._engine.recorder.look_at(sorted(places.values()))
            found = Claims.of(self._engine.history, session, paths, since_us)
            if found.free:
                self._engine.recorder.claim(author, found.free)
                self._note_claimed(caller.reader(session), found.free)
            return messages.ClaimResult(transactions=sorted(map(int, (*found.free, *found.own))))

        return self._queue.run(claimed)

    def _note_claimed(self, reader: str, seqs: Sequence[Seq]) -> None:
        """Note that the session knows the files as it left them itself."""
        history = self._engine.history
        for transaction in map(history.find, seqs):
            for touch in transaction.touches:
                present = history.entry(touch.path)
                version = None if touch.after is None else touch.after.version
                if version == (None if present is None else present.version):
                    self._engine.seen.note(reader, touch.path, convert.seen_mark(version))

    # ── reads ──

    def seen(self, params: messages.Seen, caller: ClientState) -> Answer:
        """Note the files that an agent has read without the daemon."""
        process = None if params.pid is None else _process(params.pid)
        if len(params.files) > SEEN_AT_ONCE:
            return self._seen_in_parts(params, caller, process)
        self._note_seen(params, params.files, caller)
        return self._seen_by(params, caller, process)

    async def _seen_in_parts(
        self, params: messages.Seen, caller: ClientState, process: tuple[int, int] | None
    ) -> messages.Empty:
        """Note many files, and serve others in between."""
        for start in range(0, len(params.files), SEEN_AT_ONCE):
            part = params.files[start : start + SEEN_AT_ONCE]
            await self._queue.run(partial(self._note_seen, params, part, caller))
            await asyncio.sleep(0)
        return await self._queue.run(partial(self._seen_by, params, caller, process))

    def _note_seen(
        self, params: messages.Seen, files: Sequence[messages.SeenFile], caller: ClientState
    ) -> None:
        reader = caller.reader(caller.session_of(params.session))
        tree = self._engine.tree
        for file in files:
            path = convert.path(file.path)
            lines = convert.lines_wanted(file)
            self._sessions.permit_reading(params.session, caller, path, tree)
            if file.version is UNSET:
                with contextlib.suppress(FileMissing):
                    self._engine.read(path, reader, lines)
            else:
                mark = convert.seen_mark(file.version)
                if lines is None:
                    self._engine.seen.note(reader, tree.resolve(path), mark)
                else:
                    self._engine.seen.note_lines(reader, tree.resolve(path), mark.base, *lines)

    def _seen_by(
        self, params: messages.Seen, caller: ClientState, process: tuple[int, int] | None
    ) -> messages.Empty:
        session = caller.session_of(params.session)
        self._note_agent(params, self._sessions.actor(params.session, caller), session, process)
        if params.pid is not None:
            self._gate.note_agent(session, params.pid, caller)
        return messages.Empty()

    def _note_agent(
        self,
        params: messages.Params,
        name: str | None,
        session: str | None,
        process: tuple[int, int] | None = None,
    ) -> None:
        """Note for `status` that an agent's hook works, and the process that it belongs to."""
        if session is None:
            return
        known = self._agents.get(session)
        if process is None and known is not None:
            process = known.process
        self._note_known(KnownAgent(
            name or convert.ANYBODY, session, params.method, self._guard.clock.now_us(), process,
            0 if known is None else known.missed,
        ))  # fmt: skip

    def _note_known(self, agent: KnownAgent) -> None:
        self._agents[agent.session] = agent
        self._agents.move_to_end(agent.session)
        if len(self._agents) > AGENTS_MAX:
            session, _ = self._agents.popitem(last=False)
            self._untold.pop(session, None)


def _unexplained_text(span: ExecSpan) -> str:
    return (
        "The change does not fit the texts of this call, so it is recorded as outside: "
        f"{span.command.partition(chr(10))[0][:200]}"
    )


def _missed_text(span: ExecSpan) -> str:
    return (
        f"The beginning of this call did not reach editd in time, so its changes are recorded as outside: "
        f"{span.command.partition(chr(10))[0][:200]}"
    )


def _seconds(given: float | None, name: str, default: float) -> float:
    """Return a number of seconds. Raises InvalidParams."""
    seconds = default if given is None else given
    if not 0 <= seconds <= SECONDS_MAX:
        raise InvalidParams(f"`{name}` is a number of seconds, at most a day.")
    return seconds


def _process(pid: int) -> tuple[int, int] | None:
    """Return the pid and the start of a process, or None if /proc does not show it. Raises InvalidParams."""
    if pid < 1:
        raise InvalidParams("`pid` is the number of a process.")
    found = process_at(pid)
    return None if found is None else (found.pid, found.start)


def _texts(paths: Iterable[WorkspacePath]) -> list[str]:
    return [path.text for path in islice(paths, UNRECORDED_SHOWN_MAX)]
