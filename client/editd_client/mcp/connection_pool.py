"""The connections to the daemon: one session, over as many connections as calls run at once.

Starts a daemon if none answers, and opens the session with the first call. Attaches further connections
to it by its token, and retries a request if the daemon went away: requests carry a `request_id` if a
second time would have a second effect.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from editd_client.client import Client
from editd_client.connect import connect, connect_or_start
from editd_client.errors import EditdError, Unreachable, refusal
from editd_client.handles import LOCK_SECONDS_MAX, Handle, HandleRecord, enter, leave_handle, new_record
from editd_client.session_state import elsewhere, root_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.wire.messages import StatusResult
    from editd_client.locate import Workspace

AGAIN_SECONDS_MAX = 10.0  # wait for a daemon that stops or starts
AGAIN_EVERY_SECONDS = 0.1
CLOSE_SECONDS_MAX = 1.0  # do not delay the end of the server
IDLE_MAX = 8  # connections kept for the next calls, of the daemon's 256 for all clients

Result = TypeVar("Result")


class SessionClaim(Struct, frozen=True):
    """The session to act in: exactly `name`, or a new session named after it.

    With a token, another program has opened the session, and it stays open at the end. A shared session is
    one that an agent's hooks name: no program opens it, and everyone acts in it by its name.
    """

    name: str
    is_exact: bool = False
    is_shared: bool = False
    token: str | None = None


class CallStream(Struct):
    """The connection that one call uses, so that another thread can close it."""

    stream: socket.socket | None = None
    is_cut: bool = False

    def cut(self) -> None:
        """End the call that waits for an answer here; it may still be carried out."""
        self.is_cut = True
        if self.stream is not None:
            with contextlib.suppress(OSError):
                self.stream.shutdown(socket.SHUT_RDWR)


class PooledConnection(Struct, frozen=True):
    client: Client
    stream: socket.socket


@dataclass
class ConnectionPool:
    """A session of one workspace; used by several threads."""

    workspace: Workspace
    claim: SessionClaim
    actor: str
    session: str = field(init=False, default="")  # its name once opened, empty before
    _record: HandleRecord = field(init=False)  # its state when the last connection entered
    _handle: Handle | None = field(init=False, default=None)
    _idle: list[PooledConnection] = field(init=False, default_factory=list)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        claim = self.claim
        is_exact = claim.is_exact or claim.token is not None
        self._record = new_record(
            claim.name, self.actor, is_exact=is_exact, token=claim.token or "", is_shared=claim.is_shared
        )

    def is_open(self) -> bool:
        """Return whether the session is open, by a call or by a command in the agent's shell."""
        with self._lock, self._locked_record() as record:
            return bool(record.token)

    def status(self) -> StatusResult:
        """Return the status of the daemon, without opening the session."""
        stream, _ = connect_or_start(self.workspace)
        with Client(stream) as client:
            self._check_served(client)
            return client.status()

    def announce(self) -> None:
        """Let commands in the agent's shell act in the session, even before the first call opens it."""
        with self._lock:
            if self._handle is None:
                self._handle = leave_handle(self.workspace, self._record)

    def ask(self, question: Callable[[Client], Result], line: CallStream | None = None) -> Result:
        """Return the answer of the daemon; retry if the daemon went away or lost the session.

        Raises EditdError for a refusal, Unreachable if no daemon answers or the call was cut.
        """
        line = line or CallStream()
        deadline = time.monotonic() + AGAIN_SECONDS_MAX
        is_reconnected = is_reopened = False
        while True:
            try:
                with self._connection(line) as client:
                    return question(client)
            except Unreachable:
                self._hang_up()
                if line.is_cut or is_reconnected:
                    raise
                is_reconnected = True
            except EditdError as error:
                if error.name == "shutting_down" and time.monotonic() < deadline:
                    self._hang_up()
                    time.sleep(AGAIN_EVERY_SECONDS)
                    continue
                if error.name != "unknown_session" or self.claim.token is not None or is_reopened:
                    raise
                self._hang_up()
                with self._locked_record() as record:
                    record.token = ""  # It was closed by force, or expired: open it again.
                is_reopened = True

    def close(self) -> None:
        """Close the session if it was opened here: its leases end, and its work stays."""
        if not self._lock.acquire(timeout=CLOSE_SECONDS_MAX):
            return  # The daemon does not answer, and the session will expire.
        try:
            with self._locked_record(CLOSE_SECONDS_MAX) as record:
                if record.token and self.claim.token is None:
                    self._close_session(record)
                record.token = ""
        finally:
            if self._handle is not None:
                self._handle.remove()
            self._lock.release()
            self._hang_up()

    def _close_session(self, record: HandleRecord) -> None:
        with contextlib.suppress(EditdError, Unreachable, OSError):
            stream = connect(self.workspace.socket_path)
            if stream is not None:
                with Client(stream) as client:
                    client.hello(self.actor, record.session, record.token)
                    client.session_close(record.session)

    @contextlib.contextmanager
    def _connection(self, line: CallStream) -> Iterator[Client]:
        """Yield a client in the session for one call; keep it for the next if it is still usable."""
        connection = self._take()
        line.stream = connection.stream
        if line.is_cut:
            line.cut()
        try:
            yield connection.client
        except EditdError:
            self._keep(connection)
            raise
        except BaseException:
            connection.client.close()
            raise
        else:
            self._keep(connection)
        finally:
            line.stream = None

    def _keep(self, connection: PooledConnection) -> None:
        if len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.client.close()

    def _take(self) -> PooledConnection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            stream, _ = connect_or_start(self.workspace)
            client = Client(stream)
            try:
                self._check_served(client)
                self._enter(client)
            except BaseException:
                client.close()
                raise
            return PooledConnection(client, stream)

    def _check_served(self, client: Client) -> None:
        """Raise EditdError (`path_outside`) if EDITD_SOCKET leads to the daemon of another folder."""
        here, root = self.workspace, root_elsewhere(client.ask, self.workspace)
        if root and (here.found == "named" or os.path.commonpath([root, here.root]) != root):
            raise elsewhere(here, root)

    def _hang_up(self) -> None:
        while self._idle:
            self._idle.pop().client.close()

    # ── The session ───────────────────────────────────────────────────────────────────────────

    def _enter(self, client: Client) -> None:
        """Act in the session on this connection, and open it if it is not open yet.

        A session that has ended meanwhile is opened again under the same name: it still belongs here.
        """
        with self._locked_record() as record:
            try:
                enter(client, record)
            except EditdError as error:
                if error.name == "invalid_params" and error.data.get("session") == record.session:
                    raise _name_conflict(record.session) from error
                raise
            self.session = record.session

    @contextlib.contextmanager
    def _locked_record(self, seconds: float = LOCK_SECONDS_MAX) -> Iterator[HandleRecord]:
        """Yield the state of the session from the handle, since a command may have opened it."""
        with contextlib.ExitStack() as stack:
            if self._handle is not None:
                # If the file is gone, as after a clean-up of the folder, use the copy in memory.
                with contextlib.suppress(OSError, ValueError):
                    self._record = stack.enter_context(self._handle.locked(seconds))
            yield self._record


def _name_conflict(name: str) -> EditdError:
    return refusal(
        "unknown_session",
        f"The session {name!r} is open already, and this server does not have its token.",
        hint="Set EDITD_TOKEN to its token, or use another --session, or none.",
        data={"session": name},
    )
