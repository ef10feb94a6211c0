"""What an edit costs, as ratios within one run.

    python tests/bench/bench.py                 # the table, at 100, 10,000 and 100,000 files
    python tests/bench/bench.py --short         # the form that the tests run
    python tests/bench/bench.py --write docs/benchmarks.md

RAW is the bare cost of a safe file save of 10 KB, with no daemon: a temporary file in the same folder,
write, fsync, rename over, fsync of the folder. `editd` is a whole, durable, recorded and undoable edit of
10 KB through the socket, asked for by a few lines of Python without a library; the Python client, with its
typed messages, is measured beside it. All are taken in turn, in short runs, in the same workspace, and the
workspaces are taken in turn as well, since the machine is not equally fast for long. A time is the median of
the rounds; a ratio is the median of theirs, so it may differ a little from that of the two times beside it.
`git` is `git add -A && git commit` of one changed file, which syncs nothing by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from typing import TYPE_CHECKING, NamedTuple

import msgpack

from editd.wire.messages import Write
from workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from editd_client.client import Client

KIB = 1024
CONTENT_BYTES = 10 * KIB
TARGETS = 64  # files that are edited, in turn; the rest only lie there
FILES_IN_A_FOLDER = 100
CLIENTS = 8
REST_SECONDS = 0.5  # before each size's round: the daemon of the one before packs what it has
EIGHT_SECONDS = 0.6
RATIO_MAX, SHARE_MIN, SPREAD_PERCENT_MAX = 1.5, 0.5, 15


class Round(NamedTuple):
    """Medians of one short run of each kind, in microseconds."""

    raw: float
    edit: float  # by a bare socket, ten lines of any language
    client: float  # by the Python client


class Rates(NamedTuple):
    """Of eight at once, a second."""

    saves: float
    edits: float


@dataclass
class Size:
    """A workspace of so many files, and what was measured in it, round by round."""

    files: int
    place: Workplace
    client: Client
    one: list[Round] = field(default_factory=list)
    eight: list[Rates] = field(default_factory=list)
    git_us: float | None = None

    @property
    def ratio(self) -> float:
        return median(one.edit / one.raw for one in self.one)

    @property
    def share(self) -> float:
        return median(rates.edits / rates.saves for rates in self.eight)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", default="100,10000,100000", help="sizes of the workspace")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--edits", type=int, default=40, help="in each round, of each kind")
    parser.add_argument("--short", action="store_true", help="100 and 1,000 files, few rounds, no git")
    parser.add_argument("--write", metavar="FILE", help="put the table into FILE")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a ratio is not as promised")
    chosen = parser.parse_args()
    files = [100, 1_000] if chosen.short else [int(size) for size in chosen.files.split(",")]
    rounds, edits = (4, 20) if chosen.short else (chosen.rounds, chosen.edits)
    with contextlib.ExitStack() as stack:
        sizes = [stack.enter_context(sized(number)) for number in files]
        for number in range(rounds):
            for size in random.sample(sizes, len(sizes)):
                time.sleep(REST_SECONDS)
                size.one.append(one_client(size.place, size.client, edits))
                if number % 2 == 0:
                    size.eight.append(eight(size.place))
        if not chosen.short:
            for size in sizes:
                size.git_us = git(size.place)
    text = table(sizes)
    print(text)
    if chosen.write:
        put_in(Path(chosen.write), text)
    if chosen.check:
        sys.exit(broken_promises(sizes))


@contextlib.contextmanager
def sized(files: int) -> Iterator[Size]:
    """A workspace of so many files with its daemon, which has looked at all of them."""
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder,
        workplace(Path(folder) / "p") as place,
    ):
        fill(place.root, files)
        place.git("init", "-q")
        place.git("add", "-A")
        place.git("commit", "-qm", "all")
        for path in targets(place.root):  # beside the target: the same folder, the same cost
            (place.root / f"{path}.raw").write_bytes(fresh())
        with place.start() as client:
            client.settle(timeout=600)
            one_client(place, client, 10)  # warm
            yield Size(files, place, client)


def fill(root: Path, files: int) -> None:
    """Folders of a hundred files, two deep; the targets are 10 KB, the rest half a KB."""
    spread = max(1, files // TARGETS)
    for number in range(files):
        folder = (
            root / f"d{number // FILES_IN_A_FOLDER // 100:02}" / f"d{number // FILES_IN_A_FOLDER % 100:02}"
        )
        if number % FILES_IN_A_FOLDER == 0:
            folder.mkdir(parents=True, exist_ok=True)
        is_target = number % spread == 0 and number // spread < TARGETS
        content = fresh() if is_target else b"%d\n" % number * 50
        (folder / (f"target{number // spread}" if is_target else f"f{number}")).write_bytes(content)


def targets(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.glob("d*/*/target*") if path.suffix != ".raw")


def fresh() -> bytes:
    """10 KB of text that nobody has seen yet."""
    line = b"%x the quick brown fox jumps over the lazy dog\n" % random.getrandbits(64)
    return (line * (CONTENT_BYTES // len(line) + 1))[:CONTENT_BYTES]


def raw_save(path: str, content: bytes) -> None:
    temporary = path + ".tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, content)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def one_client(place: Workplace, client: Client, edits: int) -> Round:
    """Bare saves, edits by a bare socket and edits by the client, one kind after the other."""
    paths = targets(place.root)
    stream, unpacker = socket.socket(socket.AF_UNIX), msgpack.Unpacker()
    stream.connect(place.socket)

    def raw(path: str) -> None:
        raw_save(str(place.root / f"{path}.raw"), fresh())

    def edit(path: str) -> None:
        send(stream, path)
        while True:
            unpacker.feed(stream.recv(1 << 20))
            for _, _, error, result in unpacker:
                assert error is None, error
                assert result["transaction"] is not None
                return

    def by_client(path: str) -> None:
        done = client.apply([Write(path=path, content=fresh().decode(), force=True)])
        assert done.transaction is not None

    kinds = (raw, edit, by_client)
    found = {act: timed(act, paths, edits) for act in random.sample(kinds, len(kinds))}
    stream.close()
    return Round(*(found[act] for act in kinds))


def timed(act: Callable[[str], None], paths: Sequence[str], edits: int) -> float:
    times = []
    for _ in range(edits):
        path = random.choice(paths)
        start = time.perf_counter()
        act(path)
        times.append(time.perf_counter() - start)
    return median(times) * 1e6


def eight(place: Workplace) -> Rates:
    return Rates(eight_threads(place, EIGHT_SECONDS), eight_clients(place, EIGHT_SECONDS))


def eight_threads(place: Workplace, seconds: float) -> float:
    paths, done, until = targets(place.root), [0] * CLIENTS, time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < until:
            raw_save(str(place.root / f"{random.choice(paths[number::CLIENTS])}.raw"), fresh())
            done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - start)


def eight_clients(place: Workplace, seconds: float) -> float:
    """Eight connections, each with its next edit sent when the one before is answered."""
    paths = targets(place.root)
    selector = selectors.DefaultSelector()
    for number in range(CLIENTS):
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(place.socket)
        selector.register(stream, selectors.EVENT_READ, (stream, msgpack.Unpacker(), paths[number::CLIENTS]))
        send(stream, paths[number])
    done, start = 0, time.perf_counter()
    waiting = CLIENTS
    while waiting:
        for key, _ in selector.select():
            stream, unpacker, own = key.data
            unpacker.feed(stream.recv(1 << 20))
            for _, _, error, result in unpacker:
                assert error is None, error
                assert result["transaction"] is not None
                done += 1
                if time.perf_counter() - start < seconds:
                    send(stream, random.choice(own))
                else:
                    waiting -= 1
    took = time.perf_counter() - start
    for key in list(selector.get_map().values()):
        key.data[0].close()
    return done / took


def send(stream: socket.socket, path: str) -> None:
    edit = {"op": "write", "path": path, "content": fresh().decode(), "force": True}
    stream.sendall(msgpack.packb([0, 1, "apply", [{"edits": [edit]}]]) or b"")


def git(place: Workplace, times: int = 5) -> float:
    """Median microseconds of `git add -A && git commit` after one edit; the files are the workspace's own."""
    place.stop()
    taken = []
    for _ in range(times):
        (place.root / targets(place.root)[0]).write_bytes(fresh())
        start = time.perf_counter()
        place.git("add", "-A")
        place.git("commit", "-qm", "one")
        taken.append(time.perf_counter() - start)
    return median(taken) * 1e6


