"""The README's five minutes, as a reader would type them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from workplace import TOP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workplace import Workplace

README = (TOP / "README.md").read_text()
_TRANSACTION_ID = re.compile(r"(?<=\d )[0-9a-f]{7}\b")  # it holds the time


def steps() -> Iterator[tuple[str, str]]:
    """Each command of the README's console blocks, here-documents and all, and what it prints."""
    for block in re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
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


def test_every_command_of_the_readme_prints_what_the_readme_says(place: Workplace) -> None:
    binaries = place.folder / "bin"
    binaries.mkdir()
    (binaries / "editctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m editd_client "$@"\n')
    (binaries / "editctl").chmod(0o755)
    place.variables |= {"PATH": f"{binaries}:{place.environment['PATH']}", "EDITD_ACTOR": "ann"}
    place.variables |= {"GIT_CONFIG_GLOBAL": "/dev/null"}
    folder = place.root
    try:
        for command, expected in steps():
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=place.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert masked(done.stdout) == masked(expected), f"{command}\n{done.stderr}"
            if " cd " in command:
                folder = folder / Path(command.strip()).name.rpartition(" ")[2]
    finally:
        subprocess.run([str(binaries / "editctl"), "stop"], cwd=folder, env=place.environment, check=False)


def masked(text: str) -> str:
    return _TRANSACTION_ID.sub("#######", text)
