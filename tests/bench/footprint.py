"""The memory and the processes of a daemon, and the disk that its history takes."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Figure, Row, Times, times_of
from bench.saves import Connection, editing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.sites import Bench

MB = 1_000_000
SETTLE_SECONDS = 2.0  # after the last edit, before the memory is read
EDITS = 50
IDLE_EDITS = 3
DISK_FILES, DISK_BYTES = 20, 9 * 1024
DISK_LINE = "%04d has the value %08x, which is one of many\n"


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def tree(pid: int) -> Iterator[int]:
    """Yield the process and all processes that it started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from tree(int(child))


def memory(bench: Bench) -> Row:
    """The resident memory of the daemon among many files, and after many transactions."""
    from bench.histories import history, history_sizes

    figures, times = [], list[Times]()
    for files in bench.sizes(100_000, 1_000_000):
        site = bench.site(files)
        site.forget()
        taken = []
        for label in ("first start", "later start"):
            connection = site.connection()
            edit = editing(connection, site.paths)
            for _ in range(EDITS):
                edit()()
            connection.close()
            time.sleep(SETTLE_SECONDS)
            taken.append(memory_bytes(site.pid) / MB)
            times.append(times_of(f"{files:,} files, {label}", [taken[-1]], "MB"))
            site.stop()
        name = f"memory-{files if bench.is_full else 100_000}"
        figures.append(Figure(name, max(taken), f"{files:,} files", bench.is_full))
    for key, transactions in zip((15_000, 100_000), history_sizes(bench), strict=True):
        taken_bytes = history(bench, transactions).memory_bytes / MB
        times.append(times_of(f"{transactions:,} transactions", [taken_bytes], "MB"))
        text = f"{transactions:,} transactions"
        figures.append(Figure(f"memory-tx-{key}", taken_bytes, text, bench.is_full))
    return Row(figures, times)


def idle(bench: Bench) -> Row:
    """The processes of a daemon a minute after three edits, with their memory and their CPU time."""
    figures, times = [], list[Times]()
    wait_seconds = bench.pick(33, 60)
    for files in (100, 100_000) if bench.is_full else (100,):
        site = bench.site(files)
        site.stop()
        connection = site.connection()
        for _ in range(IDLE_EDITS):
            connection.write(site.paths[0], os.urandom(8).hex().encode())
        connection.close()
        time.sleep(wait_seconds)
        before = cpu_ticks(site.pid)
        time.sleep(wait_seconds // 6)
        processes = list(tree(site.pid))
        taken = sum(map(memory_bytes, processes)) / MB
        text = f"{files:,} files, {wait_seconds} s"
        figures += [
            Figure(f"idle-processes-{files}", len(processes), text),
            Figure(f"idle-memory-{files}", taken, text),
        ]
        ticks = float(cpu_ticks(site.pid) - before)
        times += [
            times_of(f"memory at {files:,} files", [taken], "MB"),
            times_of(f"CPU time in {wait_seconds // 6} s at {files:,} files", [ticks * 10], "ms"),
        ]
    return Row(figures, times)


def cpu_ticks(pid: int) -> int:
    """Return the CPU time of a process, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def disk(bench: Bench) -> Row:
    """The disk that an edit of one line takes in the history, after packing."""
    number = bench.pick(300, 3_000)
    site = bench.empty("disk")
    count = DISK_BYTES // len(DISK_LINE % (0, 0))
    files = {f"f{file}": [DISK_LINE % (line, 0) for line in range(count)] for file in range(DISK_FILES)}
    site.place.write({path: "".join(lines) for path, lines in files.items()})
    site.client.settle()
    connection = Connection(site.place.socket)
    before, edits = history_bytes(site.place.state), list[dict[str, object]]()
    for _ in range(number):
        path = random.choice(list(files))
        line = random.randrange(count)
        old, new = files[path][line], DISK_LINE % (line, random.getrandbits(32))
        files[path][line] = new
        edits.append({"edits": [{"op": "replace", "path": path, "old": old, "new": new}]})
    connection.pipeline("apply", edits)
    connection.close()
    site.wait_until_packed()
    assert site.client.check().problems == []
    taken = (history_bytes(site.place.state) - before) / number / 1000
    bench.drop("disk")
    figure = Figure("disk", taken, f"{number:,} edits")
    return Row([figure], [times_of("disk for an edit", [taken], "KB")])


def history_bytes(state: Path) -> int:
    """Return the bytes of the history: the git objects and the index, without the journal."""
    parts = [*(state / "store.git").rglob("*"), *state.glob("index.db*")]
    return sum(path.stat().st_size for path in parts if path.is_file())


MEASUREMENTS: Sequence[Callable[[Bench], Row]] = (memory, idle, disk)
