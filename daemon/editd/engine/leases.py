"""Leases: the paths that sessions hold, and the queue of the sessions that wait for them.

A lease is granted if no lease and no earlier request of another session can match the same path. So a later
request never overtakes an earlier one, and no session waits forever. Leases of one session do not exclude
each other. The time is an argument: nothing here reads a clock.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice, argument_term, method_term
from editd.engine.leased_paths import LeasedPaths
from editd.engine.shares import LEASE_REQUESTS, LEASES
from editd.errors import InvalidParams, IoError, Leased, Overloaded
from editd.store.session_store import Lease
from editd.store.transaction_record import rfc3339
from editd.values.glob import Meter
from editd.values.path_rules import fits, is_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from editd.errors import Refused
    from editd.store.session_store import SessionStore
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath

log = logging.getLogger(__name__)

PATHS_MAX = 64  # globs of one lease, each compared with other sessions' globs
TTL_SECONDS_MAX = 86400.0


class LeaseRequest(Struct, eq=False):
    """A request that waits for its paths."""

    session: str
    paths: tuple[Glob, ...]
    ttl: float
    ended: Callable[[Lease | Refused], None]  # called with the lease or the refusal
    is_of_name: bool = False  # no client opened the session
    since_us: int = 0  # the time of the request


class Leases:
    """All leases and waiting requests of a workspace."""

    def __init__(self, registry: SessionStore) -> None:
        """Load the leases of the previous daemon. `expire` ends the leases that have expired since."""
        open_sessions = {session.name for session in registry.sessions}
        kept = [lease for lease in registry.leases if lease.is_of_name or lease.session in open_sessions]
        self._registry = registry
        self.held: dict[str, Lease] = {}
        """All leases, by their ids."""
        self._leased = LeasedPaths[Lease]()
        self._waiting: list[LeaseRequest] = []
        self._requested = LeasedPaths[LeaseRequest]()
        self._may_grant = False  # a lease or a request ended, or a request came, since the last grants
        for lease in kept:
            self._keep(lease)

    def _keep(self, lease: Lease) -> None:
        if lease.id in self.held:
            self._leased.drop(self.held[lease.id])
        self.held[lease.id] = lease
        self._leased.add(lease)

    def _forget(self, name: str) -> None:
        self._leased.drop(self.held.pop(name))
        self._may_grant = True

    def _forget_request(self, wait: LeaseRequest) -> None:
        self._waiting.remove(wait)
        self._requested.drop(wait)
        self._may_grant = True

    def acquire(
        self, session: str, paths: tuple[Glob, ...], ttl: float, now_us: int, *, is_of_name: bool = False
    ) -> Lease:
        """Grant a lease, durable on return. Raises Leased if another session holds or awaits a path."""
        _check(paths, ttl)
        self._refuse_if_taken(session, paths, self._requested, Meter())
        return self._grant(session, paths, ttl, now_us, is_of_name=is_of_name)

    def wait(
        self,
        session: str,
        paths: tuple[Glob, ...],
        ttl: float,
        ended: Callable[[Lease | Refused], None],
        *,
        is_of_name: bool = False,
        now_us: int = 0,
    ) -> LeaseRequest:
        """Queue a request. `grant_waiting` calls `ended` when the paths are free. Raises Overloaded."""
        _check(paths, ttl)
        LEASE_REQUESTS.check([request.session for request in self._waiting], session)
        self._requested.check_room(paths, "The waiting requests for leases")
        wait = LeaseRequest(session, paths, ttl, ended, is_of_name, now_us)
        self._waiting.append(wait)
        self._requested.add(wait)
        self._may_grant = True
        return wait

    def withdraw(self, wait: LeaseRequest) -> bool:
        """Remove a request from the queue. Return whether it was still there."""
        if wait not in self._waiting:
            return False
        self._forget_request(wait)
        return True

    def waiting_of(self, session: str) -> LeaseRequest | None:
        """Return the oldest request of the session that waits for a lease."""
        return next((wait for wait in self._waiting if wait.session == session), None)

    def holders(self, wait: LeaseRequest) -> list[str]:
        """Return the sessions with a lease in the way of a request."""
        return sorted({lease.session for lease in self._leased.excluding(wait.session, wait.paths, Meter())})

    def grant_waiting(self, now_us: int) -> list[Lease]:
        """Grant queued requests whose paths are free, in order. Return the granted leases.

        If a free lease cannot be saved, fail the request: nothing would wake it when the disk recovers.
        """
        granted: list[Lease] = []
        if not self._may_grant:
            return granted
        self._may_grant = False
        meter = Meter()
        earlier = LeasedPaths[LeaseRequest]()
        for wait in tuple(self._waiting):
            try:
                self._refuse_if_taken(wait.session, wait.paths, earlier, meter)
                lease = self._grant(wait.session, wait.paths, wait.ttl, now_us, is_of_name=wait.is_of_name)
            except (Leased, Overloaded):
                earlier.add(wait)
                continue
            except IoError as refusal:
                self._forget_request(wait)
                wait.ended(refusal)
                continue
            self._forget_request(wait)
            wait.ended(lease)
            granted.append(lease)
        return granted

    def renew(self, name: str, ttl: float, now_us: int) -> Lease:
        """Extend a lease to `ttl` seconds from now. Raises InvalidParams if it has ended."""
        lease = self.get(name)
        _check(lease.paths, ttl)
        renewed = replace(lease, expires_us=now_us + int(ttl * 1_000_000))
        self._registry.put_lease(renewed)
        self._keep(renewed)
        return renewed

    def release(self, name: str) -> Lease:
        """End a lease and return it. Raises InvalidParams if it has ended."""
        lease = self.get(name)
        self._registry.drop_lease(name)
        self._forget(name)
        return lease

    def expire(self, now_us: int) -> list[Lease]:
        """End expired leases and return them."""
        return self._end(lease for lease in self if is_over(lease.expires_us, now_us))

    def end_session(self, session: str) -> list[Lease]:
        """End the leases of a session, which are returned, and its queued requests."""
        for wait in [wait for wait in self._waiting if wait.session == session]:
            self._forget_request(wait)
        return self._end(lease for lease in self if lease.session == session)

    def _end(self, ended: Iterable[Lease]) -> list[Lease]:
        """End leases even if that cannot be saved.

        The next daemon detects it anyway, because the lease has expired or its session is closed.
        """
        leases = list(ended)
        for lease in leases:
            self._forget(lease.id)
        try:
            for lease in leases:
                self._registry.drop_lease(lease.id)
        except IoError as refusal:
            log.error("an ended lease cannot be dropped: %s", refusal.text())
        return leases

    def get(self, name: str) -> Lease:
        """Return a lease. Raises InvalidParams if it does not exist or has ended."""
        lease = self.held.get(name)
        if lease is None:
            raise InvalidParams(
                f"There is no lease {name!r}.",
                hint=Advice("It may have expired. ", method_term("lease.list"), " lists the leases."),
                data={"lease": name},
            )
        return lease

    def against(
        self, session: str | None, path: WorkspacePath, now_us: int, *, is_made: bool = False
    ) -> Iterator[Lease]:
        """Yield the leases of others on `path`, and with `is_made` then those of paths below a new file."""
        for lease in self._leased.near(path):
            if fits(lease.rule, path, session, now_us):
                yield lease
        for lease in self._leased.below(path) if is_made else ():
            is_covered = fits(lease.rule, path, session, now_us)
            if not is_covered and fits(lease.rule, path, session, now_us, is_made=True):
                yield lease

    def next_end_us(self) -> int | None:
        """Return the time when the next lease expires, or None."""
        return min((lease.expires_us for lease in self.held.values()), default=None)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self.held.values()))

    def __len__(self) -> int:
        return len(self.held)

    def _refuse_if_taken(
        self, session: str, paths: tuple[Glob, ...], earlier: LeasedPaths[LeaseRequest], meter: Meter
    ) -> None:
        for lease in self._leased.excluding(session, paths, meter):
            raise leased(lease, "A requested path is leased")
        for wait in earlier.excluding(session, paths, meter):
            raise Leased(
                f"The session {wait.session!r} already waits for these paths.",
                hint=Advice(
                    "Join the queue: ", method_term("lease.acquire"), " with ", argument_term("wait"), "."
                ),
                data={"waiting": wait.session, "paths": [glob.text for glob in wait.paths]},
            )

    def _grant(
        self, session: str, paths: tuple[Glob, ...], ttl: float, now_us: int, *, is_of_name: bool
    ) -> Lease:
        LEASES.check([lease.session for lease in self.held.values()], session)
        self._leased.check_room(paths, "The leases")
        token = self._registry.last_token + 1
        ends_us = now_us + int(ttl * 1_000_000)
        lease = Lease(secrets.token_hex(8), session, token, paths, ends_us, is_of_name)
        self._registry.put_lease(lease)
        self._keep(lease)
        return lease


def leased(lease: Lease, problem: str) -> Leased:
    """Return the refusal that names the holder. `problem` is the beginning of its sentence."""
    return Leased(
        f"{problem} by the session {lease.session!r} until {rfc3339(lease.expires_us)}.",
        hint=Advice("Wait until the lease ends, or request one with ", argument_term("wait"), "."),
        data={
            "holder": lease.session,
            "lease": lease.id,
            "token": lease.token,
            "expires": rfc3339(lease.expires_us),
            "paths": [glob.text for glob in lease.paths],
        },
    )


def _check(paths: tuple[Glob, ...], ttl: float) -> None:
    if not 1 <= len(paths) <= PATHS_MAX:
        raise InvalidParams(f"`paths` holds between 1 and {PATHS_MAX} globs.")
    if not 0 < ttl <= TTL_SECONDS_MAX:
        raise InvalidParams("`ttl` is a number of seconds, above 0 and at most a day.")
