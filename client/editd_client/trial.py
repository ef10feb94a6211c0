"""A command run on the workspace as a proposal would leave it. Nothing of it reaches the workspace.

Two ways, the first one that works here:

    overlay  the command sees an overlay over the workspace, in namespaces of its own (Linux 5.11, without any
             privilege). What it writes stays in a scratch folder
    copy     it runs in a copy of the files that git does not ignore, with shared blocks where the file
             system has them (FICLONE)

`python -m editd_client.trial` is the process that enters the overlay and becomes the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from io import BufferedReader

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000  # sched.h
MS_REC, MS_PRIVATE = 0x4000, 0x40000  # sys/mount.h
FICLONE = 0x40049409  # linux/fs.h
COPY_BYTES_MAX = 4 * 1024**3
OUTPUT_CHARACTERS_MAX = 4_000  # of the end of a command's output
PIECE_BYTES = 64 * 1024
NOT_FOUND, NOT_RUN, SIGNALLED = 127, 126, 128  # the exit codes of a shell


@dataclass(frozen=True, slots=True)
class TrialFile:
    """A file as the proposal would leave it; `content` None means that it is gone."""

    path: str
    content: bytes | None
    mode: str | None = None  # as git has it: 100644, 100755, 120000


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a command: its exit status as in a shell, and the end of its output."""

    exit: int
    seconds: float
    output: str
    way: Literal["overlay", "copy"]


class _NoOverlay(Exception):
    """This system has no overlay for an unprivileged user."""


class TooMuchToCopy(Exception):
    """The workspace's files are larger than COPY_BYTES_MAX."""


def run_trial(root: str, files: Sequence[TrialFile], command: Sequence[str]) -> Trial:
    """Run `command` in the workspace at `root` with `files` in it; its output is shown as it comes.

    It runs in the present folder if that is in the workspace, otherwise in `root`. Raises OSError, and
    TooMuchToCopy where only a copy is possible and the files are too large for one.
    """
    here = os.path.realpath(os.getcwd())
    folder = here if _is_below(here, root) else root
    with tempfile.TemporaryDirectory(prefix="editd-try-") as scratch:
        plan = os.path.join(scratch, "plan")
        _write_plan(plan, files)
        began = time.monotonic()
        ready, told = os.pipe()
        argv = [sys.executable, "-m", "editd_client.trial", str(told), scratch, root, folder, *command]
        with contextlib.suppress(_NoOverlay):
            status, output = _run(argv, None, (ready, told))
            return Trial(status, time.monotonic() - began, output, "overlay")
        copied = os.path.join(scratch, "copy")
        copy_workspace(root, copied, files)
        began = time.monotonic()
        status, output = _run(command, os.path.join(copied, os.path.relpath(folder, root)))
        return Trial(status, time.monotonic() - began, output, "copy")


def copy_workspace(root: str, to: str, files: Iterable[TrialFile]) -> None:
    """Make the folder `to`, with the files that git does not ignore and the changes of `files`.

    Raises FileExistsError if `to` has anything in it, OSError, and TooMuchToCopy.
    """
    os.makedirs(to, exist_ok=True)
    if os.listdir(to):
        raise FileExistsError(f"{to} is not empty")
    total = 0
    for name in _names(root):
        source, target = os.path.join(root, name), os.path.join(to, name)
        with contextlib.suppress(FileNotFoundError):  # it has gone meanwhile
            total += os.lstat(source).st_size
            if total > COPY_BYTES_MAX:
                raise TooMuchToCopy
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _copy(source, target)
    write_files(to, files)


def write_files(root: str, files: Iterable[TrialFile]) -> None:
    """Bring the files below `root` to their proposed state. Raises OSError."""
    for file in files:
        path = os.path.join(root, file.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if file.content is None:
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if file.mode == "120000":
            os.symlink(file.content, os.fsencode(path))
            continue
        with open(path, "xb") as made:
            made.write(file.content)
        os.chmod(path, 0o755 if file.mode == "100755" else 0o644)


def _run(argv: Sequence[str], folder: str | None, entry: tuple[int, int] | None = None) -> tuple[int, str]:
    """Run a program, show its output, and return its exit status and the end of the output.

    `entry` has the two ends of a pipe into which the program writes a byte once it is in the overlay. Both
    are closed. Raises _NoOverlay if it ends without that.
    """
    try:
        child = subprocess.Popen(
            argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=() if entry is None else entry[1:],
        )  # fmt: skip
    except FileNotFoundError:
        return NOT_FOUND, f"{argv[0]}: not found\n"
    except PermissionError as error:
        return NOT_RUN, f"{argv[0]}: {error.strerror}\n"
    with child:
        if entry is not None and not _has_entered(*entry):
            raise _NoOverlay
        output = cast("BufferedReader", child.stdout)
        last = b""
        while piece := output.read1(PIECE_BYTES):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            last = (last + piece)[-4 * OUTPUT_CHARACTERS_MAX :]  # UTF-8 takes 4 bytes at most
        status = child.wait()
    text = last.decode("utf-8", "replace")[-OUTPUT_CHARACTERS_MAX:]
    return (status if status >= 0 else SIGNALLED - status), text


def _has_entered(ready: int, told: int) -> bool:
    os.close(told)
    is_entered = bool(os.read(ready, 1))
    os.close(ready)
    return is_entered


def _names(root: str) -> Iterator[str]:
    """Yield the paths of the files in the workspace that git does not ignore."""
    git = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):  # no git, or no repository: all files
        for folder, _, names in os.walk(root):
            yield from (os.path.relpath(os.path.join(folder, name), root) for name in names)
        return
    yield from dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if name)


