"""The methods of the wire: each turns parameters into a call of the engine, and the outcome into a result.

A method answers at once, or later from a turn or a background task. Policy is the engine's; this module only
translates.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, Struct

import editd
from editd.edits.regex import NeedsSearch
from editd.engine.changesets import Changesets, OpenChangeset
from editd.engine.commands import Apply, Outcome, Reader, Write, reader_of
from editd.engine.engine import Engine, Reading
from editd.engine.queries import Queries, changes_of
from editd.engine.replay import request_of
from editd.engine.undo import numbered_hunks
from editd.errors import FileMissing, InvalidParams, IoError, Refused, Timeout
from editd.server import convert
from editd.server.hook_runner import HookMethods
from editd.server.methods.blame import BlameMethods
from editd.server.methods.check import CheckMethods
from editd.server.methods.exec_spans import ExecMethods
from editd.server.methods.leases import LeaseMethods
from editd.server.methods.publish import PublishMethods
from editd.server.methods.session_list import SessionListMethod
from editd.server.methods.sessions import SessionMethods
from editd.server.methods.undo import UndoMethods
from editd.values.path import is_among
from editd.values.transaction import Authorship, Transaction
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from editd.engine.access import AccessControl
    from editd.engine.snapshot import DiskSnapshot
    from editd.server.engine_queue import EngineQueue
    from editd.server.hook_runner import HookRunner
    from editd.server.maintenance import Maintenance
    from editd.server.methods.config import Configuration
    from editd.server.regex_pool import RegexPool
    from editd.server.retention import Retention
    from editd.server.scanner import Scanner
    from editd.server.subscriptions import Listener, Subscriptions
    from editd.server.watcher import WorkspaceWatcher
    from editd.values.changeset import Change, Edit
    from editd.values.path import WorkspacePath
    from editd.workspace.weaker_guarantees import WeakerGuarantees

log = logging.getLogger(__name__)

SETTLE_SECONDS = 60.0  # default
LOG_TRANSACTIONS_MAX = 10_000  # in one answer; `before` continues it
ENCODINGS = ["msgpack-rpc", "json-rpc", "json-rpc-lines"]


# Requests that begin something that ends with its connection.
BEGINNING = (
    messages.Begin, messages.Subscribe, messages.ExecBegin, messages.SessionOpen, messages.LeaseAcquire,
)  # fmt: skip


class ClientState(Struct):
    """The state of one connection."""

    number: int
    name: str = ""
    session: str | None = None
    listener: Listener | None = None  # its connection
    is_gone: bool = False  # disconnected: its queued requests must begin nothing more

    def reader(self, session: str | None) -> Reader:
        """Return the name under which reads and edits count: the session, or the connection if None."""
        return f"connection {self.number}" if session is None else reader_of(session)


class MethodCall(Protocol):
    """One request under way; exactly one of the methods answers it."""

    def reply(self, result: messages.Message) -> None: ...
    def refuse(self, refusal: Refused) -> None: ...

    def fail(self) -> None:
        """Answer with an internal error; the log has the details."""


class Services(Struct):
    """The daemon's services, once its workspace is open."""

    engine: Engine
    queue: EngineQueue
    background: Maintenance
    scanner: Scanner
    searcher: RegexPool
    subscriptions: Subscriptions
    guard: AccessControl
    watching: WorkspaceWatcher
    retention: Retention
    configuration: Configuration
    hooker: HookRunner
    shortfalls: WeakerGuarantees


