"""The programs that the screen gives the terminal to: the person's editor, and the trial of a proposal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from editd_client.trial import try_argv

if TYPE_CHECKING:
    from collections.abc import Mapping


VIM = ("-d", "-c", "wincmd l")  # the cursor is in the proposed text, at the right
SIDE_BY_SIDE: Mapping[str, tuple[str, ...]] = {  # editors, and their options for two files
    **dict.fromkeys(("vim", "nvim", "gvim", "mvim"), VIM),
    **dict.fromkeys(("code", "code-insiders", "codium", "cursor"), ("--diff",)),
}


def edit_text(path: str, text: str, present: str | None) -> str | None:
    """Return the text as the person's editor leaves it; None if the editor fails.

    An editor that can shows the present text, which is read-only, beside it.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="editd-review-") as folder:
        name = _write(folder, "proposed", path, text)
        words = [*_side_by_side(editor), name]
        if present is not None and len(words) > 1:
            now = _write(folder, "now", path, present)
            os.chmod(now, 0o444)
            words.insert(-1, now)
        else:
            words = [name]
        if subprocess.run(["sh", "-c", f'{editor} "$@"', "sh", *words], check=False).returncode:
            return None
        with open(name, "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")


def _side_by_side(editor: str) -> tuple[str, ...]:
    """Return the options of an editor, by its command line, for two files side by side; none if unknown."""
    try:
        program = shlex.split(editor)[:1]
    except ValueError:  # the shell will report it
        return ()
    return SIDE_BY_SIDE.get(os.path.basename("".join(program)), ())


def _write(folder: str, side: str, path: str, text: str) -> str:
    """Write one of the texts under the name of its file, and return where."""
    name = os.path.join(folder, side, os.path.basename(path))
    os.mkdir(os.path.dirname(name))
    with open(name, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    return name


def run_trial(root: str, proposal: int, numbers: list[int], command: str) -> int:
    """Run `editctl proposal try`, and wait for Enter. Return the exit status of the command."""
    done = subprocess.run(try_argv(root, proposal, numbers, ("sh", "-c", command)), check=False)
    sys.stdout.write(f"\n[exit status {done.returncode}] Enter goes back to the review. ")
    sys.stdout.flush()
    sys.stdin.readline()
    return done.returncode
