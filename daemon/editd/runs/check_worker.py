"""The check worker: a process that runs one command on the files as a proposal would leave them, and ends.

`python -m editd.runs.check_worker`, framed messages on stdin and stdout (`system.frames`). The request is
a frame, and a frame for each proposed file (`requests_of`). The answer is one frame: `exit` as a shell has
it, `seconds`, and the end of the `output`.

K1  The command runs in an overlay over the workspace, or in a copy of it if there can be no overlay. In the
    overlay, nothing that it writes below the workspace's path reaches the workspace.
    With a reach, the command writes to its overlay, its scratch folder and its `writable` paths only, and
    without `network` it has its own loopback. The answer names what this system cannot hold.
K2  When the command ends or times out, all processes that it started are killed, even in another session.
K3  When stdin closes, because the daemon died or gave up, all of them are killed, and there is no answer.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from editd.runs.command import (
    FLOOD,
    LATE,
    NOT_FOUND,
    NOT_RUN,
    Abandoned,
    Ended,
    KeptOutput,
    Printed,
    events,
    exit_code,
    has_parent,
    start,
)
from editd.runs.limits import CHECKS, PRINTED_BYTES_MAX
from editd.runs.reach import NETWORK, reach_frame, reach_of_frame
from editd.runs.scratch import TrialFile, remove_tree, write_files
from editd.runs.worker import serve
from editd.runs.workspace_copy import WorkspaceTooLarge, copy_workspace
from editd.system.namespaces import enter_overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd.runs.reach import CommandReach
    from editd.system.frames import Frame
    from editd.values.content import Change, FileState

TIMED_OUT = 124  # as timeout(1) has it


def requests_of(
    root: str,
    folder: str,
    command: Sequence[str],
    seconds: float,
    environment: Mapping[str, str],
    changes: Iterable[Change[FileState]],
    reach: CommandReach | None = None,
) -> list[Frame]:
    """Return the frames of a request. `folder` is for its scratch files, and exists."""
    files: list[Frame] = []
    for change in changes:
        after = change.after
        mode, content = (None, None) if after is None else (f"{after.mode:o}", after.content)
        files.append({"path": change.path.text, "mode": mode, "content": content})
    begin: dict[str, Any] = {
        "root": root, "folder": folder, "command": list(command), "seconds": seconds,
        "environment": dict(environment), "files": len(files), "reach": reach_frame(reach),
    }  # fmt: skip
    return [begin, *files]


class CheckRun:
    """The run of one command."""

    def __init__(self, request: Frame, files: Sequence[TrialFile]) -> None:
        self._root: str = request["root"]
        self._scratch: str = request["folder"]
        self._command: list[str] = request["command"]
        self._command[0] = os.path.expanduser(self._command[0])
        self._seconds: float = request["seconds"]
        self._environment: dict[str, str] = request["environment"]
        self._files = files
        self._reach = reach_of_frame(request["reach"])
        self._unheld = [] if self._reach is None else self._reach.unheld()

    def answer(self) -> Frame:
        """Run the command and return the answer. Raises Abandoned."""
        began = time.monotonic()
        try:
            process = self._in_overlay() or self._in_copy()
        except WorkspaceTooLarge:
            return _not_run("The workspace is too large to copy, and this system has no overlay.")
        except FileNotFoundError as error:
            return _not_run(f"{error.filename or self._command[0]}: not found", NOT_FOUND)
        except OSError as error:
            return _not_run(f"{self._command[0]} cannot be run: {error.strerror or error}")
        except subprocess.SubprocessError:
            return _not_run(f"{self._command[0]} cannot be confined to `writable` and `network`.")
        return {**self._attend(process, began), "unheld": self._unheld}

    def _in_overlay(self) -> subprocess.Popen[bytes] | None:
        """Start the command in an overlay; return None if this system has none for us. Raises OSError."""
        held = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # as long as this process

        def enter() -> None:  # after the fork: this process has one thread
            os.umask(0o022)
            has_left = self._reach is not None and not self._reach.network and NETWORK not in self._unheld
            fill = partial(write_files, self._root, self._files)
            enter_overlay(self._root, self._scratch, fill, held, has_network=not has_left)
            self._confine(self._root, has_left=has_left)

        try:
            return self._start(self._root, enter)
        except subprocess.SubprocessError:
            return None

    def _in_copy(self) -> subprocess.Popen[bytes]:
        copied = os.path.join(self._scratch, "copy")
        copy_workspace(self._root, copied, self._files)
        if not has_parent():  # it took long
            raise Abandoned

        def prepare() -> None:
            os.umask(0o022)
            self._confine(copied)

        return self._start(copied, prepare)

    def _confine(self, files: str, *, has_left: bool = False) -> None:
        if self._reach is not None:
            self._reach.enter([files, self._scratch], self._unheld, has_left=has_left)

    def _start(self, folder: str, prepare: Callable[[], None]) -> subprocess.Popen[bytes]:
        return start(self._command, folder, self._environment, prepare, errors=subprocess.STDOUT)

    def _attend(self, process: subprocess.Popen[bytes], began: float) -> Frame:
        output = KeptOutput(CHECKS.kept_bytes, is_end=True)
        limit, status = "", 0
        for event in events(process, began + self._seconds):
            match event:
                case Printed(_, text):
                    output.add(text)
                case Ended(status, limit):
                    pass
        seconds = time.monotonic() - began
        shown = output.kept.decode("utf-8", "replace")
        if limit == LATE:
            status, shown = TIMED_OUT, f"{shown}\nIt was still running after {self._seconds:g} s.\n"
        elif limit == FLOOD:
            status, shown = NOT_RUN, f"{shown}\nIt printed more than {PRINTED_BYTES_MAX >> 20} MiB.\n"
        return {"exit": exit_code(status), "seconds": seconds, "output": shown}


def _not_run(reason: str, status: int = NOT_RUN) -> Frame:
    return {"exit": status, "seconds": 0.0, "output": f"{reason}\n"}


def _answers(request: Frame, frames: Sequence[Frame]) -> list[Frame]:
    files = [TrialFile(frame["path"], frame["content"], frame["mode"]) for frame in frames]
    return [CheckRun(request, files).answer()]


def main() -> None:
    """Serve one request. End at once if stdin closes (K3)."""
    serve(lambda request: request["files"], _answers, remove_tree)


if __name__ == "__main__":
    main()
