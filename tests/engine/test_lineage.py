"""Tests of `review.lineage`: the programs that the program of the author has started, too."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd.config.program_names import LAUNCHERS
from editd.review.lineage import author_program, common_program, launcher_of
from editd.system.peer import peer_of
from editd.system.process import Process, line_above

if TYPE_CHECKING:
    from pathlib import Path

INIT = Process(1, 0, 1, "systemd")
TERMINAL = Process(10, 5, 10, "kitty")
SHELL = Process(20, 7, 20, "bash")
AGENT = Process(30, 9, 20, "claude")
TOOL = Process(40, 11, 20, "bash")
PERSON = Process(50, 12, 20, "editctl")


def test_what_an_agent_started_is_its_kin() -> None:
    line = (AGENT, SHELL, TERMINAL, INIT)
    assert common_program(line, (TOOL, *line)) == "claude"
    assert common_program((TOOL, *line), line) == "claude"


def test_a_person_in_the_shell_that_started_the_agent_is_no_kin() -> None:
    ground = (SHELL, TERMINAL, INIT)
    assert common_program((AGENT, *ground), (PERSON, *ground)) is None


def test_a_shell_that_does_not_lead_its_session_is_no_common_ground() -> None:
    ground = (TOOL, SHELL, TERMINAL, INIT)
    assert common_program((AGENT, *ground), (PERSON, *ground)) == "bash"


def test_an_agent_that_leads_the_session_is_no_common_ground_either() -> None:
    leader = Process(30, 9, 30, "claude")
    assert common_program((leader, TERMINAL, INIT), (PERSON, leader, TERMINAL, INIT)) == "claude"


def test_an_editor_makes_the_agent_and_the_terminal_in_it_kin() -> None:
    editor = Process(15, 6, 15, "code")
    assert common_program((AGENT, editor, INIT), (PERSON, SHELL, editor, INIT)) == "code"


def test_a_number_that_was_used_again_is_another_process() -> None:
    again = Process(30, 99, 20, "claude")
    assert common_program((AGENT, SHELL, INIT), (again, SHELL, INIT)) is None


def test_of_a_process_that_cannot_be_seen_nothing_is_said() -> None:
    assert common_program((), (PERSON, INIT)) is None
    assert common_program((AGENT, INIT), ()) is None


def test_the_proposals_of_all_that_a_program_has_started_share_its_limit() -> None:
    line = (TOOL, AGENT, SHELL, TERMINAL, INIT)
    assert author_program(line, ()) == author_program(line[1:], ()) == AGENT.key, (
        "the highest that people start"
    )
    editor = Process(15, 6, 15, "code")
    below = (TOOL, AGENT, editor, INIT)
    assert author_program(below, ()) == editor.key
    assert author_program(below, {AGENT.key}) == AGENT.key, "two agents of an editor are two"
    assert author_program((PERSON, SHELL, TERMINAL, INIT), {AGENT.key}) == PERSON.key
    assert author_program((), {AGENT.key}) is None


@pytest.mark.parametrize("launchers", [(), ("bash",), *((one,) for one in sorted(LAUNCHERS)), ("uvx", "sh")])
def test_the_agent_of_a_server_is_the_first_program_above_it_that_is_no_launcher(
    launchers: tuple[str, ...],
) -> None:
    server = Process(45, 12, 20, "editctl")
    between = [Process(35 + number, 10, 20, name) for number, name in enumerate(launchers)]
    assert launcher_of((server, *between, AGENT, SHELL, TERMINAL, INIT)) == AGENT
    assert launcher_of((server, *between, SHELL, TERMINAL, INIT)) == SHELL, "a person has started it"


def test_a_server_with_nothing_above_it_has_no_agent() -> None:
    assert launcher_of((Process(45, 12, 20, "editctl"),)) is None
    assert launcher_of(()) is None


def test_init_is_common_ground_by_its_number_alone() -> None:
    init = Process(1, 0, 1, "docker-init")
    assert common_program((AGENT, init), (PERSON, init)) is None


@pytest.mark.needs("/proc")
def test_this_process_has_its_parent_above_it() -> None:
    line = line_above(os.getpid())
    assert [process.pid for process in line[:2]] == [os.getpid(), os.getppid()]
    assert line[0].session == os.getsid(0)
    assert line_above(2**22 + 1) == ()


ASK = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
AGENT_PROGRAM = f"""
import subprocess, sys
first = subprocess.Popen([sys.executable, "-c", {ASK!r}, sys.argv[1]])
second = subprocess.Popen(["bash", "-c", '"$@"; true', "bash", sys.executable, "-c", {ASK!r}, sys.argv[1]])
first.wait(), second.wait()
"""


@pytest.mark.needs("/proc")
@pytest.mark.parametrize("is_from_a_shell", [True, False])
def test_a_real_agent_in_a_terminal_is_kin_to_its_own_shell_and_not_to_a_person_elsewhere(
    tmp_path: Path, is_from_a_shell: bool
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(30)
        ask = [sys.executable, "-c", ASK, str(tmp_path / "s")]
        agent = [sys.executable, "-c", AGENT_PROGRAM, str(tmp_path / "s")]
        if is_from_a_shell:
            agent = ["bash", "-c", '"$@"; true', "bash", *agent]
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvp(agent[0], agent)
        connections = [listener.accept()[0] for _ in range(2)]
        with subprocess.Popen(ask, start_new_session=True):
            connections.append(listener.accept()[0])
            one, two, elsewhere = (line_above(peer_of(connection).pid) for connection in connections)
            own = line_above(os.getpid())[0]  # which has started all of them, and is common ground here
            one, two, elsewhere = (line[: line.index(own)] for line in (one, two, elsewhere))
            found = common_program(one, two), common_program(one, elsewhere)
            for connection in connections:
                connection.close()
        os.waitpid(pid, 0)
        os.close(terminal)
    assert found[0] is not None
    assert found[0].startswith("python")
    assert found[1] is None
