"""The plugins for opencode and Amp, run by node as those agents call them, against a daemon of few words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd.config.paths import workspace_id
from editd_client.agents.hook import adapter_of
from editd_client.agents.integration import Choices, Integrator
from support.json_daemon import JsonDaemon
from support.shell_commands import READING, WRITING
from support.workplace import TOP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.json_daemon import Answer

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
CORE = (TOP / "client/editd_client/agents/plugins/core.js").read_text()
OPENCODE = """
import { EditdPlugin } from "./plugin.mjs"
const hooks = await EditdPlugin({ directory: process.cwd() })
for (const [name, ...words] of JSON.parse(process.argv[2])) {
  try { await hooks[name](...words); console.log("null") }
  catch (error) { console.log(JSON.stringify(error.message)) }
}
"""
AMP = """
import plugin from "./plugin.mjs"
const handlers = {}
plugin({ on: (name, handler) => { handlers[name] = handler } })
for (const [name, ...words] of JSON.parse(process.argv[2]))
  console.log(JSON.stringify((await handlers[name](...words)) ?? null))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="editd-plugin-") as made:
        (Path(made) / "root/.git").mkdir(parents=True)
        (Path(made) / "root/a.txt").write_text("one\n")
        yield Path(made)


def run(
    agent: str,
    folder: Path,
    calls: list[list[Any]],
    *,
    strict: bool = False,
    current: str = "root",
    seconds: float = 30.0,
) -> list[Any]:
    """Integrate the agent, call its plugin's functions in a folder, and return what they answer.

    The daemon has so many seconds for an answer: a busy machine shares the processor with other tests.
    """
    home = folder / f"home-{agent}"
    integrator = Integrator(str(home), None, Choices(mcp=False, start=False, strict=strict))
    integrator.apply(integrator.plan(adapter_of(agent)))
    [installed] = [path for path in home.rglob("editd.*") if path.is_file()]
    (folder / "plugin.mjs").write_text(installed.read_text())
    (folder / "driver.mjs").write_text(OPENCODE if agent == "opencode" else AMP)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "EDITD_SOCKET": str(folder / "fake.sock")}
    environment["EDITD_HOOK_SECONDS"] = str(seconds)
    done = subprocess.run(
        ["node", str(folder / "driver.mjs"), json.dumps(calls)], cwd=folder / current, env=environment,
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def accept(method: str, params: dict[str, Any]) -> Answer:
    del method, params
    return {"result": {}}


def refuse(name: str) -> Callable[[str, dict[str, Any]], Answer]:
    def answer(method: str, params: dict[str, Any]) -> Answer:
        del params
        if method == "hello":
            return {"result": {}}
        data = {"name": name, "data": {"diff": "-one\n+" + "1" * 9000}}
        return {"error": {"code": 1, "message": f"It is {name}. Read it again.", "data": data}}

    return answer


def before(tool: str, args: dict[str, Any], session: str = "ses_0123456789abcdef") -> list[Any]:
    return ["tool.execute.before", {"tool": tool, "sessionID": session, "callID": "c1"}, {"args": args}]


def after(tool: str, args: dict[str, Any], status: int | None = None) -> list[Any]:
    call = {"tool": tool, "sessionID": "ses_0123456789abcdef", "callID": "c1", "args": args}
    return ["tool.execute.after", call, {"metadata": {"exit": status}}]


PATCH = "*** Begin Patch\n*** Update File: a.txt\n*** Delete File: b.txt\n*** End Patch"


EDIT = {"filePath": "a.txt", "oldString": "one", "newString": "1"}


def test_opencode_s_questions_become_these_requests(folder: Path) -> None:
    daemon = JsonDaemon(folder, accept)
    asked = {"id": "per_1", "sessionID": "ses_01234567", "tool": {"messageID": "m", "callID": "c1"}}
    answers = [
        {"sessionID": "ses_01234567", "requestID": "per_1", "reply": one} for one in ("once", "reject")
    ]
    calls = [
        call
        for answer in answers
        for call in (
            ["event", {"event": {"type": "permission.asked", "properties": asked}}],
            ["event", {"event": {"type": "permission.replied", "properties": answer}}],
        )
    ]
    assert run("opencode", folder, calls) == [None] * len(calls)
    daemon.close()
    session, key = "opencode-01234567", "opencode:ses_01234567:c1"
    assert [(method, params) for method, params in daemon.asked if method != "hello"] == [
        ("exec.ask", {"session": session, "key": key}),
        ("exec.ask", {"session": session, "key": key}),
        ("exec.end", {"session": session, "key": key}),  # without a status: it did not run
    ]


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ("submodule", "inner/b.txt"),
        ("worktree", "b.txt"),
        ("lost worktree", "b.txt"),
        ("own history", "b.txt"),
    ],
)
def test_opencode_in_a_tree_inside_a_workspace_names_its_files_there(
    folder: Path, tree: str, path: str
) -> None:
    """The submodule is part of the workspace around it; the others are separate workspaces."""
    inner, root = folder / "root/inner", folder / "root"
    inner.mkdir()
    git = {"submodule": root / ".git/modules/inner", "lost worktree": folder / "gone/worktrees/inner"}
    named = git.get(tree, root / ".git/worktrees/inner")
    (inner / ".git").write_text(f"gitdir: {named}\n")
    if tree != "lost worktree":
        named.mkdir(parents=True)
    if tree == "worktree":
        (named / "commondir").write_text("../..\n")
    for served in (root, *([inner] if tree == "own history" else [])):
        state = folder / "home-opencode/.local/state/editd" / workspace_id(os.path.realpath(served))
        (state / "store.git").mkdir(parents=True)
    daemon = JsonDaemon(folder, accept)
    assert run("opencode", folder, [before("edit", {"filePath": "b.txt"})], current="root/inner") == [None]
    daemon.close()
    begun = [params["paths"] for method, params in daemon.asked if method == "exec.begin"]
    assert begun == [[path]]


