"""Console blocks of pages: their commands are run, and the output is compared with the page.

A page is one shell, from its first `$` to its last, in its own workspace: folders and variables stay as the
commands leave them. Standard error is part of the output, as on a terminal. Ids, times and process numbers
are masked. A `…` in the page matches anything in its line, and alone on a line any number of lines.

Marks before a block:

- `<!-- not run: WHY -->` skips it;
- `<!-- needs: PROGRAM -->` skips it if the program does not run, and `PROGRAM>=N` if it is older;
- `<!-- file: NAME -->` writes it into the workspace under that name, in any language.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.vscode import NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

SECONDS_MAX = 110  # the first program in Go compiles the standard library
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|needs): (?P<what>[^\n]+) -->\n)?```console\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"^<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"  # the newer node of the tests first, if it is there
_END = "\x1e"  # a record separator: no page prints one
_DAY = r"((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\d{4}-\d\d-\d\d"
_MASKS = (
    (re.compile(r"(?<=\d )[0-9a-f]{7}\b|^[0-9a-f]{7}(?= on )", re.MULTILINE), "#######"),  # varies with time
    (re.compile(r'(?<="id":")[0-9a-f]{40}(?=")|(?<=^transaction \d )[0-9a-f]{40}', re.MULTILINE), "#" * 40),
    (re.compile(_DAY + r"[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?[+-]\d\d:?\d\d|Z)?"), "TIME"),
    (re.compile(r"(?<=pid )\d+"), "PID"),
    (re.compile(r"(?<=EDITD_TOKEN=)[\w-]+"), "TOKEN"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page, with its real output and the output in the page."""

    command: str
    printed: str
    expected: str

    def is_as_said(self) -> bool:
        """Return whether the output equals that of the page, after masking."""
        return re.fullmatch(_pattern(masked(self.expected)), masked(self.printed)) is not None


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Yield each command of the console blocks, with its here-documents, and its expected output."""
    for block in _BLOCK.finditer(page):
        if block["mark"] == "not run":
            continue
        if block["mark"] == "needs" and not all(map(_is_here, block["what"].split())):
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


def _is_here(program: str) -> bool:
    """Return whether a program (`nvim`) runs, or a version of it that is new enough (`node>=23`).

    A name alone may be a stub: rustup's `rustc` fails without a toolchain in the home folder.
    """
    name, _, least = program.partition(">=")
    path = shutil.which(name, path=_PATH)
    if path is None or not any(_ends_well([path, option]) for option in ("--version", "version", "-V", "-h")):
        return False
    if not least:
        return True
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    return int(version.lstrip("v").partition(".")[0]) >= int(least)


def _ends_well(argv: list[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False, timeout=SECONDS_MAX).returncode == 0


def carried_out(place: Workplace, page: str) -> list[Step]:
    """Run the page's commands in the workspace. Return each with its output."""
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
    """Put an `editctl` on the workspace's PATH. Set the user to ann, without git settings."""
    place.variables |= {
        "PATH": f"{place.provide_editctl()}:{_PATH}",
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")),
        "GOCACHE": os.path.expanduser("~/.cache/go-build"),
        "LOGNAME": "ann",
    }
    place.variables |= {"GIT_CONFIG_GLOBAL": "/dev/null"}
    place.variables |= {
        "XDG_STATE_HOME": f"{place.environment['HOME']}/.local/state"
    }  # as if it were not set


def end_daemons(place: Workplace) -> None:
    """Stop every daemon whose socket is in the workspace's folder of sockets."""
    for socket in (place.runtime / "editd").glob("*.sock"):
        place.editctl("stop", EDITD_SOCKET=str(socket))


def masked(text: str) -> str:
    """Return the text with the parts masked that differ from run to run."""
    for what, mask in _MASKS:
        text = what.sub(mask, text)
    return text


def _pattern(expected: str) -> str:
    """Return a regular expression for the output in the page."""
    lines = (r"(?:.*\n)*" if line == "…\n" else _line(line) for line in expected.splitlines(keepends=True))
    return "".join(lines)


def _line(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))