def _copy(source: str, target: str) -> None:
    """Copy one file with its mode, or a symlink; share its blocks where the file system can."""
    if os.path.islink(source) or not os.path.isfile(source):
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        return
    with open(source, "rb") as old, open(target, "xb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 1024 * 1024)
    shutil.copymode(source, target)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


# The plan: the files on their way to the process in the overlay.


def _write_plan(folder: str, files: Sequence[TrialFile]) -> None:
    os.mkdir(folder)
    for number, file in enumerate(files):
        if file.content is not None:
            with open(os.path.join(folder, str(number)), "xb") as made:
                made.write(file.content)
    entries = [[file.path, file.mode, file.content is not None] for file in files]
    with open(os.path.join(folder, "files.json"), "x", encoding="utf-8", errors="surrogateescape") as made:
        json.dump(entries, made)


def _read_plan(folder: str) -> Iterator[TrialFile]:
    with open(os.path.join(folder, "files.json"), encoding="utf-8", errors="surrogateescape") as file:
        entries = json.load(file)
    for number, (path, mode, has_content) in enumerate(entries):
        content = None
        if has_content:
            with open(os.path.join(folder, str(number)), "rb") as kept:
                content = kept.read()
        yield TrialFile(path, content, mode)


# In the process of the command.


def _enter_overlay(root: str, scratch: str) -> None:
    """Mount an overlay over `root` that only this process and its children see. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    _unshare(libc, CLONE_NEWUSER | CLONE_NEWNS, f"0 {user} 1", f"0 {group} 1")
    _mount(libc, None, "/", None, MS_REC | MS_PRIVATE, None)
    upper, work = (os.path.join(scratch, name) for name in ("upper", "work"))
    os.mkdir(upper, os.stat(root).st_mode & 0o777)
    os.mkdir(work)
    options = f"lowerdir={_escaped(root)},upperdir={_escaped(upper)},workdir={_escaped(work)},userxattr"
    _mount(libc, "overlay", root, "overlay", 0, options)
    os.chdir(root)
    write_files(root, _read_plan(os.path.join(scratch, "plan")))
    _unshare(libc, CLONE_NEWUSER, f"{user} 0 1", f"{group} 0 1")  # it keeps its own user id


def _unshare(libc: ctypes.CDLL, flags: int, users: str, groups: str) -> None:
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
    maps: Mapping[str, str] = {"setgroups": "deny", "uid_map": users, "gid_map": groups}
    for name, text in maps.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _mount(
    libc: ctypes.CDLL, source: str | None, target: str, kind: str | None, flags: int, options: str | None
) -> None:
    arguments = (None if text is None else os.fsencode(text) for text in (source, target, kind))
    data = None if options is None else os.fsencode(options)
    if libc.mount(*arguments, ctypes.c_ulong(flags), data):
        raise OSError(ctypes.get_errno(), "mount")


def _escaped(path: str) -> str:
    """Return a path as the options of an overlay take it."""
    for character in "\\:,":
        path = path.replace(character, "\\" + character)
    return path


def _become(told: str, scratch: str, root: str, folder: str, *command: str) -> int:
    try:
        _enter_overlay(root, scratch)
        os.chdir(folder)
    except OSError:
        return NOT_RUN
    os.write(int(told), b".")
    os.close(int(told))
    try:
        os.execvp(command[0], command)  # noqa: S606  # it becomes the user's command
    except FileNotFoundError:
        status, why = NOT_FOUND, "not found"
    except OSError as error:
        status, why = NOT_RUN, error.strerror or str(error)
    sys.stderr.write(f"{command[0]}: {why}\n")
    return status


if __name__ == "__main__":
    sys.exit(_become(*sys.argv[1:]))
