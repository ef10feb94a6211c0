"""How many of the daemon's own functions and modules one request enters, and what CPU time a write takes.

    python tests/bench/calls.py                  # calls and modules of one write, and those of each function
    python tests/bench/calls.py --undo           # of one undo of the last write, by its number
    python tests/bench/calls.py --modules        # and the calls of each module
    python tests/bench/calls.py --cpu 2000       # CPU time of a daemon without a profile, in 2,000 writes
    python tests/bench/calls.py --cpu 2000 --other DIR    # in alternation with the daemon of another checkout

A daemon of its own serves a workspace with one file, which is written again and again through the socket,
each time when the last answer is there. The count is that of `sys.setprofile` in the daemon's main thread,
from the arrival of a request to its reply. With `--all` it goes on to the arrival of the next request.
A comprehension and each step of a generator count as a call, as in the interpreter. The figures are those of
the most frequent count, so that work of the background that fell between two requests does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median, mode

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from typing import TYPE_CHECKING, Any

import msgpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CodeType, FrameType

    from support.workplace import Workplace

CONTENT_BYTES = 10 * 1024
WARM_WRITES, COUNTED_WRITES = 50, 200
ROUNDS = 5  # of CPU times, each with every checkout
REPORT_SECONDS = 30.0
FIRST_CALL = ("server/connection.py", "data_received")  # where a request arrives
REPLY = "server/connection.py SocketConnection._send"


# In the daemon's process: count, and write the counts to a file at SIGUSR1.


def serve(report: str, arguments: list[str]) -> None:
    """Run the daemon in this process with a profile of its main thread."""
    import editd

    assert editd.__file__ is not None
    top = os.path.dirname(editd.__file__) + os.sep
    names: dict[CodeType, str] = {}
    writes: list[Counter[CodeType]] = []
    counts: Counter[CodeType] = Counter()
    is_over = False  # the reply was sent
    goes_on = "EDITD_CALLS_ALL" in os.environ

    def name_of(code: CodeType) -> str:
        if not code.co_filename.startswith(top):
            return ""
        name = f"{code.co_filename.removeprefix(top)} {code.co_qualname}"
        is_inner = code.co_name.startswith("<")  # a function may have several comprehensions
        return f"{name} line {code.co_firstlineno}" if is_inner else name

    def note(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counts, is_over
        if event != "call":
            return
        code = frame.f_code
        name = names.get(code)
        if name is None:
            name = names[code] = name_of(code)
        if not name:
            return
        if code.co_name == FIRST_CALL[1] and name.startswith(FIRST_CALL[0]):
            writes.append(counts)
            counts = Counter()
            is_over = False
        if not is_over:
            counts[code] += 1
        is_over = is_over or (name == REPLY and not goes_on)

    def write_report(_number: int, _frame: FrameType | None) -> None:
        sys.setprofile(None)
        named: list[Counter[str]] = []
        for write in writes:
            named.append(Counter())
            for code, count in write.items():
                named[-1][names[code]] += count
        Path(report + ".new").write_text(json.dumps(named))
        os.rename(report + ".new", report)

    signal.signal(signal.SIGUSR1, write_report)
    sys.argv = ["editd", *arguments]
    sys.setprofile(note)
    runpy.run_module("editd", run_name="__main__", alter_sys=True)


# In the process of the measurement.


@contextlib.contextmanager
def workspace_of_one_file() -> Iterator[Workplace]:
    from support.workplace import workplace

    with (
        tempfile.TemporaryDirectory(prefix="editd-calls-") as folder,
        workplace(Path(folder) / "place", {"src/a.txt": "\n"}) as place,
    ):
        yield place


class Writer:
    """A client of a few lines, as in `saves.py`."""

    def __init__(self, path: str) -> None:
        self._stream = socket.socket(socket.AF_UNIX)
        self._stream.connect(path)
        self._unpacker = msgpack.Unpacker()
        self._number = 0

    def write(self) -> int:
        """Write the file once, and wait for the answer. Return the number of the transaction."""
        content = f"{self._number:08}\n".ljust(CONTENT_BYTES, "x")
        edit = {"op": "write", "path": "src/a.txt", "content": content, "force": True}
        return self._transaction_of("apply", {"edits": [edit]})

    def undo(self) -> None:
        """Write the file, and undo that."""
        self._transaction_of("undo", {"tx": self.write()})

    def _transaction_of(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        self._stream.sendall(msgpack.packb([0, self._number, method, [params]]) or b"")
        while True:
            self._unpacker.feed(self._stream.recv(1 << 20))
            for _, _, error, result in self._unpacker:
                assert error is None, error
                return int(result["transaction"]["seq"])

    def close(self) -> None:
        self._stream.close()


def count(*, is_undo: bool, goes_on: bool) -> dict[str, int]:
    """Return the calls of each function in one write or undo, by `module function`."""
    with workspace_of_one_file() as place:
        place.variables |= {"EDITD_CALLS_ALL": "1"} if goes_on else {}
        report = place.folder / "calls.json"
        place.launcher = (sys.executable, str(Path(__file__).resolve()), "--serve", str(report))
        with place.start() as _:
            pass
        writer = Writer(place.socket)
        for _ in range(WARM_WRITES):
            writer.write()
        time.sleep(2)  # the daemon makes spare files and packs
        for _ in range(COUNTED_WRITES):
            if is_undo:
                writer.undo()
            else:
                writer.write()
        assert place.process is not None
        os.kill(place.process.pid, signal.SIGUSR1)
        until = time.monotonic() + REPORT_SECONDS
        while not report.exists():
            assert time.monotonic() < until, place.log()
            time.sleep(0.01)
        writer.close()
        requests: list[dict[str, int]] = json.loads(report.read_text())
        writes = requests[-2 : -COUNTED_WRITES : -2 if is_undo else -1]  # the last request is not in them
        place.stop()
    usual = mode(sum(write.values()) for write in writes)
    return next(write for write in writes if sum(write.values()) == usual)


def modules_of(counts: Mapping[str, int]) -> Counter[str]:
    """Return the calls of each module."""
    modules: Counter[str] = Counter()
    for name, calls in counts.items():
        modules[name.split(" ")[0]] += calls
    return modules


def cpu_time(pid: int) -> float:
    """Return the CPU time of the process's main thread, in seconds."""
    with open(f"/proc/{pid}/task/{pid}/schedstat", "rb") as file:
        return int(file.read().split()[0]) / 1e9


