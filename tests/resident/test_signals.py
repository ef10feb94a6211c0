"""Signals, pipes and terminals: a person sees no difference between the two ways."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.pseudo_terminal import PseudoTerminal
from support.resident import WAIT_SECONDS, children_of, state_letter, until
from support.reviewers import PIN, set_pin
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.resident import Resident


@pytest.fixture
def waiting(resident: Resident) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A call whose daemon does not answer, and its fork."""
    helper = resident.warm()
    assert resident.place.process is not None
    resident.place.process.send_signal(signal.SIGSTOP)
    kept = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup pytest` ignores it, and so would the call
    try:
        process = subprocess.Popen(
            [resident.editctl, "log"], cwd=resident.place.root, env=resident.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            process_group=0,  # the group of a test run may be orphaned, and no program in such a group stops
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGHUP, kept)
    until(lambda: forks_in(str(resident.place.root), helper))
    (fork,) = forks_in(str(resident.place.root), helper)
    until(lambda: has_handler(process.pid, signal.SIGTSTP))
    try:
        yield process, fork
    finally:
        resident.place.process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def forks_in(folder: str, helper: int) -> list[int]:
    """Return the forks of a helper that have become a caller in this folder."""
    found = []
    for child in children_of(helper):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{child}/cwd") == folder:
                found.append(child)
    return found


def has_handler(process: int, number: int) -> bool:
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_ctrl_c_interrupts_the_fork(waiting: tuple[subprocess.Popen[str], int]) -> None:
    process, fork = waiting
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, err) == (130, "", "\n")  # of click
    until(lambda: state_letter(fork) in ("", "Z"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT])
def test_a_fork_ends_with_its_caller(waiting: tuple[subprocess.Popen[str], int], number: int) -> None:
    process, fork = waiting
    process.send_signal(number)
    assert process.wait(WAIT_SECONDS) == -number
    until(lambda: state_letter(fork) in ("", "Z"))


def test_ctrl_z_stops_the_fork_and_fg_continues_both(
    resident: Resident, waiting: tuple[subprocess.Popen[str], int]
) -> None:
    process, fork = waiting
    process.send_signal(signal.SIGTSTP)
    until(lambda: (state_letter(process.pid), state_letter(fork)) == ("T", "T"))
    process.send_signal(signal.SIGCONT)
    until(lambda: state_letter(fork) != "T")
    assert resident.place.process is not None
    resident.place.process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, err) == (0, "")
    assert "baseline" in out


def test_a_fork_that_does_not_react_is_left_by_a_second_ctrl_c(
    waiting: tuple[subprocess.Popen[str], int],
) -> None:
    process, fork = waiting
    os.kill(fork, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    os.kill(fork, signal.SIGCONT)
    until(lambda: state_letter(fork) in ("", "Z"))


def test_a_lost_fork_is_reported_and_the_command_is_not_repeated(
    waiting: tuple[subprocess.Popen[str], int],
) -> None:
    process, fork = waiting
    os.kill(fork, signal.SIGKILL)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out) == (3, "")
    assert "may or may not have been carried out" in err


def test_a_reader_that_leaves_early_is_no_failure(resident: Resident) -> None:
    resident.place.write({"long.txt": "x" * 79 + "\n" + "line\n" * 200_000})
    resident.run("settle")
    resident.warm()
    command = f"{resident.editctl} read long.txt | head -c 80; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=resident.place.root, env=resident.environment(), text=True,
        capture_output=True, check=True, timeout=WAIT_SECONDS,
    )  # fmt: skip
    assert resident.reasons() == []
    assert (done.stdout, done.stderr) == ("x" * 79 + "\n0\n", "")


def test_a_full_disk_is_reported(resident: Resident) -> None:
    resident.warm()
    for way in ("yes", "no"):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [resident.editctl, "status"], cwd=resident.place.root, stdout=full, text=True, check=False,
                stderr=subprocess.PIPE, env=resident.environment(EDITD_RESIDENT=way), timeout=WAIT_SECONDS,
            )  # fmt: skip
        assert done.returncode == 5
        assert "could not be written: No space left on device" in done.stderr


def test_colours_and_width_are_the_terminal_s(resident: Resident) -> None:
    resident.warm()
    texts = []
    for way in ("yes", "no"):
        with terminal_of(resident, "log", "--oneline", EDITD_RESIDENT=way, PAGER="cat") as terminal:
            while terminal.read(WAIT_SECONDS):
                pass
            texts.append(b"".join(part for _, part in terminal.printed))
    assert resident.reasons() == ["EDITD_RESIDENT=no"]
    assert b"\x1b[" in texts[0]
    fast, slow = (re.sub(rb"\d+ seconds? ago +", b"", text) for text in texts)
    assert fast == slow


def test_the_caller_asks_for_the_pin(resident: Resident) -> None:
    """The fork has no terminal of its own, and the answer of the daemon comes late."""
    place = resident.place
    set_pin(place)
    with place.client() as client:
        client.session_open("bob")
        client.apply([write("bobs.txt", "bob\n")])
        token = client.session_open("robot", kind="agent").token
    place.variables |= {"EDITD_SESSION": "robot", "EDITD_TOKEN": str(token)}
    resident.warm()
    with terminal_of(resident, "undo", "1") as terminal:
        terminal.until("PIN: ")
        terminal.send("\x03")
        assert terminal.process.wait(WAIT_SECONDS) == 130
    assert "bobs.txt" in place.files()
    with terminal_of(resident, "undo", "1") as terminal:
        terminal.until("PIN: ")
        terminal.send(f"{PIN}\n")
        while terminal.read(WAIT_SECONDS):
            pass
        assert terminal.process.wait(WAIT_SECONDS) == 0, terminal.text().decode()
        assert PIN.encode() not in terminal.text()
    assert "bobs.txt" not in place.files()
    assert resident.reasons() == []


def terminal_of(resident: Resident, *words: str, **variables: str) -> PseudoTerminal:
    return PseudoTerminal(
        [resident.editctl, *words], (100, 24), folder=str(resident.place.root),
        environment=resident.environment(**variables),
    )  # fmt: skip