def test_opencode_s_calls_become_these_requests(folder: Path) -> None:
    daemon = JsonDaemon(folder, accept)
    sub = {"id": "ses_sub_9999", "parentID": "ses_0123456789abcdef"}
    created = {"type": "session.created", "properties": {"info": sub}}
    failed = {"type": "tool", "tool": "edit", "sessionID": "s", "callID": "c", "state": {"status": "error"}}
    calls = [
        before("edit", EDIT), after("edit", EDIT),
        before("write", {"filePath": str(folder / "root/new.txt")}),
        before("apply_patch", {"patchText": PATCH}),
        before("bash", {"command": "make"}), after("bash", {"command": "make"}, 2),
        before("bash", {"command": "ls"}), before("write", {"filePath": "/etc/x"}), before("webfetch", {}),
        after("read", {"filePath": "a.txt"}),
        ["event", {"event": created}], before("edit", {"filePath": "a.txt"}, "ses_sub_9999"),
        ["event", {"event": {"type": "message.part.updated", "properties": {"part": failed}}}],
        ["event", {"event": {"type": "session.idle", "properties": {"sessionID": "ses_0123456789abcdef"}}}],
    ]  # fmt: skip
    assert run("opencode", folder, calls) == [None] * len(calls)
    daemon.close()
    asked = [(method, params) for method, params in daemon.asked if method != "hello"]
    for _, params in asked:
        params.pop("pid", None)
    session, key = "opencode-89abcdef", "opencode:ses_0123456789abcdef:c1"
    assert asked == [
        ("exec.begin", {"session": session, "key": key, "command": "edit a.txt", "paths": ["a.txt"],
                        "whole": []}),
        ("exec.end", {"session": session, "key": key, "status": 0, "seen": True, "command": "edit a.txt",
                      "made": [{"path": "a.txt", "old": "one", "new": "1"}]}),
        ("exec.begin", {"session": session, "key": key, "command": "write new.txt", "paths": ["new.txt"],
                        "whole": ["new.txt"]}),
        ("exec.begin", {"session": session, "key": key, "command": "apply_patch a.txt b.txt",
                        "paths": ["a.txt", "b.txt"], "whole": ["b.txt"]}),
        ("exec.begin", {"session": session, "key": key, "command": "make"}),
        ("exec.end", {"session": session, "key": key, "status": 2, "seen": True, "command": "make"}),
        ("seen", {"session": session, "files": [{"path": "a.txt"}]}),
        ("exec.begin", {"session": "opencode-89abcdef-9999", "key": "opencode:ses_sub_9999:c1",
                        "command": "edit a.txt", "paths": ["a.txt"], "whole": []}),
        ("exec.end", {"session": "opencode-s", "key": "opencode:s:c", "status": 1, "seen": True}),
        ("exec.end", {"session": session, "all": True, "status": 0}),
    ]  # fmt: skip


