"""The hook and a real daemon: each agent's events, around changes as its tools make them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd.config.paths import review_socket_path
from editd.wire.messages import SeenFile
from support.reviewers import configure

if TYPE_CHECKING:
    from support.workplace import Workplace

PAYLOADS = Path(__file__).with_name("payloads")
HOOKED = sorted(file.stem for file in PAYLOADS.glob("*.jsonl"))
TEXT = "one\ntwo\nthree\n"


def events(agent: str, place: Workplace) -> list[dict[str, Any]]:
    text = (PAYLOADS / f"{agent}.jsonl").read_text().replace("@ROOT@", str(place.root))
    return [json.loads(line) for line in text.splitlines()]


def hook(place: Workplace, agent: str, payload: dict[str, Any], **variables: str) -> str:
    """Run the hook, and return its answer."""
    done = place.editctl("hook", agent, stdin=json.dumps(payload), **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def begun(agent: str, place: Workplace, *, whole: bool = False) -> dict[str, Any]:
    """Return the first event before an edit: one that overwrites its file, or any."""
    for line in events(agent, place):
        method, params = line["request"] or ("", {})
        if method == "exec.begin" and "paths" in params and (not whole or "whole" in params):
            return line
    raise AssertionError(agent)


def ended(agent: str, place: Workplace, key: str) -> dict[str, Any]:
    """Return the event after that edit, or otherwise the end of the turn."""
    lines = [line for line in events(agent, place) if line["request"]]
    ends = [line for line in lines if line["request"][0] == "exec.end" and "status" in line["request"][1]]
    found = [line for line in ends if line["request"][1].get("key") == key]
    found += [line for line in lines if line["request"][1].get("all")]
    payload: dict[str, Any] = found[0]["payload"]
    return payload


def transactions(place: Workplace) -> list[dict[str, Any]]:
    made = json.loads(place.editctl("log", "--json").stdout)["transactions"]
    return [one for one in reversed(made) if one["kind"] != "baseline"]


@pytest.fixture
def place(place: Workplace) -> Workplace:
    place.variables["EDITD_HOOK_SECONDS"] = "30"  # the machine may have other work
    place.write({"a.txt": TEXT})
    place.git("init", "-q")
    place.start().settle()
    return place


@pytest.fixture
def walled(place: Workplace) -> Workplace:
    """The same, beside a reviewers' socket."""
    place.stop()
    configure(place, '[review]\nsocket = "own"\n')
    place.start().settle()
    return place


@pytest.mark.parametrize("agent", HOOKED)
def test_a_change_between_the_events_is_the_agent_s(place: Workplace, agent: str) -> None:
    line = begun(agent, place)
    request = line["request"][1]
    path = request["paths"][0]
    assert hook(place, agent, line["payload"]) == ""
    place.write({path: TEXT.replace("two", "TWO"), "other.txt": "somebody else's\n"})
    assert hook(place, agent, ended(agent, place, request["key"])) == ""
    with place.client() as client:
        client.settle()
    made = {one["files"][0]["path"]: one for one in transactions(place)}
    assert (made[path]["kind"], made[path]["actor"], made[path]["session"]) == (
        "exec",
        agent,
        request["session"],
    )
    assert made["other.txt"]["kind"] == "outside"


@pytest.mark.parametrize("agent", HOOKED)
def test_an_edit_of_a_leased_file_is_denied(place: Workplace, agent: str) -> None:
    line = begun(agent, place)
    with place.client() as client:
        opened = client.session_open("holder", actor="ann")
        client.hello("ann", "holder", opened.token)
        client.lease_acquire(["**"], 600)
        answer = hook(place, agent, line["payload"])
    assert f"editd: {line['request'][1]['paths'][0]} is leased by the session 'holder'" in answer


