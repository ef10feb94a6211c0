"""Real agents with the hooks that `editctl integrate` gives them, driven by a scripted model.

Codex runs with each run of the tests, the others in the long form.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from resource import RUSAGE_CHILDREN, getrusage
from typing import TYPE_CHECKING, Any

import pytest

from support.real_agents import RealAgent
from support.scripted_model import Model, Step, scripted_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.workplace import Workplace

LINES = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"
AGENTS = [
    "codex",
    pytest.param("gemini", marks=pytest.mark.long),
    pytest.param("opencode", marks=pytest.mark.long),
]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def model() -> Iterator[Model]:
    with scripted_model() as made:
        yield made


def edit(agent: str, path: str, old: str, new: str) -> Step:
    """An edit of one line by the agent's own tool, which looks for its text."""
    patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\n"
    return Step({
        "apply_patch": {"input": patch},
        "replace": {"file_path": path, "instruction": "x", "old_string": old, "new_string": new},
        "edit": {"filePath": path, "oldString": old, "newString": new},
    })  # fmt: skip


def overwrite(path: str, text: str) -> Step:
    """A write of a whole file by the agent's own tool; for Codex its deletion."""
    return Step({
        "apply_patch": {"input": f"*** Begin Patch\n*** Delete File: {path}\n*** End Patch\n"},
        "write_file": {"file_path": path, "content": text},
        "write": {"filePath": path, "content": text},
    })  # fmt: skip


def shell(command: str) -> Step:
    return Step({
        "exec_command": {"cmd": command},
        "shell_command": {"command": command},
        "run_shell_command": {"command": command, "description": "x"},
        "bash": {"command": command, "description": "x"},
    })  # fmt: skip


def read(path: str) -> Step:
    return Step({
        "read_file": {"file_path": path},
        "read": {"filePath": path},
        "exec_command": {"cmd": f"cat {path}"},
        "shell_command": {"command": f"cat {path}"},
    })  # fmt: skip


def absolute(place: Workplace, agent: str, path: str) -> str:
    """The path as the agent's tools want it."""
    return str(place.root / path) if agent == "opencode" else path


def prepared(place: Workplace, model: Model, name: str, files: dict[str, str]) -> RealAgent:
    place.write(files)
    place.git("init", "-q")
    agent = RealAgent.of(name, place, model)
    agent.integrate()
    return agent


def log(place: Workplace) -> list[dict[str, Any]]:
    """The transactions after the baseline, the oldest first."""
    with place.client() as client:
        client.settle()
    made = json.loads(place.editctl("log", "--json").stdout)["transactions"]
    return [one for one in reversed(made) if one["kind"] != "baseline"]


@pytest.mark.parametrize("name", AGENTS)
def test_the_edits_and_commands_of_an_agent_are_its_own(place: Workplace, model: Model, name: str) -> None:
    agent = prepared(place, model, name, {"a.txt": LINES})
    place.start()
    path = absolute(place, name, "a.txt")
    model.scripts[name] = [read(path), edit(name, path, "two", "TWO"), shell("echo made > made.txt; exit 3")]
    agent.run()
    made = log(place)
    assert [(one["kind"], one["actor"], [file["path"] for file in one["files"]]) for one in made] == [
        ("exec", name, ["a.txt"]),
        ("exec", name, ["made.txt"]),
    ]
    [session] = {one["session"] for one in made}
    assert session.startswith(f"{name}-")
    place.write({"mine.txt": "mine\n"})
    assert place.editctl("rollback", session).returncode == 0
    assert place.files() == {"a.txt": LINES.encode(), "mine.txt": b"mine\n"}


