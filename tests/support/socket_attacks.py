"""What the attacks on the socket share: raw connections, a client that must be served, and what it cost."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgpack

from support.crash_checks import wait_until
from support.fork_server import server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from support.fork_server import Forked
    from support.workplace import Workplace

MIB = 1 << 20
STATUS_SECONDS_MAX = 0.050  # the promise, for 99 of 100 answers on a machine that has nothing else to do
ANSWERS_MIN = 11  # to others
LOADED = 5  # times as long may it take here: who attacks takes one of two cores, other tests the other
RSS_MAX = 100 * MIB  # more than before, once an attack is over: glibc keeps up to 64 MiB of what was freed


@dataclass
class Siege:
    """The daemon under attack."""

    place: Workplace
    pid: int

    def memory(self, name: str = "VmRSS") -> int:
        """Bytes, of VmRSS or VmHWM."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        raise AssertionError(name)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def connect(self) -> socket.socket:
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(self.place.socket)  # before it has a time limit: a full backlog is waited for
        stream.settimeout(60)
        return stream

    def flood(self, data: bytes) -> bytes:
        """Send it on a connection of its own, as far as it is taken; return all that is answered."""
        with self.connect() as stream:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stream.sendall(data)
                stream.shutdown(socket.SHUT_WR)
            return heard(stream)


@contextlib.contextmanager
def siege(
    place: Workplace, *, peak_mib: int, seconds_max: float = STATUS_SECONDS_MAX * LOADED
) -> Iterator[Siege]:
    """An attack on a running daemon: others are served meanwhile, and afterwards it is as it was before.

    `peak_mib` is how much more memory it may take at its highest than before, `seconds_max` the time for
    99 of 100 answers to somebody else.
    """
    assert place.process is not None
    made = Siege(place, place.process.pid)
    Path(f"/proc/{made.pid}/clear_refs").write_text("5")  # VmHWM counts from now on
    before, descriptors, logged = made.memory(), made.descriptors(), len(place.log())
    canary, printed = start_canary(place)
    try:
        assert printed.readline() == "ready\n"
        yield made
        first = [printed.readline() for _ in range(ANSWERS_MIN)]
        assert canary.poll() is None, "it is not served any more"
    finally:
        canary.terminate()
        with printed:
            said = printed.read()
    answers = [*first, *said.splitlines()]
    seconds = sorted(float(line) for line in answers if line.count(".") == 1 and len(line) > 6)
    slowest, peak = seconds[len(seconds) * 99 // 100], made.memory("VmHWM") - before
    print(
        f"{len(seconds)} answers to others, 99 % within {slowest * 1000:.1f} ms,"
        f" all within {seconds[-1] * 1000:.0f} ms;"
        f" {peak / MIB:.1f} MiB more at its highest, log {len(place.log()) - logged} bytes"
    )
    wait_until(lambda: made.descriptors() <= descriptors, "a descriptor is left open")
    wait_until(
        lambda: made.memory() - before < RSS_MAX, f"memory is kept: {(made.memory() - before) / MIB:.0f} MiB"
    )
    assert len(seconds) >= ANSWERS_MIN, "others were hardly served"
    loaded = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # by others, in the last minute
    assert slowest < seconds_max * loaded
    assert peak < peak_mib * MIB
    assert len(place.log()) - logged < 200_000, "it can be made to fill its log"
    assert "Traceback" not in place.log()[logged:], place.log()[logged:]


def start_canary(place: Workplace) -> tuple[Forked, TextIO]:
    """Start a client that is served beside an attack. Return its process and what it prints."""
    reading, writing = os.pipe()
    descriptors = {0: 0, 1: writing, 2: 2}
    process = server().start(["-P", "-m", "support.canary", place.socket], place.environment, descriptors)
    os.close(writing)
    return process, os.fdopen(reading)


def heard(stream: socket.socket) -> bytes:
    """All that comes until the daemon hangs up."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while data := stream.recv(1 << 18):
            received += data
    return bytes(received)


def line(method: str, call_id: int | None = 1, **params: Any) -> bytes:
    told = (
        {"method": method, "params": params}
        if call_id is None
        else {"id": call_id, "method": method, "params": params}
    )
    return json.dumps(told).encode() + b"\n"


def packed(method: str, call_id: int = 1, **params: Any) -> bytes:
    return cast("bytes", msgpack.packb([0, call_id, method, [params]], unicode_errors="surrogatepass"))


def names(received: bytes) -> list[str]:
    """The name of each error, and `ok` for each result, of JSON lines or of MessagePack."""
    if received.startswith(b"Content-Length: "):
        received = b"\n".join(received.split(b"\r\n\r\n")[1:])
    if received[:1] == b"{":
        answers = [json.loads(one) for one in received.splitlines()]
        return [
            one["error"]["data"]["name"] if "error" in one else "ok" for one in answers if "method" not in one
        ]
    unpacker = msgpack.Unpacker(
        unicode_errors="surrogateescape", strict_map_key=False, max_buffer_size=1 << 30
    )
    unpacker.feed(received)
    return ["ok" if one[2] is None else one[2]["name"] for one in unpacker if one[0] == 1]
