"""What the torture tests share: a daemon's children, the whole history, and what must always agree."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.values.content import Version, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _pytest.mark.structures import ParameterSet

    from editd.wire.messages import Transaction
    from editd_client.client import Client
    from workplace import Workplace

POLL_SECONDS = 0.01
PATIENCE_SECONDS = 30.0  # for what takes milliseconds on a machine with nothing else to do


def in_company(seconds: float) -> float:
    """A bound of time that holds where one test runs alone, as it is where others run beside it."""
    others = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return seconds * (1 if others == 1 else 1 + 2 * others / (os.cpu_count() or 1))


def own_time() -> float:
    """Seconds of the clock, without those in which this thread could run and another had the machine.

    Or another machine had the processor, where this is a virtual one: of that, its share (proc(5), steal).
    What the kernel does not count stays in.
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
    """Return as soon as it is so; fail where it is not within `PATIENCE_SECONDS`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(POLL_SECONDS)


def child(place: Workplace, module: str) -> int | None:
    """The pid of the daemon's child that runs `module`."""
    assert place.process is not None
    daemon = place.process.pid
    for pid in Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split():
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except FileNotFoundError:
            continue
        if module.encode() in argv:
            return int(pid)
    return None


def packer(place: Workplace) -> int:
    """The packing process, once there is one."""
    wait_until(lambda: child(place, "editd.store.pack_worker"), "no packing process")
    found = child(place, "editd.store.pack_worker")
    assert found is not None
    return found


def surveyor(place: Workplace) -> int:
    """The surveying process, once there is one."""
    wait_until(lambda: child(place, "editd.engine.scan_worker"), "no surveying process")
    found = child(place, "editd.engine.scan_worker")
    assert found is not None
    return found


def kill_child(place: Workplace, pid: int) -> None:
    """SIGKILL a child of the daemon, and wait until the daemon has taken note of its end."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon has not reaped its child")


def transactions(client: Client, after: int = 0) -> list[Transaction]:
    """All transactions after `after`, oldest first."""
    found: list[Transaction] = []
    before: int | None = None
    while True:
        part = client.log(limit=10_000, before=before, after=after)
        found += part.transactions
        if not part.more:
            return found[::-1]
        before = part.transactions[-1].seq


def held(place: Workplace) -> dict[str, bytes]:
    """Every file by its path. A reply goes out before what was replaced is removed: that does not count."""
    files = place.files().items()
    return {path: content for path, content in files if not Path(path).name.startswith(".editd-")}


def versions(files: dict[str, bytes]) -> dict[str, Version]:
    return {path: version_of(content) for path, content in files.items()}


def replayed(made: Iterable[Transaction], start: dict[str, Version]) -> dict[str, Version]:
    """What the files hold after these transactions, each of which must take over from the ones before."""
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


def strays(root: Path) -> list[str]:
    """Temporaries of the daemon's that lie in the workspace."""
    return sorted(str(path.relative_to(root)) for path in root.rglob(".editd-*"))


def fsck(place: Workplace) -> None:
    """Git itself finds nothing wrong in the store; raises CalledProcessError with what it finds."""
    subprocess.run(
        ["git", "--git-dir", str(place.store), "fsck", "--strict", "--no-dangling", "--no-progress"],
        env=place.environment,
        check=True,
        stderr=subprocess.STDOUT,
    )


def history_files(place: Workplace) -> dict[str, bytes]:
    """What the history is made of, journal and store, every file with its bytes; spare segments are not."""
    found: dict[str, bytes] = {}
    for name in ("journal", "store.git"):
        for path in (place.state / name).rglob("*"):
            if path.is_file() and path.suffix != ".new":
                found[str(path.relative_to(place.state))] = path.read_bytes()
    return found


def in_the_long_form(value: object) -> ParameterSet:
    """A parameter of a test that is tried in the long form only."""
    return pytest.param(value, marks=pytest.mark.long)
