"""The tour, as somebody would take it: in a folder of theirs, on a terminal or in a pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

TOUR = [sys.executable, "-P", "-m", "editd_client", "tour"]
TEXT = "".join(f"this is line {number}\n" for number in "abcdefghijklmnop")


@pytest.fixture
def temporary(place: Workplace) -> Path:
    """The temporary folder that the tour is to leave as empty as it was."""
    folder = place.folder / "tmp"
    folder.mkdir()
    place.variables["TMPDIR"] = str(folder)
    return folder


def daemons(folder: Path) -> list[str]:
    """The command lines of the daemons whose workspace lies in `folder`."""
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "-m editd " in line and str(folder) in line]


@pytest.mark.long
def test_in_an_empty_folder_it_shows_an_example(place: Workplace, temporary: Path) -> None:
    done = subprocess.run(
        TOUR, cwd=place.root, env=place.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a small example" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert "That was the tour." in done.stdout
    assert list(temporary.iterdir()) == []
    assert daemons(temporary) == []


@pytest.mark.long
def test_three_hosts_leave_nothing_behind(place: Workplace, temporary: Path) -> None:
    done = subprocess.run(
        [*TOUR, "--hosts"],
        cwd=place.root,
        env=place.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the runner has the decision" in done.stdout
    assert "@1 of laptop" in done.stdout
    assert list(temporary.iterdir()) == []
    assert daemons(temporary) == []


def test_in_a_project_it_shows_the_projects_files_and_touches_none(place: Workplace, temporary: Path) -> None:
    place.write({"first.txt": TEXT, "deep/second.txt": TEXT, "it's odd.txt": b"\xff", ".env": "secret"})
    place.git("init", "-q")
    before = place.files()
    done = place.editctl("tour")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " M first.txt\n M it" not in done.stdout
    assert "$ editctl undo 1" in done.stdout
    assert place.files() == before
    assert list(temporary.iterdir()) == []
    assert not (place.folder / "state").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_when_it_is_interrupted_nothing_stays_behind(
    place: Workplace, temporary: Path, number: signal.Signals
) -> None:
    tour = subprocess.Popen(
        TOUR, cwd=place.root, env=place.environment, stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    assert tour.stdout is not None
    for line in tour.stdout:
        if "$ editctl start" in line:
            break
    os.killpg(tour.pid, number) if number is signal.SIGINT else tour.send_signal(number)
    tour.communicate(timeout=30)
    assert tour.returncode == 130
    assert list(temporary.iterdir()) == []
    assert daemons(temporary) == []


@pytest.mark.long
def test_on_a_terminal_it_is_in_colour(place: Workplace, temporary: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        TOUR,
        cwd=place.root,
        env={**place.environment, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as tour:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # EIO: the other end is closed
                break
    os.close(ours)
    assert tour.returncode == 0, shown.decode()
    assert b"\x1b[32m+# Pancakes, for four people  (by alice)\x1b[0m" in shown
