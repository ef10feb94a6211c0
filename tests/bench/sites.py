"""Workspaces of many files, each with a daemon of the Python build that is measured."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.saves import Connection, editing, fresh
from support.workplace import TOP, Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from editd_client.client import Client

TARGETS = 64  # files that are edited; the rest is only there
FILES_IN_A_FOLDER = 100
STOP_SECONDS = 180.0
WARM_EDITS = 30
PACK_SECONDS = 300.0
POLL_SECONDS = 0.005
DEPENDENCIES_CHECK = "import pygit2, msgpack, msgspec, quickjs, watchdog, tomlkit, platformdirs, click"
LIBRARIES = ("pygit2", "msgpack", "msgspec", "watchdog", "uvloop")


@dataclass
class Site:
    """A workspace of so many files. Its daemon runs from the first `client` or `connection` on."""

    files: int
    place: Workplace
    python: str
    paths: list[str]  # of the files to edit
    transactions: int = 0  # made by `histories`
    memory_bytes: int = 0  # of the daemon that made them
    _client: Client | None = None

    @property
    def root(self) -> Path:
        return self.place.root

    @property
    def pid(self) -> int:
        assert self.place.process is not None
        return self.place.process.pid

    @property
    def client(self) -> Client:
        """A client of the daemon, which is started if it does not run."""
        if self._client is None:
            process = self.place.process
            is_running = process is not None and process.poll() is None
            self._client = self.place.client() if is_running else self.place.start()
            self._client.settle(timeout=600)
        return self._client

    def connection(self) -> Connection:
        """Return a connection to the daemon, which is started and warm."""
        is_new = self._client is None
        _ = self.client
        connection = Connection(self.place.socket)
        if is_new:
            edit = editing(connection, self.paths)
            for _ in range(WARM_EDITS):
                edit()()
        return connection

    def launch(self) -> None:
        """Start the daemon without a wait."""
        assert self._client is None
        with open(os.devnull, "wb") as nobody:
            argv = [self.python, "-m", "editd", "-C", str(self.root), "--ready-fd", str(nobody.fileno())]
            environment = self.place.environment
            self.place.process = subprocess.Popen(argv, env=environment, pass_fds=[nobody.fileno()])

    def reached(self) -> Connection:
        """Return a connection to a daemon that was launched, as soon as it listens."""
        until = time.monotonic() + STOP_SECONDS
        while True:
            try:
                return Connection(self.place.socket)
            except OSError:
                assert time.monotonic() < until, self.place.log()
                time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End the daemon cleanly."""
        if self._client is not None:
            self._client.close()
            self._client = None
        process = self.place.process
        if process is not None and process.poll() is None:
            process.terminate()
            status = process.wait(STOP_SECONDS)
            assert status == 0, f"status {status}\n{self.place.log()}"

    def forget(self) -> None:
        """End the daemon, and remove its history."""
        self.stop()
        shutil.rmtree(self.place.state, ignore_errors=True)

    def wait_until_packed(self) -> None:
        until = time.monotonic() + PACK_SECONDS
        while self.client.status().journal["unpacked"]:
            assert time.monotonic() < until, "the history is not packed"
            time.sleep(0.1)


@dataclass
class Bench:
    """The form of the run, its build of Python, and its workspaces, which the measurements share."""

    python: str
    is_full: bool
    repository: Path = TOP  # its commits are replayed
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _sites: dict[str, Site] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def pick(self, short: int, full: int) -> int:
        return full if self.is_full else short

    @property
    def base(self) -> Site:
        """The workspace of most measurements."""
        return self.site(self.pick(1_000, 10_000))

    def sizes(self, *full: int) -> Sequence[int]:
        """Return the numbers of files: `full`, or a small one."""
        return full if self.is_full else (self.base.files,)

    def site(self, files: int, *, is_portable: bool = False) -> Site:
        """Return the workspace with so many files, in git. It is made when it is first used.

        `is_portable` is for one whose daemon uses nothing beyond POSIX.
        """
        name = f"{files} files{', portable' if is_portable else ''}"
        if name not in self._sites:
            site = self.empty(name)
            if is_portable:
                site.place.make_portable()
            fill(site.root, files)
            site.files, site.paths = files, targets(site.root)
            (site.root / ".git/info").mkdir(parents=True)
            (site.root / ".git/info/exclude").write_text("*.raw*\n")
            for arguments in (["init"], ["config", "gc.auto", "0"], ["add", "-A"], ["commit", "-m", "all"]):
                site.place.git(*arguments)
            for path in site.paths:  # beside the target: the same folder, the same cost
                (site.root / f"{path}.raw").write_bytes(fresh())
        return self._sites[name]

    def empty(self, name: str) -> Site:
        """Return the workspace of that name, without files when it is new."""
        if name not in self._sites:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="editd-bench-"))
            place = self._stack.enter_context(workplace(Path(folder) / "place"))
            place.is_forked, place.python, place.segment_bytes = False, self.python, None
            self._sites[name] = Site(0, place, self.python, [])
        return self._sites[name]

    def drop(self, name: str) -> None:
        """End the daemon of a workspace that no other measurement uses."""
        self._sites.pop(name).stop()


def fill(root: Path, files: int) -> None:
    """Make folders of a hundred files, two deep. The targets have 10 KB, the rest half a KB."""
    spread = max(1, files // TARGETS)
    for number in range(files):
        above, below = divmod(number // FILES_IN_A_FOLDER, 100)
        folder = f"{root}/d{above:02}/d{below:02}"
        if number % FILES_IN_A_FOLDER == 0:
            os.makedirs(folder)
        is_target = number % spread == 0 and number // spread < TARGETS
        content = fresh() if is_target else b"%d\n" % number * 50
        name = f"target{number // spread}" if is_target else f"f{number}"
        with open(f"{folder}/{name}", "wb") as file:
            file.write(content)


def targets(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.glob("d*/*/target*") if path.suffix != ".raw")


def interpreter(path: str, folder: Path) -> str:
    """Return an interpreter of that build with the daemon's dependencies, in a new environment if need be."""
    asked = subprocess.run([path, "-c", DEPENDENCIES_CHECK], capture_output=True, check=False)
    if asked.returncode == 0:
        return path
    dependencies = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["dependencies"]
    made = tempfile.mkdtemp(prefix="python-", dir=folder)
    subprocess.run([path, "-m", "venv", made], check=True)
    python = f"{made}/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", *dependencies]
    subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    return python


DESCRIBE = f"""
import platform, sys
from importlib.metadata import PackageNotFoundError, version
print(f"Python {{platform.python_version()}} of {{sys.base_prefix}}")
found = []
for name in {LIBRARIES!r}:
    try:
        found.append(name + " " + version(name))
    except PackageNotFoundError:
        continue
print(", ".join(found))
"""


def described(python: str) -> tuple[str, str]:
    """Return the build of an interpreter, and the versions of its libraries."""
    lines = subprocess.run([python, "-c", DESCRIBE], capture_output=True, text=True, check=True).stdout
    build, versions = lines.splitlines()
    return build, versions
