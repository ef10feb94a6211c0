"""The workspace as a proposal would leave it, for one command. Nothing of it reaches the workspace.

Two ways, the first one that works here:

    overlay  the process sees an overlay over the workspace, in its own namespaces (Linux 5.11, without any
             privilege), and becomes the command. What it writes stays in a scratch folder
    copy     a copy of the files that git does not ignore, with shared blocks where the file system has them
             (FICLONE)

The daemon uses both for its checks (`engine.check_worker`). `python -m editd.workspace.trial_tree` is the
client's process for them. Its interface is a *plan*, a folder with the proposed files:
`files.json` has a list of `[path, mode, has_content]`, and the file `N` has the content of entry N.

    overlay TOLD HELD SCRATCH ROOT FOLDER COMMAND…   write a byte to descriptor TOLD once in the overlay;
                HELD is ROOT, open for reading, and is open in the caller as long as the overlay matters
    copy PLAN ROOT TO   exit with TOO_MUCH or NOT_EMPTY if it is refused
    ignored ROOT        read paths, each with a NUL, and write the ignored ones

Imports only `system.git_command` and `system.overlay_lock`, because a person waits for the start.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

from editd.system.git_command import GitFailed, GitMissing, run_git, work_tree_of
from editd.system.overlay_lock import lock_overlay

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000  # sched.h
MS_REC, MS_PRIVATE = 0x4000, 0x40000  # sys/mount.h
PR_SET_PDEATHSIG = 1  # linux/prctl.h
FICLONE = 0x40049409  # linux/fs.h
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1  # netdevice(7)
COPY_BYTES_MAX = 4 * 1024**3
NOT_FOUND, NOT_RUN = 127, 126  # the exit codes of a shell
TOO_MUCH, NOT_EMPTY = 3, 4  # the exit codes of a copy that is refused


class TrialFile(NamedTuple):
    """A file as the proposal would leave it; `content` None means that it is gone."""

    path: str
    content: bytes | None
    mode: str | None = None  # as git has it: 100644, 100755, 120000


class WorkspaceTooLarge(Exception):
    """The workspace's files are larger than COPY_BYTES_MAX."""


def remove_tree(folder: str) -> None:
    """Remove a scratch folder; an overlay leaves folders in it that even their owner may not enter."""
    for path, names, _ in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(path, name), 0o700, follow_symlinks=False)
    shutil.rmtree(folder, ignore_errors=True)


def enter_overlay(
    root: str, scratch: str, files: Iterable[TrialFile], held: int, *, has_network: bool = True
) -> None:
    """Mount an overlay over `root`, with `files` in it, that only this process and its children see.

    What is written there stays in the folder `scratch`. `held` is `root`, open for reading. While the caller
    keeps it open, the daemon reuses no replaced file. A command does not inherit it, because it leads past
    the overlay. Without a network, the process has the loopback of its own network. Raises OSError.
    """
    lock_overlay(held)
    os.set_inheritable(held, False)
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWUSER | CLONE_NEWNS | (0 if has_network else CLONE_NEWNET)
    _unshare(libc, flags, f"0 {user} 1", f"0 {group} 1")
    if not has_network:
        _raise_loopback()
    _mount(libc, None, "/", None, MS_REC | MS_PRIVATE, None)
    upper, work = (os.path.join(scratch, name) for name in ("upper", "work"))
    os.mkdir(upper, os.stat(root).st_mode & 0o777)
    os.mkdir(work)
    options = f"lowerdir={_escaped(root)},upperdir={_escaped(upper)},workdir={_escaped(work)},userxattr"
    _mount(libc, "overlay", root, "overlay", 0, options)
    os.chdir(root)
    write_files(root, files)
    _unshare(libc, CLONE_NEWUSER, f"{user} 0 1", f"{group} 0 1")  # it keeps its own user id


def leave_network() -> None:
    """Enter a new network, which has the loopback only. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):  # without the privilege for it, in a user namespace that keeps the ids
        _unshare(libc, CLONE_NEWUSER | CLONE_NEWNET, f"{user} {user} 1", f"{group} {group} 1")
    _raise_loopback()


def can_leave_network() -> bool:
    """Return whether this system lets a process have its own network. Call it with one thread."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            leave_network()
            status = 0
        finally:
            os._exit(status)  # also after an error: this is a copy of the whole process
    return os.waitpid(pid, 0)[1] == 0


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", answer)[1] | IFF_UP
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))


