"""The fake disk answers as a real one: the same calls give the same results and errors in a real folder."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from editd.system import filesystem
from simulation.calls import Calls, in_force
from simulation.disk import FakeDisk
from simulation.mirror import Mirror
from support.seeds import drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUNS, RUNS_LONG = 60, 2000
STEPS = 60
NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "missing/a")
FLAGS = (
    os.O_RDONLY,
    os.O_RDWR,
    os.O_WRONLY | os.O_CREAT,
    os.O_RDWR | os.O_CREAT | os.O_EXCL,
    os.O_RDWR | os.O_TRUNC,
    os.O_RDONLY | os.O_NOFOLLOW,
    os.O_RDONLY | os.O_DIRECTORY,
    os.O_RDWR | os.O_CREAT | os.O_APPEND,
)

pytestmark = [pytest.mark.needs("exchange"), pytest.mark.needs("leases"), pytest.mark.needs("openat2")]


class Run:
    """One sequence of calls in one folder, and what they returned."""

    def __init__(self, top: str, seed: int) -> None:
        self.top, self.chance = top, Random(seed)
        self.descriptors: list[int] = []
        self.answers: list[object] = []

    def go(self) -> None:
        verbs = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("do_")]
        for _ in range(STEPS):
            verb = self.chance.choice(verbs)
            try:
                answer = verb()
            except OSError as error:
                answer = errno.errorcode[error.errno or 0]
            self.answers.append((verb.__name__, answer))
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.answers.append(sorted(self.tree(), key=str))

    def path(self) -> str:
        return f"{self.top}/{self.chance.choice(NAMES)}"

    def descriptor(self) -> int:
        if not self.descriptors:
            raise OSError(errno.EBADF, "none is open")
        return self.chance.choice(self.descriptors)

    def file(self) -> int:
        descriptor = self.descriptor()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "a folder")
        return descriptor

    def tree(self, above: str = "") -> Iterator[object]:
        """Yield all that is in the folder."""
        for name in os.listdir(f"{self.top}/{above}"):
            path = f"{above}{name}"
            status = os.lstat(f"{self.top}/{path}")
            if stat.S_ISDIR(status.st_mode):
                yield path, "folder", ""
                yield from self.tree(path + "/")
            elif stat.S_ISLNK(status.st_mode):
                yield path, "link", os.readlink(f"{self.top}/{path}")
            else:
                with open(f"{self.top}/{path}", "rb") as file:
                    yield path, f"{stat.S_IMODE(status.st_mode):o} {status.st_nlink}", file.read().hex()

    # ── calls ──

    def end_leases(self) -> None:
        """End all leases before an open by name: the daemon opens no file of its own leases.

        The kernel would let that open wait for 45 seconds, for the end of the lease.
        """
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):  # a folder, or opened by its name alone
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    def do_open(self) -> str:
        self.end_leases()
        self.descriptors.append(os.open(self.path(), self.chance.choice(FLAGS), 0o644))
        return "open"

    def do_close(self) -> None:
        descriptor = self.descriptor()
        self.descriptors.remove(descriptor)
        os.close(descriptor)

    def do_dup(self) -> None:
        self.descriptors.append(os.dup(self.descriptor()))

    def do_write(self) -> int:
        return os.write(self.file(), self.chance.randbytes(self.chance.randint(1, 9)))

    def do_write_at(self) -> int:
        return os.pwrite(self.file(), b"at", self.chance.randint(0, 12))

    def do_write_synced(self) -> int:
        return os.pwritev(self.file(), [b"one", b"two"], self.chance.randint(0, 5), os.RWF_DSYNC)

    def do_read(self) -> bytes:
        return os.read(self.file(), self.chance.randint(0, 9))

    def do_read_at(self) -> bytes:
        return os.pread(self.file(), 5, self.chance.randint(0, 9))

    def do_seek(self) -> int:
        return os.lseek(self.file(), 0, self.chance.choice((os.SEEK_SET, os.SEEK_CUR, os.SEEK_END)))

    def do_cut(self) -> None:
        os.ftruncate(self.file(), self.chance.randint(0, 9))

    def do_sync(self) -> None:
        os.fsync(self.descriptor())

    def do_status(self) -> object:
        status = os.stat(self.path(), follow_symlinks=self.chance.random() < 0.5)
        size = status.st_size if not stat.S_ISDIR(status.st_mode) else 0
        return f"{status.st_mode:o}", size, status.st_nlink if not stat.S_ISDIR(status.st_mode) else 0

    def do_names(self) -> list[str]:
        return sorted(os.listdir(self.path()))

    def do_scan(self) -> list[tuple[str, bool, bool]]:
        with os.scandir(self.path()) as entries:
            return sorted(
                (entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False)) for entry in entries
            )

    def do_make_folder(self) -> None:
        os.mkdir(self.path())

    def do_remove_folder(self) -> None:
        os.rmdir(self.path())

    def do_remove(self) -> None:
        os.unlink(self.path())

    def do_rename(self) -> None:
        os.rename(self.path(), self.path())

    def do_link(self) -> None:
        os.link(self.path(), self.path(), follow_symlinks=False)

    def do_symlink(self) -> None:
        os.symlink(self.chance.choice(("a", "d", "missing", "d/a")), self.path())

    def do_readlink(self) -> str:
        return os.readlink(self.path())

    def do_permissions(self) -> None:
        os.chmod(self.file(), self.chance.choice((0o600, 0o755, 0o644)))

    def do_exchange(self) -> None:
        self.rename_by(2)

    def do_move(self) -> None:
        self.rename_by(1)

    def rename_by(self, flags: int) -> None:
        source, name = self.folder()
        try:
            target, other = self.folder()
            try:
                done = filesystem._renameat2(source, name, target, other, flags)  # type: ignore[misc]
                if done:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(target)
        finally:
            os.close(source)

    def folder(self) -> tuple[int, bytes]:
        """Open the folder of a path, and return it with the last name."""
        above, _, name = self.path().rpartition("/")
        return os.open(above, os.O_PATH | os.O_DIRECTORY), name.encode()

    def do_open_below(self) -> None:
        self.end_leases()
        top = os.open(self.top, os.O_PATH | os.O_DIRECTORY)
        try:
            path = self.chance.choice(NAMES).encode()
            call, how = filesystem._syscall, filesystem._HOW
            opened = call(filesystem._SYS_OPENAT2, top, path, how, len(how))  # type: ignore[misc]
            if opened < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            os.close(opened)
        finally:
            os.close(top)

    def do_lease(self) -> object:
        descriptor = self.file()
        kind = self.chance.choice((fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK))
        return fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)

    def do_has_lease(self) -> object:
        return fcntl.fcntl(self.file(), fcntl.F_GETLEASE)


def on_the_fake_disk(folder: str, run: Callable[[str], None]) -> None:
    disk = FakeDisk()
    disk.make_folder(disk.root, b"top", 0o755)
    disk.umask = os.umask(0o022)
    os.umask(disk.umask)
    with in_force(Calls(disk, folder, lambda _name: None, Mirror())):
        run(f"{folder}/top")


@pytest.mark.timeout(600)
def test_the_fake_disk_answers_each_call_as_the_real_one(tmp_path: Path, is_long: bool) -> None:
    for seed in range(RUNS_LONG) if is_long else drawn(RUNS_LONG, RUNS):
        real, fake = Run(f"{tmp_path}/real-{seed}", seed), Run("", seed)
        Path(real.top).mkdir()
        real.go()

        def play(top: str, fake: Run = fake) -> None:
            fake.top = top
            fake.go()

        on_the_fake_disk(f"{tmp_path}/fake-{seed}", play)
        for at, (expected, answer) in enumerate(zip(real.answers, fake.answers, strict=True)):
            assert answer == expected, f"seed {seed}, call {at}"
