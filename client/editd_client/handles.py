"""Handles: the link from a command in an agent's shell to the session of its MCP connection.

`editctl mcp` writes a file beside the socket. It names the process that started the server, the
agent, and has the session's token once the session is open. An `editctl` below that process finds the
file by its own ancestors. It acts in the session, or opens it if it comes first.

A shell at its own terminal belongs to a person: a command below it is not the agent's, although
an editor may have started both. Only processes of one pid namespace can be compared.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from editd.config.program_names import LAUNCHERS, SHELLS
from editd_client.caller import parent_pid
from editd_client.errors import EditdError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd_client.client import Client
    from editd_client.locate import Workspace

MANAGERS = frozenset({"systemd", "init", "launchd"})  # ancestors of every process
ANCESTORS_MAX = 200
IDLE_SECONDS = 86400.0  # an abandoned session ends after a day
_COMMAND = re.compile(r"-[a-z]*c[a-z]*", re.IGNORECASE)


LOCK_SECONDS_MAX = 60.0  # the lock's holder opens the session, which waits for the first scan
LOCK_AGAIN_SECONDS = 0.02


class ProcessIdentity(Struct, frozen=True):
    """A process, distinguished by its start time from a later one with the same pid."""

    pid: int
    start: int


class HandleRecord(Struct):
    """The content of a handle. `token` is empty until a process has opened the session."""

    namespace: str
    server: ProcessIdentity
    hosts: list[ProcessIdentity]
    session: str  # the requested name, then the opened session's
    actor: str
    is_exact: bool = False
    token: str = ""
    is_shared: bool = False  # an agent's hooks name the session: act in it by its name, and do not open it


class Handle(Struct, frozen=True):
    """A handle's file."""

    path: str

    @contextlib.contextmanager
    def locked(self, seconds: float = LOCK_SECONDS_MAX) -> Iterator[HandleRecord]:
        """Lock the file and yield its content; write it back if it was changed.

        Raises OSError or ValueError if the file is gone or damaged, or locked for longer than `seconds`.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "r+b") as file:
            _lock(descriptor, seconds)
            before = file.read()
            record = msgspec.convert(json.loads(before), HandleRecord)
            yield record
            after = _encode(record)
            if after != before:
                file.seek(0)
                file.write(after)
                file.truncate()

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def new_record(
    session: str, actor: str, *, is_exact: bool, token: str, is_shared: bool = False
) -> HandleRecord:
    """Return the record of a session that this process serves; `token` is empty if it is not open."""
    server = _process(os.getpid()) or ProcessIdentity(os.getpid(), 0)
    hosts = list(hosts_of(parent_pid()))
    return HandleRecord(_namespace(), server, hosts, session, actor, is_exact, token, is_shared)


def leave_handle(workspace: Workspace, record: HandleRecord) -> Handle | None:
    """Write a handle for the process that started this one; return None if that is no agent.

    Return None also if the folder of the socket is not writable.
    """
    if not record.hosts:
        return None
    handle = Handle(f"{_prefix(workspace)}{record.server.pid}")
    try:
        os.makedirs(os.path.dirname(handle.path), 0o700, exist_ok=True)
        handle.remove()
        descriptor = os.open(handle.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_encode(record))
    except OSError:
        return None
    return handle


def find_handles(workspace: Workspace) -> list[Handle]:
    """Return the handles of the nearest ancestor of this process that has any."""
    handles = [(handle, record) for handle, record in _handles(workspace) if _is_alive(record.server)]
    if not handles:
        return []
    for process, _ in _ancestors(parent_pid()):
        if own := [handle for handle, record in handles if process in record.hosts]:
            return own
    return []


def enter(client: Client, record: HandleRecord) -> None:
    """Act in the session of a locked record, and open it if it is not open yet.

    Raises EditdError (`unknown_session`) if the session has ended.
    """
    if record.token or record.is_shared:
        client.hello(record.actor, record.session, record.token or None)
        return
    client.hello(record.actor)
    opened = client.session_open(
        record.session, actor=record.actor, ttl=IDLE_SECONDS, fresh=not record.is_exact, kind="agent"
    )
    record.session, record.token, record.is_exact = opened.session, opened.token, True


def token_of(workspace: Workspace, session: str) -> str | None:
    """Return the token of a session of the agent that this process belongs to."""
    for handle in find_handles(workspace):
        with contextlib.suppress(OSError, ValueError), handle.locked() as record:
            if record.session == session and record.token:
                return record.token
    return None


def join(client: Client, handles: Sequence[Handle]) -> tuple[str, str] | None:
    """Act in the session of the only handle; return its name and its token.

    Return None if there is no handle, or if several make the session ambiguous.
    """
    if len(handles) != 1:
        return None
    try:
        with handles[0].locked() as record:
            enter(client, record)
            return record.session, record.token
    except (OSError, ValueError):  # The server has just ended.
        return None
    except EditdError as error:
        if error.name != "unknown_session":  # It was closed by force, and only the server opens it again.
            raise
        return None


def _handles(workspace: Workspace) -> Iterator[tuple[Handle, HandleRecord]]:
    """Yield the user's handles of this pid namespace; remove handles of exited servers."""
    namespace = _namespace()
    folder, prefix = os.path.split(_prefix(workspace))
    try:
        names = [name for name in os.listdir(folder) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        handle = Handle(os.path.join(folder, name))
        try:
            if os.lstat(handle.path).st_uid != os.geteuid():
                continue
            with handle.locked() as record:
                pass
        except (OSError, ValueError):
            continue
        if record.namespace != namespace:
            continue
        if _is_alive(record.server):
            yield handle, record
        else:
            handle.remove()


def _prefix(workspace: Workspace) -> str:
    return f"{workspace.socket_path}.mcp-"


def _lock(descriptor: int, seconds: float) -> None:
    """Lock the file. Raises TimeoutError if another process keeps it locked for that long."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError from None
            time.sleep(LOCK_AGAIN_SECONDS)


def _encode(record: HandleRecord) -> bytes:
    return json.dumps(msgspec.to_builtins(record)).encode()


# ── Processes ─────────────────────────────────────────────────────────────────────────────────


class _Stat(Struct, frozen=True):
    """The fields of /proc/PID/stat that are used here."""

    name: str
    parent: int
    session: int
    terminal: int
    start: int


def hosts_of(pid: int) -> Iterator[ProcessIdentity]:
    """Yield the processes that started this server: its parent, and if that is a wrapper, its parent."""
    for process, stat in _ancestors(pid):
        if stat.name in MANAGERS:
            return
        yield process
        if not (stat.name in LAUNCHERS or (stat.name in SHELLS and _runs_command(process.pid))):
            return


def _ancestors(pid: int) -> Iterator[tuple[ProcessIdentity, _Stat]]:
    """Yield the process, its parent and so on, up to a person's shell or the first process."""
    for _ in range(ANCESTORS_MAX):
        stat = _stat(pid)
        if pid <= 1 or stat is None or _is_persons(pid, stat):
            return
        yield ProcessIdentity(pid, stat.start), stat
        pid = stat.parent


def _is_persons(pid: int, stat: _Stat) -> bool:
    """Whether it is an interactive shell on its own terminal, without a command to run."""
    is_at_terminal = stat.terminal != 0 and stat.session == pid
    return is_at_terminal and stat.name in SHELLS and not _runs_command(pid)


def _runs_command(pid: int) -> bool:
    """Whether a shell was started with `-c`, as in `sh -c COMMAND` or `bash -lc COMMAND`."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")[1:]
    except OSError:
        return False
    return any(_COMMAND.fullmatch(os.fsdecode(word)) for word in words)


def _process(pid: int) -> ProcessIdentity | None:
    stat = _stat(pid)
    return None if stat is None else ProcessIdentity(pid, stat.start)


def _is_alive(process: ProcessIdentity) -> bool:
    return _process(process.pid) == process


def _stat(pid: int) -> _Stat | None:
    """Read the process's stat, see proc_pid_stat(5). The name may hold spaces and parentheses."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = os.fsdecode(file.read())
    except OSError:
        return None
    head, _, rest = text.rpartition(") ")
    fields = rest.split()
    return _Stat(head.partition(" (")[2], int(fields[1]), int(fields[3]), int(fields[4]), int(fields[19]))


def is_in_namespace_of(pid: int) -> bool:
    """Return whether that process and this one have the same numbers for processes."""
    namespace = _namespace()
    return namespace != "" and namespace == _namespace(str(pid))


def _namespace(pid: str = "self") -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
