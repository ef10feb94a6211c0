"""The open sessions: the clients that may act in their names, and the rules of each.

A name that nobody opened is only a name. After it is opened, only a connection that shows its token acts in
it. Sessions and the versions that they read outlive the daemon. `store.session_store` makes a session durable
before the reply; `store.read_version_store` is at most a second behind. After an unclean end every session is
in doubt, see `engine.access`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import secrets
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from editd.engine.commands import reader_of
from editd.errors import InvalidParams, Overloaded, Refused, UnknownSession
from editd.values.session import Bounds, Session, Unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from editd.engine.read_versions import ReadVersions
    from editd.store.read_version_store import ReadVersionStore
    from editd.store.session_store import SessionStore
    from editd.values.changeset import OnStale, ReadMark
    from editd.values.path import WorkspacePath

log = logging.getLogger(__name__)

SESSIONS_MAX = 1000
TTL_SECONDS = 7 * 86400.0  # unless the client says otherwise
TTL_SECONDS_MAX = 366 * 86400.0
KEPT_AT_ONCE = 5000  # sights written in one go, which takes some 15 ms


class OpenSession(Struct):
    """A session that is open, and what changes of it all the time."""

    session: Session
    used_us: int
    connections: set[int] = field(default_factory=set)


class Sessions:
    def __init__(
        self, registry: SessionStore, sights: ReadVersionStore, seen: ReadVersions, now_us: int
    ) -> None:
        """Take up the sessions of the last daemon, and what they have seen."""
        self._registry = registry
        self._sights = sights
        self._seen = seen
        self._open: dict[str, OpenSession] = {}
        self._used: dict[str, int] = {}  # since it was last written
        self.is_closed = False
        self._was_lost = False  # something that could not be written
        is_in_doubt = not registry.was_ended_cleanly or not sights.is_whole
        for session in registry.sessions:
            if is_in_doubt and not session.is_in_doubt:
                session = replace(session, is_in_doubt=True)  # noqa: PLW2901
                registry.put_session(session)
            self._open[session.name] = OpenSession(session, sights.used_us(session.name) or now_us)
            seen.keep(reader_of(session.name), sights.of(session.name))

    def open(
        self,
        name: str,
        *,
        actor: str | None,
        bounds: Bounds,
        on_stale: OnStale | None,
        unread: Unread,
        ttl: float | None,
        now_us: int,
    ) -> tuple[Session, str]:
        """Open a session; return it and its token, which nobody can be told again. Durable on return."""
        if name in self._open:
            raise InvalidParams(
                f"A session {name!r} is open already.",
                hint="`hello` with its token attaches to it; `session.close` ends it.",
                data={"session": name},
            )
        if len(self._open) >= SESSIONS_MAX:
            raise Overloaded(f"{SESSIONS_MAX} sessions are open.", hint="Close some of them first.")
        seconds = TTL_SECONDS if ttl is None else ttl
        if not 0 < seconds <= TTL_SECONDS_MAX:
            raise InvalidParams("`ttl` is a number of seconds, above 0 and up to a year.")
        token = secrets.token_urlsafe(24)
        session = Session(name, _hash(token), actor, bounds, on_stale, unread, seconds, now_us)
        self._registry.put_session(session)
        self._open[name] = OpenSession(session, now_us)
        self._forget(name)  # what one that had this name has seen
        self._seen.keep(reader_of(name), ())
        return session, token

    def close(self, name: str) -> Session:
        """End it. Raises UnknownSession."""
        session = self._known(name).session
        self._registry.drop_session(name)
        del self._open[name]
        self._used.pop(name, None)
        self._seen.keep_no_more(reader_of(name))
        self._forget(name)
        return session

    def attach(self, name: str, token: str | None, connection: int, now_us: int) -> Session:
        """Let this connection act in the session's name. Raises UnknownSession."""
        found = self._known(name)
        if token is None or not hmac.compare_digest(_hash(token), found.session.token_hash):
            raise UnknownSession(
                f"The session {name!r} was opened with a token, and this is not it."
                if token is not None
                else f"The session {name!r} was opened with a token.",
                hint="Give the token that `session.open` returned: `hello {session, token}`.",
                data={"session": name},
            )
        found.connections.add(connection)
        self.use(name, now_us)
        return found.session

    def join(self, name: str, connection: int) -> None:
        """The connection that opened a session is attached to it."""
        self._open[name].connections.add(connection)

    def leave(self, connection: int, now_us: int) -> None:
        """The connection is gone; the sessions it was attached to live on for their time."""
        for name, found in self._open.items():
            if connection in found.connections:
                found.connections.discard(connection)
                self.use(name, now_us)

    def get(self, name: str | None) -> Session | None:
        found = None if name is None else self._open.get(name)
        return None if found is None else found.session

    def is_attached(self, name: str, connection: int) -> bool:
        found = self._open.get(name)
        return found is not None and connection in found.connections

    def admit(self, name: str | None, connection: int, now_us: int) -> None:
        """May this connection act in this name? Raises UnknownSession where the name is another's."""
        if name is None or name not in self._open:
            return
        if not self.is_attached(name, connection):
            raise UnknownSession(
                f"The session {name!r} is open, and this connection is not attached to it.",
                hint="Attach it with the token that `session.open` returned: `hello {session, token}`.",
                data={"session": name},
            )
        self.use(name, now_us)

    def use(self, name: str, now_us: int) -> None:
        self._open[name].used_us = now_us
        self._used[name] = now_us

    def expired(self, now_us: int) -> list[str]:
        """The sessions whose time without a connection or a request is over."""
        return [
            name
            for name, found in self._open.items()
            if not found.connections and now_us - found.used_us > found.session.ttl * 1_000_000
        ]

    def seconds_left(self, now_us: int) -> float | None:
        """Return after how long the first session without a connection ends; None if none does by itself."""
        ends = [
            found.used_us + found.session.ttl * 1_000_000
            for found in self._open.values()
            if not found.connections
        ]
        return max(0.0, (min(ends) - now_us) / 1_000_000) if ends else None

    def __iter__(self) -> Iterator[OpenSession]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    # ── what outlives the daemon ──

    def write_down(self) -> None:
        """Write down what sessions have seen since; a fault is only told, for it fails safe."""
        changed = self._seen.take_changed(KEPT_AT_ONCE)
        if changed or self._used:
            self._put(changed)

    @property
    def is_written_down(self) -> bool:
        """Whether nothing is left for `write_down`."""
        return not self._seen.has_changed and not self._used

    def close_all(self) -> None:
        """The daemon ends cleanly."""
        self.is_closed = True
        while changed := self._seen.take_changed(KEPT_AT_ONCE):
            self._put(changed)
        self._put(())
        self._sights.close()
        self._registry.close(is_clean=not self._was_lost)

    def _put(self, changed: Iterable[tuple[str, WorkspacePath, ReadMark | None]]) -> None:
        names = {reader_of(name): name for name in self._open}
        rows = [(names[reader], path, sight) for reader, path, sight in changed if reader in names]
        with self._failing_safe():
            self._sights.write(rows, self._used)
        self._used.clear()

    def _forget(self, name: str) -> None:
        with self._failing_safe():
            self._sights.forget(name)

    @contextlib.contextmanager
    def _failing_safe(self) -> Iterator[None]:
        """What cannot be written is only told: for the next daemon, all sessions will be in doubt."""
        try:
            yield
        except Refused as refusal:
            log.error("%s", refusal.text())
            self._was_lost = True

    def _known(self, name: str) -> OpenSession:
        found = self._open.get(name)
        if found is None:
            raise UnknownSession(
                f"There is no session {name!r}.",
                hint="`session.open` opens it; `session.list` tells which are open.",
                data={"session": name},
            )
        return found


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
