"""The fork server and its processes; `fork_server` is the tests' end of it.

`python forked_process.py STREAM LISTENER` serves on these two sockets. A request is marshalled, `(argv,
environment, folder, numbers, is_in_new_session, is_child)`, and comes with a descriptor for each of
`numbers`. The answer is `(pid, None)`. When the process has ended, `(pid, status)` follows, unless it is a
child of the test's process. A connection through LISTENER has one process: it may send numbers of signals,
and its end is that of the process.

`--without FEATURE` as the first two words takes features of Linux away from the process: see `without`.

A process that is forked starts others of editd by forking, too. A daemon has threads, and the child of a fork
has the locks that they hold, for ever. So a daemon has a copy of itself from before its first thread, whose
forks become the daemon's children (CLONE_PARENT).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import hashlib
import marshal
import os
import platform
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

if __name__ == "__main__":  # as a script it finds the others itself
    sys.path[0] = os.path.dirname(sys.path[0])

from support.without import take_away

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MESSAGE_BYTES_MAX = 1 << 18
DESCRIPTORS_MAX = 16
ARGUMENT_BYTES = 2048  # of room for the command line that `ps` shows
WORKERS = (
    "editd.engine.publish_worker", "editd.engine.regex_worker", "editd.engine.scan_worker",
    "editd.remote.exchange_worker", "editd.runs.check_worker", "editd.runs.hook_worker",
    "editd.store.compaction", "editd.store.content_search", "editd.store.pack_worker",
    "editd.store.verify_worker",
)  # fmt: skip
PIN_SALT = bytes(16)  # of the PIN that tests set
CLONE_PARENT = 0x8000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())

Request = tuple[list[str], dict[Any, Any], Any, tuple[int, ...], bool, bool]

_copy: socket.socket | None = None  # of the daemon that this process is, from before its first thread


# ── the server ──


class _Server:
    def __init__(self, stream: socket.socket, listener: socket.socket) -> None:
        self._stream = stream
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._callers: dict[int, socket.socket] = {}  # of the processes that were asked for by LISTENER

    def serve(self) -> None:
        """Serve until the test's process has ended."""
        waking, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for file in (self._stream, self._listener, waking):
            self._selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is waking:
                    os.read(waking, 4096)
                    self._report_ends()
                elif key.fileobj is self._listener:
                    caller, _ = self._listener.accept()
                    self._selector.register(caller, selectors.EVENT_READ)
                elif key.fileobj is not self._stream:
                    self._hear(key.fileobj)  # type: ignore[arg-type]
                elif self._fork(self._stream) is None:
                    return

    def _report_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                caller = self._callers.pop(pid, None)
                ended = marshal.dumps((pid, os.waitstatus_to_exitcode(status)))
                with contextlib.suppress(OSError):  # it has been killed
                    (caller or self._stream).sendall(ended)
                if caller is not None:
                    self._selector.unregister(caller)
                    caller.close()

    def _hear(self, caller: socket.socket) -> None:
        """Fork for a caller, or pass its signals on; kill its process once it has ended."""
        pid = next((pid for pid, stream in self._callers.items() if stream is caller), None)
        if pid is None:
            if (pid := self._fork(caller)) is not None:
                self._callers[pid] = caller
                return
        else:
            data = caller.recv(MESSAGE_BYTES_MAX)
            os.kill(pid, marshal.loads(data) if data else signal.SIGKILL)
            if data:
                return
            del self._callers[pid]
        self._selector.unregister(caller)
        caller.close()

    def _fork(self, stream: socket.socket) -> int | None:
        """Take a request, fork, and answer; return the new process, or None if the stream has ended."""
        data, descriptors, _, _ = socket.recv_fds(stream, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
        if not data:
            return None
        request = marshal.loads(data)
        if "mcp" in request[0]:
            _import_mcp()
        if "web" in request[0]:
            _import_web()
        pid = _fork_for_the_parent() if request[5] else os.fork()
        if not pid:
            _become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # the caller has been killed
            stream.sendall(marshal.dumps((pid, None)))
        return pid


def _import_everything() -> None:
    import asyncio.unix_events
    import concurrent.futures.thread
    import encodings.idna
    import importlib
    import sqlite3

    import editd.cli
    import editd.server.daemon
    import editd.workspace.replaced_files
    import editd_client.cli

    _warm_caches()
    editd.workspace.replaced_files.AHEAD = 8  # a thousand files for each test's few edits cost 0.1 s
    _hash_the_pin_of_tests_quickly()
    for worker in WORKERS:
        importlib.import_module(worker)
    for section in editd_client.cli.VERBS.values():
        for verb in section:
            editd_client.cli.command_of(verb)
    del asyncio, concurrent, encodings, sqlite3, editd


def _warm_caches() -> None:
    """Do ahead what each daemon does with the defaults of the configuration."""
    from editd.config.load import _read_all, check_text
    from editd.engine.access import excluded_paths_of

    check_text("", "")
    excluded_paths_of(_read_all([]).config)


def _hash_the_pin_of_tests_quickly() -> None:
    """Have the PIN with the salt of tests cost nothing: scrypt takes 50 ms for each reviewer."""
    import editd.config.pin

    real = editd.config.pin._scrypt

    def scrypt(pin: str, salt: bytes) -> bytes:
        return quick_hash(pin) if salt == PIN_SALT else real(pin, salt)

    editd.config.pin._scrypt = scrypt


def quick_hash(pin: str) -> bytes:
    """Return the digest of a PIN in a file of tests."""
    return hashlib.sha512(pin.encode("utf-8", "surrogateescape")).digest()


def _import_mcp() -> None:
    """Import what takes a second, and what few tests need."""
    import editd_client.mcp.server

    del editd_client


def _import_web() -> None:
    """Import what `editctl web` needs, half a second of it when it serves."""
    import uvicorn.lifespan.on
    import uvicorn.protocols.http.h11_impl

    import editd_client.web.server

    del editd_client, uvicorn


# ── a process ──


def _become(request: Request, descriptors: Sequence[int]) -> NoReturn:
    """Be the process that was asked for, until its end."""
    argv, environment, folder, numbers, is_in_new_session, _ = request
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if is_in_new_session:
            os.setsid()
        _place(descriptors, numbers)
        os.environ.clear()
        os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()})
        time.tzset()
        _let_git_look_again()
        _let_sqlite_look_again()
        os.chdir(folder)
        _show([sys.executable, *argv])
        if argv[0] == "--without":
            take_away(argv[1].split(","))
        _open_standard_streams()
        if argv[0] == "-c":
            code = compile(argv[1], "<string>", "exec")
            status = _run(lambda: exec(code, {"__name__": "__main__"}), "-c", argv[2:])
        else:
            module, *words = argv[argv.index("-m") + 1 :]
            global _copy  # noqa: PLW0603
            _copy = _copied(numbers) if module == "editd" or module.endswith("_daemon") else None
            status = _run(lambda: runpy.run_module(module, {}, "__main__", alter_sys=True), module, words)
    finally:
        os._exit(status)


