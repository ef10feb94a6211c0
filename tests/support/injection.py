"""Fault injection with strace(1): system calls of a daemon or its children are recorded, and made to fail.

A run is recorded once, which gives its calls in order. Then the run is repeated, and each time one call is
struck by a SIGKILL, an error, a short write or a delay. A call is identified by its name and its number
among the calls of that name in its thread since strace was attached, as strace counts (`when=`). The fault
occurs at the entry of the call, which is not carried out. So kills at each call give every state that a crash
can leave.

Calls that affect only the process itself (memory, clock, waiting) are left out: a kill at one of them has the
same effect as a kill at the next traced call.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from support.fork_server import server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.workplace import Workplace

# Calls of this daemon, SQLite and libgit2 on x86-64 and aarch64 that affect files or sockets.
CALLS = (
    "?open,openat,?openat2,?creat,close,read,pread64,readv,preadv,write,pwrite64,writev,pwritev,?pwritev2,lseek,sendfile,"
    "copy_file_range,?rename,renameat,renameat2,?link,linkat,?unlink,unlinkat,?symlink,symlinkat,?mkdir,mkdirat,"
    "?rmdir,?chmod,fchmod,fchmodat,?chown,fchown,fchownat,?lchown,utimensat,truncate,ftruncate,fallocate,fsync,"
    "fdatasync,syncfs,sync,sync_file_range,fcntl,flock,dup,dup3,?stat,?lstat,fstat,newfstatat,statx,fstatfs,"
    "statfs,?access,faccessat,?faccessat2,?readlink,readlinkat,?getdents,getdents64,fgetxattr,fsetxattr,"
    "flistxattr,getxattr,lgetxattr,llistxattr,listxattr,setxattr,removexattr,fremovexattr,socket,bind,listen,"
    "accept4,?accept,connect,sendto,sendmsg,recvfrom,recvmsg,shutdown,setsockopt,getsockopt,socketpair,pipe2,"
    "?pipe,clone,?clone3,?vfork,?fork,execve,wait4,waitid,kill,inotify_init1,inotify_add_watch,inotify_rm_watch,"
    "ioctl,chdir,fchdir,umask,prlimit64,setpriority,memfd_create,eventfd2"
)
CHANGING = re.compile(
    "p?writev?(64|2)?|sendfile|copy_file_range|.*(rename|link|mkdir|rmdir|chmod|chown|truncate|xattr|sync).*"
    "|creat|utimensat|fallocate|send(to|msg)"
)
PATIENCE_SECONDS = 30.0

_LINE = re.compile(r"(?:(\d+)\s+)?([a-z]\w*)\((.*)")
_NUMBER = re.compile(r"Process (\d+) attached")

# The daemon with all modules loaded. It waits for a line on stdin before it begins, so that strace can be
# attached first. Then strace counts from there, and does not slow down the start of Python.
_PAUSED = """
import select, sys
import editd.cli, editd.server.daemon
import asyncio.unix_events, concurrent.futures.thread, encodings.idna, sqlite3
print("loaded", flush=True)
select.select([0], [], [])
editd.cli.main(prog_name="editd")
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One system call of a recorded run: the `number`th of its `name` in its thread."""

    name: str
    number: int
    thread: int  # 0 if only one was traced
    text: str

    def struck(self, by: str) -> str:
        """Return the fault for `attached` at this call. `by` is such as `signal=SIGKILL` or `error=EIO`."""
        return f"inject={self.name}:{by}:when={self.number}"

    @property
    def is_change(self) -> bool:
        """Return whether the call has an effect outside of the process."""
        if self.name.startswith("open"):
            return "O_CREAT" in self.text or "O_TRUNC" in self.text
        return CHANGING.fullmatch(self.name) is not None and " = -1 E" not in self.text

    @property
    def is_reply(self) -> bool:
        """Return whether the call sends something to a client.

        The loop also sends one zero byte to itself when a thread has finished, and its own thread does so if
        the other one was faster.
        """
        return self.name == "sendto" and ', "\\0", 1, ' not in self.text

    def __str__(self) -> str:
        return f"{self.name} {self.number}: {self.text[:160]}"


@dataclass(slots=True)
class Trace:
    """An attached strace, with its output."""

    process: subprocess.Popen[bytes]
    output: Path
    said: list[str] = field(default_factory=list)

    def calls(self) -> list[Call]:
        """Return the calls since strace was attached, in order."""
        counted: dict[tuple[int, str], int] = {}
        found: list[Call] = []
        for line in self.output.read_text("utf-8", "replace").splitlines():
            match = _LINE.match(line)
            if match is not None:
                thread, name = int(match[1] or 0), match[2]
                number = counted[thread, name] = counted.get((thread, name), 0) + 1
                found.append(Call(name, number, thread, match[3]))
        return found

    def struck(self) -> list[str]:
        """Return the lines of calls with an injected error or result."""
        return [
            line for line in self.output.read_text("utf-8", "replace").splitlines() if "(INJECTED)" in line
        ]


@contextlib.contextmanager
def attached(
    pid: int, strikes: Sequence[str] = (), *, is_following: bool = False, calls: str = CALLS
) -> Iterator[Trace]:
    """Trace `pid` until the block ends, with these faults. The block begins when strace is attached.

    Traces only this thread, or with `is_following` all threads of the process and its later children.
    """
    with tempfile.TemporaryDirectory(prefix="editd-trace-") as folder:
        output = Path(folder, "trace")
        argv = ["strace", "-s", "48", "-o", str(output), "-e", f"trace={calls}", "-e", "signal=none"]
        for strike in strikes:
            argv += ["-e", strike]
        argv += ["-f"] * is_following + ["-p", str(pid)]
        process = subprocess.Popen(argv, stderr=subprocess.PIPE)
        trace = Trace(process, output)
        reader = threading.Thread(target=_listen, args=(trace, there := threading.Event()))
        reader.start()
        try:
            there.wait(PATIENCE_SECONDS)
            assert _is_there(trace), f"strace is not there: {trace.said}"
            yield trace
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)  # strace detaches, and ends
            process.wait(PATIENCE_SECONDS)
            reader.join()


@functools.cache
def missing() -> str | None:
    """Return the reason why strace cannot be used here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    child = subprocess.Popen(["sleep", "60"])
    try:
        with attached(child.pid):
            return None
    except AssertionError as error:
        return f"strace may not trace here: {error}"
    finally:
        child.kill()
        child.wait()


