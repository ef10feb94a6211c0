"""The fuzzer of the socket: requests right, nearly right and wrong, in three encodings, at a real daemon.

    python tests/hostile/fuzz_socket.py --seconds 3600 --seed 7

Every input is a connection with some requests on it, at times spoilt in their values or their bytes, sent in
pieces of any size. What must hold, however it ends: no `internal_error`, no fault in the log, no
connection without an end, each well-formed request with an id answered once, a client beside it answered all
the time, not a byte from outside of the workspace in any answer, none of it changed, and `check` clean at the
end. The last line has the figures. An input that breaks this is written to a file, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgpack

from support.request_grammar import ENCODINGS, Encoding, Grammar, encoded, mangled
from support.workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_SECONDS = 20.0  # for an input to be answered and hung up on, on a machine that does other things too
CANARY_SECONDS = 10.0  # the longest that the client beside it may wait for one answer
PROGRESS_SECONDS = 10.0
SECRET = b"it lies outside of the workspace"
FILES = {
    "a.txt": "one\ntwo\nthree\n",
    "b/c.txt": "two\n" * 50,
    "b/d.py": "def f():\n    return 2\n",
    "é.txt": "é\n",
    ".gitignore": "*.log\n",
    "ignored.log": "two\n",
}
FAULTS = ("Traceback", " ERROR ", " CRITICAL ", "never awaited", "Fatal error")


class Broke(Exception):
    """What must hold did not."""


@dataclass
class Figures:
    inputs: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    answers: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    closed_early: int = 0
    slowest: float = 0.0

    def line(self, place: Workplace) -> str:
        refused = ", ".join(f"{name} {count}" for name, count in self.refusals.most_common())
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.inputs.items()))
        return (
            f"{self.inputs.total()} inputs ({kinds}), {self.requests} requests, {self.answers} answers,"
            f" {self.closed_early} closed by the daemon, canary at most {self.slowest * 1000:.0f} ms,"
            f" VmHWM {memory(place)['VmHWM'] >> 10} MiB; refusals: {refused}"
        )


class Canary(threading.Thread):
    """A client that is to be answered all the time."""

    def __init__(self, place: Workplace) -> None:
        super().__init__(daemon=True)
        self._client = place.client()
        self._is_over = threading.Event()
        self.slowest = 0.0
        self.failed: str | None = None

    def run(self) -> None:
        with self._client as client:
            while not self._is_over.wait(0.02):
                began = time.monotonic()
                try:
                    client.status()
                except Exception as error:  # noqa: BLE001  # whatever it is, the fuzzer is to tell it
                    self.failed = repr(error)
                    return
                self.slowest = max(self.slowest, time.monotonic() - began)

    def stop(self) -> None:
        self._is_over.set()
        self.join(CANARY_SECONDS)

    def check(self) -> None:
        if self.failed is not None or not self.is_alive():
            raise Broke(f"the client beside it was not answered: {self.failed}")
        if self.slowest > CANARY_SECONDS:
            raise Broke(f"the client beside it waited for {self.slowest:.1f} s")


@dataclass
class Input:
    encoding: Encoding
    data: bytes
    ids: set[int]  # to be answered, each once; empty where the bytes were spoilt
    is_whole: bool


class Fuzzer:
    def __init__(self, place: Workplace, seed: int) -> None:
        self._place = place
        self._random = Random(seed)
        with place.client() as client:
            dialects = client.dialects().dialects
        tools = {(dialect.name, tool.name): tool.schema for dialect in dialects for tool in dialect.tools}
        self._grammar = Grammar(self._random, tools)
        self._read_log = 0
        self.figures = Figures()
        self.last: Input | None = None

    def run(self, seconds: float) -> None:
        """Fuzz for so long; raises Broke."""
        canary = Canary(self._place)
        canary.start()
        outside = fingerprint(self._place)
        until = told = time.monotonic()
        until += seconds
        while time.monotonic() < until:
            self.last = self._input()
            self._try(self.last)
            canary.check()
            if time.monotonic() > told + PROGRESS_SECONDS:
                told = time.monotonic()
                self.figures.slowest = canary.slowest
                self._check_log()
                print(f"… {self.figures.line(self._place)[:400]}", flush=True)
        canary.stop()
        self.figures.slowest = canary.slowest
        self._check_log()
        self._check_end(outside)

    def _input(self) -> Input:
        random = self._random
        encoding = random.choice(ENCODINGS)
        ids: set[int] = set()
        parts: list[bytes] = []
        for call_id in range(1, random.choice((1, 1, 2, 3, 5, 20)) + 1):
            method, params = self._grammar.request()
            is_notification = random.random() < 0.05
            parts.append(encoded(encoding, None if is_notification else call_id, method, params))
            if not is_notification:
                ids.add(call_id)
        self.figures.requests += len(parts)
        data = b"".join(parts)
        is_whole = random.random() < 0.6
        for _ in range(0 if is_whole else random.choice((1, 1, 2, 5))):
            data = mangled(data, random)
        return Input(encoding, data, ids if is_whole else set(), is_whole)

    def _try(self, given: Input) -> None:
        self.figures.inputs[given.encoding + ("" if given.is_whole else "/spoilt")] += 1
        random = self._random
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.connect(self._place.socket)
            received = bytearray()
            closed = False
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for piece in pieces(given.data, random):
                    closed = closed or drain(stream, received)
                    stream.sendall(piece)
            if random.random() < 0.05:
                return  # it hangs up without a word, in the middle of what it was told
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_WR)
            self._hear_out(given, stream, received)
        if closed:
            self.figures.closed_early += 1
        self._judge(given, bytes(received))

    def _hear_out(self, given: Input, stream: socket.socket, received: bytearray) -> None:
        until = time.monotonic() + ANSWER_SECONDS
        while not drain(stream, received, timeout=0.5):
            if time.monotonic() > until:
                if may_wait(given.data):
                    return
                raise Broke(f"an input has no end: {len(received)} bytes came within {ANSWER_SECONDS:g} s")

    def _judge(self, given: Input, received: bytes) -> None:
        if SECRET in received:
            raise Broke("an answer holds what lies outside of the workspace")
        answered: Counter[int] = Counter()
        fatal = False
        for call_id, error, result in answers_in(received):
            self.figures.answers += 1
            if isinstance(call_id, int):
                answered[call_id] += 1
            if error is not None:
                name = error.get("name") or error.get("data", {}).get("name")
                self.figures.refusals[str(name)] += 1
                fatal = fatal or call_id is None
                if name == "internal_error":
                    raise Broke(f"internal_error: {error}")
            elif isinstance(result, dict):
                self._learn(result)
        if any(count > 1 for count in answered.values()) and given.is_whole:
            raise Broke(f"a request was answered more than once: {answered}")
        if (
            not fatal
            and given.is_whole
            and (missing := given.ids - answered.keys())
            and not may_wait(given.data)
        ):
            raise Broke(f"requests were not answered: {sorted(missing)}")

    def _learn(self, result: dict[str, Any]) -> None:
        names = {
            "version": "base",
            "changeset": "changeset",
            "lease": "lease",
            "token": "token",
            "exec": "exec",
            "subscription": "subscription",
            "head": "since",
        }
        for found, name in names.items():
            if result.get(found) is not None:
                self._grammar.learn(name, result[found])
        if isinstance(made := result.get("transaction"), dict):
            for name in ("tx", "to", "from", "at", "since", "until", "before", "after"):
                self._grammar.learn(name, made.get(self._random.choice(("seq", "id"))))

    def _check_log(self) -> None:
        said = self._place.log()
        new = said[self._read_log :] if len(said) >= self._read_log else said
        self._read_log = len(said)
        for line in new.splitlines():
            if any(fault in line for fault in FAULTS):
                raise Broke(f"the log tells of a fault: {line}\n{new[new.index(line) :][:3000]}")

    def _check_end(self, outside: dict[str, bytes]) -> None:
        with self._place.client() as client:
            problems = client.check().problems
            if problems:
                raise Broke(f"check: {problems}")
            if (state := client.status()).state != "ready":
                raise Broke(f"the daemon is {state.state}: {state.reason}")
        if fingerprint(self._place) != outside:
            raise Broke("something outside of the workspace was changed")


def pieces(data: bytes, random: Random) -> Iterator[bytes]:
    """The data in pieces as they may come."""
    size = random.choice((len(data), len(data), len(data), 1, 7, 100, 4096))
    if size == 1 and len(data) > 500:
        size = 50
    for start in range(0, len(data), size or 1):
        yield data[start : start + size]


def drain(stream: socket.socket, received: bytearray, timeout: float = 0.0) -> bool:
    """Take what has come; True once the daemon has hung up."""
    while select.select([stream], [], [], timeout)[0]:
        try:
            data = stream.recv(1 << 16)
        except ConnectionResetError:
            return True
        if not data:
            return True
        received += data
        timeout = 0.0
    return False


def may_wait(data: bytes) -> bool:
    """Whether there is something in it that may take as long as it says."""
    return any(word in data for word in (b"wait", b"settle", b"check", b"exec", b"publish", b"restore"))


def answers_in(received: bytes) -> Iterator[tuple[Any, dict[str, Any] | None, Any]]:
    """Id, error and result of each answer."""
    if received[:1] in (b"\x94", b"\x93"):
        unpacker = msgpack.Unpacker(
            strict_map_key=False, unicode_errors="surrogateescape", max_buffer_size=1 << 30
        )
        unpacker.feed(received)
        for value in unpacker:
            if value[0] == 1:
                yield value[1], as_map(value[2]), value[3]
        return
    while received:
        if received.startswith(b"Content-Length: "):
            header, _, rest = received.partition(b"\r\n\r\n")
            length = int(header.split(b": ")[1])
            body, received = rest[:length], rest[length:]
        else:
            body, _, received = received.partition(b"\n")
        with contextlib.suppress(ValueError):  # cut off in the middle
            value = json.loads(body)
            if "method" not in value:
                yield value.get("id"), value.get("error"), value.get("result")


def as_map(error: Any) -> dict[str, Any] | None:
    """An error in either of its two forms."""
    return {"name": error[1].partition(":")[0]} if isinstance(error, list) else error


def memory(place: Workplace) -> dict[str, int]:
    """VmRSS and VmHWM of the daemon, in KiB."""
    assert place.process is not None
    lines = Path(f"/proc/{place.process.pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))}


def fingerprint(place: Workplace) -> dict[str, bytes]:
    """Every file around the workspace that is not the daemon's own."""
    found: dict[str, bytes] = {}
    for name in ("outside", "home", "config"):
        for path in sorted((place.folder / name).rglob("*")):
            found[str(path)] = path.read_bytes() if path.is_file() else b""
    return found


