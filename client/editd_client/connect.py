"""The connection to a daemon: connects to its socket, and starts a daemon if none answers.

The daemon's lock on its state folder decides which daemon serves: any number of clients may start
one at once, and all but the first of those daemons print `busy` and exit.

Never removes a socket, and talks only to a daemon of this user or of root: the folder of the sockets
may be inside a temporary folder that others can write to.
"""

from __future__ import annotations

import errno
import os
import select
import shlex
import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from editd.advice import Advice, command_term
from editd.config.environment import kept_environment
from editd.config.paths import review_socket_path
from editd_client import caller
from editd_client.errors import Unreachable
from editd_client.locate import inner_repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.locate import Workspace


START_SECONDS_MAX = 10.0  # a daemon is ready in some 0.2 s, and recovers a long journal in 2 s
SAY_SECONDS = 1.0  # a wait that is worth a message
RETRY_SECONDS = 0.01
OTHER_SECONDS = 1.0  # after `busy`, the time for the other daemon before another start
FIRST_LINE_MAX = 4096  # bytes of a starting daemon's message on its pipe

ABSENT = (errno.ENOENT, errno.ECONNREFUSED)  # no socket, or one of a dead daemon


class PartOfAnother(Unreachable):
    """No daemon was started for a folder, because it is part of the workspace around it."""


def connect(path: str) -> socket.socket | None:
    """Return a socket connected to the daemon at `path`, or None if no daemon listens.

    Raises Unreachable for any other reason, among them a backlog that stays full for ten seconds, and
    a listener that belongs neither to this user nor to root.
    """
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        # A full backlog is EAGAIN without blocking. With it, connect would wait for ever.
        _check_length(path)
        try:
            descriptor = caller.connect(path)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            if error.errno != errno.EAGAIN or time.monotonic() > deadline:
                raise Unreachable(f"{path} accepts no connection: {error.strerror}.") from error
            time.sleep(RETRY_SECONDS)
        else:
            stream = socket.socket(fileno=descriptor)
            _check_peer(stream, path)
            stream.setblocking(True)
            return stream


def connect_reviewer(path: str) -> socket.socket | None:
    """Return a socket connected to the reviewers' own socket of the daemon at `path`.

    None if this daemon has none. Raises Unreachable.
    """
    own = review_socket_path(path)
    return connect(own) if os.path.lexists(own) else None


def connect_owner(path: str, ordinary: socket.socket) -> socket.socket | None:
    """Return a socket connected to the reviewers' own socket, after an answer on the `ordinary` one.

    None if this daemon has none. A socket that systemd listens at is there before the daemon: only an answer
    shows that the daemon has made its others. Closes `ordinary`. Raises Unreachable.
    """
    try:
        ordinary.settimeout(START_SECONDS_MAX)  # systemd may start the daemon for it
        ordinary.sendall(b'{"id": 1, "method": "hello"}\n')
        with ordinary.makefile("rb") as answers:
            has_answered = bool(answers.readline())
    except OSError as error:
        raise Unreachable(f"The daemon at {path} does not answer: {error}.") from error
    finally:
        ordinary.close()
    if not has_answered:
        raise Unreachable(f"The daemon at {path} has closed the connection.")
    return connect_reviewer(path)


def connect_or_start(
    workspace: Workspace, *, on_wait: Callable[[], None] | None = None
) -> tuple[socket.socket, bool]:
    """Return a socket connected to the workspace's daemon, and whether it was started for that.

    `on_wait` is called when the start has taken a second, to inform a person. Raises Unreachable if no
    daemon answers within ten seconds, with the message of a daemon that refused.
    """
    path = workspace.socket_path
    stream = connect(path)
    if stream is not None:
        return stream, False
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        started = _start(workspace, deadline, on_wait)
        until = min(deadline, time.monotonic() + OTHER_SECONDS)
        while time.monotonic() < until:
            stream = connect(path)
            if stream is not None:
                return stream, started
            check_not_elsewhere(workspace)
            time.sleep(RETRY_SECONDS)
    raise Unreachable(
        f"A daemon serves {workspace.root}, but none answers at {path}.",
        hint="It may use another XDG_RUNTIME_DIR or EDITD_SOCKET than this shell.",
    )


def covering(
    served: Workspace, start: str | None, *, again: bool = False, on_wait: Callable[[], None] | None = None
) -> Workspace:
    """Return the workspace that covers a folder's files: `served`, or a repository that git ignores in it.

    Tries once to start a daemon for such a repository. Raises Unreachable.
    """
    inner = None if served.is_nested else inner_repository(served, start, again=again)
    if inner is None or os.environ.get("EDITD_SOCKET"):
        return served
    try:
        connect_or_start(inner, on_wait=on_wait)[0].close()
    except PartOfAnother:
        return served
    return inner


def check_not_elsewhere(workspace: Workspace) -> None:
    """Raise Unreachable if the workspace's daemon answers at another socket than the expected one."""
    try:
        with open(f"{workspace.state_folder}/lock", "rb") as lock:
            pid, _, listening = os.fsdecode(lock.read()).strip().partition(" ")
        stream = connect(listening) if listening not in ("", workspace.socket_path) else None
    except (OSError, Unreachable):
        return  # no daemon yet, or its socket belongs to another daemon by now
    if stream is not None:
        stream.close()
        raise Unreachable(
            f"The daemon of {workspace.root} (pid {pid}) listens at {listening}, "
            f"and not at {workspace.socket_path}.",
            hint=Advice(
                command_term(setting=f"EDITD_SOCKET={shlex.quote(listening)}"),
                " reaches it. It was started with another XDG_RUNTIME_DIR, TMPDIR or EDITD_SOCKET than this "
                "shell has.",
            ),
        )


