"""The verb `review` without a command: what it needs, and the real screen in tmux."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from support.pseudo_terminal import PseudoTerminal
from support.reviewers import PIN, set_pin
from support.workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

WAIT_SECONDS = 20


def test_without_textual_the_verb_names_the_extra(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ModuleNotFoundError('no textual', name='textual')\n")
    environment = {**place.environment, "PYTHONPATH": f"{tmp_path}:{place.environment['PYTHONPATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "editd_client", "review"],
        cwd=place.root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "needs the extra `review` of editd: textual is not installed" in done.stderr
    assert "pipx install --force '.[review]'" in done.stderr


def test_without_a_terminal_the_verb_names_the_verbs_for_a_script(place: Workplace) -> None:
    done = place.editctl("review")
    assert done.returncode == 1
    assert "needs a terminal" in done.stderr
    assert "editctl proposal list" in done.stderr


def test_a_console_without_utf8_gets_signs_of_ascii_and_with_no_color_no_colours(place: Workplace) -> None:
    bare = {"TERM": "linux", "LC_ALL": "C", "NO_COLOR": "1"}
    argv = [sys.executable, "-m", "editd_client", "review"]
    with place.start() as author:
        author.settle()
        author.apply([write("straße.py", "return 1\n")], propose=True, message="A proposal")
        folder, environment = str(place.root), place.environment
        with PseudoTerminal(argv, (80, 24), folder=folder, environment=environment, kind=bare) as terminal:
            terminal.until(r">P1.*A proposal")
            terminal.until(r"\+return 1")
            printed = b"".join(part for _, part in terminal.printed)
    place.stop()
    signs = printed.replace("straße".encode(), b"")
    assert signs.isascii()
    colours = [part for found in re.findall(rb"\x1b\[([0-9;]+)m", signs) for part in found.split(b";")]
    assert {b"1", b"7"} <= set(colours)  # bold and reverse
    defaults = {39, 49}
    assert not [part for part in map(int, colours) if 30 <= part <= 107 and part not in defaults]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_screen_in_a_real_terminal(place: Workplace) -> None:
    """A proposal comes, is shown, and lands by one key; q gives the terminal back."""
    set_pin(place)
    socket = str(place.runtime / "tmux")
    tmux = ["tmux", "-S", socket, "-f", "/dev/null"]
    environment = {**place.environment, "LANG": "C.UTF-8", "PATH": f"{place.provide_editctl()}:/usr/bin:/bin"}

    def shown(text: str) -> str:
        return shown_one_of(text)

    def shown_one_of(*texts: str) -> str:
        until = time.monotonic() + WAIT_SECONDS
        while True:
            screen = subprocess.run(
                [*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True
            ).stdout
            if any(text in screen for text in texts):
                return screen
            assert time.monotonic() < until, f"never: {texts}\n{screen}"
            time.sleep(0.05)

    def press(key: str) -> None:
        subprocess.run([*tmux, "send-keys", key], check=True)

    with place.start() as author:
        author.settle()
        subprocess.run(
            [*tmux, "new-session", "-d", "-x", "80", "-y", "24", "-c", str(place.root), "sh"],
            env=environment, check=True,
        )  # fmt: skip
        try:
            press("editctl review; echo status $?\n")
            shown("[2 Timeline]")
            press("1")
            shown("Nothing waits")
            author.session_open("agent", actor="claude")
            author.apply([write("a.txt", "1\n")], propose=True, message="From an agent")
            assert "[x] 1" in shown("From an agent") or shown("[x] 1")
            press("a")
            if "PIN" in shown_one_of("has landed as 1", "PIN"):  # where tmux is kin of this test
                press(PIN)
                press("Enter")
            shown("has landed as 1")
            assert place.files() == {"a.txt": b"1\n"}
            press("q")
            shown("status 0")
        finally:
            subprocess.run([*tmux, "kill-server"], check=False)
    place.stop()
