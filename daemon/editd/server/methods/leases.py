"""The methods `lease.*`: acquiring, waiting, and the expiry of leases."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from editd.advice import Advice, method_term
from editd.errors import InvalidParams, Leased, Refused, Timeout, UnknownSession
from editd.server import convert
from editd.server.connection import PendingAnswer
from editd.store.transaction_record import rfc3339
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from editd.engine.access import AccessControl
    from editd.engine.leases import LeaseRequest
    from editd.server.connection import ClientState
    from editd.server.engine_queue import EngineQueue
    from editd.server.gate import Gate
    from editd.server.methods.sessions import SessionMethods
    from editd.server.subscriptions import Subscriptions
    from editd.store.session_store import Lease
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Transaction

WAIT_SECONDS_MAX = 86400.0
LOOK_SECONDS = 0.25  # between two checks that waiting clients are still connected


class WaitingLease(PendingAnswer):
    """A client that waits for its lease."""

    caller: ClientState
    timer: asyncio.TimerHandle


class LeaseMethods:
    def __init__(
        self,
        guard: AccessControl,
        queue: EngineQueue,
        subscriptions: Subscriptions,
        sessions: SessionMethods,
        gate: Gate,
    ) -> None:
        self._guard = guard
        self._gate = gate
        self._leases = guard.leases
        self._clock = guard.clock
        self._queue = queue
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._waiting: dict[LeaseRequest, WaitingLease] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_looking = False
        sessions.on_end.append(self._end_session)
        self._pass_on()

    def leave(self, caller: ClientState) -> None:
        """Drop the waiting requests of a closed connection; the leases of its session stay."""
        gone = [wait for wait, waiting in self._waiting.items() if waiting.caller.number == caller.number]
        for wait in gone:
            self._waiting.pop(wait).timer.cancel()
            self._leases.withdraw(wait)
        if gone:
            self._pass_on()

    def recorded(self, transaction: Transaction) -> None:
        """Notify holders of writes to their paths that bypassed the daemon. From any thread."""
        if transaction.kind not in ("outside", "exec") or not len(self._leases):
            return
        now_us, session = self._clock.now_us(), transaction.authorship.session
        violated: dict[str, tuple[Lease, list[WorkspacePath]]] = {}
        for touch in transaction.touches:
            for lease in self._leases.against(session, touch.path, now_us, is_made=touch.after is not None):
                violated.setdefault(lease.id, (lease, []))[1].append(touch.path)
        for lease, paths in violated.values():
            self._loop.call_soon_threadsafe(self._tell_violated, lease, paths, int(transaction.seq))

    # ── the methods ──

    def acquire(
        self, params: messages.LeaseAcquire, caller: ClientState
    ) -> messages.LeaseAcquireResult | WaitingLease:
        session = self._sessions.named(params.session, caller)
        self._guard.sessions.check_not_paused(session)
        paths = convert.globs(params.paths, "A lease")
        seconds = 0.0 if params.wait is None else params.wait
        if not 0 <= seconds <= WAIT_SECONDS_MAX:
            raise InvalidParams("`wait` is a number of seconds, up to a day.")
        self._guard.permit_leasing(session, paths)
        self._pass_on()  # expired leases must not refuse it
        is_of_name = self._guard.sessions.get(session) is None
        try:
            lease = self._leases.acquire(
                session, paths, params.ttl, self._clock.now_us(), is_of_name=is_of_name
            )
        except Leased:
            if not seconds:
                raise
            return self._wait(session, paths, params.ttl, seconds, caller)
        result = self._granted(lease)
        self._pass_on()
        return result

    def _wait(
        self, session: str, paths: tuple[Glob, ...], ttl: float, seconds: float, caller: ClientState
    ) -> WaitingLease:
        def ended(result: Lease | Refused) -> None:
            del self._waiting[wait]
            waiting.timer.cancel()
            if isinstance(result, Refused):
                waiting.call.refuse(result)
            else:
                waiting.call.reply(self._granted(result))

        is_of_name = self._guard.sessions.get(session) is None
        now_us = self._clock.now_us()
        wait = self._leases.wait(session, paths, ttl, ended, is_of_name=is_of_name, now_us=now_us)
        timer = self._loop.call_later(seconds, lambda: self._queue.when_idle(lambda: self._give_up(wait)))
        waiting = self._waiting[wait] = WaitingLease(caller, timer)
        if not self._is_looking:
            self._look_again()
        return waiting

    def _look_again(self) -> None:
        self._is_looking = bool(self._waiting)
        if self._is_looking:
            self._loop.call_later(LOOK_SECONDS, lambda: self._queue.when_idle(self._look_who_is_gone))

    def _look_who_is_gone(self) -> None:
        """Drop the waiting requests of closed connections, which could not receive their leases."""
        for wait, waiting in tuple(self._waiting.items()):
            if waiting.caller.listener.is_gone:
                waiting.timer.cancel()
                self._give_up(wait)
        self._look_again()

    def _give_up(self, wait: LeaseRequest) -> None:
        if not self._leases.withdraw(wait):
            return  # just granted
        waiting = self._waiting.pop(wait)
        held = [lease for lease in self._leases if lease.session != wait.session]
        waiting.call.refuse(
            Timeout(
                "The paths did not become free in time.",
                hint=Advice(
                    "Use ", method_term("lease.list"), " to see the holders and the end of each lease."
                ),
                data={"leases": [lease.id for lease in held]},
            )
        )
        self._pass_on()

    def renew(self, params: messages.LeaseRenew, caller: ClientState) -> messages.LeaseRenewResult:
        self._pass_on()
        self._sessions.admit_as(self._leases.get(params.lease).session, caller)
        lease = self._leases.renew(params.lease, params.ttl, self._clock.now_us())
        self._tell("renewed", lease)
        self._pass_on()
        return messages.LeaseRenewResult(lease=lease.id, token=lease.token, expires=rfc3339(lease.expires_us))

    def release(self, params: messages.LeaseRelease, caller: ClientState) -> messages.Empty:
        lease = self._leases.get(params.lease)
        if not params.force:
            self._sessions.admit_as(lease.session, caller)
        elif caller.session != lease.session:
            self._gate.require_owner(params, caller)
        self._leases.release(lease.id)
        self._tell("released", lease)
        self._pass_on()
        return messages.Empty()

    def list_leases(self, _params: messages.LeaseList, _caller: ClientState) -> messages.LeaseListResult:
        self._pass_on()
        leases = [
            messages.LeaseEntry(
                lease=lease.id,
                session=lease.session,
                token=lease.token,
                paths=[glob.text for glob in lease.paths],
                expires=rfc3339(lease.expires_us),
            )
            for lease in self._leases
        ]
        return messages.LeaseListResult(leases=leases, waiting=self._leases.waiting)

    def _granted(self, lease: Lease) -> messages.LeaseAcquireResult:
        self._tell("granted", lease)
        return messages.LeaseAcquireResult(
            lease=lease.id, token=lease.token, expires=rfc3339(lease.expires_us)
        )

    # ── end of leases and the next holder ──

    def _end_session(self, name: str) -> None:
        self.end_of(name, UnknownSession(f"The session {name!r} ended while it waited for its lease."))

    def end_of(self, name: str, refusal: Refused) -> list[str]:
        """End the leases of a session, which are returned, and refuse its waiting requests."""
        for wait in [wait for wait in self._waiting if wait.session == name]:
            waiting = self._waiting.pop(wait)
            waiting.timer.cancel()
            waiting.call.refuse(refusal)
        ended = self._leases.end_session(name)
        self._say_ended("released", ended)
        self._pass_on()
        return [lease.id for lease in ended]

    def _pass_on(self) -> None:
        """Expire leases, grant free ones to waiting clients, and schedule the next expiry."""
        now_us = self._clock.now_us()
        self._say_ended("expired", self._leases.expire(now_us))
        self._leases.grant_waiting(now_us)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_us = self._leases.next_end_us()
        if next_us is not None:
            seconds = max(0.0, (next_us - now_us) / 1_000_000)
            self._timer = self._loop.call_later(seconds, lambda: self._queue.when_idle(self._pass_on))

    def _say_ended(self, what: str, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._tell(what, lease)

    def _tell_violated(self, lease: Lease, paths: Sequence[WorkspacePath], seq: int) -> None:
        self._tell("violated", lease, {"seq": seq, "files": [path.text for path in paths]}, paths)

    def _tell(
        self,
        what: str,
        lease: Lease,
        more: dict[str, Any] | None = None,
        paths: Sequence[WorkspacePath] = (),
    ) -> None:
        body = {
            "what": what,
            "lease": lease.id,
            "session": lease.session,
            "token": lease.token,
            "paths": [glob.text for glob in lease.paths],
            "expires": rfc3339(lease.expires_us),
        }
        self._subscriptions.tell("lease", body | (more or {}), paths)
