"""What an edit costs, as ratios within one run.

    python tests/bench/bench.py                 # the table, at 100, 10,000 and 100,000 files
    python tests/bench/bench.py --short         # the form that CI runs
    python tests/bench/bench.py --write docs/benchmarks.md

RAW is the bare cost of a safe file save of 10 KB, with no daemon: a temporary file in the same folder,
write, fsync, rename over, fsync of the folder. `editd` is a whole, durable, recorded and undoable edit of
10 KB through the socket, asked for by a few lines of Python without a library; the Python client, with its
typed messages, is measured beside it. All are taken in turn, in short runs, in the same workspace; a cell
is the median over the rounds. `git` is `git add -A && git commit` of one changed file, which syncs nothing
by itself.
"""

from __future__ import annotations

import argparse
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
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from typing import TYPE_CHECKING

import msgpack

from editd.wire.messages import Write
from workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd_client.client import Client

KIB = 1024
CONTENT_BYTES = 10 * KIB
TARGETS = 64  # files that are edited, in turn; the rest only lie there
FILES_IN_A_FOLDER = 100
CLIENTS = 8


@dataclass(frozen=True)
class Row:
    files: int
    raw_us: float
    edit_us: float  # by a bare socket, ten lines of any language
    client_us: float  # by the Python client
    raw8: float  # saves a second
    edit8: float
    git_us: float | None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", default="100,10000,100000", help="sizes of the workspace")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--edits", type=int, default=40, help="in each round, of each kind")
    parser.add_argument("--short", action="store_true", help="100 and 10,000 files, few rounds, no git")
    parser.add_argument("--write", metavar="FILE", help="put the table into FILE")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a ratio is not as promised")
    chosen = parser.parse_args()
    sizes = [100, 10_000] if chosen.short else [int(size) for size in chosen.files.split(",")]
    rounds, edits = (7, 25) if chosen.short else (chosen.rounds, chosen.edits)
    rows = [measure(size, rounds, edits, with_git=not chosen.short) for size in sizes]
    text = table(rows)
    print(text)
    if chosen.write:
        put_in(Path(chosen.write), text)
    if chosen.check:
        sys.exit(broken_promises(rows))


def measure(files: int, rounds: int, edits: int, *, with_git: bool) -> Row:
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder,
        workplace(Path(folder) / "p") as place,
    ):
        fill(place.root, files)
        place.git("init", "-q")
        place.git("add", "-A")
        place.git("commit", "-qm", "all")
        with place.start() as client:
            client.settle(timeout=600)
            return Row(
                files,
                *one_client(place, client, rounds, edits),
                *eight(place, rounds),
                git(place) if with_git else None,
            )


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


def one_client(place: Workplace, client: Client, rounds: int, edits: int) -> tuple[float, float, float]:
    """Median microseconds of a bare save, of an edit by a bare socket and by the client, interleaved."""
    paths = targets(place.root)
    for path in paths:
        (place.root / f"{path}.raw").write_bytes(fresh())

    def raw(path: str) -> None:
        raw_save(
            str(place.root / f"{path}.raw"), fresh()
        )  # beside the target: the same folder, the same cost

    def edit(path: str) -> None:
        done = client.apply([Write(path=path, content=fresh().decode(), force=True)])
        assert done.transaction is not None

    stream, unpacker = socket.socket(socket.AF_UNIX), msgpack.Unpacker()
    stream.connect(place.socket)

    def ask(path: str) -> None:
        send(stream, path)
        while True:
            unpacker.feed(stream.recv(1 << 20))
            for _, _, error, result in unpacker:
                assert error is None, error
                assert result["transaction"] is not None
                return

    kinds: list[tuple[Callable[[str], None], list[float]]] = [(raw, []), (ask, []), (edit, [])]
    for act, _ in kinds:
        timed(act, paths, edits)  # warm
    for _ in range(rounds):
        random.shuffle(kinds)
        for act, medians in kinds:
            medians.append(timed(act, paths, edits))
    found = {act.__name__: median(medians) for act, medians in kinds}
    stream.close()
    return found["raw"], found["ask"], found["edit"]


def timed(act: Callable[[str], None], paths: Sequence[str], edits: int) -> float:
    times = []
    for _ in range(edits):
        path = random.choice(paths)
        start = time.perf_counter()
        act(path)
        times.append(time.perf_counter() - start)
    return median(times) * 1e6


def eight(place: Workplace, rounds: int) -> tuple[float, float]:
    """Saves a second of eight threads, and edits a second of eight clients, in turn."""
    seconds = 0.6
    raws, edits = [], []
    for _ in range(max(3, rounds // 2)):
        raws.append(eight_threads(place, seconds))
        edits.append(eight_clients(place, seconds))
    return median(raws), median(edits)


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


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {machine()}.",
        "",
        line(COLUMNS),
        "|" + "---:|" * len(COLUMNS),
    ]
    for row in rows:
        against_git = "–" if row.git_us is None else f"{row.git_us / row.raw_us:.0f} ×"
        times = (
            f"{row.raw_us:.0f}",
            f"{row.edit_us:.0f}",
            f"**{row.edit_us / row.raw_us:.2f} ×**",
            f"{row.client_us / row.raw_us:.2f} ×",
            against_git,
        )
        rates = (f"{row.raw8:.0f}", f"{row.edit8:.0f}", f"**{row.edit8 / row.raw8:.2f} ×**")
        lines.append(line((f"{row.files:,}", *times, *rates)))
    edit = spread([row.edit_us for row in rows])
    ratio = spread([row.edit_us / row.raw_us for row in rows])
    lines += [
        "",
        f"Between the sizes an edit's time differs by {edit:.0f} %, and its ratio to RAW by {ratio:.0f} %.",
    ]
    return "\n".join(lines)


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


def broken_promises(rows: Sequence[Row]) -> int:
    said = 0
    for row in rows:
        if row.edit_us > 1.5 * row.raw_us:
            print(f"{row.files} files: {row.edit_us / row.raw_us:.2f} × RAW is over 1.5")
            said = 1
        if row.edit8 < 0.5 * row.raw8:
            print(f"{row.files} files: {row.edit8 / row.raw8:.2f} of eight threads is under 0.5")
            said = 1
    return said


if __name__ == "__main__":
    main()