def prepare(place: Workplace) -> None:
    """A workspace with git in it, and links that lead within and out of it."""
    outside = place.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (place.root / "link").symlink_to("a.txt")
    (place.root / "outside").symlink_to("../outside")
    (place.root / "leak").symlink_to("../outside/secret")
    (place.root / "loop").symlink_to("loop")
    place.git("init", "-q", "-b", "main")
    place.git("add", ".")
    place.git("commit", "-qm", "begin")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--keep", type=Path, default=Path(), help="the folder for an input that breaks something"
    )
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="editd-fuzz-") as folder,
        workplace(Path(folder) / "place", FILES) as place,
    ):
        prepare(place)
        place.start().close()
        fuzzer = Fuzzer(place, given.seed)
        try:
            fuzzer.run(given.seconds)
            print(fuzzer.figures.line(place), flush=True)
            place.stop()
        except (Broke, OSError, AssertionError) as broke:
            print(f"BROKEN: {broke}\n{place.log()[-3000:]}", file=sys.stderr)
            if fuzzer.last is not None:
                kept = given.keep / f"fuzz-{given.seed}-{fuzzer.figures.inputs.total()}.input"
                kept.write_bytes(fuzzer.last.data)
                print(f"the last input is in {kept}", file=sys.stderr)
            print(
                fuzzer.figures.line(place)
                if place.process and place.process.poll() is None
                else "it has ended"
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