class Dispatch:
    def __init__(self, root: str, name: str, services: Services, *, fallback_encoding: str | None) -> None:
        """`root` is the workspace's real path and `name` its id."""
        self.root = root
        self.name = name
        self._services = services
        self._engine = services.engine
        self._questions = Queries(services.engine.history, services.engine.tree)
        self._changesets = Changesets()
        self._fallback = fallback_encoding
        self._tasks: set[asyncio.Task[None]] = set()
        self._methods: dict[type[messages.Params], Callable[[Any, ClientState, MethodCall], None]] = {
            messages.Dialects: self._dialects,
            messages.Read: self._read,
            messages.Stat: self._stat,
            messages.Settle: self._settle,
            messages.Apply: self._apply,
            messages.Begin: self._begin,
            messages.Stage: self._stage,
            messages.Commit: self._commit,
            messages.Abort: self._abort,
            messages.Log: self._log,
            messages.Show: self._show,
            messages.Diff: self._diff,
        }
        self._methods |= services.subscriptions.methods | CheckMethods(services, self._later).methods
        self._methods |= services.retention.methods(self._later) | services.configuration.methods
        self._methods |= BlameMethods(services.engine, services.queue, self._later).methods
        self.sessions = SessionMethods(
            services.guard, services.queue, services.subscriptions, services.engine.history.index
        )
        self._leases = LeaseMethods(services.guard, services.queue, services.subscriptions, self.sessions)
        self._brackets = ExecMethods(services, self.sessions, self._later)
        self._methods |= self.sessions.methods | self._leases.methods | self._brackets.methods
        services.engine.on_recorded = self._recorded
        self._methods |= HookMethods(
            services.hooker, services.engine, services.queue, self.sessions, self._later
        ).methods
        self._methods |= SessionListMethod(
            services.engine, services.guard, services.queue, self._later
        ).methods
        self._methods |= UndoMethods(services, self.sessions, self._later).methods
        self._methods |= PublishMethods(
            root, services.engine, services.queue, services.background, services.guard.registry, self._later
        ).methods

    def call(self, params: messages.Params, caller: ClientState, call: MethodCall) -> None:
        """Carry out a request; `call` gets the answer, now or later."""
        self._services.queue.when_idle(lambda: self._call_now(params, caller, call))

    def _call_now(self, params: messages.Params, caller: ClientState, call: MethodCall) -> None:
        try:
            if caller.is_gone and isinstance(params, BEGINNING):
                raise Refused("The connection is closed.")
            self.sessions.admit(params, caller)
            self._methods[type(params)](params, caller, call)
        except Refused as refusal:
            call.refuse(refusal)
        except Exception:  # our bug
            log.exception("a request failed")
            call.fail()

    def leave(self, caller: ClientState) -> None:
        """End the state that belongs to a closed connection."""
        self._changesets.end_all(caller.number)
        self._services.subscriptions.leave(caller)
        self._services.queue.activity.note()
        self._services.queue.when_idle(lambda: self._leave_now(caller))

    def _leave_now(self, caller: ClientState) -> None:
        self._brackets.leave(caller)
        self._leases.leave(caller)
        self.sessions.leave(caller)
        self._engine.seen.forget(caller.reader(None))

    def _recorded(self, transaction: Transaction) -> None:
        self._services.queue.activity.note()
        self._services.subscriptions.recorded(transaction)
        self._services.watching.recorded(transaction)
        self._leases.recorded(transaction)
        self._brackets.recorded(transaction)

    def is_busy(self) -> bool:
        return bool(self._tasks) or len(self._services.queue) > 0

    # ── reading ──

    def _dialects(self, params: messages.Dialects, caller: ClientState, call: MethodCall) -> None:
        del params, caller
        call.reply(convert.dialects(self._engine.tooling.dialects.values()))

    def _read(self, params: messages.Read, caller: ClientState, call: MethodCall) -> None:
        path = convert.path(params.path)
        lines = convert.lines_wanted(params)
        self.sessions.permit_reading(params.session, caller, path, self._engine.tree)
        if params.changeset is None:
            try:
                reading = self._engine.read(path, _reader(params.session, caller), params.at, lines)
            except FileMissing as missing:
                if params.at is None:
                    named = params.session if params.session is not None else caller.session
                    self._engine.suggest(missing, named)
                raise
            call.reply(convert.read_result(reading, lines, fallback=self._fallback))
            return
        changeset = self._changesets.get(params.changeset, caller.number)

        def answer(_: Outcome, view: DiskSnapshot) -> None:
            state = view.at(view.resolve(path))
            if state is None:
                raise FileMissing(f"{path} does not exist in this changeset.", data={"path": path.text})
            call.reply(convert.read_result(Reading(path, state), lines, fallback=self._fallback))

        self._staged(changeset, (), call, answer)

    def _staged(
        self,
        changeset: OpenChangeset,
        more: tuple[Edit, ...],
        call: MethodCall,
        then: Callable[[Outcome, DiskSnapshot], None],
    ) -> None:
        """Call `then` with the files as the changeset and `more` would leave them, now or after searches."""
        try:
            outcome, view = self._engine.staged(
                (*changeset.edits, *more),
                changeset.reader,
                changeset.found,
                changeset.authorship.session,
                changeset.on_stale,
            )
        except NeedsSearch as need:
            search = need.search

            async def find() -> None:
                changeset.found[search] = await self._services.searcher.find(search)
                await self._services.queue.idle()
                self._staged(changeset, more, call, then)

            self._later(find(), call)
            return
        then(outcome, view)

    def _stat(self, params: messages.Stat, caller: ClientState, call: MethodCall) -> None:
        del caller
        self._engine.check_in_place()
        paths = [convert.path(path) for path in params.paths]
        states = self._questions.states(paths)
        call.reply(
            messages.StatResult(files=[convert.stat_entry(*pair) for pair in zip(paths, states, strict=True)])
        )

    def _settle(self, params: messages.Settle, caller: ClientState, call: MethodCall) -> None:
        del caller
        seconds = SETTLE_SECONDS if params.timeout is None else params.timeout

        async def settle() -> None:
            try:
                async with asyncio.timeout(seconds):
                    await self._services.watching.settle()
            except TimeoutError:
                raise Timeout(
                    f"The workspace was not scanned within {seconds:g} s.",
                    hint="Retry with a larger timeout, in seconds.",
                ) from None
            call.reply(messages.SettleResult(head=self._engine.history.head))

        self._later(settle(), call)

    # ── applying ──

    def _apply(self, params: messages.Apply, caller: ClientState, call: MethodCall) -> None:
        actor = self.sessions.actor(params.session, caller)
        request = convert.apply(params, _reader(params.session, caller), actor, caller.session)
        request = self.sessions.with_defaults(request)
        content = params.return_content or self._engine.tooling.returns_content(request.edits)
        self._submit(request, call, return_content=content, diff=params.diff or params.dry_run)

    def _submit(
        self, request: Write, call: MethodCall, *, return_content: bool = False, diff: bool = False
    ) -> None:
        def render(outcome: Outcome) -> messages.Message:
            return convert.outcome(outcome, return_content=return_content, diff=diff)

        self._services.queue.submit(request, call, render)

    def _begin(self, params: messages.Begin, caller: ClientState, call: MethodCall) -> None:
        authorship = Authorship(
            params.actor or self.sessions.actor(params.session, caller) or convert.ANYBODY,
            params.session if params.session is not None else caller.session,
            params.message or "",
        )
        name = self._changesets.begin(
            caller.number, _reader(params.session, caller), authorship, params.on_stale
        )
        call.reply(messages.BeginResult(changeset=name))

    def _stage(self, params: messages.Stage, caller: ClientState, call: MethodCall) -> None:
        changeset = self._changesets.get(params.changeset, caller.number)
        edits = convert.edits(params.edits)
        self._changesets.check_room(caller.number, edits)

        def answer(outcome: Outcome, _: DiskSnapshot) -> None:
            self._changesets.add(params.changeset, caller.number, edits)
            call.reply(convert.outcome(outcome, diff=True))

        self._staged(changeset, edits, call, answer)

    def _commit(self, params: messages.Commit, caller: ClientState, call: MethodCall) -> None:
        try:
            changeset = self._changesets.get(params.changeset, caller.number)
        except InvalidParams:
            before = self._committed_before(params)
            if before is None:
                raise
            changeset = before
        said = changeset.authorship
        request = Apply(
            tuple(changeset.edits),
            Authorship(said.actor, said.session, said.message, params.request_id),
            changeset.reader,
            params.on_stale or changeset.on_stale,
            fingerprint=convert.fingerprint(params) if params.request_id is not None else "",
            found=changeset.found,
        )

        def render(outcome: Outcome) -> messages.Message:
            # A refused changeset stays, so that the client can correct it.
            self._changesets.discard(params.changeset)
            return convert.outcome(outcome)

        self.sessions.admit_as(said.session, caller)
        self._services.queue.submit(self.sessions.with_defaults(request), call, render)

    def _committed_before(self, params: messages.Commit) -> OpenChangeset | None:
        """Return the changeset of a retry on a new connection: it is gone, but its request is known (C7)."""
        if params.request_id is None:
            return None
        before = request_of(params.request_id, convert.fingerprint(params), self._engine.history)
        return None if before is None else OpenChangeset(0, "", before.authorship)

    def _abort(self, params: messages.Abort, caller: ClientState, call: MethodCall) -> None:
        self._changesets.get(params.changeset, caller.number)
        self._changesets.discard(params.changeset)
        call.reply(messages.Empty())

    # ── history ──

    def _log(self, params: messages.Log, caller: ClientState, call: MethodCall) -> None:
        del caller
        if not 1 <= params.limit <= LOG_TRANSACTIONS_MAX:
            raise InvalidParams(f"`limit` is between 1 and {LOG_TRANSACTIONS_MAX}.")
        found, more = self._questions.transactions(convert.wanted(params), params.limit)
        published = self._services.guard.registry.published([int(tx.seq) for tx in found])
        shown = [convert.transaction_result(tx, published.get(int(tx.seq))) for tx in found]
        call.reply(messages.LogResult(transactions=shown, more=more))

    def _show(self, params: messages.Show, caller: ClientState, call: MethodCall) -> None:
        del caller
        found = self._engine.history.find(params.tx)
        diff = convert.diff_of(changes_of(found, self._engine.history)) if params.diff else None
        published = self._services.guard.registry.published([int(found.seq)]).get(int(found.seq))
        shown = convert.transaction_result(found, published)
        hunks = [
            messages.Hunk(path=path.text, hunk=number, diff=text)
            for path, number, text in (numbered_hunks(self._engine.history, found) if params.hunks else ())
        ]
        call.reply(messages.ShowResult(transaction=shown, diff=diff, hunks=hunks if params.hunks else UNSET))

    def _diff(self, params: messages.Diff, caller: ClientState, call: MethodCall) -> None:
        paths = None if params.paths is None else [convert.path(path) for path in params.paths]
        if params.changeset is not None:
            self._diff_staged(params, caller, call, None if paths is None else frozenset(paths))
            return
        history = self._engine.history
        end = None if params.to is None else history.find(params.to).seq
        start = history.floor.seq if params.from_ is None else history.find(params.from_).seq

        async def answer() -> None:
            if end is None:
                await self._services.watching.settle()
            await self._services.queue.idle()
            call.reply(_diff_result(self._questions.changes_between(start, end, paths)))

        self._later(answer(), call)

    def _diff_staged(
        self,
        params: messages.Diff,
        caller: ClientState,
        call: MethodCall,
        wanted: frozenset[WorkspacePath] | None,
    ) -> None:
        if params.from_ is not None or params.to is not None:
            raise InvalidParams(
                "`changeset` compares the staged files with the current ones.",
                hint="Leave out `from` and `to`.",
            )
        changeset = self._changesets.get(params.changeset or "", caller.number)

        def answer(outcome: Outcome, _: DiskSnapshot) -> None:
            changes = [one for one in outcome.changes if wanted is None or is_among(one.path, wanted)]
            call.reply(_diff_result(changes))

        self._staged(changeset, (), call, answer)

    # ── the daemon itself ──

    def status(self, uptime: float, clients: int, *, is_scanning: bool) -> messages.StatusResult:
        engine, scanner, shortfalls = self._engine, self._services.scanner, self._services.shortfalls
        history = engine.history
        broken = engine.broken or engine.absence()
        return messages.StatusResult(
            root=self.root,
            head=history.head,
            uptime=uptime,
            version=editd.__version__,
            state="broken" if broken is not None else "scanning" if is_scanning else "ready",
            reason=None if broken is None else broken.text(),
            sessions=len(self._services.guard.sessions),
            leases=len(self._services.guard.leases),
            proposals=0,
            watcher=self._services.watching.status(),
            journal={
                "bytes": history.journal.bytes,
                "unpacked": history.head - history.packed,
                "unflushed": max(0, history.head - max(engine.synced, 0)),
            },
            history=self._services.retention.status(),
            config=self._services.configuration.status(),
            hooks=self._services.hooker.status(engine.hooks),
            clients=clients,
            weaker=shortfalls.weaker() + self._services.configuration.weaker() + history.weaker(),
            uncovered=scanner.uncovered + scanner.unrecorded + shortfalls.uncovered() + engine.hidden.told(),
            system=shortfalls.facts(),
            pid=os.getpid(),
            id=self.name,
        )

    def _later(self, work: Coroutine[Any, Any, None], call: MethodCall) -> None:
        async def run() -> None:
            try:
                await work
            except Refused as refusal:
                call.refuse(refusal)
            except OSError as error:  # no descriptor or no memory for a child process
                call.refuse(IoError(error, "A process for this request could not be started"))
            except Exception:  # our bug
                log.exception("a request failed")
                call.fail()

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reader(session: str | None, caller: ClientState) -> Reader:
    """Return the reader of a request: the session if there is one, otherwise the connection."""
    return caller.reader(session if session is not None else caller.session)


def _diff_result(changes: Sequence[Change]) -> messages.DiffResult:
    return messages.DiffResult(diff=convert.diff_of(changes), files=convert.changes_result(changes))