def test_codex_s_calls_over_mcp_are_in_the_session_of_its_hooks(place: Workplace, model: Model) -> None:
    place.write({"a.txt": LINES})
    place.git("init", "-q")
    agent = RealAgent.of("codex", place, model, knows_model=False)
    agent.integrate("--no-start")
    place.start().close()
    edits = [{"op": "replace", "path": "a.txt", "old": "two", "new": "TWO"}]
    somebodys = LINES.replace("two", "TWO").replace("nine", "somebody's")
    stale = [{"op": "write", "path": "a.txt", "content": somebodys.replace("five", "FIVE")}]
    model.scripts["codex"] = [
        Step({"read_file": {"path": "a.txt"}}),
        Step({"apply_edits": {"edits": edits}}),
        shell("echo made > made.txt"),
        Step({"apply_edits": {"edits": stale}}, before=lambda: outside(place, "a.txt", somebodys)),
        Step({"read_file": {"path": "a.txt"}}),
        Step({"apply_edits": {"edits": stale}}),
    ]
    agent.run()
    made = [(one["kind"], one["actor"], [file["path"] for file in one["files"]]) for one in log(place)]
    assert made == [
        ("edit", "codex", ["a.txt"]),
        ("exec", "codex", ["made.txt"]),
        ("outside", "outside", ["a.txt"]),
        ("edit", "codex", ["a.txt"]),
    ]
    [session] = {one["session"] for one in log(place)} - {None}
    assert session.startswith("codex-")
    assert "+somebody's" in model.results["codex"][3], "the refusal shows what has changed"
    assert place.editctl("rollback", session).returncode == 0
    assert place.files() == {"a.txt": LINES.replace("nine", "somebody's").encode()}


@pytest.mark.long
@pytest.mark.parametrize("name", ["gemini", "opencode"])
def test_a_call_over_mcp_is_in_the_session_that_the_agent_s_process_has_named(
    place: Workplace, model: Model, name: str
) -> None:
    place.write({"a.txt": LINES})
    place.git("init", "-q")
    agent = RealAgent.of(name, place, model)
    agent.integrate("--no-start")
    place.start().close()
    path = absolute(place, name, "a.txt")
    edits = [{"op": "replace", "path": "a.txt", "old": "nine", "new": "NINE"}]
    call = Step({f"{prefix}apply_edits": {"edits": edits} for prefix in ("", "mcp_editd_", "editd_")})
    model.scripts[name] = [read(path), edit(name, path, "two", "TWO"), call]
    agent.run()
    made = log(place)
    assert [(one["kind"], one["actor"]) for one in made] == [("exec", name), ("edit", name)]
    [session] = {one["session"] for one in made}
    assert session.startswith(f"{name}-")


def outside(place: Workplace, path: str, text: str) -> None:
    """Write a file as another program does, and wait until the daemon has seen it."""
    place.write({path: text})
    with place.client() as client:
        client.settle()


@pytest.mark.parametrize("name", AGENTS)
def test_an_edit_of_a_leased_file_is_denied_and_the_model_is_told(
    place: Workplace, model: Model, name: str
) -> None:
    agent = prepared(place, model, name, {"a.txt": LINES})
    with place.start() as client:
        opened = client.session_open("holder", actor="ann")
        client.hello("ann", "holder", opened.token)
        client.lease_acquire(["a.txt"], 600)
        path = absolute(place, name, "a.txt")
        model.scripts[name] = [read(path), edit(name, path, "two", "TWO")]
        agent.run()
        assert (place.root / "a.txt").read_text() == LINES
        assert "a.txt is leased by the session 'holder'" in model.results[name][-1]


@pytest.mark.parametrize("name", AGENTS)
def test_a_whole_file_write_over_a_change_is_denied_with_the_change(
    place: Workplace, model: Model, name: str
) -> None:
    agent = prepared(place, model, name, {"a.txt": LINES})
    place.start()
    path = absolute(place, name, "a.txt")

    def somebody_else() -> None:
        place.write({"a.txt": LINES.replace("nine", "outside")})

    written = overwrite(path, "all mine\n")
    model.scripts[name] = [read(path), Step(written.tools, before=somebody_else)]
    agent.run()
    assert (place.root / "a.txt").read_text() == LINES.replace("nine", "outside")
    assert "editd: " in model.results[name][-1]
    assert "+outside" in model.results[name][-1]


