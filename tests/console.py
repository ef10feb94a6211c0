"""Pages whose console blocks are run: each command as a reader would type it, and what it prints.

A page is one shell, from its first `$` to its last, in a workspace of its own: folders and variables
stay as the commands leave them. Standard error counts as printed, as on a terminal. What differs from
run to run (ids, times, numbers of processes) is masked; a `…` in the page stands for anything in its
line, and on a line of its own for any number of lines. Before a block, `<!-- not run: WHY -->` leaves it out,
`<!-- needs: PROGRAM -->` leaves it out where there is no such program, and `<!-- file: NAME -->` puts it, in
whatever language it is, into the workspace under that name.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workplace import Workplace

SECONDS_MAX = 60
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|needs): (?P<what>[^\n]+) -->\n)?```console\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"^<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "\x1e"  # a record separator: no page prints one
_DAY = r"((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\d{4}-\d\d-\d\d"
_MASKS = (
    (re.compile(r"(?<=\d )[0-9a-f]{7}\b|^[0-9a-f]{7}(?= on )", re.MULTILINE), "#######"),  # it holds the time
    (re.compile(r'(?<="id":")[0-9a-f]{40}(?=")|(?<=^transaction \d )[0-9a-f]{40}', re.MULTILINE), "#" * 40),
    (re.compile(_DAY + r"[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?[+-]\d\d:?\d\d|Z)?"), "TIME"),
    (re.compile(r"(?<=pid )\d+"), "PID"),
    (re.compile(r"(?<=EDITD_TOKEN=)[\w-]+"), "TOKEN"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page, what it printed, and what the page says that it prints."""

    command: str
    printed: str
    expected: str

    def is_as_said(self) -> bool:
        """Does it print what the page says, but for what differs from run to run?"""
        return re.fullmatch(_pattern(masked(self.expected)), masked(self.printed)) is not None


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the page's console blocks, here-documents and all, and what it is to print."""
    for block in _BLOCK.finditer(page):
        if block["mark"] == "not run":
            continue
        if block["mark"] == "needs" and not all(map(shutil.which, block["what"].split())):
            continue
        lines = iter(block["text"].splitlines(keepends=True))
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


def carried_out(place: Workplace, page: str) -> list[Step]:
    """Run the page's commands in the workspace, and return each with what it printed."""
    given = list(steps(page))
    provide_editctl(place)
    place.write(dict(_FILE.findall(page)))
    script = "exec 2>&1\n" + "".join(f"{command}printf '\\036'\n" for command, _ in given)
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=place.root, env=place.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, check=False, timeout=SECONDS_MAX,
        )  # fmt: skip
    finally:
        end_daemons(place)
    printed = done.stdout.split(_END)
    assert len(printed) == len(given) + 1, f"the shell ended early:\n{done.stdout}"
    return [Step(command, said, expected) for (command, expected), said in zip(given, printed, strict=False)]


def provide_editctl(place: Workplace) -> None:
    """Put an `editctl` on the workspace's PATH, and have its user be ann, with nobody's git settings."""
    binaries = place.folder / "bin"
    binaries.mkdir()
    command = binaries / "editctl"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m editd_client "$@"\n')
    command.chmod(0o755)
    place.variables |= {"PATH": f"{binaries}:{place.environment['PATH']}", "LOGNAME": "ann"}
    place.variables |= {"GIT_CONFIG_GLOBAL": "/dev/null"}
    place.variables |= {
        "XDG_STATE_HOME": f"{place.environment['HOME']}/.local/state"
    }  # as where it is not set


def end_daemons(place: Workplace) -> None:
    """End every daemon that was started with the workspace's folder of sockets."""
    for socket in (place.runtime / "editd").glob("*.sock"):
        subprocess.run(
            [sys.executable, "-P", "-m", "editd_client", "stop"],
            cwd=place.root, env={**place.environment, "EDITD_SOCKET": str(socket)}, check=False,
            capture_output=True,
        )  # fmt: skip


def masked(text: str) -> str:
    """The text without what differs from run to run."""
    for what, mask in _MASKS:
        text = what.sub(mask, text)
    return text


def _pattern(expected: str) -> str:
    """A regular expression of what the page says."""
    lines = (r"(?:.*\n)*" if line == "…\n" else _line(line) for line in expected.splitlines(keepends=True))
    return "".join(lines)


def _line(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))