def _open_standard_streams() -> None:
    """Make them anew: each was made for what the server has under its number, such as a terminal."""
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _place(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give each descriptor its number, and close all others."""
    out_of_the_way = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, max(numbers) + 1) for descriptor in descriptors]
    for descriptor, number in zip(out_of_the_way, numbers, strict=True):
        os.dup2(descriptor, number)
    _close_all_but(numbers)


def _close_all_but(numbers: Iterable[int]) -> None:
    kept = {0, 1, 2, *numbers}
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _run(program: Callable[[], object], name: str, words: list[str]) -> int:
    """Run a program as an interpreter does, and return the exit status."""
    sys.argv = [name, *words]
    warnings.filterwarnings("ignore", ".* found in sys.modules", RuntimeWarning)
    try:
        program()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    except Exception:  # noqa: BLE001  # as an interpreter does
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as at an interpreter's end
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return status


def _let_git_look_again() -> None:
    """Have libgit2 look for configuration where the environment says now, and not where it said at import."""
    import pygit2

    home = os.environ.get("HOME", "")
    levels = pygit2.enums.ConfigLevel
    pygit2.settings.search_path[levels.GLOBAL] = home
    pygit2.settings.search_path[levels.XDG] = os.path.join(
        os.environ.get("XDG_CONFIG_HOME", os.path.join(home, ".config")), "git"
    )


def _let_sqlite_look_again() -> None:
    """Have SQLite keep temporary files where the environment says now: it read the variable at import."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        folder = os.environ.get("SQLITE_TMPDIR", "").replace("'", "''")
        database.execute(f"pragma temp_store_directory = '{folder}'")


def _show(argv: Sequence[str]) -> None:
    """Have `ps` and /proc show this command line."""
    with open("/proc/self/stat", "rb") as file:
        start, end = map(int, file.read().rpartition(b")")[2].split()[45:47])
    line = b"\0".join(map(os.fsencode, argv))[: end - start - 1]
    ctypes.memmove(start, line + b"\0" * (end - start - len(line)), end - start)


# ── the processes that a process starts ──


class ForkingPopen(subprocess.Popen[Any]):
    """A Popen that forks if it would exec a program of editd."""

    def _execute_child(self, args: Any, *given: Any) -> None:
        is_one = isinstance(args, (list, tuple)) and args[0] == sys.executable and "-m" in args[1:3]
        if not is_one or args[args.index("-m") + 1] not in ("editd", "editd_client", *WORKERS):
            super()._execute_child(args, *given)  # type: ignore[misc]
            return
        _, _, _, pass_fds, folder, environment = given[:6]
        pipes = given[9:15]  # p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite
        ends = {0: pipes[0], 1: pipes[3], 2: pipes[5]}
        of_ours = {number: number if end < 0 else end for number, end in ends.items()}
        of_ours |= {number: number for number in pass_fds}
        request: Request = (
            list(args[1:]), dict(os.environ if environment is None else environment),
            os.getcwd() if folder is None else os.fspath(folder), tuple(of_ours), bool(given[20]), False,
        )  # fmt: skip
        self.pid = self._forked(request, list(of_ours.values()))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _forked(self, request: Request, descriptors: list[int]) -> int:
        """Fork a child of this process, with copies of these descriptors; return its number."""
        if _copy is not None:
            socket.send_fds(_copy, [marshal.dumps(request)], descriptors)
            return int.from_bytes(_copy.recv(8), "little")
        pid = os.fork()
        if not pid:
            _become(request, descriptors)
        return pid


def _copied(numbers: Iterable[int]) -> socket.socket | None:
    """Fork a copy of this process that forks children for it; return the socket for requests."""
    if SYS_CLONE is None:
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        return ours
    try:
        stream = socket.socket(fileno=fcntl.fcntl(theirs.detach(), fcntl.F_DUPFD, max(numbers) + 1))
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != stream.fileno():
                with contextlib.suppress(OSError):
                    os.close(number)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            data, descriptors, _, _ = socket.recv_fds(stream, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
            if not data:
                os._exit(0)
            pid = _fork_for_the_parent()
            if not pid:
                _become(marshal.loads(data), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            stream.sendall(pid.to_bytes(8, "little"))
    finally:
        os._exit(1)


def _fork_for_the_parent() -> int:
    """Fork a child of this process's parent. It does what `os.fork` does before and after."""
    python = ctypes.PyDLL(None)  # keeps the GIL, as `os.fork` does
    python.PyOS_BeforeFork()
    pid: int = python.syscall(SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    assert pid >= 0, "clone failed"
    return pid


if __name__ == "__main__":
    _import_everything()
    subprocess.Popen = ForkingPopen  # type: ignore[misc]
    gc.collect()
    gc.freeze()
    gc.unfreeze = lambda: None  # a collection would copy each page of what is shared
    _Server(*(socket.socket(fileno=int(number)) for number in sys.argv[1:3])).serve()
