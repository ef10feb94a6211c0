"""pin_tries: the wrong tries of one tree of processes, kept for an hour by all daemons together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from editd.errors import IoError, Overloaded, Refused
from editd.review.pin_tries import (
    ALL_TRIES_MAX,
    ELSEWHERE,
    FILE,
    TREE_TRIES_MAX,
    TRIES_SECONDS,
    PinTries,
    tree_of,
)
from editd.system.process import Process

if TYPE_CHECKING:
    from pathlib import Path

INIT = Process(1, 0, 1, "systemd")
EDITOR = Process(15, 6, 15, "code")
TERMINAL = Process(20, 7, 20, "bash")  # of a person, in the editor
AGENT = Process(30, 9, 15, "claude")
SERVER = Process(31, 9, 15, "editctl")  # the agent's MCP server, which proposes
TOOL = Process(40, 11, 15, "sh")
SHELL = Process(41, 12, 41, "bash")  # of the agent, in a terminal session of its own
PERSON = Process(50, 12, 20, "editctl")
AUTHOR = (SERVER, AGENT, EDITOR, INIT)


def test_the_shells_of_an_agent_are_one_tree_and_the_terminal_of_its_editor_is_another() -> None:
    shells = [(PERSON, TOOL, AGENT, EDITOR, INIT), (PERSON, SHELL, AGENT, EDITOR, INIT)]
    of_agent = {tree_of([AUTHOR], line) for line in shells}
    assert len(of_agent) == 1
    of_person = tree_of([AUTHOR], (PERSON, TERMINAL, EDITOR, INIT))
    assert of_person not in of_agent
    assert ELSEWHERE not in of_agent | {of_person}


def test_the_kin_of_no_author_and_a_hidden_process_are_elsewhere() -> None:
    assert tree_of([AUTHOR], (PERSON, INIT)) == ELSEWHERE
    assert tree_of([AUTHOR], ()) == ELSEWHERE
    assert tree_of([], (PERSON, TERMINAL, EDITOR, INIT)) == ELSEWHERE


def test_the_nearest_author_counts() -> None:
    other = (Process(60, 1, 15, "editctl"), Process(61, 1, 15, "codex"), EDITOR, INIT)
    shell = (PERSON, TOOL, AGENT, EDITOR, INIT)
    assert tree_of([other, AUTHOR], shell) == tree_of([AUTHOR], shell)


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.us = 1_000_000_000_000

    def now_us(self) -> int:
        return self.us


def test_a_tree_has_five_tries_an_hour_whatever_daemon_it_asks(tmp_path: Path) -> None:
    time = Time()
    for _ in range(TREE_TRIES_MAX):
        PinTries(str(tmp_path), time.now_us).begin("agent")  # each as after a restart
    tries = PinTries(str(tmp_path), time.now_us)
    with pytest.raises(Overloaded, match="wrong 5 times within an hour"):
        tries.begin("agent")
    tries.begin("person")
    assert TRIES_SECONDS == 3600
    for seconds in (1_801, 1_798):
        time.us += seconds * 1_000_000
        with pytest.raises(Overloaded):
            tries.begin("agent")
    time.us += 1_000_001
    tries.begin("agent")


def test_a_right_pin_takes_no_try(tmp_path: Path) -> None:
    tries = PinTries(str(tmp_path), Time().now_us)
    for _ in range(TREE_TRIES_MAX - 1):
        tries.begin("person")
    for _ in range(TREE_TRIES_MAX):
        tries.begin("person")
        tries.take_back("person")
    tries.begin("person")
    with pytest.raises(Overloaded):
        tries.begin("person")


def test_all_trees_together_have_a_limit(tmp_path: Path) -> None:
    tries = PinTries(str(tmp_path), Time().now_us)
    for number in range(ALL_TRIES_MAX):
        tries.begin(f"tree {number}")
    with pytest.raises(Overloaded, match=f"wrong {ALL_TRIES_MAX} times"):
        tries.begin("another")


def test_a_clock_that_was_set_back_forgives_no_try(tmp_path: Path) -> None:
    time = Time()
    tries = PinTries(str(tmp_path), time.now_us)
    for _ in range(TREE_TRIES_MAX):
        tries.begin("agent")
    time.us -= 60_000_000
    with pytest.raises(Overloaded):
        tries.begin("agent")


def test_tries_at_once_do_not_go_beyond_the_limit(tmp_path: Path) -> None:
    admitted: list[int] = []
    refused: list[Refused] = []

    def attempt(number: int) -> None:
        try:
            PinTries(str(tmp_path), Time().now_us).begin("agent")
            admitted.append(number)
        except Overloaded as refusal:
            refused.append(refusal)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), len(refused)) == (TREE_TRIES_MAX, 20 - TREE_TRIES_MAX)


def test_a_file_that_is_damaged_or_cannot_be_written_admits_no_try(tmp_path: Path) -> None:
    tries = PinTries(str(tmp_path), Time().now_us)
    (tmp_path / FILE).write_text("[[1")
    with pytest.raises(IoError, match=f"damaged. Delete {tmp_path / FILE}"):
        tries.begin("agent")
    with pytest.raises(IoError, match="cannot be kept"):
        PinTries(str(tmp_path / "missing"), Time().now_us).begin("agent")
