"""Processes: descendants, the frames to a child, a socket's peer, and the memory and fast end of this one."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections import defaultdict
from typing import IO, Any, NoReturn, Protocol, TypeAlias, cast

import msgpack
from msgspec import Struct

from editd.system.files import read_proc
from editd.system.native import NATIVE

# The process tree: all processes that a process has started, directly or not.
#
# A subreaper becomes the parent of orphans below it, so none of them can escape by forking twice or by a
# new session.

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PR_SET_PDEATHSIG = 1
KILL_SECONDS = 5.0  # then processes that fork as fast as they are killed, or that we may not kill, are left
PAUSE_SECONDS = 0.002
LINE_MAX = 100  # processes above one; a line changes while it is read, and may then seem to have no end


def set_subreaper() -> bool:
    """Make this process the parent of all orphans below it; return False if that is impossible."""
    return NATIVE.prctl is not None and NATIVE.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> None:
    """Have the kernel, if it can, kill this process when its parent dies. Call it just before the exec."""
    if NATIVE.prctl is not None:
        NATIVE.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def kill_descendants() -> bool:
    """Kill all processes that this process has started, directly or not; return False if some are left.

    Call it when no child's exit status is needed any more.
    """
    until = time.monotonic() + KILL_SECONDS
    while not _is_childless():
        if time.monotonic() > until or not os.path.isdir(
            f"{NATIVE.proc}/self"
        ):  # without /proc none can be found
            return False
        for pid in _below(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has ended, or is another user's: then the time runs out
        time.sleep(PAUSE_SECONDS)
    return True


def _is_childless() -> bool:
    """Reap the children that have ended; return whether no others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return True
    return False


def _below(top: int) -> list[int]:
    """Return all processes below one, by their parents in /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir(NATIVE.proc):
        if name.isdigit():
            try:
                with open(f"{NATIVE.proc}/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it has ended meanwhile
            children[parent].append(int(name))
    found: list[int] = []
    todo = [top]
    while todo:
        todo += (below := children[todo.pop()])
        found += below
    return found


# The process on the other end of a Unix socket, as the kernel reports it.

_UCRED = struct.Struct("iII")  # struct ucred of unix(7): pid, uid, gid


class Peer(Struct, frozen=True):
    """The process that connected. `pid` is for logs only: it may have ended, and been used again.

    It is 0 if the system does not name the process.
    """

    pid: int
    uid: int
    gid: int


class Socket(Protocol):
    """The used part of a socket; asyncio's TransportSocket has it too."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...
    def fileno(self) -> int: ...


def peer_of(connected: Socket) -> Peer:
    """Return the peer of a connected Unix socket. Raises OSError if there is none.

    Without a system that names it, it counts as ours: the permissions of the socket keep others out.
    """
    if NATIVE.peer_credentials is None:
        return Peer(0, os.geteuid(), os.getegid())
    credentials = connected.getsockopt(socket.SOL_SOCKET, NATIVE.peer_credentials, _UCRED.size)
    return Peer(*_UCRED.unpack(credentials))


def may_connect(peer: Peer) -> bool:
    """Return whether the peer is the user that the daemon runs as, or root."""
    return peer.uid in (os.geteuid(), 0)


def has_hung_up(connected: Socket) -> bool:
    """Return whether the peer neither writes nor reads any more: it has ended, or closed both halves."""
    poll = select.poll()
    poll.register(connected.fileno(), 0)  # POLLHUP is reported without being requested
    return bool(poll.poll(0))


def open_process(pid: int) -> int:
    """Return a descriptor that can be read when the process has ended. Raises OSError."""
    if NATIVE.pidfd_open is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return NATIVE.pidfd_open(pid)


# The line of processes above one: its parent, the parent of that, and so on.


ProcessKey: TypeAlias = tuple[int, int]
"""The number of a process and its start, which no other process has."""


class Process(Struct, frozen=True):
    """A process as /proc shows it. Its number may be used again, but not with the same start."""

    pid: int
    start: int  # clock ticks since the boot
    session: int  # the number of the process that leads its terminal session
    program: str  # the kernel's name for it: at most 15 bytes

    @property
    def key(self) -> ProcessKey:
        """Its number and its start, which no other process has."""
        return self.pid, self.start


def line_above(pid: int) -> tuple[Process, ...]:
    """Return the process and those above it, the nearest first, as far as /proc shows them."""
    line: list[Process] = []
    while pid > 0 and len(line) < LINE_MAX and (found := _process_at(pid)) is not None:
        process, pid = found
        line.append(process)
    return tuple(line)


def process_at(pid: int) -> Process | None:
    """Return the process with this number, or None if /proc does not show it."""
    found = _process_at(pid)
    return None if found is None else found[0]


def sees_processes() -> bool:
    """Return whether this system names the process at the other end of a socket, and shows it."""
    return NATIVE.peer_credentials is not None and process_at(os.getpid()) is not None


