"""The client's process for a command in the workspace as a proposal would leave it.

`python -m editd.runs.trial_worker`, with one of these:

    overlay TOLD HELD SCRATCH ROOT FOLDER COMMAND…   write a byte to descriptor TOLD once in the overlay;
                HELD is ROOT, open for reading, and is open in the caller as long as the overlay matters
    copy PLAN ROOT TO   exit with TOO_MUCH or NOT_EMPTY if it is refused
    ignored ROOT        read paths, each with a NUL, and write the ignored ones

PLAN is a folder with the proposed files (`runs.scratch`); SCRATCH has one, named `plan`. Imports as little as
it can, because a person waits for the start.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from editd.runs.command import NOT_FOUND, NOT_RUN
from editd.runs.scratch import read_plan, write_files
from editd.runs.workspace_copy import WorkspaceTooLarge, asked_of_git, copy_workspace
from editd.system.namespaces import enter_overlay
from editd.system.process_tree import die_with_parent

TOO_MUCH, NOT_EMPTY = 3, 4  # the exit codes of a copy that is refused


def _become(told: str, held: str, scratch: str, root: str, folder: str, *command: str) -> int:
    """Enter the overlay and become the command. Return an exit status only if that fails."""
    parent, plan = os.getppid(), os.path.join(scratch, "plan")
    try:
        enter_overlay(root, scratch, partial(write_files, root, read_plan(plan)), int(held))
        os.chdir(folder)
    except OSError:
        return NOT_RUN
    # Its new credentials have cleared an earlier wish to die with the parent.
    die_with_parent()
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
        ignored = asked_of_git(root, "check-ignore", "-z", "--stdin", stdin=sys.stdin.buffer.read())
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(ignored or b"")
    sys.stdout.buffer.flush()
    return 0


_VERBS = {"overlay": _become, "copy": _make_copy, "ignored": _print_ignored}

if __name__ == "__main__":
    sys.exit(_VERBS[sys.argv[1]](*sys.argv[2:]))  # type: ignore[operator]
