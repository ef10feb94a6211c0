"""Clients of a few lines, bare saves beside them, and steps that are timed in turn."""

from __future__ import annotations

import os
import random
import selectors
import socket
import threading
import time
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any

import msgpack

from bench.figures import Times, times_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Prepare = Callable[[], Callable[[], object]]  # returns the step that is timed

CONTENT_BYTES = 10 * 1024
CLIENTS = 8
RECEIVE_BYTES = 1 << 20
PIPELINE_REQUESTS = 64


class Connection:
    """A client without a library: one request at a time, or many in a row by `pipeline`."""

    def __init__(self, path: str) -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(path)
        self._unpacker = msgpack.Unpacker(max_buffer_size=1 << 30)
        self._answers: list[Any] = []
        self._numbers = count(1)

    def ask(self, method: str, **params: object) -> Any:
        """Send a request and return its result."""
        self.send(method, **params)
        return self.answer()

    def send(self, method: str, **params: object) -> None:
        self.stream.sendall(request(method, next(self._numbers), **params))

    def answer(self) -> Any:
        """Return the next result."""
        while not self._answers:
            self._answers += self.received()
        return self._answers.pop(0)

    def received(self) -> list[Any]:
        """Receive once, and return the results that are complete."""
        results = []
        for error, result in self._replies():
            assert error is None, error
            results.append(result)
        return results

    def reply(self) -> tuple[Any, Any]:
        """Return the error and the result of the one request under way."""
        while True:
            for reply in self._replies():
                return reply

    def _replies(self) -> list[tuple[Any, Any]]:
        received = self.stream.recv(RECEIVE_BYTES)
        assert received, "the daemon closed the connection"
        self._unpacker.feed(received)
        return [(error, result) for _, _, error, result in self._unpacker]

    def write(self, path: str, content: bytes) -> None:
        """Write the whole file, and check that a transaction was made."""
        assert self.ask("apply", edits=[write(path, content)])["transaction"] is not None

    def pipeline(self, method: str, requests: Sequence[Mapping[str, object]]) -> None:
        """Send all requests, with at most `PIPELINE_REQUESTS` without an answer."""
        for number, params in enumerate(requests):
            self.send(method, **params)
            if number >= PIPELINE_REQUESTS:
                self.answer()
        for _ in range(min(len(requests), PIPELINE_REQUESTS)):
            self.answer()

    def close(self) -> None:
        self.stream.close()


def asking(connection: Connection, method: str, **params: object) -> Prepare:
    """Return a request as a kind of step."""
    return lambda: lambda: connection.ask(method, **params)


def request(method: str, number: int = 1, **params: object) -> bytes:
    return msgpack.packb([0, number, method, [params]]) or b""


def write(path: str, content: bytes) -> dict[str, object]:
    return {"op": "write", "path": path, "content": content.decode(), "force": True}


def fresh() -> bytes:
    """Return 10 KB of text that no file has held yet."""
    line = b"%x the quick brown fox jumps over the lazy dog\n" % random.getrandbits(64)
    return (line * (CONTENT_BYTES // len(line) + 1))[:CONTENT_BYTES]


def save(path: str, content: bytes) -> None:
    """Save a file as a careful program does: RAW."""
    temporary = path + ".tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, content)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def saving(root: Path, paths: Sequence[str]) -> Prepare:
    """Return RAW as a kind of step, on the files beside those of the edits."""

    def prepare() -> Callable[[], object]:
        path, content = f"{root / random.choice(paths)}.raw", fresh()
        return lambda: save(path, content)

    return prepare


def editing(connection: Connection, paths: Sequence[str]) -> Prepare:
    """Return an edit of 10 KB as a kind of step."""

    def prepare() -> Callable[[], object]:
        path, content = random.choice(paths), fresh()
        return lambda: connection.write(path, content)

    return prepare


class Samples:
    """The times of several kinds of step, round by round, in microseconds."""

    def __init__(self) -> None:
        self.rounds: dict[str, list[list[float]]] = {}

    def take(self, label: str, prepare: Prepare, number: int, pause_seconds: float = 0.0) -> float:
        """Time one kind `number` times in a row, as a round of it. Return the median."""
        taken = []
        for _ in range(number):
            step = prepare()
            if pause_seconds:
                time.sleep(pause_seconds)
            start = time.perf_counter()
            step()
            taken.append((time.perf_counter() - start) * 1e6)
        self.rounds.setdefault(label, []).append(taken)
        return median(taken)

    def interleave(
        self,
        kinds: Mapping[str, Prepare],
        *,
        rounds: int,
        number: int,
        pause_seconds: float = 0.0,
        rest_seconds: float = 0.0,
    ) -> None:
        """Time all kinds in each round, in an order of its own, after a rest."""
        for _ in range(rounds):
            time.sleep(rest_seconds)
            for label in random.sample(list(kinds), len(kinds)):
                self.take(label, kinds[label], number, pause_seconds)

    def ratio(self, label: str, base: str) -> float:
        """Return the median of the rounds' ratios of their medians."""
        rounds = zip(self.rounds[label], self.rounds[base], strict=True)
        return median(median(one) / median(other) for one, other in rounds)

    def times(self) -> list[Times]:
        return [times_of(label, self.all(label)) for label in self.rounds]

    def all(self, label: str) -> list[float]:
        return [value for one in self.rounds[label] for value in one]


def eight_threads(root: Path, paths: Sequence[str], seconds: float) -> tuple[float, list[float]]:
    """Save in eight threads. Return the saves in a second, and their times."""
    taken: list[list[float]] = [[] for _ in range(CLIENTS)]
    start = time.perf_counter()

    def work(number: int) -> None:
        while (began := time.perf_counter()) < start + seconds:
            save(f"{root / random.choice(paths[number::CLIENTS])}.raw", fresh())
            taken[number].append((time.perf_counter() - began) * 1e6)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(map(len, taken)) / (time.perf_counter() - start), [value for one in taken for value in one]


def eight_clients(socket_path: str, paths: Sequence[str], seconds: float) -> tuple[float, list[float]]:
    """Edit by eight clients, each with one request at a time. Return the rate a second, and the times."""
    with selectors.DefaultSelector() as selector:
        began: dict[int, float] = {}
        taken: list[float] = []
        start = time.perf_counter()

        def send(number: int, connection: Connection) -> None:
            began[number] = time.perf_counter()
            connection.send("apply", edits=[write(random.choice(paths[number::CLIENTS]), fresh())])

        for number in range(CLIENTS):
            connection = Connection(socket_path)
            selector.register(connection.stream, selectors.EVENT_READ, (number, connection))
            send(number, connection)
        waiting = CLIENTS
        while waiting:
            for key, _ in selector.select():
                number, connection = key.data
                for result in connection.received():
                    assert result["transaction"] is not None
                    taken.append((time.perf_counter() - began[number]) * 1e6)
                    if time.perf_counter() - start < seconds:
                        send(number, connection)
                    else:
                        waiting -= 1
        rate = len(taken) / (time.perf_counter() - start)
        for key in list(selector.get_map().values()):
            key.data[1].close()
    return rate, taken