COLUMNS = (
    "files", "RAW, µs", "editd, µs", "editd / RAW", "by the Python client, / RAW",
    "git add -A; commit, / RAW", "8 RAW threads, 1/s", "8 clients, 1/s",
    "clients / threads",
)  # fmt: skip


def table(sizes: Sequence[Size]) -> str:
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {machine()}.",
        "",
        line(COLUMNS),
        "|" + "---:|" * len(COLUMNS),
    ]
    for size in sizes:
        raw = median(one.raw for one in size.one)
        times = (
            f"{raw:.0f}",
            f"{median(one.edit for one in size.one):.0f}",
            f"**{size.ratio:.2f} ×**",
            f"{median(one.client / one.raw for one in size.one):.2f} ×",
            "–" if size.git_us is None else f"{size.git_us / raw:.0f} ×",
        )
        rates = (
            f"{median(rates.saves for rates in size.eight):.0f}",
            f"{median(rates.edits for rates in size.eight):.0f}",
            f"**{size.share:.2f} ×**",
        )
        lines.append(line((f"{size.files:,}", *times, *rates)))
    edit, ratio = spread(growth(sizes)), spread([size.ratio for size in sizes])
    lines += [
        "",
        f"Between the sizes an edit's time differs by {edit:.0f} %, and its ratio to RAW by {ratio:.0f} %.",
    ]
    return "\n".join(lines)


