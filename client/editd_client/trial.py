"""A command run on the workspace as a proposal would leave it. Nothing of it reaches the workspace.

`editd.runs.trial_worker` is the process that enters an overlay over the workspace and becomes the command.
Where that is impossible, it makes a copy, and the command runs in that.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from io import BufferedReader

TREE = ("-P", "-m", "editd.runs.trial_worker")
TOO_MUCH, NOT_EMPTY = 3, 4  # its exit codes of a copy that is refused
OUTPUT_CHARACTERS_MAX = 4_000  # of the end of a command's output
PIECE_BYTES = 64 * 1024
NOT_FOUND, NOT_RUN, SIGNALLED = 127, 126, 128  # the exit codes of a shell


@dataclass(frozen=True, slots=True)
class ProposedContent:
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


class NoOverlay(Exception):
    """This system has no overlay for an unprivileged user."""


class TooMuchToCopy(Exception):
    """The workspace's files are too large to copy."""


def run_trial(root: str, files: Sequence[ProposedContent], command: Sequence[str]) -> Trial:
    """Run `command` in the workspace at `root` with `files` in it; its output is shown as it comes.

    It runs in the present folder if that is in the workspace, otherwise in `root`. Raises OSError, and
    TooMuchToCopy where only a copy is possible and the files are too large for one.
    """
    folder = _folder_in(root)
    with tempfile.TemporaryDirectory(prefix="editd-try-") as scratch:
        plan = os.path.join(scratch, "plan")
        _write_plan(plan, files)
        began = time.monotonic()
        with contextlib.suppress(NoOverlay), _held(root) as held:
            entry = _Entry(*os.pipe(), held)
            status, output = _run(_in_overlay(entry, scratch, root, folder, command), None, entry)
            return Trial(status, time.monotonic() - began, output, "overlay")
        copied = os.path.join(scratch, "copy")
        _copy(plan, root, copied)
        began = time.monotonic()
        status, output = _run(command, os.path.join(copied, os.path.relpath(folder, root)))
        return Trial(status, time.monotonic() - began, output, "copy")


def run_in_overlay(root: str, scratch: str, command: Sequence[str]) -> int:
    """Run `command` in an overlay over the workspace, with the terminal, and return its exit status.

    What it writes is in `scratch/upper` afterwards. Raises NoOverlay, OSError.
    """
    _write_plan(os.path.join(scratch, "plan"), ())
    with _held(root) as held:
        entry = _Entry(*os.pipe(), held)
        argv = _in_overlay(entry, scratch, root, _folder_in(root), command)
        with subprocess.Popen(argv, pass_fds=entry[1:]) as child:
            if not _has_entered(entry):
                raise NoOverlay
            return exit_code(child.wait())


def exit_code(status: int) -> int:
    """Return the exit code that a shell gives to a process with this status of `subprocess`."""
    return status if status >= 0 else SIGNALLED - status


def copy_workspace(root: str, to: str, files: Sequence[ProposedContent]) -> None:
    """Make the folder `to`, with the files that git does not ignore and the changes of `files`.

    Raises FileExistsError if `to` has anything in it, OSError, and TooMuchToCopy.
    """
    with tempfile.TemporaryDirectory(prefix="editd-try-") as scratch:
        plan = os.path.join(scratch, "plan")
        _write_plan(plan, files)
        _copy(plan, root, to)


def ignored_paths(root: str, paths: Collection[str]) -> set[str]:
    """Return the `paths` of the workspace that git ignores; none without git. Raises OSError."""
    if not paths:
        return set()
    asked = b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))
    argv = [sys.executable, *TREE, "ignored", root]
    done = subprocess.run(argv, input=asked, capture_output=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.decode("utf-8", "replace").strip())
    return {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}


def _copy(plan: str, root: str, to: str) -> None:
    argv = [sys.executable, *TREE, "copy", plan, root, to]
    done = subprocess.run(argv, stderr=subprocess.PIPE, check=False)
    if done.returncode == NOT_EMPTY:
        raise FileExistsError(f"{to} is not empty")
    if done.returncode == TOO_MUCH:
        raise TooMuchToCopy
    if done.returncode:
        raise OSError(done.stderr.decode("utf-8", "replace").strip())


def _write_plan(folder: str, files: Sequence[ProposedContent]) -> None:
    """Write the files in the form that the process reads."""
    os.mkdir(folder)
    for number, file in enumerate(files):
        if file.content is not None:
            with open(os.path.join(folder, str(number)), "xb") as made:
                made.write(file.content)
    entries = [[file.path, file.mode, file.content is not None] for file in files]
    with open(os.path.join(folder, "files.json"), "x", encoding="utf-8", errors="surrogateescape") as made:
        json.dump(entries, made)


class _Entry(NamedTuple):
    """The descriptors of a program that enters an overlay.

    The program writes a byte into the pipe once it has entered. It locks the workspace's folder, `held`, and
    the lock lasts until this process has closed it, too.
    """

    ready: int
    told: int
    held: int


@contextlib.contextmanager
def _held(root: str) -> Iterator[int]:
    """Open the workspace's folder for the lock of an overlay (`editd.system.overlay_lock`)."""
    held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield held
    finally:
        os.close(held)


def _run(argv: Sequence[str], folder: str | None, entry: _Entry | None = None) -> tuple[int, str]:
    """Run a program, show its output, and return its exit status and the end of the output.

    Closes the pipe of `entry`. Raises NoOverlay if the program ends without an overlay.
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
        if entry is not None and not _has_entered(entry):
            raise NoOverlay
        output = cast("BufferedReader", child.stdout)
        last = b""
        while piece := output.read1(PIECE_BYTES):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            last = (last + piece)[-4 * OUTPUT_CHARACTERS_MAX :]  # UTF-8 takes 4 bytes at most
        status = child.wait()
    text = last.decode("utf-8", "replace")[-OUTPUT_CHARACTERS_MAX:]
    return exit_code(status), text


def _has_entered(entry: _Entry) -> bool:
    os.close(entry.told)
    is_entered = bool(os.read(entry.ready, 1))
    os.close(entry.ready)
    return is_entered


def _in_overlay(entry: _Entry, scratch: str, root: str, folder: str, command: Sequence[str]) -> list[str]:
    """Return the command line of the process that becomes `command` in an overlay, in `folder`."""
    return [
        sys.executable, *TREE, "overlay", str(entry.told), str(entry.held), scratch, root, folder, *command,
    ]  # fmt: skip


def _folder_in(root: str) -> str:
    """Return the present folder if it is in the workspace, otherwise the workspace's."""
    here = os.path.realpath(os.getcwd())
    return here if here == root or here.startswith(root.rstrip("/") + "/") else root
