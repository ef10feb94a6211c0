"""An agent's shell: `editctl` below the process that started `editctl mcp` acts in that session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workplace import Workplace

EDITCTL = [sys.executable, "-P", "-m", "editd_client"]
AGENT = Path(__file__).with_name("shell_agent.py")


class ShellAgent:
    """An agent in a process of its own: an MCP client that runs commands, as told line by line."""

    def __init__(self, place: Workplace, *wrapper: str, name: str = "coder", servers: int = 1) -> None:
        words = json.dumps([*wrapper, *EDITCTL, "mcp"])
        self._process = subprocess.Popen(
            [sys.executable, str(AGENT), name, str(servers), words],
            env=place.environment, cwd=place.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, kind: str, what: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, what]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def edit(self, path: str, content: str) -> None:
        arguments = {"edits": [{"op": "write", "path": path, "content": content}]}
        answer = self.ask("call", {"name": "apply_edits", "arguments": arguments})
        assert not answer.get("isError"), answer

    def run(self, *words: str, code: int = 0, **variables: str) -> str:
        """The standard error of `editctl` with these words, in a shell of the agent's."""
        answer = self.ask("run", {"words": [*EDITCTL, *words], "variables": variables})
        assert answer["code"] == code, answer
        said: str = answer["stderr"]
        return said

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def workspace(place: Workplace) -> Iterator[Workplace]:
    place.write({"a.txt": "one\ntwo\n"})
    place.start().close()
    yield place
    place.stop()


def newest(place: Workplace) -> tuple[str, str, str | None]:
    with place.client() as client:
        made = client.log(limit=1).transactions[0]
    return made.kind, made.actor, made.session


SED = ("exec", "--", "sed", "-i", "s/one/1/", "a.txt")


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
