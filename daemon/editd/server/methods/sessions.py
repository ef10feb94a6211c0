"""The methods `session.*`, and the check that a connection may act in a session's name."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from editd.advice import GIVE_SESSION, Advice, step_term
from editd.engine.access import AccessControl
from editd.engine.leases import Leases
from editd.engine.permissions import PERMISSIONS
from editd.engine.sessions import PATHS_MAX, ReadVersions, Sessions
from editd.errors import InvalidParams, Refused, UnknownSession
from editd.server import convert
from editd.store.session_store import ReadVersionStore, SessionStore
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.engine.commands import Apply
    from editd.review.submission import Wish
    from editd.server.connection import ClientState
    from editd.server.engine_queue import EngineQueue
    from editd.server.gate import Gate
    from editd.server.subscriptions import Subscriptions
    from editd.store.index import Index
    from editd.store.session_store import Pause
    from editd.system.clock import Clock
    from editd.values.path import WorkspacePath
    from editd.workspace.reader import WorkspaceReader


log = logging.getLogger(__name__)

KEEP_SECONDS = (
    1.05  # between two times that reads are written down, as other work after an edit (`maintenance`)
)

ActsAs = Literal[
    "own",  # the connection's session, if its class of permission is not open to anyone
    "named",  # the session that the request names. To name one in `log` or `undo` needs no token
    "none",  # the request only ends a thing of the connection itself
]


def open_guard(state: str, clock: Clock) -> AccessControl:
    """Load the sessions and leases of the last daemon."""
    now_us, seen = clock.now_us(), ReadVersions()
    registry = SessionStore(state, now_us)
    sessions = Sessions(registry, ReadVersionStore(state), seen, now_us)
    return AccessControl(registry, sessions, Leases(registry), seen, clock)


class SessionMethods:
    def __init__(
        self,
        guard: AccessControl,
        queue: EngineQueue,
        subscriptions: Subscriptions,
        index: Index,
        gate: Gate,
    ) -> None:
        self._guard = guard
        self._gate = gate
        self._index = index
        self._sessions = guard.sessions
        self._queue = queue
        self._subscriptions = subscriptions
        self.on_end: list[Callable[[str], None]] = []  # called with the name of a session that has ended
        self.on_withdraw: list[Callable[[str], None]] = []  # called to take back all open work of a session
        self._timer: asyncio.TimerHandle | None = None
        self._keep_later()

    # ── permission to act ──

    def hello(self, name: str | None, token: str | None, caller: ClientState) -> None:
        """Attach the connection to the session that it names. Raises UnknownSession."""
        if name is not None and (token is not None or self._sessions.get(name) is not None):
            session = self._sessions.attach(name, token, caller.number, self._now_us())
            caller.name = session.actor or caller.name
        elif token is not None:
            raise InvalidParams("`token` belongs to a session.", hint=GIVE_SESSION)
        caller.session = name

    def admit(self, params: messages.Params, caller: ClientState, acts_as: ActsAs) -> None:
        """Raise UnknownSession if the request would act in the name of another client's session.

        A connection may have stated the name before that client opened it. All that it does then, but for
        reading, would be in that name.
        """
        if acts_as == "named":
            self.admit_as(caller.session_of(getattr(params, "session", None)), caller)
        elif acts_as != "none" and PERMISSIONS[type(params)].needs_of(params) != "anyone":
            self.admit_as(caller.session, caller)

    def admit_as(self, name: str | None, caller: ClientState) -> None:
        if name is not None:
            self._sessions.admit(name, caller.number, self._now_us())

    def named(self, name: str | None, caller: ClientState) -> str:
        """Return the session that the request is for, which may be just a name. Raises UnknownSession."""
        found = caller.session_of(name)
        if found is None:
            return self.own(name, caller)
        self.admit_as(found, caller)
        return found

    def own(self, name: str | None, caller: ClientState) -> str:
        """Return the name of the open session that the request is for. Raises UnknownSession."""
        found = caller.session_of(name)
        if found is None or self._sessions.get(found) is None:
            what = "none was named" if found is None else f"no session {found!r} is open"
            raise UnknownSession(
                f"This needs a session, and {what}.",
                hint=Advice(step_term("open_and_attach")),
                data={} if found is None else {"session": found},
            )
        self.admit_as(found, caller)
        return found

    def leave(self, caller: ClientState) -> None:
        self._sessions.leave(caller.number, self._now_us())

    # ── defaults of requests ──

    def actor(self, name: str | None, caller: ClientState) -> str | None:
        session = self._sessions.get(caller.session_of(name))
        return (session.actor if session is not None else None) or caller.name or None

    def with_defaults(self, request: Apply) -> Apply:
        session = self._sessions.get(request.authorship.session)
        if session is None:
            return request
        if session.on_stale is not None and request.on_stale is None:
            request = replace(request, on_stale=session.on_stale)
        if not session.is_collected:
            return request
        return replace(request, is_collected=True, is_draft=request.is_draft or session.is_draft)

    def is_collected(self, name: str | None, caller: ClientState) -> bool:
        """Return whether all edits of the session of a request are one proposal."""
        session = self._sessions.get(caller.session_of(name))
        return session is not None and session.is_collected

    def wish_of(self, name: str | None) -> Wish | None:
        """Return the reason why each edit of this session waits for a reviewer; None if it need not."""
        if self._sessions.paused and (pause := self.pause_of(name)) and pause.action == "propose":
            return "pause"
        session = self._sessions.get(name)
        return "session" if session is not None and session.always_proposes else None

    def pause_of(self, name: str | None) -> Pause | None:
        """Return the pause of a session, or None."""
        return self._sessions.pause_of(name)

    def permit_reading(
        self, name: str | None, caller: ClientState, path: WorkspacePath, tree: WorkspaceReader
    ) -> None:
        """Raise PermissionDenied if the session's scope leaves out the path, or its symlink's target."""
        session = self._sessions.get(caller.session_of(name))
        if session is not None and session.bounds.read is not None:
            self._guard.permit_reading(session.name, [path, tree.resolve(path)])

    # ── the methods ──

    def open(self, params: messages.SessionOpen, caller: ClientState) -> messages.SessionOpenResult:
        scope = params.scope or messages.Scope()
        session, token = self._sessions.open(
            self._new_name(params.name) if params.fresh else params.name,
            actor=params.actor,
            bounds=convert.bounds(scope),
            on_stale=params.on_stale,
            unread=params.unread,
            ttl=params.ttl,
            now_us=self._now_us(),
            always_proposes=params.propose == "always",
            is_collected=params.batch != "each",
            is_draft=params.batch == "draft",
            kind=params.kind,
            after=self._gate.head,
            connection=caller.number,
        )
        self._sessions.join(session.name, caller.number)
        self._keep_later()
        caller.session = session.name
        caller.name = session.actor or caller.name
        if params.kind == "agent":
            self._gate.note_agent(None, None, caller)
        self._tell("opened", session.name)
        return messages.SessionOpenResult(session=session.name, token=token)

    def _new_name(self, name: str) -> str:
        """Return `name`, or the first free of `NAME-2`, `NAME-3` …, which no session has or had."""

        def numbered(number: int) -> str:
            return name if number == 1 else f"{name}-{number}"

        def is_used(number: int) -> bool:
            found = numbered(number)
            return self._sessions.get(found) is not None or self._index.first_of(found) is not None

        used, free = 0, 1
        while is_used(free):
            used, free = free, free * 2
        while free - used > 1:  # There may be gaps: any free number that follows a used one will do.
            middle = (used + free) // 2
            if is_used(middle):
                used = middle
            else:
                free = middle
        return numbered(free)

    def close(self, params: messages.SessionClose, caller: ClientState) -> messages.Empty:
        if params.force and params.session is not None:
            name = params.session
            if not self._sessions.is_attached(name, caller.number):
                self._gate.require_owner(params, caller)
        else:
            name = self.own(params.session, caller)
        if params.withdraw:
            for listener in self.on_withdraw:
                listener(name)
        self._end(name, "closed")
        return messages.Empty()

    def _end(self, name: str, what: str) -> None:
        self._sessions.close(name)
        for call in self.on_end:
            call(name)
        self._tell(what, name)

    def _tell(self, what: str, name: str) -> None:
        self._subscriptions.tell("session", {"what": what, "session": name})

    # ── time ──

    def _keep_later(self, seconds: float = KEEP_SECONDS) -> None:
        """Call `_keep` after `seconds`."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, lambda: self._queue.when_idle(self._keep))

    def _keep(self) -> None:
        """Write down the reads, end the unused sessions, and come back later.

        Later is at the next activity, or when the next session expires.
        """
        if self._sessions.is_closed:
            return
        self._sessions.write_down()
        try:
            for name in self._sessions.expired(self._now_us()):
                self._end(name, "expired")
                log.info("the session %r was not used for its time, and has ended", name)
        except Refused as refusal:  # it stays open, and ends when its end can be written
            log.error("a session cannot end: %s", refusal.text())
        if not self._sessions.is_written_down:
            self._keep_later()
            return
        if not len(self._sessions):
            return  # until one is opened
        self._queue.activity.once(self._keep_later)
        seconds = self._sessions.seconds_left(self._now_us())
        if seconds is not None:
            self._keep_later(max(KEEP_SECONDS, seconds))

    def _now_us(self) -> int:
        return self._guard.clock.now_us()


# Recalled reads: a reconnecting client restores the versions that it had read, to have its edits checked.


def restore_reads(
    sightings: Sequence[messages.ReadVersion], caller: ClientState, guard: AccessControl, queue: EngineQueue
) -> None:
    """Record these versions as read by the connection. Raises InvalidParams, PathOutside.

    An open session is left out: its reads are known here, or it is in doubt. The newest `PATHS_MAX` count.
    """
    known = [
        (caller.reader(name), convert.path(one.path), convert.read_mark(one.version))
        for one in sightings[-PATHS_MAX:]
        for name in [caller.session_of(one.session)]
        if name is None or guard.sessions.get(name) is None
    ]

    def note() -> None:
        for reader, path, sight in known:
            if guard.seen.by(reader, path) is None:
                guard.seen.note(reader, path, sight)

    queue.when_idle(note)