def growth(sizes: Sequence[Size]) -> list[float]:
    """How many times as long an edit takes as at the first of the sizes in the same round: the median."""
    return [
        median(one.edit / first.edit for one, first in zip(size.one, sizes[0].one, strict=True))
        for size in sizes
    ]


def spread(values: Sequence[float]) -> float:
    """By how many percent the largest is over the smallest."""
    return 100 * (max(values) / min(values) - 1)


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", tempfile.gettempdir()], capture_output=True, text=True, check=True
    ).stdout.strip()
    return (
        f"{os.cpu_count()} cores of {cpu[1] if cpu else platform.processor()}, Linux {platform.release()},"
        f" {kind}, Python {platform.python_version()} ({os.path.realpath(sys.executable)}),"
        f" {subprocess.getoutput('git --version')}"
    )


def put_in(path: Path, text: str) -> None:
    """Replace what stands between the two marks in FILE."""
    before, rest = path.read_text().split("<!-- table -->", 1)
    after = rest.split("<!-- end -->", 1)[1]
    path.write_text(f"{before}<!-- table -->\n{text}\n<!-- end -->{after}")


def broken_promises(sizes: Sequence[Size]) -> int:
    said = 0
    for size in sizes:
        if size.ratio > RATIO_MAX:
            print(f"{size.files} files: {size.ratio:.2f} × RAW is over {RATIO_MAX}")
            said = 1
        if size.share < SHARE_MIN:
            print(f"{size.files} files: {size.share:.2f} of eight threads is under {SHARE_MIN}")
            said = 1
    if spread(growth(sizes)) > SPREAD_PERCENT_MAX:
        print(f"Between the sizes an edit's time differs by more than {SPREAD_PERCENT_MAX} %")
        said = 1
    return said


if __name__ == "__main__":
    main()
