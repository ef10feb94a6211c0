"""A machine whose power can be cut: a workplace on a file system of its own, in a file.

The cut: all that runs is killed, and the file is copied while the file system is still mounted, so that the
copy has what was submitted to the disk by then, and nothing that was in memory only. The copy is mounted in
its place, which replays ext4's own journal, and the daemon is started on it under another boot id.

It does not show what a disk loses that lies about flushing, nor the writes of one flush in another order.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.crash_checks import wait_until
from support.workplace import Workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client

IMAGE_BYTES = 512 * 1024 * 1024  # sparse
COPIES_MAX = 20
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_ELSEWHERE = f'mount --bind "$1" {_BOOT_ID}; shift; exec "$@"'


@functools.cache
def missing() -> str | None:
    """Why no file system can be mounted here; None where it can."""
    if os.geteuid() != 0:
        return "only root may mount"
    for tool in ("mkfs.ext4", "mount", "umount", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    with tempfile.TemporaryDirectory(prefix="editd-machine-") as folder:
        try:
            with mounted(new_image(Path(folder)), Path(folder, "mounted")):
                return None
        except subprocess.CalledProcessError as error:
            return f"ext4 in a file cannot be mounted here: {error.stderr.decode().strip()}"


@contextlib.contextmanager
def mounted(what: Path | str, where: Path, *, options: str = "loop", kind: str = "ext4") -> Iterator[None]:
    """`what` mounted at `where` until the block ends. Raises CalledProcessError."""
    where.mkdir(exist_ok=True)
    _mount(what, where, "-t", kind, "-o", options)
    try:
        yield
    finally:
        _unmount(where)


@dataclass
class Machine:
    """A workplace on a disk that can lose its power."""

    place: Workplace
    _image: Path
    cuts: int = 0

    def start(self) -> Client:
        """Start the daemon and wait until it answers."""
        return self._begin(is_waited_for=True).client()

    def start_and_cut(self, seconds_max: float) -> None:
        """Begin to start the daemon, perhaps let it recover, and cut the power."""
        self._begin(is_waited_for=False)
        process = self.place.process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds_max)
        self.cut()

    def cut(self) -> None:
        """Cut the power, and switch it on again; the daemon is not started yet."""
        self._kill()
        after = self._image.with_name(f"disk-{self.cuts + 1}")
        self._copy_to(after)
        _unmount(self.place.folder)
        self._image.unlink()
        self._image = after
        self.cuts += 1
        _mount(after, self.place.folder, "-o", "loop")

    def end(self) -> None:
        """Stop the daemon, and prove that the file system is whole."""
        self.place.stop()
        _unmount(self.place.folder)
        _wait_for(self._image)
        _run("e2fsck", "-fn", str(self._image))
        _mount(self._image, self.place.folder, "-o", "loop")

    def _begin(self, *, is_waited_for: bool) -> Workplace:
        """The daemon in a namespace of its own, where the machine has another boot id after each cut."""
        place = self.place
        assert place.process is None or place.process.poll() is not None, "it runs already"
        boot = self._image.with_name("boot_id")
        boot.write_text(f"{uuid.UUID(int=self.cuts + 1)}\n")
        reading, writing = os.pipe()
        daemon = [sys.executable, "-m", "editd", "-C", str(place.root), "--ready-fd", str(writing)]
        argv = ["unshare", "--mount", "sh", "-euc", _ELSEWHERE, "sh", str(boot), *daemon]
        place.process = subprocess.Popen(argv, env=place.environment, pass_fds=[writing])
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.readline().strip() if is_waited_for else "ready"
        assert said == "ready", f"{said!r}\n{place.log()}"
        return place

    def _kill(self) -> None:
        """End all that runs on this machine, the daemon first."""
        process = self.place.process
        assert process is not None
        running = [process.pid, *_descendants(process.pid)] if process.poll() is None else []
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not any(map(_is_running, running)), "a child of the daemon is still there")

    def _copy_to(self, after: Path) -> None:
        """Copy the disk as it is at one moment: again, where something was written to it meanwhile."""
        for _ in range(COPIES_MAX):
            before = self._writes()
            _run("cp", "--sparse=always", str(self._image), str(after))
            if self._writes() == before:
                return
        raise AssertionError("the disk is never still")

    def _writes(self) -> list[str]:
        """The writes that the disk has completed, and what is under way to it."""
        number = os.stat(self.place.folder).st_dev
        counts = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()
        return [counts[4], counts[8]]


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """A machine with an empty workspace; its disk is in memory where there is room."""
    shared = Path("/dev/shm")
    above = shared if shared.is_dir() and shutil.disk_usage(shared).free > 4 * IMAGE_BYTES else None
    with tempfile.TemporaryDirectory(prefix="editd-disk-", dir=above) as disks:
        image = new_image(Path(disks))
        with tempfile.TemporaryDirectory(prefix="editd-run-") as runtime, mounted(image, folder):
            for name in ("workspace", "home", "config"):
                (folder / name).mkdir()
            made = Machine(Workplace(folder, Path(runtime)), image)
            try:
                yield made
            finally:
                made.place.end()


def new_image(folder: Path) -> Path:
    image = folder / "disk-0"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    _run("mkfs.ext4", "-q", "-F", str(image))
    return image


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _mount(what: Path | str, where: Path, *options: str) -> None:
    """Mount a file system, and not what is still there of it as it was mounted before."""
    _wait_for(what)
    _run("mount", *options, str(what), str(where))


def _wait_for(image: Path | str) -> None:
    """Return when nothing has it mounted: another test's `unshare --mount` keeps each mount until it ends."""
    wait_until(lambda: os.path.realpath(image) not in _in_loops(), f"{image} is still mounted somewhere")


def _in_loops() -> set[str]:
    """The files that are mounted."""
    found: set[str] = set()
    for behind in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it has just been let go
            found.add(behind.read_text().removesuffix("\n"))
    return found


def _unmount(where: Path) -> None:
    _run("umount", "--lazy", str(where))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
