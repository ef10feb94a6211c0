"""An agent's shell: `editctl` below the process that started `editctl mcp` acts in that session."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.raw_client import EDITCTL, SED, ShellAgent, newest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace


@pytest.fixture
def workspace(place: Workplace) -> Iterator[Workplace]:
    place.write({"a.txt": "one\ntwo\n"})
    place.start().close()
    yield place
    place.stop()


def test_a_command_in_an_agents_shell_is_the_agents(workspace: Workplace) -> None:
    agent = ShellAgent(workspace)
    agent.edit("b.txt", "b\n")
    assert "exec by coder in coder" in agent.run(*SED)
    assert newest(workspace) == ("exec", "coder", "coder")
    agent.run("replace", "a.txt", "two", "2")
    assert newest(workspace) == ("edit", "coder", "coder")
    with workspace.client() as client:
        client.rollback("coder")
    assert workspace.files() == {"a.txt": b"one\ntwo\n"}
    agent.close()
    with workspace.client() as client:
        assert not client.session_list().sessions
    assert not list(Path(workspace.socket).parent.glob("*.mcp-*"))


def test_a_command_that_comes_before_the_first_call_opens_the_session(workspace: Workplace) -> None:
    agent = ShellAgent(workspace, name="early")
    agent.run(*SED)
    assert newest(workspace) == ("exec", "early", "early")
    agent.edit("b.txt", "b\n")
    assert newest(workspace) == ("edit", "early", "early")
    agent.close()
    with workspace.client() as client:
        assert not client.session_list().sessions


def test_notes_that_no_server_of_this_system_has_left_hide_no_session(workspace: Workplace) -> None:
    foreign = {
        "namespace": "pid:[1]", "server": {"pid": 1, "start": 1}, "hosts": [], "session": "s", "actor": "s",
        "is_exact": False, "token": "", "is_shared": False,
    }  # fmt: skip

    def leave(number: int) -> None:
        for name, text in ((number, "no record"), (number + 1, json.dumps(foreign))):
            Path(f"{workspace.socket}.mcp-{name}").write_text(text)

    leave(0)
    agent = ShellAgent(workspace)
    agent.edit("b.txt", "b\n")
    leave(8_000_000)  # on each side of the agent's, in whatever order the folder has them
    agent.run(*SED)
    assert newest(workspace) == ("exec", "coder", "coder")
    agent.close()


def test_a_server_behind_a_shell_is_the_agents_all_the_same(workspace: Workplace) -> None:
    agent = ShellAgent(workspace, "sh", "-c", '"$@"; exit $?', "sh")
    agent.edit("b.txt", "b\n")
    agent.run(*SED)
    assert newest(workspace) == ("exec", "coder", "coder")
    agent.close()


def test_what_is_run_elsewhere_or_by_itself_is_not_the_agents(workspace: Workplace) -> None:
    agent = ShellAgent(workspace)
    agent.edit("b.txt", "b\n")
    environment = workspace.environment | {"EDITD_ACTOR": "ann"}
    subprocess.run([*EDITCTL, *SED], env=environment, cwd=workspace.root, check=True, capture_output=True)
    assert newest(workspace) == ("exec", "ann", None)
    agent.run("exec", "--", "sed", "-i", "s/two/2/", "a.txt", EDITD_SESSION="", EDITD_ACTOR="ann")
    assert newest(workspace) == ("exec", "ann", None)
    agent.run("exec", "--session", "other", "--", "sh", "-c", "echo 3 >> a.txt")
    assert newest(workspace)[2] == "other"
    agent.close()


def test_a_persons_terminal_in_the_same_program_is_not_the_agents(workspace: Workplace) -> None:
    agent = ShellAgent(workspace)
    agent.edit("b.txt", "b\n")
    command = " ".join([*EDITCTL, *SED[:2], "sed", "-i", "s/one/1/", "a.txt"])
    assert agent.ask("terminal", command)["code"] == 0
    kind, actor, session = newest(workspace)
    assert (kind, session) == ("exec", None)
    assert actor != "coder"
    agent.close()


def test_of_several_sessions_of_one_agent_none_is_guessed(workspace: Workplace) -> None:
    agent = ShellAgent(workspace, servers=2)
    agent.edit("b.txt", "b\n")
    assert "several sessions" in agent.run(*SED)
    assert newest(workspace)[2] is None
    agent.run("exec", "--session", "coder", "--", "sed", "-i", "s/two/2/", "a.txt")
    assert newest(workspace) == ("exec", "coder", "coder")
    agent.close()


def test_what_a_server_that_was_killed_leaves_behind_is_nobodys(workspace: Workplace) -> None:
    agent = ShellAgent(workspace)
    agent.edit("b.txt", "b\n")
    agent.ask("kill", None)
    assert newest(workspace)[2] == "coder"
    agent.run(*SED)
    assert newest(workspace)[2] is None
    assert not list(Path(workspace.socket).parent.glob("*.mcp-*"))
    agent.kill()
