"""The client's process for a trial of a proposal, and for an isolated command.

`python -m editd.runs.trial_worker`, with one of these:

    run WAYS TOLD ALIVE HELD SCRATCH ROOT FOLDER COMMAND…
                run a command with the terminal of the caller, in FOLDER, which is ROOT or below it
    copy PLAN ROOT TO   exit with TOO_MUCH or NOT_EMPTY if it is refused
    ignored ROOT        read paths, each with a NUL, and write the ignored ones

PLAN is a folder with the proposed files (`runs.scratch`); SCRATCH has one, named `plan`. The first of WAYS
that works is taken: `overlay`, `copy`. Its name is written into the pipe TOLD when the command has begun. If
there is none, TOLD gets the reason or nothing. HELD is ROOT, open for reading.

T1  Nothing that the command writes below ROOT reaches the workspace.
T2  When the command ends, all processes that it started are killed, even in another session. So its overlay
    is closed before HELD is, and the daemon may reuse replaced files then.
T3  When ALIVE closes, because the client died, all of them are killed. The scratch folder is removed unless
    WAYS is `overlay` alone: then its layer has the work of the command.

Imports as little as it can, because a person waits for the start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from editd.runs.command import (
    NOT_FOUND,
    NOT_RUN,
    Abandoned,
    Ended,
    events,
    exit_code,
    has_parent,
    start_with_terminal,
)
from editd.runs.scratch import read_plan, remove_tree, write_files
from editd.runs.workspace_copy import WorkspaceTooLarge, ask_git, copy_workspace
from editd.system.namespaces import enter_overlay
from editd.system.process_tree import set_subreaper

if TYPE_CHECKING:
    from collections.abc import Sequence

OVERLAY, COPY = "overlay", "copy"
TOO_LARGE, FAILED = "too_large", "failed"  # the reasons, with a colon and more words
TOO_MUCH, NOT_EMPTY = 3, 4  # the exit codes of a copy that is refused
FOR_THE_COMMAND = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)  # which its group gets


class _Trial:
    """The run of one command."""

    def __init__(self, alive: int, held: int, scratch: str, root: str, folder: str) -> None:
        self._alive = alive
        self._held = held
        self._scratch = scratch
        self._root = root
        self._folder = folder
        self._plan = os.path.join(scratch, "plan")

    def start(self, way: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the command. Raises SubprocessError without an overlay, WorkspaceTooLarge, OSError."""
        if way == OVERLAY:
            return start_with_terminal(command, self._enter_overlay)
        copied = os.path.join(self._scratch, "copy")
        try:
            copy_workspace(self._root, copied, read_plan(self._plan))
        except OSError as error:
            raise _NotCopied(f"The workspace cannot be copied: {error}") from error
        if not has_parent(self._alive):  # it took long
            raise Abandoned
        os.chdir(os.path.join(copied, os.path.relpath(self._folder, self._root)))
        return start_with_terminal(command, lambda: None)

    def status(self, process: subprocess.Popen[bytes]) -> int:
        """Return the exit code of the command, when it has ended with all its processes. Raises Abandoned."""
        (ended,) = (event for event in events(process, None, parent=self._alive) if isinstance(event, Ended))
        return exit_code(ended.status)

    def _enter_overlay(self) -> None:
        enter_overlay(
            self._root, self._scratch, lambda: write_files(self._root, read_plan(self._plan)), self._held
        )
        os.chdir(self._folder)


class _NotCopied(Exception):
    """The workspace cannot be copied. The text is the reason."""


def _run(ways: str, told: str, *arguments: str) -> int:
    """Run a command, and remove its scratch folder if the client has died."""
    alive, held, (scratch, root, folder), command = (
        int(arguments[0]), int(arguments[1]), arguments[2:5], arguments[5:]
    )  # fmt: skip
    for descriptor in (int(told), alive, held):
        os.set_inheritable(descriptor, False)
    for number in FOR_THE_COMMAND:
        if signal.getsignal(number) != signal.SIG_IGN:  # which the command inherits, but no handler
            signal.signal(number, lambda *_: None)
    set_subreaper()
    trial = _Trial(alive, held, scratch, root, folder)
    try:
        return _status_of(trial, ways.split(","), int(told), command)
    except Abandoned:
        if COPY in ways:
            remove_tree(scratch)
        return NOT_RUN


def _status_of(trial: _Trial, ways: Sequence[str], told: int, command: Sequence[str]) -> int:
    """Run a command in the first way that works. Return its exit code. Raises Abandoned."""
    for way in ways:
        try:
            process = trial.start(way, command)
        except subprocess.SubprocessError:
            continue
        except WorkspaceTooLarge:
            return _tell(told, f"{TOO_LARGE}:", NOT_RUN)
        except _NotCopied as error:
            return _tell(told, f"{FAILED}:{error}", NOT_RUN)
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError)
            sys.stderr.write(f"{command[0]}: {'not found' if is_missing else error.strerror or error}\n")
            return _tell(told, way, NOT_FOUND if is_missing else NOT_RUN)
        _tell(told, way, 0)
        return trial.status(process)
    return NOT_RUN


def _tell(told: int, text: str, status: int) -> int:
    """Write a text for the client, and return the exit status."""
    os.write(told, os.fsencode(text))
    os.close(told)
    return status


def _make_copy(plan: str, root: str, to: str) -> int:
    try:
        copy_workspace(root, to, read_plan(plan))
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
        ignored = ask_git(root, "check-ignore", "-z", "--stdin", stdin=sys.stdin.buffer.read())
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(ignored or b"")
    sys.stdout.buffer.flush()
    return 0


_VERBS = {"run": _run, "copy": _make_copy, "ignored": _print_ignored}

if __name__ == "__main__":
    sys.exit(_VERBS[sys.argv[1]](*sys.argv[2:]))  # type: ignore[operator]