def carry_out(
    steps: str, *arguments: str, environment: dict[str, str], strikes: Sequence[str] = ()
) -> tuple[int, list[Call]]:
    """Run `steps` in a forked process with these faults. Return the exit status and the calls.

    The process prints `loaded` and reads a line of stdin before the calls that are counted.
    """
    (its_stdin, stdin), (stdout, its_stdout) = os.pipe(), os.pipe()
    descriptors = {0: its_stdin, 1: its_stdout, 2: 2}
    process = server().start(["-c", steps, *arguments], environment, descriptors)
    os.close(its_stdin)
    os.close(its_stdout)
    with open(stdin, "wb") as commands, open(stdout, "rb") as answers:
        assert answers.readline() == b"loaded\n"
        with attached(process.pid, strikes) as trace:
            commands.write(b"go\n")
            commands.flush()
            status = process.wait(PATIENCE_SECONDS * 2)
            trace.process.wait(PATIENCE_SECONDS * 2)
            return status, trace.calls()


def changing(calls: Sequence[Call]) -> list[Call]:
    """Return the calls that change a file, without writes to standard streams."""
    return [call for call in calls if call.is_change and not call.text.startswith(("0,", "1,", "2,"))]


class Paused:
    """A loaded daemon that waits for `go`. `wait_ready` returns its answer."""

    def __init__(self, place: Workplace) -> None:
        assert place.process is None or place.process.poll() is not None, "it runs already"
        self._place = place
        self._ready, ready = os.pipe()
        argv = [sys.executable, "-c", _PAUSED, "-C", str(place.root), "--ready-fd", str(ready)]
        self.process = subprocess.Popen(
            argv, env=place.environment, pass_fds=[ready], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        place.process = self.process
        os.close(ready)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"loaded\n", place.log()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def wait_ready(self) -> str:
        """Return `ready`, `busy` or `error …`, or an empty text if the daemon died before."""
        with os.fdopen(self._ready, closefd=False) as pipe:
            return pipe.readline().strip()

    def close(self) -> None:
        """Close the pipes of a daemon that has ended."""
        os.close(self._ready)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def _listen(trace: Trace, there: threading.Event) -> None:
    assert trace.process.stderr is not None
    for line in trace.process.stderr:
        trace.said.append(line.decode("utf-8", "replace").strip())
        there.set()
    there.set()


def _is_there(trace: Trace) -> bool:
    return any(_NUMBER.search(line) for line in trace.said)
