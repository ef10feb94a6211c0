"""What every test may ask for."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from editd.system.native import NATIVE
from support.fork_server import WorkerPopen
from support.hosts import hosts
from support.report_text import pytest_report_to_serializable  # noqa: F401
from support.reviewers import author_of, reviewer_of, set_pin
from support.seeds import SEED, seed
from support.workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.hosts import Hosts


NEEDED = {  # what a test may need of Linux by `@pytest.mark.needs`, and whether this system has it
    "/proc": NATIVE.system == "linux",
    "attributes": NATIVE.lists_attributes is not None,
    "exchange": NATIVE.exchange_flag != 0,
    "inotify": NATIVE.has_inotify,
    "leases": NATIVE.has_leases,
    "openat2": NATIVE.openat2 is not None,
    "peer credentials": NATIVE.peer_credentials is not None,
    "syncfs": NATIVE.syncfs is not None,
    "synced writes": NATIVE.synced_write_flag != 0,
}
MEMORY, MEMORY_BYTES_MIN = Path("/dev/shm"), 2 << 30  # where the short form keeps its folders
DISK = "/var/tmp"  # where tests with `@pytest.mark.disk` keep theirs then


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the torture tests in their long form")
    parser.addoption(
        "--history", help="play this random history, or those of FIRST-LAST (tests/undo/test_oracle.py)"
    )


@pytest.hookimpl(tryfirst=True)  # before the plugin of Hypothesis takes its seed
def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # `pytest &` in a script: children would have it so
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("sample", max_examples=10, deadline=None)
    settings.register_profile("long", max_examples=1000, deadline=None)
    settings.load_profile("long" if config.getoption("--long") else "sample")
    if not config.getoption("--long"):
        keep_in_memory()
        if config.getoption("hypothesis_seed", None) is None:
            config.option.hypothesis_seed = str(seed())


def keep_in_memory() -> None:
    """Put the folders of tests in memory, unless TMPDIR names another place or memory lacks the room.

    The start of a daemon syncs 90 times, and all tests wait for one disk. SIGKILL loses nothing in memory
    that it would keep on a disk. A test of what memory does not do has `@pytest.mark.disk`.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    room = os.statvfs(MEMORY)
    if room.f_bavail * room.f_frsize >= MEMORY_BYTES_MIN:
        os.environ["TMPDIR"] = str(MEMORY)  # for the workers of pytest-xdist and the daemons, too
        tempfile.tempdir = None  # look again


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests of the long form, unless it is asked for, and those that need what the system lacks."""
    is_long = config.getoption("--long")
    for item in items:
        if not is_long and item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.skip(reason="of the long form: pytest --long"))
        for mark in item.iter_markers("needs"):
            if not NEEDED[mark.args[0]]:
                item.add_marker(pytest.mark.skip(reason=f"the {NATIVE.system} system has no {mark.args[0]}"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the seed, and keep the seconds that each file of tests took, for `python -m tests`."""
    if not config.getoption("--long"):
        terminalreporter.write_line(f"seed of the random tests: {SEED}={seed()}")
    cache: pytest.Cache | None = getattr(config, "cache", None)  # none with -p no:cacheprovider
    if cache is None or config.getoption("--long"):
        return
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                name = report.nodeid.partition("::")[0]
                seconds[name] = seconds.get(name, 0.0) + report.duration
    cache.set("editd/seconds", cache.get("editd/seconds", {}) | seconds)


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    """Was the long form asked for?"""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder for a test, on the disk if its mark says so."""
    if request.node.get_closest_marker("disk") is None or not tmp_path.is_relative_to(MEMORY):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="editd-test-", dir=DISK) as folder:
        yield Path(folder)


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers of editd that a test starts without a daemon."""
    monkeypatch.setattr(subprocess, "Popen", WorkerPopen)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    """An empty workspace; its daemon is not started yet."""
    with workplace(tmp_path / "place") as made:
        yield made


@pytest.fixture
def author(place: Workplace, request: pytest.FixtureRequest) -> Iterator[Client]:
    """An author of proposals, in a workspace with the module's `FILES`. The reviewers' PIN is set."""
    set_pin(place)
    with author_of(place, request.module.FILES) as made:
        yield made


@pytest.fixture
def reviewer(place: Workplace, author: Client) -> Iterator[Client]:
    """A reviewer who has given the PIN. The `author` has set it, and has started the daemon."""
    assert author.status().state == "ready"
    with reviewer_of(place) as made:
        yield made


@pytest.fixture(scope="module")
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts with the module's `FILES`, for all its tests. Each test has a file of its own."""
    with hosts(tmp_path_factory.mktemp("three"), 3, request.module.FILES) as started:
        yield started
