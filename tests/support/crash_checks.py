"""Helpers of the torture tests: the daemon's children, the whole history, and its consistency."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.values.content import Version, version_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _pytest.mark.structures import ParameterSet

    from editd.wire.messages import Transaction
    from editd_client.client import Client
    from support.workplace import Workplace

POLL_SECONDS = 0.01
PATIENCE_SECONDS = 30.0  # for a wait of milliseconds on an idle machine


def in_company(seconds: float) -> float:
    """Return a time limit adapted to the number of tests that run at the same time."""
    others = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return seconds * (1 if others == 1 else 1 + 2 * others / (os.cpu_count() or 1))


def own_time() -> float:
    """Return the seconds of the clock, without the time that this thread waited for a processor.

    On a virtual machine, the time that other machines had the processor is left out in proportion (proc(5),
    steal). Time that the kernel does not report is included.
    """
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            waited_ns = int(file.read().split()[1])
        with open("/proc/stat", encoding="ascii") as file:
            stolen_ticks = int(file.readline().split()[8])
    except OSError:
        waited_ns = stolen_ticks = 0
    stolen_seconds = stolen_ticks / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    return time.monotonic() - waited_ns / 1e9 - stolen_seconds


def wait_until(is_so: Callable[[], object], what: str) -> None:
    """Wait for a condition. Fail if it does not hold within `PATIENCE_SECONDS`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(POLL_SECONDS)


def child(place: Workplace, module: str) -> int | None:
    """Return the pid of the daemon's child that runs `module`."""
    for pid in children(place):
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except FileNotFoundError:
            continue
        if module.encode() in argv:
            return pid
    return None


def children(place: Workplace) -> list[int]:
    """Return the pids of the daemon's children."""
    assert place.process is not None
    daemon = place.process.pid
    return [int(pid) for pid in Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()]


def packer(place: Workplace) -> int:
    """Wait for the packing process, and return its pid."""
    wait_until(lambda: child(place, "editd.store.pack_worker"), "no packing process")
    found = child(place, "editd.store.pack_worker")
    assert found is not None
    return found


def surveyor(place: Workplace) -> int:
    """Wait for the scan worker, and return its pid."""
    wait_until(lambda: child(place, "editd.engine.scan_worker"), "no surveying process")
    found = child(place, "editd.engine.scan_worker")
    assert found is not None
    return found


def has_empty_segment(place: Workplace) -> bool:
    """Return whether a segment of the journal is ready for when the current one is full."""
    made = (place.state / "journal").glob("*.new")
    return any(segment.stat().st_size == place.segment_bytes for segment in made)


def is_over(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def kill_child(place: Workplace, pid: int) -> None:
    """Kill a child of the daemon, and wait until the daemon has noticed it."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon has not reaped its child")


def transactions(client: Client, after: int = 0) -> list[Transaction]:
    """Return all transactions after `after`, oldest first."""
    found: list[Transaction] = []
    before: int | None = None
    while True:
        part = client.log(limit=10_000, before=before, after=after)
        found += part.transactions
        if not part.more:
            return found[::-1]
        before = part.transactions[-1].seq


def held(place: Workplace) -> dict[str, bytes]:
    """Return every file by path, without replaced files, which are removed after the reply."""
    files = place.files().items()
    return {path: content for path, content in files if not Path(path).name.startswith(".editd-")}


def versions(files: dict[str, bytes]) -> dict[str, Version]:
    return {path: version_of(content) for path, content in files.items()}


def replayed(made: Iterable[Transaction], start: dict[str, Version]) -> dict[str, Version]:
    """Return the files after these transactions. Each must start from the result of the earlier ones."""
    held = dict(start)
    for transaction in made:
        for change in transaction.files:
            source = (
                change.path if change.from_ is None or not isinstance(change.from_, str) else change.from_
            )
            assert held.get(source) == change.base, (transaction.seq, change)
            held.pop(source, None)
            if change.version is not None:
                held[change.path] = Version(change.version)
    return held


def check_short_life(place: Workplace, look: Callable[[Client], None]) -> None:
    """Edit, undo and write from outside, kill the daemon, and check that the next one has it all.

    `look` is called just before the kill. The next daemon runs at the end.
    """
    place.write({"a": "one\n", "gone": "x\n", "old": "moves\n"})
    with place.start() as client:
        client.settle()
        client.apply([replace("a", "one", "two"), write("new/b", "b\n"), write("gone", "y\n")])
        client.apply([replace("a", "two", "three")])
        client.undo(1, paths=["gone"])
        place.write({"a": "four\n"})
        client.settle()
        assert client.read("a").content == "four\n"
        look(client)
    place.kill()
    with place.start() as client:
        client.settle()
        assert client.check().problems == []
        assert place.files() == {"a": b"four\n", "gone": b"x\n", "new/b": b"b\n", "old": b"moves\n"}


def strays(root: Path) -> list[str]:
    """Return the daemon's temporary files in the workspace."""
    return sorted(str(path.relative_to(root)) for path in root.rglob(".editd-*"))


def fsck(place: Workplace) -> None:
    """Run `git fsck` on the store. Raises CalledProcessError with its findings."""
    subprocess.run(
        ["git", "--git-dir", str(place.store), "fsck", "--strict", "--no-dangling", "--no-progress"],
        env=place.environment,
        check=True,
        stderr=subprocess.STDOUT,
    )


def history_files(place: Workplace) -> dict[str, bytes]:
    """Return every file of the journal and the store with its bytes, without spare segments."""
    found: dict[str, bytes] = {}
    for name in ("journal", "store.git"):
        for path in (place.state / name).rglob("*"):
            if path.is_file() and path.suffix != ".new":
                found[str(path.relative_to(place.state))] = path.read_bytes()
    return found


def in_the_long_form(value: object) -> ParameterSet:
    """Mark a parameter of a test for the long form only."""
    return pytest.param(value, marks=pytest.mark.long)
