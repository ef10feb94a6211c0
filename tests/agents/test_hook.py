"""`editd-hook`: events of agents, recorded or as documented, and the requests and refusals they become."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd_client.agents import NAMES, commands
from editd_client.agents.adapter import Adapter
from editd_client.agents.hook import (
    DIFF_LENGTH_MAX,
    FIRST_SECONDS_MAX,
    SILENT_SECONDS,
    Event,
    adapter_of,
    answer_to,
)
from support.json_daemon import JsonDaemon
from support.shell_commands import READING, WRITING
from support.workplace import TOP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.json_daemon import Answer

PAYLOADS = Path(__file__).with_name("payloads")
HOOKED = sorted(file.stem for file in PAYLOADS.glob("*.jsonl"))
ROOT = "@ROOT@"  # in the recorded payloads
DENIED = {
    "codex": "hookSpecificOutput.permissionDecisionReason",
    "claude": "hookSpecificOutput.permissionDecisionReason",
    "gemini": "reason",
    "cursor": "agent_message",
    "cline": "errorMessage",
    "goose": "reason",
    "crush": "reason",
}


def recorded(agent: str, root: str) -> Iterator[dict[str, Any]]:
    for line in (PAYLOADS / f"{agent}.jsonl").read_text().splitlines():
        yield json.loads(line.replace(ROOT, root))


def test_each_agent_with_hooks_has_payloads() -> None:
    assert [name for name in sorted(NAMES) if isinstance(adapter_of(name), Adapter)] == HOOKED


@pytest.mark.parametrize("agent", HOOKED)
def test_the_events_of_an_agent_become_these_requests(agent: str, tmp_path: Path) -> None:
    """`python tests/agents/test_hook.py` writes the requests anew."""
    adapter = adapter_of(agent)
    assert isinstance(adapter, Adapter)
    for line in recorded(agent, str(tmp_path)):
        assert request_of(adapter, line["payload"], str(tmp_path)) == line["request"]


@pytest.mark.parametrize("agent", HOOKED)
def test_the_key_before_a_tool_is_the_key_after_it(agent: str, tmp_path: Path) -> None:
    events = [line["request"] for line in recorded(agent, str(tmp_path)) if line["request"]]
    begun = {params["key"] for method, params in events if method == "exec.begin"}
    ended = {params["key"] for method, params in events if method == "exec.end" and "key" in params}
    assert ended
    assert ended <= begun


@pytest.mark.parametrize("agent", HOOKED)
@pytest.mark.parametrize(
    "payload", ["[]", "7", "null", '"x"', "{}", '{"cwd": "\\u0000"}', '{"cwd": "\\ud800"}']
)
def test_any_payload_is_borne(agent: str, payload: str) -> None:
    assert answer_to(agent, payload.encode()) is None


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
def test_a_path_that_no_system_call_takes_is_left_out(path: str, tmp_path: Path) -> None:
    adapter = adapter_of("claude")
    assert isinstance(adapter, Adapter)
    payload = {
        "session_id": "s", "cwd": str(tmp_path), "hook_event_name": "PreToolUse", "tool_name": "Edit",
        "tool_input": {"file_path": path},
    }  # fmt: skip
    assert request_of(adapter, payload, str(tmp_path)) is None


def test_the_other_paths_of_a_patch_count_behind_one_that_no_system_call_takes(tmp_path: Path) -> None:
    adapter = adapter_of("codex")
    assert isinstance(adapter, Adapter)
    names = ("a\0b", "\ud800", "c.txt")
    patch = "".join(f"*** Update File: {name}\n@@\n-1\n+2\n" for name in names)
    payload = {
        "session_id": "s", "cwd": str(tmp_path), "hook_event_name": "PreToolUse",
        "tool_name": "apply_patch", "tool_use_id": "1",
        "tool_input": {"command": f"*** Begin Patch\n{patch}*** End Patch\n"},
    }  # fmt: skip
    request = request_of(adapter, payload, str(tmp_path))
    assert request is not None
    assert (request[0], request[1]["paths"]) == ("exec.begin", ["c.txt"])


@pytest.mark.parametrize("digits", ["", " ", "9" * 5000, "x"])
def test_an_exit_code_that_is_no_number_counts_as_a_failure(digits: str) -> None:
    adapter = adapter_of("gemini")
    assert isinstance(adapter, Adapter)
    event = Event(adapter, {"tool_response": {"llmContent": f"Exit Code: {digits}"}})
    assert event.status == 1


def request_of(adapter: Adapter, payload: dict[str, Any], root: str) -> list[Any] | None:
    event = Event(adapter, payload)
    request = None if event.moment in (None, "start") else event.request(root, is_strict=False)
    return None if request is None else list(request)


@pytest.mark.parametrize("command", READING)
def test_a_command_that_only_reads_needs_no_bracket(command: str) -> None:
    assert commands.only_reads(command)


@pytest.mark.parametrize("command", WRITING)
def test_a_command_that_may_write_has_one(command: str) -> None:
    assert not commands.only_reads(command)


def test_files_that_a_command_shows_whole() -> None:
    assert commands.shown_files("cat a b && cat -n c | head") == ["a", "b", "c"]
    assert commands.shown_files("head a; cat *.py; cat 'x y'") == []


def test_a_patch_in_a_shell_is_an_edit_of_its_paths_in_its_folder(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Delete File: a\n*** Update File: b\n*** Move to: c\n*** End Patch"
    command = f"cd sub && apply_patch <<'EOF'\n{patch}\nEOF"
    made = begin("codex", tmp_path, "Bash", {"command": command})
    assert (made["paths"], made["whole"]) == (["sub/a", "sub/b", "sub/c"], ["sub/a", "sub/c"])


def begin(agent: str, root: Path, tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    adapter = adapter_of(agent)
    assert isinstance(adapter, Adapter)
    before = next(name for name, moment in adapter.events.items() if moment == "before")
    payload = {"hook_event_name": before, "session_id": "s" * 20, "cwd": str(root), "tool_use_id": "1"}
    event = Event(adapter, {**payload, "tool_name": tool, "tool_input": arguments, **more})
    request = event.request(str(root), is_strict=False)
    return {} if request is None else request[1]


def test_a_path_goes_through_links_and_never_out_of_the_workspace(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "link").symlink_to("real")
    (root / "real/file").symlink_to("other")
    (root / "out").symlink_to(tmp_path)
    assert begin("claude", root, "Edit", {"file_path": "link/new"})["paths"] == ["real/new"]
    assert begin("claude", root, "Edit", {"file_path": "link/file"})["paths"] == ["real/file", "real/other"]
    for outside in ("out/x", "../x", "/etc/x", ".git/config", "."):
        assert begin("claude", root, "Edit", {"file_path": outside}) in ({}, {"file_path": outside})


def test_a_sub_agent_has_a_session_below_that_of_its_parent(tmp_path: Path) -> None:
    made = begin("claude", tmp_path, "Bash", {"command": "make"}, agent_id="agent-1234abcd")
    assert made["session"] == "claude-ssssssss-abcd"


def test_cursor_which_runs_claude_s_hooks_as_well_is_announced_once(tmp_path: Path) -> None:
    adapter = adapter_of("claude")
    assert isinstance(adapter, Adapter)
    payload = first_edit("claude", tmp_path)
    assert Event(adapter, payload).moment == "before"
    assert Event(adapter, {**payload, "cursor_version": "2.5"}).moment is None


def test_the_session_of_the_environment_is_the_agent_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITD_SESSION", "mine")
    assert begin("claude", tmp_path, "Bash", {"command": "make"})["session"] == "mine"


# ── The program ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A short folder with a workspace in it: a socket's path has a limit."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="editd-hook-") as made:
        (Path(made) / "root/.git").mkdir(parents=True)
        yield Path(made)


def hook(
    agent: str, payload: dict[str, Any], socket_path: Path, folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": f"{TOP / 'client'}:{TOP / 'daemon'}",
        "EDITD_SOCKET": str(socket_path),
    }
    return subprocess.run(
        [sys.executable, "-m", "editd_client.agents.hook", agent, *words],
        input=json.dumps(payload), env=environment, cwd=folder / "root",
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def first_edit(agent: str, root: Path) -> dict[str, Any]:
    """The payload of the first edit that would be announced."""
    for line in recorded(agent, str(root)):
        if line["request"] and line["request"][0] == "exec.begin" and "paths" in line["request"][1]:
            payload: dict[str, Any] = line["payload"]
            return payload
    raise AssertionError(agent)


def refusing(name: str, diff: str) -> Callable[[str, dict[str, Any]], Answer]:
    def answer(method: str, params: dict[str, Any]) -> Answer:
        del params
        if method == "hello":
            return {"result": {}}
        data = {"name": name, "data": {"diff": diff, "hint": "Read it again."}}
        return {"error": {"code": 1, "message": f"It is {name}. Read it again.", "data": data}}

    return answer


@pytest.mark.parametrize("agent", HOOKED)
def test_a_refusal_has_the_agent_s_own_form_with_hint_and_diff(agent: str, folder: Path) -> None:
    daemon = JsonDaemon(folder, refusing("stale", "-two\n+" + "2" * 9000))
    done = hook(agent, first_edit(agent, folder / "root"), daemon.path, folder)
    daemon.close()
    text: Any = json.loads(done.stdout)
    for name in DENIED[agent].split("."):
        text = text[name]
    assert text.startswith("editd: It is stale. Read it again.\nThe changes since it was read:\n-two\n+2222")
    assert DIFF_LENGTH_MAX < len(text) < DIFF_LENGTH_MAX + 200
    assert (done.returncode, done.stderr) == (0, "")
    assert [method for method, _ in daemon.asked] == ["hello", "exec.begin"]
    assert daemon.asked[1][1]["pid"] == os.getpid()


@pytest.mark.parametrize("name", ["leased", "stale", "permission_denied", "path_protected", "unread"])
def test_these_refusals_deny_the_tool(name: str, folder: Path) -> None:
    daemon = JsonDaemon(folder, refusing(name, ""))
    assert "deny" in hook("codex", first_edit("codex", folder / "root"), daemon.path, folder).stdout
    daemon.close()


def test_other_refusals_let_the_tool_run(folder: Path) -> None:
    daemon = JsonDaemon(folder, refusing("overloaded", ""))
    done = hook("codex", first_edit("codex", folder / "root"), daemon.path, folder)
    daemon.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_a_daemon_the_hook_says_nothing_and_is_soon_over(folder: Path) -> None:
    for _ in range(5):
        done = hook("codex", first_edit("codex", folder / "root"), folder / "none.sock", folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("agent", NAMES)
def test_an_event_without_members_is_left_alone(agent: str, folder: Path) -> None:
    done = hook(agent, {}, folder / "none.sock", folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("payload", ["", "null", "[1]", "{", '{"hook_event_name": 3}', "\xff"])
def test_an_event_that_makes_no_sense_is_left_alone(payload: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "editd_client.agents.hook", "codex"], input=payload.encode("latin-1"),
        env={"PYTHONPATH": f"{TOP / 'client'}:{TOP / 'daemon'}", "HOME": str(folder)},
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_daemon_that_hangs_costs_200_ms_and_after_three_times_nothing(folder: Path) -> None:
    daemon = JsonDaemon(folder, lambda method, params: None)
    payload = first_edit("codex", folder / "root")
    quick = min(seconds(payload, folder / "none.sock", folder) for _ in range(3))
    times = [seconds(payload, daemon.path, folder) for _ in range(3)]
    assert min(times) >= FIRST_SECONDS_MAX
    assert min(times) - quick < 0.6
    assert daemon.connections == 3
    hook("codex", payload, daemon.path, folder)
    assert daemon.connections == 3, "it is not asked again"
    past = time.time() - SILENT_SECONDS - 1
    os.utime(f"{daemon.path}.hook", (past, past))
    hook("codex", payload, daemon.path, folder)
    assert daemon.connections == 4, "after a while it is"
    daemon.close()


def seconds(payload: dict[str, Any], path: Path, folder: Path) -> float:
    began = time.monotonic()
    assert hook("codex", payload, path, folder).stdout == ""
    return time.monotonic() - began


def test_an_answer_forgets_the_failures(folder: Path) -> None:
    daemon = JsonDaemon(folder, lambda method, params: {"result": {}})
    failures = Path(f"{daemon.path}.hook")
    failures.write_bytes(b"..")
    hook("codex", first_edit("codex", folder / "root"), daemon.path, folder)
    daemon.close()
    assert not failures.exists()


def test_strict_takes_every_edited_path_for_one_that_is_overwritten(folder: Path) -> None:
    daemon = JsonDaemon(folder, lambda method, params: {"result": {}})
    hook("codex", first_edit("codex", folder / "root"), daemon.path, folder, "--strict")
    daemon.close()
    assert daemon.asked[1][1]["whole"] == ["a.txt"]


def test_the_hook_imports_neither_click_nor_msgspec_nor_the_heavy_half_of_the_library() -> None:
    folders = [str(TOP / "client"), str(TOP / "daemon")]
    code = (
        f"import sys; sys.path[:0] = {folders!r}; before = set(sys.modules); "
        "import editd_client.agents.hook; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-ISc", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    heavy = {
        "click",
        "msgspec",
        "msgpack",
        "typing",
        "dataclasses",
        "inspect",
        "subprocess",
        "socket",
        "pathlib",
    }
    assert not loaded & heavy
    assert not [
        name for name in done.stdout.split() if name in ("editd_client.client", "editd.wire.messages")
    ]


def test_an_unknown_agent_is_no_refusal_of_a_tool(folder: Path) -> None:
    done = hook("nobody", {}, folder / "none.sock", folder)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: editd-hook")


def main() -> None:
    """Write the requests of the recorded payloads anew."""
    for agent in HOOKED:
        adapter = adapter_of(agent)
        assert isinstance(adapter, Adapter)
        lines = []
        for line in recorded(agent, "/nonexistent"):
            request = request_of(adapter, line["payload"], "/nonexistent")
            lines.append(json.dumps({"payload": line["payload"], "request": request}, ensure_ascii=False))
        text = "\n".join(lines).replace("/nonexistent", ROOT) + "\n"
        (PAYLOADS / f"{agent}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