def test_amp_s_calls_become_these_requests(folder: Path) -> None:
    daemon = JsonDaemon(folder, accept)

    def call(name: str, tool: str, value: dict[str, Any], **more: Any) -> list[Any]:
        return [
            name,
            {"tool": tool, "input": value, "toolUseID": "t1", "thread": {"id": "T-01234567"}, **more},
        ]

    answers = run("amp", folder, [
        call("tool.call", "edit_file", {"path": "a.txt"}),
        call("tool.result", "edit_file", {"path": "a.txt"}, status="done"),
        call("tool.call", "create_file", {"path": "b.txt"}),
        call("tool.call", "Bash", {"cmd": "make"}),
        call("tool.result", "Bash", {"cmd": "make"}, status="error"),
        call("agent.end", "", {}),
    ])  # fmt: skip
    daemon.close()
    allowed = {"action": "allow"}
    assert answers == [allowed, None, allowed, allowed, None, None]
    asked = [(method, params) for method, params in daemon.asked if method != "hello"]
    assert [method for method, _ in asked] == [
        "exec.begin", "exec.end", "exec.begin", "exec.begin", "exec.end", "exec.end",
    ]  # fmt: skip
    assert asked[0][1]["session"] == "amp-01234567"
    assert asked[2][1]["whole"] == ["b.txt"]
    assert asked[4][1]["status"] == 1
    assert asked[5][1]["all"]


@pytest.mark.parametrize("name", ["leased", "stale", "permission_denied", "path_protected", "unread"])
def test_a_refusal_is_the_plugin_s_answer_with_the_difference(name: str, folder: Path) -> None:
    daemon = JsonDaemon(folder, refuse(name))
    [text] = run("opencode", folder, [before("edit", {"filePath": "a.txt"})])
    assert text.startswith(f"editd: It is {name}. Read it again.\nThe changes since it was read:\n-one\n+111")
    assert 4000 < len(text) < 4200
    event = {"tool": "edit_file", "input": {"path": "a.txt"}, "toolUseID": "t1", "thread": {"id": "T-1"}}
    [answer] = run("amp", folder, [["tool.call", event]])
    assert (answer["action"], answer["message"]) == ("reject-and-continue", text)
    daemon.close()


def test_other_failures_let_the_tool_run(folder: Path) -> None:
    calls = [before("edit", {"filePath": "a.txt"}), before("bash", {"command": "make"})]
    assert run("opencode", folder, calls) == [None, None], "without a daemon"
    daemon = JsonDaemon(folder, refuse("overloaded"))
    assert run("opencode", folder, calls) == [None, None]
    daemon.close()


def test_a_daemon_that_hangs_is_asked_three_times(folder: Path) -> None:
    daemon = JsonDaemon(folder, lambda method, params: None)
    assert run("opencode", folder, [before("edit", {"filePath": "a.txt"})] * 6, seconds=0.2) == [None] * 6
    assert daemon.connections == 3
    daemon.close()


def test_strict_is_in_the_plugin_too(folder: Path) -> None:
    daemon = JsonDaemon(folder, accept)
    run("opencode", folder, [before("edit", {"filePath": "a.txt"})], strict=True)
    daemon.close()
    assert daemon.asked[1][1]["whole"] == ["a.txt"]


def test_the_plugins_and_the_hook_agree_about_commands_that_only_read(folder: Path) -> None:
    loop = "for (const one of JSON.parse(process.argv[2])) console.log(onlyReads(one))"
    (folder / "core.mjs").write_text(f"{CORE}\n{loop}")
    done = subprocess.run(
        ["node", str(folder / "core.mjs"), json.dumps([*READING, *WRITING])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["true"] * len(READING) + ["false"] * len(WRITING)