@pytest.mark.parametrize("agent", HOOKED)
def test_an_overwriting_edit_of_a_file_that_changed_since_it_was_seen_is_denied_with_the_change(
    place: Workplace, agent: str
) -> None:
    line = begun(agent, place, whole=True)
    request = line["request"][1]
    path = request["whole"][0]
    place.write({path: TEXT})
    with place.client() as client:
        client.settle()
        client.seen([SeenFile(path=path)], session=request["session"])
        place.write({path: TEXT.replace("two", "somebody else")})
        client.settle()
    answer = hook(place, agent, line["payload"])
    assert "-two" in answer
    assert "+somebody else" in answer
    assert answer.count("editd: ") >= 1


@pytest.mark.parametrize("agent", HOOKED)
def test_beside_a_reviewers_socket_a_change_between_the_events_is_the_agent_s(
    walled: Workplace, agent: str
) -> None:
    line = begun(agent, walled)
    request = line["request"][1]
    assert hook(walled, agent, line["payload"]) == ""
    walled.write({request["paths"][0]: TEXT.replace("two", "TWO")})
    assert hook(walled, agent, ended(agent, walled, request["key"])) == ""
    with walled.client() as client:
        client.settle()
    (made,) = transactions(walled)
    assert (made["kind"], made["actor"], made["session"]) == ("exec", agent, request["session"])


@pytest.mark.parametrize("agent", HOOKED)
def test_an_edit_goes_on_where_the_reviewers_socket_is_out_of_reach_and_the_hook_says_so_once(
    walled: Workplace, agent: str
) -> None:
    """As in a sandbox that has the ordinary socket alone."""
    os.rename(review_socket_path(walled.socket), f"{walled.socket}.away")
    line, log = begun(agent, walled), walled.folder / "hook.log"
    path = line["request"][1]["paths"][0]
    done = walled.editctl("hook", agent, stdin=json.dumps(line["payload"]), EDITD_HOOK_LOG=str(log))
    assert (done.returncode, done.stdout) == (0, ""), "no answer: the agent edits"
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("This call is recorded as one from outside.\n")
    assert "separate socket for reviewers" in log.read_text()
    walled.write({path: TEXT.replace("two", "TWO")})
    assert hook(walled, agent, ended(agent, walled, line["request"][1]["key"])) == ""
    with walled.client() as client:
        client.settle()
    assert [one["kind"] for one in transactions(walled)] == ["outside"]


def test_a_sub_agent_is_rolled_back_alone_or_with_its_parent(place: Workplace) -> None:
    # The process of this test counts as the agent, and has started the `editctl` of the user, too.
    place.stop()
    configure(place, '[permissions]\nagents = ["undo_others"]\n')
    place.start().close()
    place.write({"b.txt": TEXT, "c.txt": TEXT})
    base = {"session_id": "0123456789ab", "cwd": str(place.root), "tool_name": "Edit"}

    def edit(path: str, **more: str) -> None:
        call = {**base, **more, "tool_input": {"file_path": path}, "tool_use_id": path}
        hook(place, "claude", {**call, "hook_event_name": "PreToolUse"})
        place.write({path: "changed\n"})
        hook(place, "claude", {**call, "hook_event_name": "PostToolUse"})

    edit("a.txt")
    edit("b.txt", agent_id="agent-1111")
    edit("c.txt", agent_id="agent-2222")
    assert place.editctl("rollback", "claude-456789ab-1111").returncode == 0
    assert place.files() == {"a.txt": b"changed\n", "b.txt": TEXT.encode(), "c.txt": b"changed\n"}
    assert place.editctl("rollback", "claude-456789ab*").returncode == 0
    assert set(place.files().values()) == {TEXT.encode()}


def test_an_agent_started_in_a_session_is_in_that_session(place: Workplace) -> None:
    with place.client() as client:
        opened = client.session_open("mine", actor="ann")
    variables = {"EDITD_SESSION": "mine", "EDITD_TOKEN": opened.token}
    line = begun("codex", place)
    hook(place, "codex", line["payload"], **variables)
    place.write({"a.txt": "changed\n"})
    hook(place, "codex", ended("codex", place, line["request"][1]["key"]), **variables)
    assert [(one["kind"], one["session"]) for one in transactions(place)] == [("exec", "mine")]


