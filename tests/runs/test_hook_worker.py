"""runs.hook_worker: each hook has an empty folder, also after a hook that has shut its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import editd
from editd.runs.scratch import remove_tree
from editd.system.frames import pack_frame, read_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.system.frames import Frame

NOBODY = 65534
WORKER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from editd.runs.hook_worker import main
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
main()
"""
SHUT = ["sh", "-c", "cat; mkdir -p shut/in; ln -s / shut/link; chmod 0 shut"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a user without privileges may enter, as pytest's own is not."""
    made = Path(tempfile.mkdtemp(prefix="editd-hooks-"))
    if os.geteuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    yield made
    remove_tree(str(made))


def answers(scratch: Path, *commands: list[str]) -> list[Frame]:
    """Return the answer of a worker of an ordinary user to these formatters of one file."""
    keys = {"kind": "format", "seconds": 20.0, "on_error": "refuse", "reach": None, "files": [0]}
    hooks = [
        {"name": f"hook {number}", "command": command, **keys} for number, command in enumerate(commands)
    ]
    frames: list[Frame] = [
        {"folder": str(scratch), "environment": {"PATH": os.defpath}, "bytes_max": 1000, "hooks": hooks,
         "files": 1, "beside": 0},
        {"path": "a", "content": b"text", "executable": False},
    ]  # fmt: skip
    argv = [sys.executable, "-I", "-c", WORKER, str(Path(editd.__file__).parents[1])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(b"".join(map(pack_frame, frames)))
        worker.stdin.flush()
        found: list[Frame] = []
        while (frame := read_frame(worker.stdout)) is not None:
            found.append(frame)
    return found


def test_a_folder_that_a_hook_has_shut_is_gone_for_the_next_hook_and_at_the_end(folder: Path) -> None:
    assert answers(folder / "scratch", SHUT, SHUT) == [{"done": True}]
    assert os.listdir(folder) == []
