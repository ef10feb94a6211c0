"""The open sessions: the connections that may use each of them, and its rules.

A session name needs no opening, and then any connection may use it. After `session.open`, only a connection
with the session's token may use the name. Sessions and their read versions survive a restart:
`store.session_store` saves a session before the reply, and `ReadVersionStore` saves read versions
within a second. After an unclean end, all sessions are in doubt (see `engine.access`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import secrets
from collections import Counter, OrderedDict
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from editd.advice import Advice, method_term, step_term
from editd.engine.agents import AgentRegistry
from editd.engine.commands import reader_of
from editd.engine.shares import SESSIONS
from editd.errors import InvalidParams, Overloaded, PermissionDenied, Refused, UnknownSession
from editd.store.session_store import Session
from editd.values.path_rules import fits
from editd.values.transaction import Base, ReadMark, merged_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from editd.engine.commands import Reader
    from editd.store.session_store import Pause, ReadVersionStore, SessionStore
    from editd.values.content import Change, FileState
    from editd.values.path import WorkspacePath
    from editd.values.path_rules import Bounds
    from editd.values.transaction import Outcome
    from editd.wire.messages import OnStale, SessionKind, Unread


# Read versions: the version of each path that a reader last read or wrote.

READERS_MAX = 1_000  # readers without an open session; the oldest are evicted
PATHS_MAX = 20_000  # for one reader; the oldest are evicted, and an edit of such a path needs its own base
READER_BYTES_MAX = 4 * 1024 * 1024  # of one reader's marks, likewise
MARKS_BYTES_MAX = 64 * 1024 * 1024  # of all readers' marks; the reader with the most loses its oldest
MARK_BYTES = 100  # of a mark beside its path, in memory and on the disk


class ReadVersions:
    """Read marks in memory. `ReadVersionStore` saves the marks of kept readers."""

    def __init__(self) -> None:
        self._seen: dict[Reader, OrderedDict[WorkspacePath, ReadMark]] = {}
        self._passing: OrderedDict[Reader, None] = OrderedDict()  # readers that are not kept, oldest first
        self._kept: set[Reader] = set()
        self._changed: set[tuple[Reader, WorkspacePath]] = set()
        self._bytes: Counter[Reader] = Counter()
        self.all_bytes = 0
        self.evicted = 0  # marks beyond a limit, since the start

    def note(self, reader: Reader, path: WorkspacePath, sight: ReadMark) -> None:
        """Record that `reader` knows this version of a path."""
        paths = self._seen.setdefault(reader, OrderedDict())
        if path not in paths:
            self._count(reader, len(path.raw) + MARK_BYTES)
        paths[path] = sight
        paths.move_to_end(path)
        if reader in self._kept:
            self._changed.add((reader, path))
        else:
            self._passing[reader] = None
            self._passing.move_to_end(reader)
            if len(self._passing) > READERS_MAX:
                self.forget(next(iter(self._passing)))
        while len(paths) > PATHS_MAX or self._bytes[reader] > READER_BYTES_MAX:
            self._evict_oldest(reader)
        while self.all_bytes > MARKS_BYTES_MAX:
            self._evict_oldest(max(self._bytes, key=self._bytes.__getitem__))

    def _count(self, reader: Reader, size: int) -> None:
        self._bytes[reader] += size
        self.all_bytes += size

    def _evict_oldest(self, reader: Reader) -> None:
        oldest, _ = self._seen[reader].popitem(last=False)
        self._count(reader, -len(oldest.raw) - MARK_BYTES)
        self.evicted += 1
        if reader in self._kept:
            self._changed.add((reader, oldest))

    def weaker(self) -> list[str]:
        """Return the sentence of `status` if marks were evicted."""
        if not self.evicted:
            return []
        reason = f"a session keeps the versions of {PATHS_MAX} paths"
        remedy = "An edit of such a path needs its own base."
        return [f"{self.evicted} versions that sessions had read were forgotten: {reason}. {remedy}"]

    def note_lines(self, reader: Reader, path: WorkspacePath, base: Base, first: int, last: int) -> None:
        """Record a read of lines `first` to `last`, from 1. Keep earlier lines of the same version."""
        known = self.sight(reader, path)
        if known is None or known.base != base:
            self.note(reader, path, ReadMark(base, ((first, last),)))
        elif known.lines is not None:
            self.note(reader, path, ReadMark(base, merged_ranges((*known.lines, (first, last)))))

    def by(self, reader: Reader, path: WorkspacePath) -> Base | None:
        """Return the version that `reader` last read or wrote, or None."""
        paths = self._seen.get(reader)
        sight = None if paths is None else paths.get(path)
        return None if sight is None else sight.base

    def sight(self, reader: Reader, path: WorkspacePath) -> ReadMark | None:
        """Return the read mark of a path, or None."""
        paths = self._seen.get(reader)
        return None if paths is None else paths.get(path)

    def note_outcome(self, reader: Reader, outcome: Outcome, *, is_news: bool = True) -> None:
        """Note that the reader knows the contents of an outcome.

        A repeated answer (`is_news` is false) does not replace a newer note. It replaces a note that the
        reader itself reported (`methods.recalled_reads`), because that is older.
        """
        for change in (*outcome.changes, *outcome.unchanged):
            known = None if is_news else self.sight(reader, change.path)
            if known is None or known.lines == ():
                version = None if change.after is None else change.after.version
                self.note(reader, change.path, ReadMark(Base(version)))
        if outcome.sights:
            self.note_sights(reader, outcome.sights, {change.path: change for change in outcome.changes})

    def note_sights(
        self,
        reader: Reader,
        sights: Iterable[tuple[str, WorkspacePath, ReadMark]],
        changes: Mapping[WorkspacePath, Change[FileState]] = MappingProxyType({}),
    ) -> None:
        """Note reads of the sessions that a tool's call names, or of `reader` if it names none.

        For a file in `changes`, note the new content.
        """
        for name, path, sight in sights:
            change = changes.get(path)
            version = None if change is None or change.after is None else change.after.version
            now = sight if change is None else replace(sight, base=Base(version))
            self.note(reader_of(name) if name else reader, path, now)

    def outdated(
        self,
        reader: Reader,
        changes: Iterable[Change[FileState]],
        expected: Mapping[tuple[Reader, WorkspacePath], Base],
    ) -> dict[WorkspacePath, Base]:
        """Return the base that the reader knew, for each path whose content was no longer that base.

        `expected` are bases that readers will know after earlier requests.
        """
        outdated: dict[WorkspacePath, Base] = {}
        for change in changes:
            known = expected.get((reader, change.path)) or self.by(reader, change.path)
            if known is not None and change.before is not None and known.version != change.before.version:
                outdated[change.path] = known
        return outdated

    def forget(self, reader: Reader) -> None:
        """Drop all marks of a reader."""
        self._seen.pop(reader, None)
        self._passing.pop(reader, None)
        self.all_bytes -= self._bytes.pop(reader, 0)

    def keep(self, reader: Reader, known: Iterable[tuple[WorkspacePath, ReadMark]]) -> None:
        """Keep this reader from now on. `known` has its read marks so far, oldest first."""
        self.forget(reader)
        self._seen[reader] = OrderedDict(known)
        self._count(reader, sum(len(path.raw) + MARK_BYTES for path in self._seen[reader]))
        self._kept.add(reader)

    def keep_no_more(self, reader: Reader) -> None:
        """Drop a kept reader and its unsaved changes."""
        self.forget(reader)
        self._kept.discard(reader)
        self._changed = {entry for entry in self._changed if entry[0] != reader}

    def take_changed(self, limit: int) -> list[tuple[Reader, WorkspacePath, ReadMark | None]]:
        """Return up to `limit` unsaved changes of kept readers, and count them as saved. None: dropped."""
        keys = [self._changed.pop() for _ in range(min(limit, len(self._changed)))]
        return [(reader, path, self.sight(reader, path)) for reader, path in keys]

    @property
    def has_changed(self) -> bool:
        """Whether `take_changed` would return something."""
        return bool(self._changed)

    def __len__(self) -> int:
        return len(self._seen)


log = logging.getLogger(__name__)

PAUSES_MAX = 1000
TTL_SECONDS = 7 * 86400.0  # the default
TTL_SECONDS_MAX = 366 * 86400.0
KEPT_AT_ONCE = 5000  # read marks written at once, which takes about 15 ms


class OpenSession(Struct):
    """An open session, with its time of last use and its connections."""

    session: Session
    used_us: int
    opener: int | None = None  # the connection that opened it; None for a session of an earlier daemon
    connections: set[int] = field(default_factory=set)


class Sessions:
    """All open sessions of a workspace."""

    def __init__(
        self, registry: SessionStore, sights: ReadVersionStore, seen: ReadVersions, now_us: int
    ) -> None:
        """Load the sessions of the previous daemon, with their read versions."""
        self._registry = registry
        self.sights = sights
        self._seen = seen
        self._open: dict[str, OpenSession] = {}
        self._used: dict[str, int] = {}  # unsaved times of last use
        self.paused = {pause.session: pause for pause in registry.pauses}
        self.agents = AgentRegistry(registry)
        self.is_closed = False
        self._was_lost = False  # whether a write failed
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
        always_proposes: bool = False,
        is_collected: bool = False,
        is_draft: bool = False,
        kind: SessionKind = "person",
        after: int = 0,
        connection: int | None = None,
    ) -> tuple[Session, str]:
        """Open a session, durably. Return it and its token, which is not stored and cannot be shown again.

        Each session counts for the connection that opened it. Raises Overloaded, InvalidParams or IoError.
        """
        if name in self._open:
            raise InvalidParams(
                f"A session {name!r} is open already.",
                hint=Advice(
                    step_term("attach_with_token"), ", or end it with ", method_term("session.close"), "."
                ),
                data={"session": name},
            )
        SESSIONS.check([opened.opener for opened in self._open.values()], connection)
        seconds = TTL_SECONDS if ttl is None else ttl
        if not 0 < seconds <= TTL_SECONDS_MAX:
            raise InvalidParams("`ttl` is a number of seconds, above 0 and at most a year.")
        token = secrets.token_urlsafe(24)
        session = Session(
            name, _hash(token), actor, bounds, on_stale, unread, seconds, now_us,
            always_proposes=always_proposes, is_collected=is_collected, is_draft=is_draft, kind=kind,
            after=after,
        )  # fmt: skip
        self._registry.put_session(session)
        self._open[name] = OpenSession(session, now_us, connection)
        self._forget(name)  # read versions of an earlier session of this name
        self._seen.keep(reader_of(name), ())
        return session, token

    def pause(self, pause: Pause) -> None:
        """Pause a session, which need not be open; durable on return. Raises Overloaded or IoError."""
        if len(self.paused) >= PAUSES_MAX and pause.session not in self.paused:
            raise Overloaded(f"{PAUSES_MAX} sessions are paused.", hint="Resume some of them first.")
        self._registry.put_pause(pause)
        self.paused[pause.session] = pause

    def resume(self, name: str) -> None:
        """End the pause of a session. Raises InvalidParams if it is not paused, and IoError."""
        if name not in self.paused:
            raise InvalidParams(f"The session {name!r} is not paused.", data={"session": name})
        self._registry.drop_pause(name)
        del self.paused[name]

    def check_not_paused(self, name: str | None) -> None:
        """Raise PermissionDenied if the edits of a session are refused."""
        pause = self.pause_of(name)
        if pause is not None and pause.action == "refuse":
            raise refused_by(pause)

    def pause_of(self, name: str | None) -> Pause | None:
        """Return the pause of a session, or None."""
        pause = None if name is None else self.paused.get(name)
        return pause if pause is not None and fits(pause.rule, None, name) else None

    def close(self, name: str) -> Session:
        """End a session and return it. Raises UnknownSession."""
        session = self._known(name).session
        self._registry.drop_session(name)
        del self._open[name]
        self._used.pop(name, None)
        self._seen.keep_no_more(reader_of(name))
        self._forget(name)
        return session

    def attach(self, name: str, token: str | None, connection: int, now_us: int) -> Session:
        """Let a connection use the session. Raises UnknownSession if the session or the token is wrong."""
        opened = self._known(name)
        if token is None or not hmac.compare_digest(_hash(token), opened.session.token_hash):
            raise UnknownSession(
                f"The session {name!r} was opened with a different token."
                if token is not None
                else f"The session {name!r} was opened with a token.",
                hint=Advice(step_term("give_token"), "."),
                data={"session": name},
            )
        opened.connections.add(connection)
        self.use(name, now_us)
        return opened.session

    def join(self, name: str, connection: int) -> None:
        """Attach the connection that opened a session."""
        self._open[name].connections.add(connection)

    def leave(self, connection: int, now_us: int) -> None:
        """Detach a closed connection. Its sessions stay open for their ttl."""
        for name, opened in self._open.items():
            if connection in opened.connections:
                opened.connections.discard(connection)
                self.use(name, now_us)

    def get(self, name: str | None) -> Session | None:
        """Return the open session of this name, or None."""
        opened = None if name is None else self._open.get(name)
        return None if opened is None else opened.session

    def is_agents(self, name: str | None) -> bool:
        """Return whether a session is an agent's: a hook uses its name, or it was opened for an agent."""
        if name is None:
            return False
        session = self.get(name)
        return name in self.agents.sessions or (session is not None and session.kind == "agent")

    def proved_after(self, name: str | None) -> int | None:
        """Return the transaction after which work under this name is proved to be its session's.

        None for a name that a connection may just state: no session of it is open, and no hook uses it.
        """
        session = self.get(name)
        if session is not None:
            return session.after
        return None if name is None else self.agents.sessions.get(name)

    def is_attached(self, name: str, connection: int) -> bool:
        """Return whether the connection may use the open session `name`."""
        opened = self._open.get(name)
        return opened is not None and connection in opened.connections

    def admit(self, name: str, connection: int, now_us: int) -> None:
        """Raise UnknownSession if the name is an open session of other connections."""
        if name not in self._open:
            return
        if not self.is_attached(name, connection):
            raise UnknownSession(
                f"The session {name!r} is open, and this connection is not attached to it.",
                hint=Advice(step_term("attach"), "."),
                data={"session": name},
            )
        self.use(name, now_us)

    def use(self, name: str, now_us: int) -> None:
        """Note the time of last use."""
        self._open[name].used_us = now_us
        self._used[name] = now_us

    def expired(self, now_us: int) -> list[str]:
        """Return the sessions without a connection whose ttl has passed since their last use."""
        return [
            name
            for name, opened in self._open.items()
            if not opened.connections and now_us - opened.used_us > opened.session.ttl * 1_000_000
        ]

    def seconds_left(self, now_us: int) -> float | None:
        """Return the seconds until the next session expires, or None if all have connections."""
        ends = [
            opened.used_us + opened.session.ttl * 1_000_000
            for opened in self._open.values()
            if not opened.connections
        ]
        return max(0.0, (min(ends) - now_us) / 1_000_000) if ends else None

    def __iter__(self) -> Iterator[OpenSession]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    # ── saving ──

    def write_down(self) -> None:
        """Save a part of the unsaved read versions. Log a failure: the sessions will then be in doubt."""
        changed = self._seen.take_changed(KEPT_AT_ONCE)
        if changed or self._used:
            self._save(changed)

    @property
    def is_written_down(self) -> bool:
        """Whether everything is saved."""
        return not self._seen.has_changed and not self._used

    def close_all(self) -> None:
        """Save everything at the clean end of the daemon."""
        self.is_closed = True
        while changed := self._seen.take_changed(KEPT_AT_ONCE):
            self._save(changed)
        self._save(())
        self.sights.close()
        self._registry.close(is_clean=not self._was_lost)

    def _save(self, changed: Iterable[tuple[str, WorkspacePath, ReadMark | None]]) -> None:
        names = {reader_of(name): name for name in self._open}
        rows = [(names[reader], path, sight) for reader, path, sight in changed if reader in names]
        with self._logging_failure():
            self.sights.write(rows, self._used)
        self._used.clear()

    def _forget(self, name: str) -> None:
        with self._logging_failure():
            self.sights.forget(name)

    @contextlib.contextmanager
    def _logging_failure(self) -> Iterator[None]:
        """Log a failed write. All sessions will be in doubt after the next start."""
        try:
            yield
        except Refused as refusal:
            log.error("%s", refusal.text())
            self._was_lost = True

    def _known(self, name: str) -> OpenSession:
        opened = self._open.get(name)
        if opened is None:
            raise UnknownSession(
                f"There is no session {name!r}.",
                hint=Advice(step_term("open_session")),
                data={"session": name},
            )
        return opened


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def refused_by(pause: Pause) -> PermissionDenied:
    """Return the refusal of an edit by a paused session."""
    return PermissionDenied(
        pause.text,
        hint="Change nothing until a person resumes it. Reading still works.",
        data={"session": pause.session, "paused_by": pause.by, "reason": pause.reason},
    )