def _start(workspace: Workspace, deadline: float, on_wait: Callable[[], None] | None) -> bool:
    """Start a daemon and wait until it serves (True) or prints that another daemon does (False)."""
    output, to_say = os.pipe()
    try:
        # -P: otherwise Python would import from the current folder, which may be a workspace.
        nested = ["--nested"] if workspace.is_nested else ["--exact"] if workspace.is_exact else []
        argv = [sys.executable, "-P", "-m", "editd", "--workspace", workspace.root, *nested]
        child = caller.start(argv, kept_environment(os.environ), to_say)
    except OSError as error:
        os.close(output)
        raise Unreachable(f"The daemon could not be started: {error.strerror}.") from error
    finally:
        os.close(to_say)
    with open(output, "rb", buffering=0) as pipe:
        line = _first_line(pipe.fileno(), deadline, on_wait)
    word, _, text = line.partition(" ")
    if word == "ready":
        if child is not None:
            # It outlives this process. If not, the thread collects its exit status.
            threading.Thread(target=child.wait, daemon=True).start()
        return True
    if word == "busy":
        if child is not None:
            child.wait()
        return False
    if word == "part":
        raise PartOfAnother(text)
    raise Unreachable(
        text or "The daemon exited, or was not ready within ten seconds.",
        hint=f"Read its log, {workspace.state_folder}/log, or run `editd --foreground`.",
    )


def _first_line(pipe: int, deadline: float, on_wait: Callable[[], None] | None) -> str:
    """Return the pipe's text up to the first newline, its closing or the deadline."""
    line = b""
    readable = select.poll()  # not select(2), which takes no descriptor beyond 1023
    readable.register(pipe, select.POLLIN)
    say_at = time.monotonic() + SAY_SECONDS
    while not line.endswith(b"\n") and len(line) < FIRST_LINE_MAX:
        now = time.monotonic()
        if now >= deadline:
            break
        if on_wait is not None and now >= say_at:
            on_wait()
            on_wait = None
        until = deadline if on_wait is None else min(deadline, say_at)
        if readable.poll((until - now) * 1000):
            some = os.read(pipe, FIRST_LINE_MAX)
            if not some:
                break
            line += some
    return os.fsdecode(line).strip()


def _check_length(path: str) -> None:
    """Raise Unreachable for a path that is too long for an address, without the way around it."""
    if len(os.fsencode(path)) > caller.SUN_PATH_MAX and not os.path.isdir("/proc/self/fd"):
        raise Unreachable(
            f"The path {path} is too long for a socket without /proc.",
            hint="Mount /proc, or name a shorter path in EDITD_SOCKET.",
        )


def _check_peer(stream: socket.socket, path: str) -> None:
    credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    if uid not in (0, os.geteuid()):
        stream.close()
        raise Unreachable(
            f"The listener at {path} belongs to user {uid}, not to you.",
            hint="Set XDG_RUNTIME_DIR to a folder of your own.",
        )


# The address of a daemon, for the first and each later connection: a path, or a workspace.

RECONNECT_SECONDS_MAX = 10.0  # a daemon that is restarted is back in some 0.3 s, after a long journal in 2 s
RECONNECT_RETRY_SECONDS = 0.02


class Endpoint(NamedTuple):
    """A socket's path. With a `workspace`, its daemon is started if none answers there.

    `named` is the workspace that the daemon must serve: EDITD_SOCKET may have been set for another workspace.
    With `as_owner`, each connection is on the reviewers' own socket, if the daemon has one.
    """

    path: str
    workspace: Workspace | None = None
    on_wait: Callable[[], None] | None = None
    named: Workspace | None = None
    as_owner: bool = False

    @classmethod
    def of(
        cls,
        workspace: Workspace,
        *,
        start: bool = True,
        on_wait: Callable[[], None] | None = None,
        as_owner: bool = False,
    ) -> Self:
        """Return a workspace's endpoint. `on_wait` is called if its daemon takes over a second to start."""
        is_doubtful = workspace.found == "named" and bool(os.environ.get("EDITD_SOCKET"))
        return cls(
            workspace.socket_path,
            workspace if start else None,
            on_wait,
            workspace if is_doubtful else None,
            as_owner,
        )

    def connect(self) -> socket.socket:
        """Connect at once. Raises Unreachable if no daemon answers and none may be started."""
        if self.workspace is None:
            stream = self.connect_if_running()
            if stream is None:
                hint = Advice("Start one with ", command_term("start"), ".")
                raise Unreachable(f"No daemon answers at {self.path}.", hint=hint)
            return stream
        stream = connect_or_start(self.workspace, on_wait=self.on_wait)[0]
        if not self.as_owner:
            return stream
        own = connect_owner(self.path, stream)
        return connect_or_start(self.workspace, on_wait=self.on_wait)[0] if own is None else own

    def connect_if_running(self) -> socket.socket | None:
        """Connect at once; return None if no daemon listens. Raises Unreachable."""
        stream = connect(self.path)
        if stream is None or not self.as_owner:
            return stream
        own = connect_owner(self.path, stream)
        return connect(self.path) if own is None else own

    def reconnect(self) -> socket.socket:
        """Connect again after a lost connection, with ten seconds for a restart of the daemon."""
        if self.workspace is not None:
            return self.connect()
        stream = self.reconnect_if_running()
        return self.connect() if stream is None else stream

    def reconnect_if_running(self) -> socket.socket | None:
        """Connect to a daemon that another program starts within ten seconds; otherwise return None."""
        until = time.monotonic() + RECONNECT_SECONDS_MAX
        while True:
            stream = self.connect_if_running()
            if stream is not None or time.monotonic() > until:
                return stream
            time.sleep(RECONNECT_RETRY_SECONDS)