# ── The start of the daemon ──


def session_start(place: Workplace, folder: Path) -> None:
    payload = {"hook_event_name": "SessionStart", "session_id": "1", "cwd": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "editd_client.agents.hook", "codex"], input=json.dumps(payload),
        env=place.environment, cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")


def test_the_start_of_a_session_starts_the_daemon_of_a_repository(place: Workplace) -> None:
    place.stop()
    session_start(place, place.root)
    until = time.monotonic() + 30
    while place.editctl("status").returncode != 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert place.editctl("stop").returncode == 0


def test_the_start_of_a_session_names_it_and_the_process_of_the_agent(place: Workplace) -> None:
    with place.client() as client:
        session_start(place, place.root)
        agents = {agent.session: agent for agent in client.status().agents}
        assert (agents["codex-1"].name, agents["codex-1"].pid) == ("codex", os.getpid())


def test_a_folder_that_is_no_repository_gets_no_daemon(place: Workplace) -> None:
    plain = place.folder / "plain"
    plain.mkdir()
    session_start(place, plain)
    assert [name for name in os.listdir(place.runtime / "editd") if name.endswith(".sock")] == [
        f"{place.id}.sock"
    ]


def allow_undo(place: Workplace) -> None:
    """Let agents take back what others did: the test itself is the agent's process."""
    configure(place, '[permissions]\nagents = ["undo_others"]\n')
    assert place.editctl("config", "reload").returncode == 0


QUESTIONS = {"claude": "PermissionRequest", "codex": "PermissionRequest", "gemini": "Notification"}


