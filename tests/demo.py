"""The recorded demo: two agents work, a person decides hunk by hunk, and rolls one agent back.

    python tests/demo.py --write    # records docs/images/review.cast, in half a minute
    python tests/demo.py --play     # replays it in this terminal, as `asciinema play` does

Daemon, agents and screen are real. The agents are a process of their own, so that they are no kin of the
reviewer, who would need a PIN otherwise.
"""

from __future__ import annotations

import codecs
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from support.pseudo_terminal import PseudoTerminal
from support.shop import LOADER, LOCK
from support.workplace import TOP, Workplace, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

CAST = TOP / "docs/images/review.cast"
SIZE = (100, 28)
KEY_SECONDS, LOOK_SECONDS, EDIT_SECONDS = 0.35, 1.8, 0.7
FILES = {"src/loader.py": LOADER, "package-lock.json": LOCK, "src/cart.py": "class Basket:\n    pass\n"}
COMMENT = "callers rely on None here"


def record() -> str:
    """Return the recording, in asciicast's format."""
    with tempfile.TemporaryDirectory() as scratch, workplace(Path(scratch) / "shop", FILES) as place:
        path = f"{place.provide_editctl()}:{os.environ['PATH']}"
        environment = {**place.environment, "PATH": path, "PS1": "$ ", "HISTFILE": "/dev/null"}
        with place.start() as client:
            client.settle()
            with PseudoTerminal(
                ["sh", "-i"], SIZE, folder=str(place.root), environment=environment
            ) as terminal:
                review(terminal, place)
                events = list(as_events(terminal))
        place.stop()
    width, height = SIZE
    header = {"version": 2, "width": width, "height": height, "title": "editctl review", "idle_time_limit": 2}
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in (header, *events))


def review(terminal: PseudoTerminal, place: Workplace) -> None:
    """Press the keys of the story, each after what it is about is on the screen."""
    terminal.until(r"\$ ")
    press(terminal, *"editctl review", pause=0.05)
    press(terminal, "\r")
    terminal.until("Nothing waits")
    start_agents(place)
    terminal.until("raise LoadError")
    look(terminal)
    press(terminal, "]", " ")
    terminal.until("to be rejected")
    look(terminal)
    press(terminal, "a")
    terminal.until("Reject 1 hunk")
    press(terminal, *COMMENT, pause=0.05)
    press(terminal, "\r")
    terminal.until("has landed as")
    look(terminal)
    press(terminal, "2")
    terminal.until("Tidy up 5")
    look(terminal)
    press(terminal, "j", "j", "3")
    terminal.until("its proposals")
    look(terminal)
    press(terminal, "/")
    terminal.until("Filter")
    press(terminal, *"codex", pause=0.05)
    press(terminal, "\r")
    look(terminal)
    press(terminal, "R")
    terminal.until("Roll back all the work of codex")
    look(terminal)
    press(terminal, "u")
    terminal.until("is made")
    look(terminal)
    press(terminal, "2", "g")
    terminal.until("rollback")
    look(terminal)
    press(terminal, "q")
    terminal.until(r"\$ $")


def press(terminal: PseudoTerminal, *keys: str, pause: float = KEY_SECONDS) -> None:
    for key in keys:
        terminal.send(key)
        look(terminal, pause)


def look(terminal: PseudoTerminal, seconds: float = LOOK_SECONDS) -> None:
    """Let the time pass, and read what is printed meanwhile."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        terminal.read(left)


def start_agents(place: Workplace) -> None:
    """Start the agents, as a process that nobody waits for."""
    argv = f'exec "{sys.executable}" "{__file__}" --agents &'
    environment = {**place.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(["sh", "-c", argv], cwd=place.root, env=environment, check=True, start_new_session=True)


def agents() -> None:
    """Work as two agents: claude proposes an edit, and codex makes some that nobody asked for."""
    from editd_client.client import Client

    with Client.connect() as claude, Client.connect() as codex:
        claude.session_open("claude", actor="claude", propose="always")
        codex.session_open("codex", actor="codex")
        claude.apply(
            [
                replace("src/loader.py", "def load(path):\n    for attempt in range(3):",
                        "def load(path, retries=5):\n    for attempt in range(retries):"),
                replace("src/loader.py", "    return None", "    raise LoadError(path)"),
                write("src/errors.py", "class LoadError(Exception):\n    pass\n"),
            ],
            message="Retry with backoff",
        )  # fmt: skip
        for number in range(1, 8):
            time.sleep(EDIT_SECONDS)
            bump = replace("package-lock.json", f"1.{number}.0", f"1.{number}.1")
            codex.apply([write(f"tidy/{number}.py", f"x = {number}\n"), bump], message=f"Tidy up {number}")


def as_events(terminal: PseudoTerminal) -> Iterator[list[object]]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for seconds, part in terminal.printed:
        yield [round(seconds, 3), "o", decoder.decode(part)]


def play() -> None:
    """Print the recording at its speed."""
    _, *events = map(json.loads, CAST.read_text().splitlines())
    before = 0.0
    for seconds, _, text in events:
        time.sleep(min(2.0, seconds - before))
        before = seconds
        sys.stdout.write(text)
        sys.stdout.flush()


if __name__ == "__main__":
    assert sys.argv[1:] in (["--write"], ["--play"], ["--agents"]), __doc__
    if sys.argv[1] == "--write":
        CAST.write_text(record())
    else:
        {"--play": play, "--agents": agents}[sys.argv[1]]()