def is_in_own_namespace(pid: int) -> bool:
    """Return whether a process is visible, and has the number `pid` in its own pid namespace too.

    A process of a container has further numbers there: `NSpid` of proc_pid_status(5).
    """
    try:
        with open(f"{NATIVE.proc}/{pid}/status", "rb") as file:
            numbers = next((line.split()[1:] for line in file if line.startswith(b"NSpid:")), [])
    except OSError:
        return False
    return len(numbers) == 1


def _process_at(pid: int) -> tuple[Process, int] | None:
    """Return a process and the number of its parent, as proc_pid_stat(5) has them."""
    try:
        before, _, after = read_proc(f"{NATIVE.proc}/{pid}/stat").rpartition(b")")
    except OSError:
        return None
    fields = after.split()
    program = before.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, int(fields[19]), int(fields[3]), program), int(fields[1])


# The free memory of this process.

_ARENAS_MAX = -8  # malloc.h: M_ARENA_MAX


def use_one_heap() -> None:
    """Let all threads allocate from one heap, so that memory which one thread frees serves the others.

    Python's lock lets one thread allocate at a time, so that heaps of their own only fragment the memory.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if tune is not None:
        tune(_ARENAS_MAX, 1)


def release_free_memory() -> None:
    """Return the allocator's free memory to the system. In any thread, because it takes some time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; other libcs do this anyway
    if trim is not None:
        trim(0)


# The fast end of a process, which leaves to the kernel the resources that it frees anyway.


def exit_fast(status: int = 0) -> NoReturn:
    """End the process, with its output flushed; if a thread still works, end as Python does.

    Taking the interpreter and its modules apart costs up to a fifth of a short life.
    """
    here = threading.current_thread()
    if any(thread is not here and not thread.daemon for thread in threading.enumerate()):
        sys.exit(status)
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it has no reader any more, or is closed
            stream.flush()
    os._exit(status)


# Frames over a pipe: the messages between the daemon and its children.
#
# A frame is a length of four bytes, big end first, and a MessagePack map of that many bytes. Text
# with bytes that are not UTF-8 is `str` with surrogate escapes on both ends; `bytes` stay `bytes`.
# A child reads with `read_frame` until it returns None: its parent has closed the pipe or died, and
# the child ends. Both ends are ours, so a broken frame is our bug and raises.

HEADER_BYTES = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
PART_BYTES = 1024 * 1024  # of a content, in one part of a frame
_BINARY = b"\xc6"  # bytes with a length of 32 bits, in MessagePack
"""Larger than any frame of ours; a length beyond it is garbage from a broken child."""

Frame = dict[str, Any]


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Return the next frame of a buffered `stream`, or None at its end, even in the middle of a frame.

    Raises ValueError if the bytes are not a frame.
    """
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    size = frame_body_bytes(header)
    body = stream.read(size)
    return unpack_frame(body) if len(body) == size else None


def write_frame(stream: IO[bytes], frame: Frame) -> None:
    """Write `frame` and flush; raises BrokenPipeError if the reader is gone."""
    stream.write(pack_frame(frame))
    stream.flush()


def pack_frame(frame: Frame) -> bytes:
    """Return the bytes of `frame`, with its length in front."""
    return b"".join(frame_parts(frame))


def frame_parts(frame: Frame) -> list[bytes | memoryview]:
    """Return the bytes of `frame` as `pack_frame` does, in parts that hold large contents without a copy.

    A large content is a value of the frame, or an item of such a value.
    """
    parts: list[bytes | memoryview] = [msgpack.Packer().pack_map_header(len(frame))]
    for key, value in frame.items():
        parts.append(_packed(key))
        if isinstance(value, list | tuple):
            parts.append(msgpack.Packer().pack_array_header(len(value)))
            for item in value:
                parts += _value_parts(item)
        else:
            parts += _value_parts(value)
    size = sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes is over the limit of {FRAME_BYTES_MAX}")
    return [size.to_bytes(HEADER_BYTES, "big"), *parts]


def _value_parts(value: Any) -> list[bytes | memoryview]:
    if not isinstance(value, bytes) or len(value) <= PART_BYTES:
        return [_packed(value)]
    content = memoryview(value)
    parts = [content[start : start + PART_BYTES] for start in range(0, len(value), PART_BYTES)]
    return [_BINARY + len(value).to_bytes(4, "big"), *parts]


def _packed(value: Any) -> bytes:
    return cast("bytes", msgpack.packb(value, unicode_errors="surrogateescape"))


def frame_body_bytes(header: bytes) -> int:
    """Return the number of bytes after this header; raises ValueError if it is above the limit."""
    size = int.from_bytes(header, "big")
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes is over the limit of {FRAME_BYTES_MAX}")
    return size


def unpack_frame(body: bytes) -> Frame:
    """Return the frame in `body`; raises ValueError if it has none."""
    try:
        frame = msgpack.unpackb(body, unicode_errors="surrogateescape", strict_map_key=False)
    except (msgpack.UnpackException, TypeError) as error:
        raise ValueError(f"a frame that is not MessagePack: {error}") from error
    if not isinstance(frame, dict):
        raise ValueError("a frame that is not a map")
    return cast("Frame", frame)
