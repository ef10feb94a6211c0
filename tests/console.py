"""Pages whose console blocks are run: each command as a reader would type it, and what it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workplace import Workplace

_ID = re.compile(r"(?<=\d )[0-9a-f]{7}\b|^[0-9a-f]{7}(?= on )", re.MULTILINE)  # it holds the time


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the page's console blocks, here-documents and all, and what it prints."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        lines = iter(block.splitlines(keepends=True))
        command, printed = "", ""
        for line in lines:
            if not line.startswith("$ "):
                printed += line
                continue
            if command:
                yield command, printed
            command, printed = line[2:], ""
            here = re.search(r"<<'(\w+)'", line)
            while here is not None and not command.endswith(f"\n{here[1]}\n"):
                command += next(lines)
        yield command, printed


def carried_out(place: Workplace, page: str) -> Iterator[tuple[str, str, str]]:
    """Run the page in the workspace: of each command what it prints, what it should print, and the rest."""
    binaries = place.folder / "bin"
    binaries.mkdir()
    (binaries / "editctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m editd_client "$@"\n')
    (binaries / "editctl").chmod(0o755)
    place.variables |= {"PATH": f"{binaries}:{place.environment['PATH']}", "EDITD_ACTOR": "ann"}
    place.variables |= {"GIT_CONFIG_GLOBAL": "/dev/null"}
    folder = place.root
    try:
        for command, expected in steps(page):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder, env=place.environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            yield masked(done.stdout), masked(expected), f"{command}\n{done.stderr}"
            if " cd " in command:
                folder = folder / Path(command.strip()).name.rpartition(" ")[2]
    finally:
        subprocess.run([str(binaries / "editctl"), "stop"], cwd=folder, env=place.environment, check=False)


def masked(text: str) -> str:
    return _ID.sub("#######", text)