@pytest.mark.parametrize("name", AGENTS)
def test_without_a_daemon_and_with_one_that_dies_the_agent_works_as_ever(
    place: Workplace, model: Model, name: str
) -> None:
    agent = prepared(place, model, name, {"a.txt": LINES})
    place.start()
    path = absolute(place, name, "a.txt")
    model.scripts[name] = [
        edit(name, path, "two", "TWO"),
        Step(edit(name, path, "four", "FOUR").tools, before=place.kill),
        shell("echo made > made.txt"),
    ]
    agent.run()
    assert place.files() == {
        "a.txt": LINES.replace("two", "TWO").replace("four", "FOUR").encode(),
        "made.txt": b"made\n",
    }
    place.start()
    made = log(place)
    assert made[0]["actor"] == name
    assert {file["path"] for one in made[1:] for file in one["files"]} == {"a.txt", "made.txt"}


def test_an_agent_that_is_killed_keeps_the_changes_of_its_command(place: Workplace, model: Model) -> None:
    agent = prepared(place, model, "codex", {"a.txt": LINES})
    client = place.start()
    events = client.subscribe(events=["transaction"])
    pid = place.folder / "pid"
    model.scripts["codex"] = [shell(f"echo part > part.txt; echo $$ > {pid}; exec sleep 60")]
    process = agent.start()
    try:
        wait_for(lambda: pid.exists() and pid.read_text().strip() != "")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    os.kill(int(pid.read_text()), signal.SIGKILL)
    next(events)
    place.write({"mine.txt": "mine\n"})
    assert [(one["kind"], one["actor"]) for one in log(place)] == [("exec", "codex"), ("outside", "outside")]


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.long
def test_three_agents_at_once_have_each_their_own_edits(place: Workplace, model: Model) -> None:
    places = {"codex": "two", "gemini": "five", "opencode": "eight"}
    agents = []
    for name, line in places.items():
        path = absolute(place, name, "a.txt")
        agents.append(prepared(place, model, name, {"a.txt": LINES}))
        model.scripts[name] = [
            read(path),
            edit(name, path, line, f"{line} by {name}"),
            shell(f"echo {name} > {name}.txt"),
            edit(name, path, f"{line} by {name}", f"{line} again by {name}"),
        ]
    place.start()
    processes = [(agent, agent.start()) for agent in agents]
    for agent, process in processes:
        agent.finish(process)
    made = log(place)
    edits = [
        (one["kind"], one["actor"]) for one in made if [file["path"] for file in one["files"]] == ["a.txt"]
    ]
    assert sorted(edits) == sorted([("exec", name) for name in places] * 2)
    for name, line in places.items():
        [session] = {one["session"] for one in made if one["actor"] == name}
        assert place.editctl("rollback", session).returncode == 0
        assert f"{line}\n" in (place.root / "a.txt").read_text()
    assert (place.root / "a.txt").read_text() == LINES


def test_the_hook_costs_an_agent_little(place: Workplace) -> None:
    """At most six bare starts of Python, in time of a processor: the load of the machine does not count."""
    hook = [sys.executable, "-m", "editd_client.agents.hook", "codex"]
    payload = json.dumps({
        "hook_event_name": "PreToolUse", "session_id": "x", "cwd": str(place.root), "tool_name": "Bash",
        "tool_input": {"command": "make"}, "tool_use_id": "1",
    })  # fmt: skip

    def seconds(words: list[str]) -> float:
        began = getrusage(RUSAGE_CHILDREN)
        subprocess.run(words, input=payload, env=place.environment, text=True, check=True)
        ended = getrusage(RUSAGE_CHILDREN)
        return ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime

    bare = min(seconds([sys.executable, "-c", "pass"]) for _ in range(10))
    assert min(seconds(hook) for _ in range(10)) < 6 * bare
