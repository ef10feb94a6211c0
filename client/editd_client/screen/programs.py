"""The programs that the screen gives the terminal to: the person's editor, and the trial of a proposal."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile


def edited(path: str, text: str) -> str | None:
    """Return the text as the person's editor leaves it; None if the editor fails."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="editd-review-") as folder:
        name = os.path.join(folder, os.path.basename(path))
        with open(name, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        if subprocess.run(["sh", "-c", f'{editor} "$1"', "sh", name], check=False).returncode:
            return None
        with open(name, "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")


def tried(root: str, proposal: int, numbers: list[int], command: str) -> int:
    """Run `editctl proposal try`, and wait for Enter. Return the exit status of the command."""
    hunks = ["--hunks", ",".join(map(str, numbers))] if numbers else []
    done = subprocess.run(
        [sys.executable, "-P", "-m", "editd_client", "-C", root, "proposal", "try", str(proposal), *hunks,
         "--", "sh", "-c", command],
        check=False,
    )  # fmt: skip
    sys.stdout.write(f"\n[exit status {done.returncode}] Enter goes back to the review. ")
    sys.stdout.flush()
    sys.stdin.readline()
    return done.returncode