def copy_workspace(root: str, to: str, files: Iterable[TrialFile]) -> None:
    """Make the folder `to`, with the files that git does not ignore and the changes of `files`.

    Raises FileExistsError if `to` has anything in it, OSError, and WorkspaceTooLarge.
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
                raise WorkspaceTooLarge
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _copy(source, target)
    write_files(to, files)


def write_files(root: str, files: Iterable[TrialFile]) -> None:
    """Bring the files below `root` to their proposed state. Raises OSError, also for one behind a link."""
    real = os.path.realpath(root)
    for file in files:
        path = os.path.join(real, file.path)
        folder = os.path.dirname(path)
        if os.path.realpath(folder) != folder:
            raise OSError(f"{file.path} is behind a symbolic link")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if file.content is None:
            continue
        os.makedirs(folder, exist_ok=True)
        if file.mode == "120000":
            os.symlink(file.content, os.fsencode(path))
            continue
        with open(path, "xb") as made:
            made.write(file.content)
        os.chmod(path, 0o755 if file.mode == "100755" else 0o644)


def _read_plan(folder: str) -> Iterator[TrialFile]:
    with open(os.path.join(folder, "files.json"), encoding="utf-8", errors="surrogateescape") as file:
        entries = json.load(file)
    for number, (path, mode, has_content) in enumerate(entries):
        content = None
        if has_content:
            with open(os.path.join(folder, str(number)), "rb") as kept:
                content = kept.read()
        yield TrialFile(path, content, mode)


def _names(root: str) -> Iterator[str]:
    """Yield the paths of the files in the workspace that git does not ignore; all without git.

    Raises OSError if the repository of the workspace cannot be read.
    """
    listed = _asked_of_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        for folder, folders, names in os.walk(root):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            yield from (os.path.relpath(os.path.join(folder, name), root) for name in (*names, *links))
        return
    yield from dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if _is_inside(name))


def _is_inside(name: bytes) -> bool:
    """Return whether a name of an index is a path in the workspace: anybody may have written the index."""
    return bool(name) and not name.startswith(b"/") and b".." not in name.split(b"/")


def _asked_of_git(root: str, verb: str, *arguments: str, stdin: bytes = b"") -> bytes | None:
    """Return git's answer about the workspace; None without git or a repository. Raises OSError."""
    work_tree = work_tree_of(root)
    if work_tree is None:
        return None
    try:
        return run_git(
            work_tree.git_folder, verb, *arguments, top=work_tree.top, folder=root, stdin=stdin,
            statuses=(0, 1) if verb == "check-ignore" else (0,),
        )  # fmt: skip
    except GitMissing:
        return None
    except GitFailed as failure:
        raise OSError(str(failure)) from failure


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


# The process.


def _become(told: str, held: str, scratch: str, root: str, folder: str, *command: str) -> int:
    """Enter the overlay and become the command. Return an exit status only if that fails."""
    parent = os.getppid()
    try:
        enter_overlay(root, scratch, _read_plan(os.path.join(scratch, "plan")), int(held))
        os.chdir(folder)
    except OSError:
        return NOT_RUN
    # Its new credentials have cleared an earlier wish to die with the parent.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
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


def _make_copy(plan: str, root: str, to: str) -> int:
    try:
        copy_workspace(root, to, _read_plan(plan))
    except FileExistsError:
        return NOT_EMPTY
    except WorkspaceTooLarge:
        return TOO_MUCH
    except OSError as error:
        sys.stderr.write(f"The workspace cannot be copied: {error}\n")
        return 1
    return 0


def _print_ignored(root: str) -> int:
    """Write the paths on standard input that git ignores."""
    try:
        ignored = _asked_of_git(root, "check-ignore", "-z", "--stdin", stdin=sys.stdin.buffer.read())
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(ignored or b"")
    sys.stdout.buffer.flush()
    return 0


_VERBS = {"overlay": _become, "copy": _make_copy, "ignored": _print_ignored}

if __name__ == "__main__":
    sys.exit(_VERBS[sys.argv[1]](*sys.argv[2:]))  # type: ignore[operator]
