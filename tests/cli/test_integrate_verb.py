"""`editctl integrate` and `editctl hook`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd_client.agents import NAMES

if TYPE_CHECKING:
    import subprocess

    from support.workplace import Workplace

GEMINI = ".gemini/settings.json"


@pytest.fixture
def home(place: Workplace) -> Path:
    place.git("init", "-q")
    return place.folder / "home"


def integrate(place: Workplace, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = place.editctl("integrate", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def status_of(place: Workplace, name: str) -> dict[str, Any]:
    document = json.loads(integrate(place, "--json").stdout)
    [row] = [row for row in document["agents"] if row["agent"] == name]
    return dict(row)


def test_without_an_agent_it_lists_all_of_them(place: Workplace, home: Path) -> None:
    lines = integrate(place).stdout.splitlines()
    assert len(lines) == len(NAMES) + 2
    assert lines[0].split()[:4] == ["agent", "found", "hooks", "mcp"]
    row = status_of(place, "gemini")
    assert (row["hooks"], row["mcp"], row["project_hooks"], row["last"]) == ("no", "no", "no", None)
    assert not Path(place.socket).exists(), "no daemon was started"


def test_the_status_is_proved_by_the_hook_itself(place: Workplace, home: Path) -> None:
    integrate(place, "gemini", "--yes")
    document = json.loads(integrate(place, "--json").stdout)
    assert document["daemon"] == {"ok": False, "text": f"no daemon runs for {place.root.resolve()}"}
    place.start()
    document = json.loads(integrate(place, "--json").stdout)
    assert document["daemon"] == {"ok": True, "text": f"the daemon of {place.root.resolve()} answers"}
    assert status_of(place, "gemini")["hooks"] == "yes"
    assert "has heard nothing of Gemini CLI yet" in integrate(place).stderr


def test_the_difference_comes_first_and_without_a_terminal_nothing_is_written(
    place: Workplace, home: Path
) -> None:
    assert "hint: Add --yes." in integrate(place, "gemini", code=1).stderr
    shown = integrate(place, "gemini", "--dry-run")
    assert "+++ " in shown.stdout
    assert '+            "command": ' in shown.stdout
    assert not (home / GEMINI).exists()


def test_it_is_added_once_and_removed(place: Workplace, home: Path) -> None:
    assert integrate(place, "gemini", "codex", "--yes").stdout.endswith(
        "Gemini CLI: integrated\nCodex CLI: integrated\n"
    )
    again = integrate(place, "gemini", "codex")
    assert again.stdout.splitlines() == [
        "Gemini CLI: integrated already, nothing to change",
        "Codex CLI: integrated already, nothing to change",
    ]
    assert integrate(place, "--remove", "codex", "gemini", "--yes").stdout.endswith("Gemini CLI: removed\n")
    assert list(home.iterdir()) == []
    assert "not integrated" in integrate(place, "--remove", "codex").stdout


def test_trust_is_left_to_the_user(place: Workplace, home: Path) -> None:
    assert "hint: Start `codex`, enter /hooks, and trust" in integrate(place, "codex", "--yes").stderr


def test_all_means_the_agents_that_are_found(place: Workplace, home: Path) -> None:
    (home / ".gemini").mkdir()
    document = json.loads(integrate(place, "--all", "--yes", "--no-mcp", "--json").stdout)
    assert document["done"]
    assert "gemini" in [one["agent"] for one in document["agents"]]


def test_a_damaged_file_is_left_alone_with_the_lines_on_standard_error(place: Workplace, home: Path) -> None:
    (home / ".gemini").mkdir()
    (home / GEMINI).write_text("{ damaged")
    refused = integrate(place, "gemini", "--yes", code=1)
    assert f"editctl: {home / GEMINI} was left alone: line 1: " in refused.stderr
    assert "hint: Put this in by hand:\n{" in refused.stderr
    assert (home / GEMINI).read_text() == "{ damaged"


def test_a_project_has_files_of_its_own(place: Workplace, home: Path) -> None:
    warned = integrate(place, "gemini", "--project", "--yes").stderr
    assert "these hooks run for everybody" in warned
    assert "command -v editd-hook" in (place.root / GEMINI).read_text()
    assert status_of(place, "gemini")["project_hooks"] == "yes"
    assert "does not trust this project" in integrate(place, "codex", "--project", "--yes", code=1).stderr
    integrate(place, "gemini", "--project", "--remove", "--yes")
    assert not (place.root / ".gemini").exists()


def test_the_wrong_words_are_told(place: Workplace, home: Path) -> None:
    assert "'vim' is not one of" in integrate(place, "vim", code=2).stderr
    assert "Name an agent" in integrate(place, "--remove", code=2).stderr


def test_hook_does_nothing_without_a_daemon(place: Workplace, home: Path) -> None:
    event = {"hook_event_name": "PreToolUse", "session_id": "1", "cwd": str(place.root), "tool_name": "Bash",
             "tool_input": {"command": "make"}}  # fmt: skip
    done = place.editctl("hook", "codex", stdin=json.dumps(event))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_status_has_the_daemon_s_last_news_of_an_agent(place: Workplace, home: Path) -> None:
    integrate(place, "codex", "--yes")
    with place.start() as client:
        client.settle()
        event = {"hook_event_name": "PreToolUse", "session_id": "0123456789ab", "cwd": str(place.root),
                 "tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "1"}  # fmt: skip
        assert place.editctl("hook", "codex", stdin=json.dumps(event)).stdout == ""
        last = status_of(place, "codex")["last"]
        assert (last["session"], last["event"]) == ("codex-456789ab", "exec.begin")
        assert "heard nothing of Codex" not in integrate(place).stderr
        assert "codex-456789ab" in integrate(place).stdout


def test_without_a_terminal_it_prints_a_summary_and_says_what_acp_does(place: Workplace, home: Path) -> None:
    refused = integrate(place, "gemini", code=1)
    (line,) = refused.stdout.splitlines()
    assert GEMINI in line
    assert "lines" in line
    done = integrate(place, "gemini", "--yes")
    assert len(done.stdout.splitlines()) == 2
    assert "gemini --acp" in done.stderr
    assert integrate(place, "gemini", "--remove", "--dry-run").stdout.count("\n") > 10, "the whole difference"


def test_an_upgrade_of_codex_says_that_a_new_hook_has_to_be_trusted(place: Workplace, home: Path) -> None:
    integrate(place, "codex", "--yes", "--no-mcp")
    settings = home / ".codex/hooks.json"
    document = json.loads(settings.read_text())
    del document["hooks"]["PermissionRequest"]  # as an earlier editd wrote it
    settings.write_text(json.dumps(document))
    assert status_of(place, "codex")["hooks"] != "yes"
    upgraded = integrate(place, "codex", "--yes", "--no-mcp")
    assert "PermissionRequest" in settings.read_text()
    assert "/hooks" in upgraded.stderr
    assert "also after an upgrade" in upgraded.stderr