def cpu_of_a_write(places: list[Workplace], writes: int) -> list[float]:
    """Return the median CPU time of a write for each daemon, in microseconds. They run in alternation."""
    writers = [Writer(place.socket) for place in places]
    taken: list[list[float]] = [[] for _ in places]
    for writer in writers:
        for _ in range(WARM_WRITES):
            writer.write()
    for _ in range(ROUNDS):
        for place, writer, times in zip(places, writers, taken, strict=True):
            time.sleep(1)
            assert place.process is not None
            before = cpu_time(place.process.pid)
            for _ in range(writes // ROUNDS):
                writer.write()
            times.append((cpu_time(place.process.pid) - before) / (writes // ROUNDS) * 1e6)
    for writer in writers:
        writer.close()
    return [median(times) for times in taken]


def print_counts(*, is_undo: bool, goes_on: bool, with_modules: bool) -> None:
    counts = count(is_undo=is_undo, goes_on=goes_on)
    modules = modules_of(counts)
    print(f"{sum(counts.values())} calls of {len(counts)} functions in {len(modules)} modules\n")
    for name, calls in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        print(f"{calls:4} {name}")
    if with_modules:
        print()
        for name, calls in modules.most_common():
            print(f"{calls:4} {name}")


def print_cpu(writes: int, other: str | None) -> None:
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(workspace_of_one_file()) for _ in range(1 if other is None else 2)]
        for place in places:
            place.is_forked = False
        if other is not None:
            paths = [str(Path(other).resolve() / name) for name in ("daemon", "client")]
            places[1].variables["PYTHONPATH"] = os.pathsep.join(paths)
        for place in places:
            with place.start():
                pass
        times = cpu_of_a_write(places, writes)
        for place in places:
            place.stop()
    print(f"{times[0]:.0f} µs of CPU for a write")
    if other is not None:
        print(f"{times[1]:.0f} µs in {other}: {times[0] / times[1]:.2f} of that")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:  # python calls.py --serve REPORT python -m editd …
        arguments: list[Any] = sys.argv[6:]
        serve(sys.argv[2], arguments)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--modules", action="store_true", help="print the calls of each module too")
    parser.add_argument("--undo", action="store_true", help="count an undo of a write, by its number")
    parser.add_argument("--all", action="store_true", help="count also what is done after the reply")
    parser.add_argument("--cpu", type=int, metavar="WRITES", help="measure the CPU time of so many writes")
    parser.add_argument("--other", metavar="DIR", help="another checkout, measured in alternation")
    options = parser.parse_args()
    if options.cpu is not None:
        print_cpu(options.cpu, options.other)
    else:
        print_counts(is_undo=options.undo, goes_on=options.all, with_modules=options.modules)


if __name__ == "__main__":
    main()
