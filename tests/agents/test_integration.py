"""Integrations of agents: added twice and removed, each settings file has its bytes again."""

from __future__ import annotations

import json
import os
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from editd_client.agents import NAMES, jsonc
from editd_client.agents.hook import adapter_of
from editd_client.agents.integration import Choices, Integrator, program
from editd_client.agents.settings_edit import is_ours
from support.settings_documents import documents

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GEMINI = ".gemini/settings.json"
THEIRS = """{
  // mine
  "theme": "dark",
  "hooks": {
    "BeforeTool": [
      {"matcher": "x", "hooks": [{"type": "command", "command": "theirs"}]}
    ],
  },
}
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def add(home: Path, *names: str, choices: Choices | None = None) -> list[tuple[str, str, str]]:
    """Integrate; return the files that were left alone."""
    return carried_out(home, names, choices or Choices(), remove=False)


def remove(home: Path, *names: str) -> list[tuple[str, str, str]]:
    return carried_out(home, names, Choices(), remove=True)


def carried_out(
    home: Path, names: tuple[str, ...], choices: Choices, *, remove: bool
) -> list[tuple[str, str, str]]:
    problems = []
    for name in names or NAMES:
        integrator = Integrator(str(home), None, choices)
        plan = integrator.plan(adapter_of(name), remove=remove)
        integrator.apply(plan)
        problems += plan.problems
    return problems


def write(home: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(text.encode())


def hooks_of(home: Path, name: str = GEMINI) -> dict[str, Any]:
    value: dict[str, Any] = jsonc.parse((home / name).read_text()).value
    return value


@pytest.mark.parametrize("name", NAMES)
def test_in_an_empty_home_an_integration_leaves_nothing_behind(name: str, home: Path) -> None:
    assert add(home, name) == []
    first = contents(home)
    assert any("editd" in (text or b"").decode() for text in first.values())
    states = [Integrator(str(home), None).state(adapter_of(name), "hooks")]
    if adapter_of(name).settings.mcp is not None:
        states.append(Integrator(str(home), None).state(adapter_of(name), "mcp"))
    assert set(states) == {"yes"}
    add(home, name)
    assert contents(home) == first
    remove(home, name)
    assert contents(home) == {}


@pytest.mark.parametrize(
    ("name", "variable", "folder"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", ".claude"),
        ("codex", "CODEX_HOME", ".codex"),
        ("crush", "XDG_CONFIG_HOME", ".config"),
    ],
)
def test_a_variable_names_the_folder_of_an_agents_settings_by_its_whole_path_alone(
    name: str, variable: str, folder: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, other = tmp_path / "current", tmp_path / "other"
    current.mkdir()
    monkeypatch.chdir(current)
    for value in ("other", "./other", ""):
        monkeypatch.setenv(variable, value)
        add(home, name)
        assert contents(current) == {}
        assert any(path.startswith(f"{folder}/") for path in contents(home))
        remove(home, name)
    monkeypatch.setenv(variable, str(other))
    add(home, name)
    assert [path for path in contents(home) if path.startswith(f"{folder}/")] == []
    assert any(b"editd" in (text or b"") for text in contents(other).values())


def test_the_file_with_the_servers_of_claude_moves_with_its_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "other"))
    add(home, "claude")
    assert contents(home) == {}
    assert "editd" in json.loads((tmp_path / "other/.claude.json").read_text())["mcpServers"]


def test_the_hooks_of_others_keep_their_place_and_ours_come_last(home: Path) -> None:
    write(home, {GEMINI: THEIRS})
    add(home, "gemini")
    before = hooks_of(home)["hooks"]["BeforeTool"]
    assert [is_ours(group["hooks"][0]["command"]) for group in before] == [False, True]
    assert hooks_of(home)["mcpServers"]["editd"]["args"] == ["mcp"]
    assert "// mine" in (home / GEMINI).read_text()
    remove(home, "gemini")
    assert (home / GEMINI).read_text() == THEIRS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents(), st.sampled_from(["gemini", "crush", "cursor", "opencode", "claude", "amp"]))
def test_any_settings_have_their_bytes_again_and_no_member_is_lost(
    tmp_path: Path, document: tuple[str, dict[str, Any]], name: str
) -> None:
    home = tmp_path / "home"
    agent = adapter_of(name).settings
    files = {path: document[0] for path in {agent.user, *(agent.mcp or ())[:1]} if path.endswith("json")}
    write(home, files)
    before = contents(home)
    left = add(home, name)
    add(home, name)
    for path in files:
        if not any(str(home / path) == one[0] for one in left):
            after = jsonc.parse((home / path).read_bytes().decode()).value
            assert {key: after[key] for key in document[1] if key not in ("hooks", "mcp", "mcpServers")} == {
                key: value for key, value in document[1].items() if key not in ("hooks", "mcp", "mcpServers")
            }
    remove(home, name)
    assert contents(home) == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents())
def test_without_the_record_the_meaning_is_the_same_again(
    tmp_path: Path, document: tuple[str, dict[str, Any]]
) -> None:
    home = tmp_path / "home"
    write(home, {GEMINI: document[0]})
    if add(home, "gemini"):
        return
    (tmp_path / "state/editd/integrations.json").unlink()
    remove(home, "gemini")
    left = hooks_of(home)
    for key in ("hooks", "mcpServers"):
        if left.get(key) == {} and key not in document[1]:
            del left[key]
    assert left == {**document[1], **({"hooks": left["hooks"]} if "hooks" in document[1] else {})}
    kept = document[1].get("hooks", {})
    assert all(left["hooks"].get(event, []) == value for event, value in kept.items())


def test_a_change_made_in_between_stays(home: Path) -> None:
    write(home, {GEMINI: THEIRS})
    add(home, "gemini")
    changed = (home / GEMINI).read_text().replace('"dark"', '"light"')
    write(home, {GEMINI: changed})
    remove(home, "gemini")
    assert hooks_of(home)["theme"] == "light"
    assert hooks_of(home)["hooks"] == jsonc.parse(THEIRS).value["hooks"]
    assert "editd" not in (home / GEMINI).read_text()


CODEX = 'model = "x" # mine\n\n[projects."/a"]\ntrust_level = "trusted"'


def test_codex_has_its_server_in_toml_and_is_granted_no_trust(home: Path) -> None:
    write(home, {".codex/config.toml": CODEX})
    add(home, "codex")
    text = (home / ".codex/config.toml").read_text()
    assert text.startswith(CODEX)
    server = tomllib.loads(text)["mcp_servers"]["editd"]
    assert (server["command"], server["required"]) == (program("editctl"), True)
    assert "trusted_hash" not in text
    remove(home, "codex")
    assert contents(home) == {".codex": None, ".codex/config.toml": CODEX.encode()}


def test_an_old_path_is_replaced_in_its_place(home: Path) -> None:
    write(home, {GEMINI: THEIRS})
    add(home, "gemini")
    text = (home / GEMINI).read_text()
    write(home, {GEMINI: text.replace(os.path.dirname(program("editctl")), "/old/bin")})
    assert Integrator(str(home), None).state(adapter_of("gemini"), "hooks") == "old"
    assert Integrator(str(home), None).state(adapter_of("gemini"), "mcp") == "old"
    add(home, "gemini")
    assert (home / GEMINI).read_text() == text


def test_what_was_added_before_a_change_by_others_is_removed_too(home: Path) -> None:
    write(home, {GEMINI: THEIRS})
    add(home, "gemini", choices=Choices(mcp=False))
    write(home, {GEMINI: (home / GEMINI).read_text().replace('"dark"', '"light"')})
    add(home, "gemini")
    assert "editd" in hooks_of(home)["mcpServers"]
    remove(home, "gemini")
    assert (home / GEMINI).read_text() == THEIRS.replace('"dark"', '"light"')


def test_the_user_s_own_entry_of_the_server_keeps_its_form(home: Path) -> None:
    own = '{"mcpServers": {"editd": {"command": "editctl", "args": ["mcp", "--read-only"]}}}'
    write(home, {GEMINI: own})
    add(home, "gemini", choices=Choices(hooks=False))
    assert (home / GEMINI).read_text() == own
    remove(home, "gemini")
    assert (home / GEMINI).read_text() == own


def test_parts_can_be_left_out(home: Path) -> None:
    add(home, "gemini", choices=Choices(mcp=False, start=False, strict=True))
    made = hooks_of(home)
    assert "mcpServers" not in made
    assert "SessionStart" not in made["hooks"]
    assert made["hooks"]["BeforeTool"][0]["hooks"][0]["command"].endswith("editd-hook gemini --strict")
    add(home, "opencode", choices=Choices(mcp=False, start=False))
    plugin = (home / ".config/opencode/plugins/editd.js").read_text()
    assert 'const EDITCTL = ""' in plugin
    remove(home, "gemini", "opencode")
    assert contents(home) == {}


# ── Files that are left alone ──


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": 1}', '{"hooks": {"BeforeTool": {}}}', "\x00"])
def test_a_file_that_cannot_be_read_is_left_alone_with_the_lines_to_put_in(text: str, home: Path) -> None:
    write(home, {GEMINI: text})
    before = contents(home)
    [(path, reason, lines), *_] = add(home, "gemini")
    assert path == str(home / GEMINI)
    assert reason
    assert json.loads(lines)["hooks"]["BeforeTool"]
    assert contents(home) == before
    remove(home, "gemini")
    assert contents(home) == before


def test_a_file_that_is_not_utf_8_is_left_alone(home: Path) -> None:
    (home / ".gemini").mkdir()
    (home / GEMINI).write_bytes(b'{"a": "\xff"}')
    assert {reason for _, reason, _ in add(home, "gemini")} == {"it is not UTF-8"}
    assert (home / GEMINI).read_bytes() == b'{"a": "\xff"}'


def test_a_write_protected_file_is_left_alone(home: Path) -> None:
    write(home, {GEMINI: "{}"})
    (home / GEMINI).chmod(0o444)
    assert {reason for _, reason, _ in add(home, "gemini")} == {"it is write-protected"}
    assert (home / GEMINI).read_text() == "{}"


def test_a_file_in_a_write_protected_folder_is_left_alone(home: Path) -> None:
    (home / ".gemini").mkdir()
    (home / ".gemini").chmod(0o555)
    assert {reason for _, reason, _ in add(home, "gemini")} == {"its folder is write-protected"}
    (home / ".gemini").chmod(0o755)
    assert contents(home) == {".gemini": None}


def test_a_folder_in_the_place_of_a_file_is_left_alone(home: Path) -> None:
    (home / GEMINI).mkdir(parents=True)
    assert add(home, "gemini")
    assert (home / GEMINI).is_dir()


def test_a_link_stays_and_its_target_is_changed_with_its_mode(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text(THEIRS)
    target.chmod(0o600)
    (home / ".gemini").mkdir()
    (home / GEMINI).symlink_to(target)
    add(home, "gemini")
    assert (home / GEMINI).is_symlink()
    assert "editd-hook" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o600
    remove(home, "gemini")
    assert (home / GEMINI).is_symlink()
    assert target.read_text() == THEIRS


def test_another_program_s_hook_file_is_left_alone(home: Path) -> None:
    write(home, {"Documents/Cline/Hooks/PreToolUse": "#!/bin/sh\nexec theirs\n"})
    [(path, reason, lines)] = add(home, "cline")
    assert path.endswith("PreToolUse")
    assert reason == "another program's file is there"
    assert lines.endswith("editd-hook cline\n")
    assert os.access(home / "Documents/Cline/Hooks/PostToolUse", os.X_OK)
    remove(home, "cline")
    assert [name for name, text in contents(home).items() if text] == ["Documents/Cline/Hooks/PreToolUse"]


def test_a_file_that_changes_between_the_plan_and_the_write_is_left_alone(home: Path) -> None:
    write(home, {GEMINI: "{}"})
    integrator = Integrator(str(home), None)
    plan = integrator.plan(adapter_of("gemini"))
    write(home, {GEMINI: '{"theirs": 1}'})
    with pytest.raises(OSError, match="changed meanwhile"):
        integrator.apply(plan)
    assert (home / GEMINI).read_text() == '{"theirs": 1}'
    assert contents(home).keys() == {".gemini", GEMINI}


def test_a_write_that_fails_leaves_the_file_whole(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, {GEMINI: THEIRS})

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        add(home, "gemini")
    assert contents(home) == {".gemini": None, GEMINI: THEIRS.encode()}


# ── Projects ──


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_a_project_s_hook_disturbs_nobody_who_has_no_editd(home: Path, project: Path) -> None:
    integrator = Integrator(str(home), str(project))
    integrator.apply(integrator.plan(adapter_of("gemini")))
    command = hooks_of(project)["hooks"]["BeforeTool"][0]["hooks"][0]["command"]
    assert command == "command -v editd-hook >/dev/null || exit 0; exec editd-hook gemini"
    integrator.apply(integrator.plan(adapter_of("opencode")))
    assert 'EDITCTL = "editctl"' in (project / ".opencode/plugins/editd.js").read_text()
    assert contents(home) == {}
    integrator.apply(integrator.plan(adapter_of("opencode"), remove=True))
    integrator.apply(integrator.plan(adapter_of("gemini"), remove=True))
    assert contents(project) == {}


def test_a_project_that_codex_does_not_trust_gets_no_hooks(home: Path, project: Path) -> None:
    plan = Integrator(str(home), str(project)).plan(adapter_of("codex"))
    assert plan.changes == []
    assert "does not trust" in plan.problems[0][1]
    write(home, {".codex/config.toml": f'[projects."{project}"]\ntrust_level = "trusted"\n'})
    assert Integrator(str(home), str(project)).plan(adapter_of("codex")).changes
