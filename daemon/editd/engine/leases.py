"""Leases: which session has which paths, who waits for them, and in which order they get them.

A lease is granted where no other session's lease, and no earlier wait of another session, can mean a path
that it means: who came first is never overtaken, so nobody waits for ever behind those who come later. Leases
of one session do not exclude each other. Time is an argument; nothing here looks at a clock.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import InvalidParams, IoError, Leased, Overloaded
from editd.store.commit_message import rfc3339
from editd.values.glob import Meter
from editd.values.lease import Lease, exclude_each_other

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from editd.errors import Refused
    from editd.store.session_store import SessionStore
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath

log = logging.getLogger(__name__)

LEASES_MAX = 1000
PATHS_MAX = 64  # globs of one lease: every two of different sessions are compared
TTL_SECONDS_MAX = 86400.0


class LeaseRequest(Struct, eq=False):
    """A lease that is asked for and not free yet."""

    session: str
    paths: tuple[Glob, ...]
    ttl: float
    ended: Callable[[Lease | Refused], None]  # with the lease, or with why it cannot be given


class Leases:
    def __init__(self, registry: SessionStore) -> None:
        """Take up the leases of the last daemon; `expire` says which have ended since."""
        open_sessions = {session.name for session in registry.sessions}
        self._registry = registry
        self._held = {lease.id: lease for lease in registry.leases if lease.session in open_sessions}
        self._waiting: list[LeaseRequest] = []

    def acquire(self, session: str, paths: tuple[Glob, ...], ttl: float, now_us: int) -> Lease:
        """A lease now, durable on return. Raises Leased with who is in the way."""
        _check(paths, ttl)
        self._refuse_if_taken(session, paths, self._waiting, Meter())
        return self._grant(session, paths, ttl, now_us)

    def wait(
        self,
        session: str,
        paths: tuple[Glob, ...],
        ttl: float,
        ended: Callable[[Lease | Refused], None],
    ) -> LeaseRequest:
        """Wait for a lease: `ended` is called with it by whatever makes it free, see `grant_waiting`."""
        _check(paths, ttl)
        wait = LeaseRequest(session, paths, ttl, ended)
        self._waiting.append(wait)
        return wait

    def withdraw(self, wait: LeaseRequest) -> bool:
        """Wait no more. Returns whether it was still waiting."""
        if wait not in self._waiting:
            return False
        self._waiting.remove(wait)
        return True

    def grant_waiting(self, now_us: int) -> list[Lease]:
        """Give those who wait what has become free, in their order. Returns what was granted.

        Who waits for what is free and cannot be written down waits no more: a disk tells nobody when it is
        well again.
        """
        granted: list[Lease] = []
        meter = Meter()
        earlier: list[LeaseRequest] = []
        for wait in tuple(self._waiting):
            try:
                self._refuse_if_taken(wait.session, wait.paths, earlier, meter)
                lease = self._grant(wait.session, wait.paths, wait.ttl, now_us)
            except (Leased, Overloaded):
                earlier.append(wait)
                continue
            except IoError as refusal:
                self._waiting.remove(wait)
                wait.ended(refusal)
                continue
            self._waiting.remove(wait)
            wait.ended(lease)
            granted.append(lease)
        return granted

    def renew(self, name: str, ttl: float, now_us: int) -> Lease:
        """The same lease, until `ttl` seconds from now. Raises InvalidParams where it has ended."""
        lease = self.get(name)
        _check(lease.paths, ttl)
        renewed = replace(lease, expires_us=now_us + int(ttl * 1_000_000))
        self._registry.put_lease(renewed)
        self._held[name] = renewed
        return renewed

    def release(self, name: str) -> Lease:
        lease = self.get(name)
        self._registry.drop_lease(name)
        del self._held[name]
        return lease

    def expire(self, now_us: int) -> list[Lease]:
        """End the leases whose time is over, and return them."""
        return self._end(lease for lease in self if lease.expires_us <= now_us)

    def end_session(self, session: str) -> list[Lease]:
        """End what a session has and waits for. Returns the leases."""
        self._waiting = [wait for wait in self._waiting if wait.session != session]
        return self._end(lease for lease in self if lease.session == session)

    def _end(self, ended: Iterable[Lease]) -> list[Lease]:
        """End what is over by itself, whether or not that can be written down.

        The next daemon sees it without: by the lease's time, or by its session that is gone.
        """
        over = list(ended)
        for lease in over:
            del self._held[lease.id]
        try:
            for lease in over:
                self._registry.drop_lease(lease.id)
        except IoError as refusal:
            log.error("a lease that is over cannot be dropped: %s", refusal.text())
        return over

    def get(self, name: str) -> Lease:
        """Raises InvalidParams where there is no such lease, or no more."""
        found = self._held.get(name)
        if found is None:
            raise InvalidParams(
                f"There is no lease {name!r}.",
                hint="It may have ended by itself; `lease.list` tells which are held.",
                data={"lease": name},
            )
        return found

    def over(self, path: WorkspacePath, now_us: int, *, is_made: bool = False) -> list[Lease]:
        """Return the leases in force that cover a path, or a folder that a file made there would bar."""
        return [
            lease
            for lease in self
            if lease.expires_us > now_us and (lease.covers(path) or (is_made and lease.is_barred_by(path)))
        ]

    def next_end_us(self) -> int | None:
        """When the first of them ends by itself."""
        return min((lease.expires_us for lease in self._held.values()), default=None)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def _refuse_if_taken(
        self, session: str, paths: tuple[Glob, ...], earlier: Iterable[LeaseRequest], meter: Meter
    ) -> None:
        for lease in self._held.values():
            if lease.session != session and exclude_each_other(lease.paths, paths, meter):
                raise leased(lease, "What is asked for is leased")
        for wait in earlier:
            if wait.session != session and exclude_each_other(wait.paths, paths, meter):
                raise Leased(
                    f"The session {wait.session!r} waits for these paths already.",
                    hint="Wait behind it: `lease.acquire` with `wait`.",
                    data={"waiting": wait.session, "paths": [glob.text for glob in wait.paths]},
                )

    def _grant(self, session: str, paths: tuple[Glob, ...], ttl: float, now_us: int) -> Lease:
        if len(self._held) >= LEASES_MAX:
            raise Overloaded(f"{LEASES_MAX} leases are held.", hint="Release some of them first.")
        token = self._registry.last_token + 1
        lease = Lease(secrets.token_hex(8), session, token, paths, now_us + int(ttl * 1_000_000))
        self._registry.put_lease(lease)
        self._held[lease.id] = lease
        return lease


def leased(lease: Lease, what: str) -> Leased:
    """The refusal that names the holder; `what` is the beginning of its sentence."""
    return Leased(
        f"{what} by the session {lease.session!r} until {rfc3339(lease.expires_us)}.",
        hint="Wait until its lease ends, or ask for a lease with `wait`.",
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
        raise InvalidParams("`ttl` is a number of seconds, above 0 and up to a day.")
