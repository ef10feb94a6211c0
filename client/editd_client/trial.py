"""A command run on the workspace as a proposal would leave it. Nothing of it reaches the workspace.

`editd.runs.trial_worker` runs the command in an overlay over the workspace, or in a copy if there can be no
overlay. It ends the command with all its processes: at its end, and when this process dies.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from io import BufferedReader
    from typing import BinaryIO

WORKER = ("-P", "-m", "editd.runs.trial_worker")
OVERLAY, COPY = "overlay", "copy"  # its ways to run a command
TOO_LARGE = "too_large"  # its reason for no way
TOO_MUCH, NOT_EMPTY = 3, 4  # its exit codes of a copy that is refused
OUTPUT_CHARACTERS_MAX = 4_000  # of the end of a command's output
PIECE_BYTES = 64 * 1024
INTERRUPTED_SECONDS = 0.25  # for a command to end after Ctrl-C, before it is killed
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


class OutputEnd:
    """The end of a command's output, as it is kept with a proposal."""

    def __init__(self) -> None:
        self._last = b""

    def add(self, piece: bytes) -> None:
        """Add the next output."""
        self._last = (self._last + piece)[-4 * OUTPUT_CHARACTERS_MAX :]  # UTF-8 takes 4 bytes at most

    @property
    def text(self) -> str:
        """The last OUTPUT_CHARACTERS_MAX characters."""
        return self._last.decode("utf-8", "replace")[-OUTPUT_CHARACTERS_MAX:]


def try_argv(root: str, proposal: int, hunks: Sequence[int], command: Sequence[str]) -> list[str]:
    """Return the command line of `editctl proposal try`, for the page and the screen."""
    some = ["--hunks", ",".join(map(str, hunks))] if hunks else []
    return [
        sys.executable, "-P", "-m", "editd_client", "-C", root, "proposal", "try", str(proposal), *some, "--",
        *command,
    ]  # fmt: skip


def run_trial(root: str, files: Sequence[ProposedContent], command: Sequence[str]) -> Trial:
    """Run `command` in the workspace at `root` with `files` in it; its output is shown as it comes.

    It runs in the present folder if that is in the workspace, otherwise in `root`. Raises OSError, and
    TooMuchToCopy where only a copy is possible and the files are too large for one.
    """
    with tempfile.TemporaryDirectory(prefix="editd-try-") as scratch:
        _write_plan(os.path.join(scratch, "plan"), files)
        began = time.monotonic()
        with _begin(root, scratch, (OVERLAY, COPY), command, is_shown=True) as (child, way):
            if way == COPY:
                began = time.monotonic()  # to copy is no part of the command
            output = OutputEnd()
            for piece in _pieces(cast("BufferedReader", child.stdout)):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
                output.add(piece)
            status = child.wait()
        return Trial(exit_code(status), time.monotonic() - began, output.text, way)


def run_in_overlay(root: str, scratch: str, command: Sequence[str]) -> int:
    """Run `command` in an overlay over the workspace, with the terminal, and return its exit status.

    What it writes is in `scratch/upper` afterwards. Raises NoOverlay, OSError.
    """
    _write_plan(os.path.join(scratch, "plan"), ())
    with _begin(root, scratch, (OVERLAY,), command) as (child, _):
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
    argv = [sys.executable, *WORKER, "ignored", root]
    done = subprocess.run(argv, input=asked, capture_output=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.decode("utf-8", "replace").strip())
    return {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}


def _copy(plan: str, root: str, to: str) -> None:
    argv = [sys.executable, *WORKER, "copy", plan, root, to]
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


@contextlib.contextmanager
def _begin(
    root: str, scratch: str, ways: Sequence[str], command: Sequence[str], *, is_shown: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], Literal["overlay", "copy"]]]:
    """Start the worker; yield it with its way, once the command has begun.

    If `is_shown`, its output comes in a pipe. Raises NoOverlay, TooMuchToCopy, OSError.
    """
    with contextlib.ExitStack() as stack:
        held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # for the lock of the overlay
        stack.callback(os.close, held)
        alive, writable = os.pipe()  # it closes when this process dies
        ours = stack.enter_context(os.fdopen(writable, "wb"))
        ready, told = os.pipe()
        answer = stack.enter_context(os.fdopen(ready, "rb"))
        numbers = (told, alive, held)
        try:
            argv = [
                sys.executable, *WORKER, "run", ",".join(ways), *map(str, numbers), scratch, root,
                _folder_in(root), *command,
            ]  # fmt: skip
            output, errors = (subprocess.PIPE, subprocess.STDOUT) if is_shown else (None, None)
            child = subprocess.Popen(argv, stdout=output, stderr=errors, pass_fds=numbers)
        finally:
            os.close(told)
            os.close(alive)
        stack.enter_context(child)
        stack.callback(_end, child, ours)
        way, _, reason = os.fsdecode(answer.read()).partition(":")
        if way == TOO_LARGE:
            raise TooMuchToCopy
        if not way:
            raise NoOverlay
        if way not in ways:
            raise OSError(reason)
        yield child, cast('Literal["overlay", "copy"]', way)


def _end(worker: subprocess.Popen[bytes], ours: BinaryIO) -> None:
    """Wait for the end of a worker. If an exception interrupts its command, end the command first."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(INTERRUPTED_SECONDS)
    ours.close()
    worker.wait()


def _pieces(output: BufferedReader) -> Iterator[bytes]:
    """Yield the output of a command as it comes. Raises BrokenPipeError once no one reads ours."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    with contextlib.suppress(OSError, ValueError):  # it has no descriptor
        poll.register(sys.stdout.fileno(), 0)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != output.fileno():
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            if not (piece := output.read1(PIECE_BYTES)):
                return
            yield piece


def _folder_in(root: str) -> str:
    """Return the present folder if it is in the workspace, otherwise the workspace's."""
    here = os.path.realpath(os.getcwd())
    return here if here == root or here.startswith(root.rstrip("/") + "/") else root
