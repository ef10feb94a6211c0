"""The session of an MCP call: that of the agent's hooks where it can be known, otherwise the connection's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from support.fork_server import run_forked, server
from support.raw_client import SED, ShellAgent, hello, newest, raw_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.raw_client import RawClient
    from support.workplace import Workplace

CODEX_ID = "0199b5a2-1111-7000-8000-abcdef01cafe"
CODEX = "codex-ef01cafe"


@pytest.fixture
def workspace(place: Workplace) -> Iterator[Workplace]:
    place.write({"a.txt": "one\ntwo\n", "b.txt": "b\n"})
    place.start().close()
    yield place
    place.stop()


@pytest.fixture
def hook(workspace: Workplace) -> Iterator[Client]:
    """The hook of an agent: it names sessions, and opens none."""
    with workspace.client() as made:
        made.hello("gemini")
        yield made


def write(client: RawClient, path: str, session_id: str | None = None) -> None:
    """Write a file, as a client that sends the id of its session or does not."""
    edits = [{"op": "write", "path": path, "content": f"{path}\n"}]
    call(client, "apply_edits", {"edits": edits}, session_id)


def call(client: RawClient, tool: str, arguments: dict[str, Any], session_id: str | None = None) -> Any:
    meta = {} if session_id is None else {"_meta": {"callId": "1", "threadId": "t", "sessionId": session_id}}
    result = client.ask(9, "tools/call", name=tool, arguments=arguments, **meta)["result"]
    assert not result["isError"], result
    return result["structuredContent"]


def begin(client: RawClient, name: str) -> None:
    client.ask(1, "initialize", **hello(name))
    client.send({"method": "notifications/initialized"})


def native_edit(hook: Client, place: Workplace, session: str, path: str, *, pid: int | None = None) -> None:
    """An edit by the agent's own tool, as its hooks announce it."""
    hook.exec_begin(f"edit {path}", paths=[path], key=f"{session}:{path}", session=session, pid=pid)
    place.write({path: f"{session}\n"})
    hook.exec_end(key=f"{session}:{path}", session=session, status=0)


def test_a_call_of_codex_acts_in_the_session_that_its_hooks_name(workspace: Workplace, hook: Client) -> None:
    before = workspace.files()
    with raw_client(workspace) as client:
        begin(client, "codex-mcp-client")
        client.ask(2, "tools/list")
        write(client, "made.txt", CODEX_ID)
        assert newest(workspace) == ("edit", "codex", CODEX)
        lease = call(client, "lease", {"action": "acquire", "paths": ["*.txt"]}, CODEX_ID)["lease"]
        native_edit(hook, workspace, CODEX, "a.txt")
        assert newest(workspace)[::2] == ("exec", CODEX)
        call(client, "lease", {"action": "release", "lease": lease}, CODEX_ID)
        call(client, "rollback_session", {}, CODEX_ID)
        assert workspace.files() == before
        write(client, "other.txt", "another-session-1234abcd")
        assert newest(workspace)[2] == "codex-1234abcd"
        assert client.end() == b""
    assert hook.session_list().sessions == [], "it has opened none"


def test_a_rollback_takes_what_another_program_may_have_made_only_if_it_is_told_to(
    workspace: Workplace, hook: Client
) -> None:
    hook.settle()
    workspace.write({"a.txt": "a person's\n"})
    command = hook.exec_begin("make", session=CODEX).exec
    workspace.write({"a.txt": "made\n"})
    hook.exec_end(command, 0)
    with raw_client(workspace) as client:
        begin(client, "codex-mcp-client")
        meta = {"sessionId": CODEX_ID}
        result = client.ask(2, "tools/call", name="rollback_session", arguments={}, _meta=meta)["result"]
        assert result["structuredContent"]["error"] == "nothing_to_undo"
        assert "include_by_time" in result["content"][0]["text"]
        shown = call(client, "rollback_session", {"include_by_time": True, "dry_run": True}, CODEX_ID)
        assert [one["path"] for one in shown["by_time"]] == ["a.txt"]
        call(client, "rollback_session", {"include_by_time": True}, CODEX_ID)
    assert workspace.files()["a.txt"] == b"a person's\n"


def test_a_client_of_another_name_sends_its_id_in_vain(workspace: Workplace) -> None:
    with raw_client(workspace) as client:
        begin(client, "somebody")
        write(client, "made.txt", CODEX_ID)
        assert newest(workspace) == ("edit", "somebody", "somebody")