def asked(agent: str, place: Workplace) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the events before an edit, for the question about it, and after it."""
    lines = events(agent, place)
    at = next(
        number for number, line in enumerate(lines) if QUESTIONS[agent] in str(line["payload"].values())
    )
    before = next(line for line in reversed(lines[:at]) if line["request"])
    assert before["request"][0] == "exec.begin"
    return before["payload"], lines[at]["payload"], ended(agent, place, before["request"][1]["key"])


@pytest.mark.parametrize("agent", sorted(QUESTIONS))
def test_what_a_person_saves_while_an_agent_asks_is_not_the_agents(place: Workplace, agent: str) -> None:
    allow_undo(place)
    place.write({"a.txt": "one\ntwo\nTWO\n"})
    place.editctl("settle")
    before, question, after = asked(agent, place)
    hook(place, agent, before)
    hook(place, agent, question)
    mine = "one\ntwo\nTWO\nmy own\n"
    place.write({"a.txt": mine})
    place.editctl("settle")
    assert transactions(place)[-1]["kind"] == "outside"
    old, new = {"gemini": ("TWO", "2")}.get(agent, ("two\n", "TWO\n"))
    place.write({"a.txt": mine.replace(old, new, 1)})  # the person has approved, and the tool runs
    hook(place, agent, after)
    assert [one["kind"] for one in transactions(place)[-3:]] == ["outside", "exec", "claim"]
    assert transactions(place)[-2]["session"].startswith(agent)
    assert place.editctl("rollback", f"{agent}*").returncode == 0
    assert place.files()["a.txt"].decode() == mine, "the person's own work stays"


@pytest.mark.parametrize("agent", sorted(QUESTIONS))
def test_after_a_no_nothing_is_the_agents(place: Workplace, agent: str) -> None:
    allow_undo(place)
    before, question, _ = asked(agent, place)
    hook(place, agent, before)
    hook(place, agent, question)
    place.write({"a.txt": "my own\n"})
    place.editctl("settle")
    assert transactions(place)[-1]["kind"] == "outside"
    done = place.editctl("rollback", f"{agent}*")
    assert (done.returncode, "othing" in done.stderr) == (1, True), done.stderr
    assert place.files()["a.txt"] == b"my own\n"


def test_calls_that_a_stopped_daemon_does_not_answer_are_counted_and_told(place: Workplace) -> None:
    place.variables["EDITD_HOOK_SECONDS"] = "0.2"
    before = begun("claude", place)
    after = ended("claude", place, before["request"][1]["key"])
    with place.client() as client:
        pid = client.status().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for call in ("first", "second", "third"):
            hook(place, "claude", before["payload"] | {"tool_use_id": call})
            hook(place, "claude", after | {"tool_use_id": call})
        place.write({"a.txt": TEXT.replace("two", "TWO")})
    finally:
        os.kill(pid, signal.SIGCONT)
    place.variables["EDITD_HOOK_SECONDS"] = "30"
    with place.client() as client:
        client.settle()
        (agent,) = client.status().agents
        assert (agent.name, agent.session, agent.missed) == ("claude", before["request"][1]["session"], 3)
    assert "3 missed" in place.editctl("integrate").stdout
    for failures in (place.runtime / "editd").glob("*.hook"):
        failures.unlink()  # its time of silence is over
    answers = []
    for call in ("fourth", "fifth"):
        hook(place, "claude", before["payload"] | {"tool_use_id": call})
        done = place.editctl("hook", "claude", stdin=json.dumps(after | {"tool_use_id": call}))
        answers.append(done.stderr)
    assert "3 earlier calls of this session did not reach editd in time" in answers[0]
    assert answers[1] == "", "it is told once"


def test_a_note_that_no_hook_has_written_is_ignored(place: Workplace) -> None:
    (place.runtime / "editd" / f"{place.id}.sock.missed").write_bytes(
        b'\xff\n[1]\n{}\n["claude", "", "k"]\n["claude", "s\\u001b", "k"]\n["claude", "s", "k"]\n["cut'
    )
    with place.client() as client:
        assert [(agent.session, agent.missed) for agent in client.status().agents] == [("s", 1)]
        assert [agent.missed for agent in client.status().agents] == [1]


def test_a_call_is_missed_behind_one_whose_bracket_is_still_open(place: Workplace) -> None:
    before = begun("claude", place)
    hook(place, "claude", before["payload"])
    session, key = before["request"][1]["session"], before["request"][1]["key"]
    notes = "".join(f"{json.dumps(['claude', *one])}\n" for one in ((session, key), ("another", "k")))
    (place.runtime / "editd" / f"{place.id}.sock.missed").write_text(notes)
    with place.client() as client:
        missed = {agent.session: agent.missed for agent in client.status().agents}
    assert missed == {session: 0, "another": 1}


def codex_patch(place: Workplace, event: str, *sections: str, call: str = "moved") -> dict[str, Any]:
    """Return an event of Codex about a patch."""
    patch = "\n".join(("*** Begin Patch", *sections, "*** End Patch", ""))
    return {
        "session_id": "01a21182-30ae-7413-bb9b-23f29b47f85c", "cwd": str(place.root),
        "hook_event_name": event, "tool_name": "apply_patch",
        "tool_input": {"command": patch}, "tool_use_id": call,
    }  # fmt: skip


@pytest.mark.parametrize("hunk", [(), ("@@", "-two", "+TWO")], ids=["alone", "with a hunk"])
def test_a_move_that_a_person_approved_is_the_agents(place: Workplace, hunk: tuple[str, ...]) -> None:
    sections = ("*** Update File: a.txt", "*** Move to: sub/b.txt", *hunk)
    for event in ("PreToolUse", "PermissionRequest"):
        hook(place, "codex", codex_patch(place, event, *sections))
    place.write({"sub/b.txt": TEXT.replace("two", "TWO") if hunk else TEXT})
    (place.root / "a.txt").unlink()
    hook(place, "codex", codex_patch(place, "PostToolUse", *sections))
    assert [one["kind"] for one in transactions(place)] == ["exec", "claim"]


def test_an_approved_call_that_explains_nothing_is_told_and_counted(place: Workplace) -> None:
    before, question, after = asked("claude", place)
    hook(place, "claude", before)
    hook(place, "claude", question)
    place.write({"a.txt": "one\nTWO, and the person's words\n"})
    done = place.editctl("hook", "claude", stdin=json.dumps(after))
    assert "does not fit the texts of this call" in done.stderr
    assert "1 missed" in place.editctl("integrate").stdout
    assert [one["kind"] for one in transactions(place)] == ["outside"]


def test_two_calls_for_one_file_at_once_are_the_agents_and_none_is_missed(place: Workplace) -> None:
    before = begun("claude", place)
    after = ended("claude", place, before["request"][1]["key"])
    for call in ("first", "second"):
        hook(place, "claude", before["payload"] | {"tool_use_id": call})
    place.write({"a.txt": TEXT.replace("two", "TWO")})
    for call in ("first", "second"):
        done = place.editctl("hook", "claude", stdin=json.dumps(after | {"tool_use_id": call}))
        assert (done.returncode, done.stderr) == (0, "")
    assert "missed" not in place.editctl("integrate").stdout
    assert [one["kind"] for one in transactions(place)] == ["exec"]


def test_a_call_whose_beginning_never_came_is_repaired_or_told(place: Workplace) -> None:
    before = begun("claude", place)
    after = ended("claude", place, before["request"][1]["key"])
    place.write({"a.txt": TEXT.replace("two", "TWO")})
    hook(place, "claude", after)
    assert transactions(place)[-2]["session"].startswith("claude")
    command = {**after, "tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "never"}
    done = place.editctl("hook", "claude", stdin=json.dumps(command))
    assert (done.returncode, done.stdout) == (0, "")
    assert "did not reach editd in time" in done.stderr
    assert "1 missed" in place.editctl("integrate").stdout


def shell(place: Workplace, agent: str, call: str, command: str, *, is_over: bool) -> None:
    """Run an agent's hook before or after a command."""
    names = {
        "claude": ("PreToolUse", "PostToolUse", "Bash"),
        "gemini": ("BeforeTool", "AfterTool", "run_shell_command"),
    }
    before, after, tool = names[agent]
    payload = {
        "session_id": f"{agent}-0123456789", "cwd": str(place.root), "tool_name": tool, "tool_use_id": call,
        "hook_event_name": after if is_over else before,
        "tool_input": {"command": command, "description": call},
    }  # fmt: skip
    assert hook(place, agent, payload) == ""


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("is_known", [False, True])
def test_an_install_and_an_uninstall_of_an_agent_are_taken_back_beside_another_agent(
    place: Workplace, rounds: int, is_known: bool
) -> None:
    """What the brackets of a session made and deleted is its own, also if others wrote it shortly before."""
    package = {f"node_modules/p/{number}.js": f"{number}\n" for number in range(20)}
    with place.client() as client:
        if is_known:  # somebody else had it a minute ago
            place.write(package)
            client.settle()
            shutil.rmtree(place.root / "node_modules")
            client.settle()
        before = place.files()
        for number in range(rounds):
            shell(place, "claude", f"install-{number}", "npm install p", is_over=False)
            place.write({path: f"{number} {text}" for path, text in package.items()})
            place.write({"lock.json": f"{number}\n"})
            shell(place, "claude", f"install-{number}", "npm install p", is_over=True)
            shell(place, "gemini", f"build-{number}", "make other", is_over=False)
            place.write({"other.txt": f"{number}\n"})
            shell(place, "gemini", f"build-{number}", "make other", is_over=True)
            shell(place, "claude", f"uninstall-{number}", "npm uninstall p", is_over=False)
            shutil.rmtree(place.root / "node_modules")
            shell(place, "claude", f"uninstall-{number}", "npm uninstall p", is_over=True)
        client.settle()
        answer = client.rollback("claude*")
        assert answer.warnings == []
        assert answer.transaction is not None
        assert len(answer.transaction.undoes) == 2 * rounds
    assert place.files() == {**before, "other.txt": f"{rounds - 1}\n".encode()}
