"""File systems that take two spellings for one name: exFAT as it is, and a folder as APFS would show it.

Run as a program, `folding_filesystem.py BACKING MOUNT [nocase]`, it shows the folder BACKING at MOUNT as
APFS would: names keep their spelling, and are found in any case and any Unicode form. With `nocase`, in any
form only. This is from documentation: nobody has compared it with a Mac.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import subprocess
import sys
import time
import unicodedata
from ctypes.util import find_library
from typing import TYPE_CHECKING, Any

from machine import mounted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOUNT_SECONDS_MAX = 20.0
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
STAT = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
STATFS = (
    "f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize",
    "f_namemax",
)  # fmt: skip


def missing(kind: str) -> str | None:
    """Why a file system of this kind cannot be mounted here; None where it can."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return "only root may mount, and /dev/fuse is needed"
    if kind == "exfat":
        needed = [
            tool for tool in ("mkfs.exfat", "mount.exfat-fuse", "losetup") if shutil.which(tool) is None
        ]
        return f"{needed[0]} is not installed" if needed else None
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        return f"mfusepy: {error}"
    return None


@contextlib.contextmanager
def folding(kind: str, where: Path, aside: Path) -> Iterator[None]:
    """A file system that folds names at `where`: `exfat`, `apfs`, or `form`, which tells cases apart.

    What it is made of lies in the folder `aside`.
    """
    where.mkdir(exist_ok=True)
    if kind == "exfat":
        image = aside / "exfat"
        with image.open("wb") as file:
            file.truncate(40 * 1024 * 1024)
        subprocess.run(["mkfs.exfat", str(image)], check=True, capture_output=True)
        with mounted(image, where, kind="exfat-fuse", options="loop,fmask=0133,dmask=0022"):
            yield
        return
    backing = aside / "backing"
    backing.mkdir()
    argv = [sys.executable, __file__, str(backing), str(where)]
    device = where.stat().st_dev
    with subprocess.Popen([*argv, *(["nocase"] if kind == "form" else [])]) as server:
        try:
            until = time.monotonic() + MOUNT_SECONDS_MAX
            while where.stat().st_dev == device:
                assert server.poll() is None, "it has ended"
                assert time.monotonic() < until, "it is not mounted"
                time.sleep(0.01)
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(where)], check=False)
            server.terminate()


def serve(backing: str, where: str, *, folds_case: bool) -> None:
    """Show `backing` at `where` until it is unmounted."""
    if library := find_library("fuse3"):  # libfuse 2 has no exchange
        os.environ.setdefault("FUSE_LIBRARY_PATH", library)
    import mfusepy

    libc = ctypes.CDLL(None, use_errno=True)

    def key(name: str) -> str:
        form = unicodedata.normalize("NFD", name)
        return unicodedata.normalize("NFD", form.casefold()) if folds_case else form

    def told(call: Any) -> Any:
        def tell(*arguments: Any, **named: Any) -> Any:
            try:
                return call(*arguments, **named)
            except OSError as error:
                raise mfusepy.FuseOSError(error.errno) from None

        return tell

    def rename3(self: Any, old: bytes, new: bytes, flags: int) -> Any:
        return self.operations.rename(os.fsdecode(old), os.fsdecode(new), flags)

    mfusepy.FUSE.rename_fuse_3 = rename3

    class Folding(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def real(self, path: str) -> str:
            here = backing
            for name in filter(None, path.split("/")):
                exact = os.path.join(here, name)
                if not os.path.lexists(exact):
                    with contextlib.suppress(OSError):
                        spelled = {key(other): other for other in os.listdir(here)}
                        exact = os.path.join(here, spelled.get(key(name), name))
                here = exact
            return here

        @told
        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            found = os.fstat(fh) if fh else os.lstat(self.real(path))
            times = {f"st_{one}time": getattr(found, f"st_{one}time_ns") for one in "amc"}
            return {name: getattr(found, name) for name in STAT} | times

        @told
        def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
            here = self.real(path)  # a name whose inode is 0 is passed over
            inodes = {name: os.lstat(os.path.join(here, name)).st_ino for name in os.listdir(here)}
            return [(name, {"st_ino": inode}, 0) for name, inode in ({".": 1, "..": 1} | inodes).items()]

        @told
        def rename(self, old: str, new: str, flags: int = 0) -> None:
            source, target = self.real(old), self.real(new)
            exact = os.path.join(os.path.dirname(target), os.path.basename(new))
            if flags & RENAME_EXCHANGE:
                if libc.renameat2(-100, os.fsencode(source), -100, os.fsencode(target), RENAME_EXCHANGE):
                    raise OSError(ctypes.get_errno(), "")
                return
            if source == target:
                target = exact  # only the spelling changes
            elif flags & RENAME_NOREPLACE and os.path.lexists(target):
                raise OSError(errno.EEXIST, "")
            os.rename(source, target)

        @told
        def open(self, path: str, flags: int) -> int:
            return os.open(self.real(path), flags & ~os.O_APPEND)

        @told
        def create(self, path: str, mode: int, fi: Any = None) -> int:
            return os.open(self.real(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

        @told
        def truncate(self, path: str, length: int, fh: int | None = None) -> None:
            os.truncate(fh or self.real(path), length)

        @told
        def statfs(self, path: str) -> dict[str, int]:
            found = os.statvfs(backing)
            return {name: getattr(found, name) for name in STATFS}

        @told
        def utimens(self, path: str, times: Any = None) -> None:
            os.utime(self.real(path), ns=times, follow_symlinks=False)

        @told
        def chown(self, path: str, uid: int, gid: int) -> None:
            os.chown(self.real(path), uid, gid, follow_symlinks=False)

        mkdir = told(lambda self, path, mode: os.mkdir(self.real(path), mode))
        rmdir = told(lambda self, path: os.rmdir(self.real(path)))
        unlink = told(lambda self, path: os.unlink(self.real(path)))
        readlink = told(lambda self, path: os.readlink(self.real(path)))
        symlink = told(lambda self, target, source: os.symlink(source, self.real(target)))
        link = told(lambda self, target, source: os.link(self.real(source), self.real(target)))
        chmod = told(lambda self, path, mode: os.chmod(self.real(path), mode))
        read = told(lambda self, path, size, offset, fh: os.pread(fh, size, offset))
        write = told(lambda self, path, data, offset, fh: os.pwrite(fh, data, offset))
        flush = told(lambda self, path, fh: 0)
        release = told(lambda self, path, fh: os.close(fh))
        fsync = told(lambda self, path, datasync, fh: os.fsync(fh))
        listxattr = getxattr = setxattr = removexattr = None  # pyright: ignore[reportAssignmentType]

    mfusepy.FUSE(
        Folding(), where, foreground=True, nothreads=True, use_ino=True, allow_other=True,
        entry_timeout=0, attr_timeout=0, negative_timeout=0, default_permissions=True,
    )  # fmt: skip


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], folds_case="nocase" not in sys.argv[3:])