def test_an_id_that_is_none_names_no_session(workspace: Workplace) -> None:
    ids: tuple[Any, ...] = ("", "\n", 7, None, ["x"])
    own = ("codex", *(f"codex-{number}" for number in range(2, len(ids) + 1)))
    for session_id, name in zip(ids, own, strict=True):
        with raw_client(workspace) as client:
            begin(client, "codex-mcp-client")
            write(client, f"{name}.txt", session_id)
            assert newest(workspace) == ("edit", "codex", name), session_id
            assert client.end() == b""


def test_a_session_that_is_named_at_the_start_goes_before_that_of_the_hooks(
    workspace: Workplace, hook: Client
) -> None:
    native_edit(hook, workspace, "gemini-12345678", "a.txt", pid=server().pid)
    with raw_client(workspace, "--session", "named") as client:
        begin(client, "codex-mcp-client")
        write(client, "made.txt", CODEX_ID)
        assert newest(workspace)[2] == "named"


def test_a_server_acts_in_the_only_session_that_its_parent_has_named(
    workspace: Workplace, hook: Client
) -> None:
    """The fork server is the agent here: it starts the MCP server, and its hooks name it."""
    before = workspace.files()
    native_edit(hook, workspace, "gemini-12345678", "a.txt", pid=server().pid)
    with raw_client(workspace) as client:
        begin(client, "gemini-cli-mcp-client")
        client.ask(2, "tools/list")
        write(client, "made.txt")
        assert newest(workspace) == ("edit", "gemini", "gemini-12345678")
        native_edit(hook, workspace, "gemini-other", "b.txt", pid=server().pid)
        write(client, "more.txt")
        assert newest(workspace)[2] == "gemini-12345678", "the first call decides"
        call(client, "rollback_session", {})
    assert workspace.files() == before | {"b.txt": b"gemini-other\n"}


def test_the_start_of_an_agent_s_session_is_enough_to_know_it(workspace: Workplace) -> None:
    workspace.git("init", "-q")
    event = {"hook_event_name": "SessionStart", "session_id": "11111111-22223333", "cwd": str(workspace.root)}
    run_forked(
        ["-m", "editd_client.agents.hook", "claude"], stdin=json.dumps(event).encode(),
        environment=workspace.environment | {"EDITD_HOOK_SECONDS": "30"}, folder=workspace.root,
    ).check_returncode()  # fmt: skip
    with raw_client(workspace) as client:
        begin(client, "claude-code")
        write(client, "made.txt")
        assert newest(workspace) == ("edit", "claude", "claude-22223333")


def test_of_two_sessions_that_its_parent_has_named_it_takes_none(workspace: Workplace, hook: Client) -> None:
    for session, path in (("gemini-1", "a.txt"), ("gemini-2", "b.txt")):
        native_edit(hook, workspace, session, path, pid=server().pid)
    with raw_client(workspace) as client:
        begin(client, "gemini-cli-mcp-client")
        write(client, "made.txt")
        assert newest(workspace) == ("edit", "gemini-cli", "gemini-cli")


def test_the_session_of_another_process_is_not_taken(workspace: Workplace, hook: Client) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as another:
        native_edit(hook, workspace, "gemini-1", "a.txt", pid=another.pid)
        assert [agent.pid for agent in hook.status().agents] == [another.pid]
        with raw_client(workspace) as client:
            begin(client, "gemini-cli-mcp-client")
            write(client, "made.txt")
            assert newest(workspace)[2] == "gemini-cli"
        another.kill()
        another.wait()
        assert [agent.pid for agent in hook.status().agents] == [None], "it has ended"


def test_a_command_in_the_shell_of_such_an_agent_is_in_the_same_session(workspace: Workplace) -> None:
    agent = ShellAgent(workspace, name="codex-mcp-client")
    edits = [{"op": "write", "path": "made.txt", "content": "x\n"}]
    agent.ask(
        "call", {"name": "apply_edits", "arguments": {"edits": edits}, "_meta": {"sessionId": CODEX_ID}}
    )
    assert newest(workspace)[2] == CODEX
    agent.run(*SED)
    assert newest(workspace) == ("exec", "codex", CODEX)
    agent.close()
