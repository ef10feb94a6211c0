"""File systems unlike ext4, which only root can mount: layers, FUSE, and those that fold names.

Run as a program, `file_systems.py BACKING MOUNT KIND`, it shows the folder BACKING at MOUNT: names keep their
spelling, and are found in others.

- `apfs`: in any case and any Unicode form, as on macOS. `form`: in any form only.
- `casefold`: also with and without characters that are not shown, as on ext4 with that feature.

This is from documentation: nobody has compared it with a Mac, or with a kernel that has the feature.
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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOUNT_SECONDS_MAX = 20.0
IMAGE_BYTES = 60 * 1024 * 1024
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
STAT = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
STATFS = (
    "f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize",
    "f_namemax",
)  # fmt: skip
NOT_SHOWN = dict.fromkeys([0xAD, 0x200B, 0x200D, 0xFEFF])  # some of what a casefolded ext4 ignores
LAYERS = "lowerdir={aside}/lower,upperdir={aside}/upper,workdir={aside}/work"
COMMANDS: dict[str, list[str]] = {  # that mount a kind of file system, made of the folders in `aside`
    "overlay": [f"mount -t overlay overlay -o {LAYERS} {{where}}"],
    "overlay, volatile": [f"mount -t overlay overlay -o {LAYERS},volatile {{where}}"],
    "fuse-overlayfs": [f"fuse-overlayfs -o {LAYERS} {{where}}"],
    "bindfs": ["bindfs {aside}/upper {where}"],
    "mergerfs": ["mergerfs {aside}/upper:{aside}/lower {where}"],
    "gocryptfs": [
        "gocryptfs -q -init -scryptn 10 -extpass {aside}/password {aside}/upper",
        "gocryptfs -q -extpass {aside}/password {aside}/upper {where}",
    ],
    "ntfs-3g": ["mkntfs -F -Q {aside}/image", "ntfs-3g {aside}/image {where}"],
    "lowntfs-3g": ["mkntfs -F -Q {aside}/image", "lowntfs-3g {aside}/image {where} -o ignore_case"],
    "exfat": [
        "mkfs.exfat {aside}/image",
        "mount -t exfat-fuse -o loop,fmask=0133,dmask=0022 {aside}/image {where}",
    ],
}
TOOLS = {"exfat": ["mount.exfat-fuse", "losetup"]}  # beyond the first words of its commands


def missing(kind: str) -> str | None:
    """Why a file system of this kind cannot be mounted here; None where it can."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return "only root may mount, and /dev/fuse is needed"
    if kind in COMMANDS:
        tools = [command.split()[0] for command in COMMANDS[kind]] + TOOLS.get(kind, [])
        needed = [tool for tool in tools if shutil.which(tool) is None]
        return f"{needed[0]} is not installed" if needed else None
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        return f"mfusepy: {error}"
    return None


@contextlib.contextmanager
def mounted_kind(kind: str, where: Path, aside: Path) -> Iterator[None]:
    """A file system at `where`: a kind of `COMMANDS`, or one of this program's.

    What it is made of lies in the folder `aside`.
    """
    where.mkdir(exist_ok=True)
    device = where.stat().st_dev
    server: subprocess.Popen[bytes] | None = None
    with contextlib.ExitStack() as stack:
        if kind in COMMANDS:
            _prepare(aside)
            for command in COMMANDS[kind]:
                argv = command.format(aside=aside, where=where).split()
                subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        else:
            (aside / "backing").mkdir()
            argv = [sys.executable, __file__, str(aside / "backing"), str(where), kind]
            server = stack.enter_context(subprocess.Popen(argv))
            stack.callback(server.terminate)
        stack.callback(subprocess.run, ["umount", "--lazy", str(where)], check=False)
        until = time.monotonic() + MOUNT_SECONDS_MAX
        while where.stat().st_dev == device:
            assert server is None or server.poll() is None, "it has ended"
            assert time.monotonic() < until, "it is not mounted"
            time.sleep(0.01)
        yield


def _prepare(aside: Path) -> None:
    """Make the folders, the image and the password of `COMMANDS`."""
    for name in ("lower", "upper", "work"):
        (aside / name).mkdir()
    with (aside / "image").open("wb") as file:
        file.truncate(IMAGE_BYTES)
    (aside / "password").write_text("#!/bin/sh\necho secret\n")
    (aside / "password").chmod(0o700)


def serve(backing: str, where: str, kind: str) -> None:
    """Show `backing` at `where` until it is unmounted."""
    if library := find_library("fuse3"):  # libfuse 2 has no exchange
        os.environ.setdefault("FUSE_LIBRARY_PATH", library)
    import mfusepy

    libc = ctypes.CDLL(None, use_errno=True)

    def key(name: str) -> str:
        form = unicodedata.normalize("NFD", name.translate(NOT_SHOWN) if kind == "casefold" else name)
        return unicodedata.normalize("NFD", form.casefold()) if kind != "form" else form

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
        Folding(), where, foreground=True, nothreads=True, use_ino=True, allow_other=True, hard_remove=True,
        entry_timeout=0, attr_timeout=0, negative_timeout=0, default_permissions=True,
    )  # fmt: skip


if __name__ == "__main__":
    serve(*sys.argv[1:])
