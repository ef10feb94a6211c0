"""`editctl config` and `editctl gc`, as people and scripts use them."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from editd.config.reference import template
from editd_client.cli import run as main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.workplace import Workplace

    Run = Callable[..., "Said"]


class Said(NamedTuple):
    stdout: str
    stderr: str


@pytest.fixture
def editctl(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command, in this process: it only reads and writes files, but for the daemon's part."""
    for name, value in (place.environment | {"EDITD_WORKSPACE": str(place.root)}).items():
        monkeypatch.setenv(name, value)

    def run(*words: str, code: int = 0, **environment: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            monkeypatch.context() as context,
        ):
            for name, value in environment.items():
                context.setenv(name, value)
            found = main(words)
        assert found == code, f"{words}: {found}\n{out.getvalue()}\n{err.getvalue()}"
        return Said(out.getvalue(), err.getvalue())

    return run


def values(done: Said) -> dict[str, Any]:
    return {row["key"]: row for row in json.loads(done.stdout)["keys"]}


@pytest.fixture
def file(place: Workplace) -> Path:
    return place.folder / "config" / "editd" / "config.toml"


def test_init_writes_every_key_as_a_comment_once(editctl: Run, file: Path) -> None:
    assert editctl("config", "path").stdout.strip() == str(file)
    assert editctl("config", "init", "--print").stdout == template()
    assert not file.exists()
    editctl("config", "init")
    assert file.read_text() == template()
    assert "exists already" in editctl("config", "init", code=1).stderr
    assert all(row["file"] is None for row in values(editctl("config", "--json")).values())


def test_every_value_is_shown_with_where_it_comes_from(editctl: Run, place: Workplace, file: Path) -> None:
    editctl("config", "set", "history.quota", "2GiB")
    editctl("config", "set", "--here", "history.quota", "1GiB")
    editctl("config", "set", "protect", '["**/*.pem"]')
    rows = values(editctl("config", "--json"))
    own = file.parent / "workspaces" / f"{place.id}.toml"
    assert (rows["history.quota"]["value"], rows["history.quota"]["file"]) == (1 << 30, str(own))
    assert (rows["protect"]["value"], rows["protect"]["line"]) == (["**/*.pem"], 1)
    assert rows["publish"]["file"] is None
    shown = editctl("config").stdout
    assert re.search(r'^protect += \["\*\*/\*\.pem"\] ', shown, re.MULTILINE)
    assert "config.toml:1" in shown
    assert "# default" in shown


def test_set_changes_one_key_and_leaves_all_else_as_it_is(editctl: Run, file: Path) -> None:
    file.parent.mkdir(parents=True)
    lists = 'protect = [\n  "a",  # one\n]\n'
    file.write_text(f'# mine\nidle_seconds = 3 # so\n\n{lists}\n[history]  # of it\nquota = "1GiB"\n')
    editctl("config", "set", "idle_seconds", "5")
    editctl("config", "set", "publish", "rename")
    editctl("config", "set", "history.keep.count", "7")
    editctl("config", "set", "protect", '["b"]')
    editctl("config", "set", "wcgw.edit_globs", '["/x/**"]')
    assert file.read_text() == (
        '# mine\nidle_seconds = 5 # so\n\nprotect = ["b"]\npublish = "rename"\n'
        '\n[history]  # of it\nquota = "1GiB"\n\n[history.keep]\ncount = 7\n'
        '\n[wcgw]\nedit_globs = ["/x/**"]\n'
    )
    rows = values(editctl("config", "--json"))
    assert [rows[key]["value"] for key in ("idle_seconds", "publish", "protect", "history.quota")] == [
        5, "rename", ["b"], 1 << 30,
    ]  # fmt: skip
    assert rows["wcgw.edit_globs"]["value"] == ["/x/**"]


def test_a_value_is_toml_with_its_spaces_and_its_comment(editctl: Run) -> None:
    editctl("config", "set", "idle_seconds", "  5 # seconds")
    assert values(editctl("config", "--json"))["idle_seconds"]["value"] == 5


def test_a_key_that_does_not_fit_into_an_inline_table_is_refused(editctl: Run, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("history = {keep = {count = 3}}\n")
    editctl("config", "set", "history.keep.age", "90d")
    rows = values(editctl("config", "--json"))
    assert (rows["history.keep.count"]["value"], rows["history.keep.age"]["value"]) == (3, 90 * 86400)
    file.write_text("history = {}\n")
    said = editctl("config", "set", "history.keep.age", "90d", code=1).stderr
    assert "history.keep.age cannot be set in" in said
    assert "without changing its surroundings" in said
    assert file.read_text() == "history = {}\n"


def test_what_would_be_wrong_is_not_written_and_the_line_is_told(editctl: Run, file: Path) -> None:
    editctl("config", "set", "idle_seconds", "5")
    for words in (("idle_second", "5"), ("idle_seconds", "soon"), ("history", "3"), ("publish", "maybe")):
        refused = editctl("config", "set", *words, code=1)
        assert f"{file}:" in refused.stderr
    assert file.read_text() == "idle_seconds = 5\n"
    file.write_text("idle_seconds = 5\n\nprotcet = []\n")
    for asked in (("config",), ("config", "check"), ("config", "set", "publish", "rename")):
        assert (
            f"{file}:3: protcet: there is no such key. Did you mean `protect`?"
            in editctl(*asked, code=1).stderr
        )
    found = json.loads(editctl("config", "check", "--json", code=1).stdout)
    assert [problem["line"] for problem in found["problems"]] == [3]
    for line in ("config", "config set publish rename", "config edit"):
        refused = json.loads(editctl(*line.split(), "--json", code=1, VISUAL="true").stdout)["error"]
        assert (refused["name"], refused["data"]["problems"]) == ("invalid_params", found["problems"])
    start = editctl("start", code=3)
    assert "Did you mean `protect`?" in start.stderr


def test_check_looks_at_any_file(editctl: Run, tmp_path: Path) -> None:
    (tmp_path / "new.toml").write_text("publish = 3\n")
    assert "new.toml:1: publish" in editctl("config", "check", str(tmp_path / "new.toml"), code=1).stderr
    (tmp_path / "new.toml").write_text("publish = 'rename'\n")
    assert editctl("config", "check", str(tmp_path / "new.toml")).stdout == "nothing is wrong\n"


def test_edit_is_taken_only_if_nothing_is_wrong(editctl: Run, file: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "$LINE" >> "$1"\n')
    editor.chmod(0o755)
    refused = editctl("config", "edit", code=1, VISUAL=str(editor), LINE="publsh = 3")
    assert "Did you mean `publish`?" in refused.stderr
    assert not file.exists()
    editctl("config", "edit", VISUAL=str(editor), LINE="idle_seconds = 9")
    assert file.read_text() == template() + "idle_seconds = 9\n"
    assert "status 1" in editctl("config", "edit", code=1, VISUAL="false").stderr


CHECK = '[[review.check]]\nname = "pytest"\ncommand = ["pytest"]\n'
RULE = '[[review.rule]]\nname = "tested"\npaths = ["**"]\naction = "land"\ncheck = "pytest"\n'


def test_a_rule_without_its_check_is_not_saved(editctl: Run, file: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf %s "$TEXT" > "$1"\n')
    editor.chmod(0o755)
    refused = editctl("config", "edit", code=1, VISUAL=str(editor), TEXT=RULE)
    assert "there is no review.check 'pytest'" in refused.stderr
    assert not file.exists()
    editctl("config", "edit", VISUAL=str(editor), TEXT=CHECK)
    editctl("config", "edit", "--here", VISUAL=str(editor), TEXT=RULE)
    (here,) = (file.parent / "workspaces").iterdir()
    assert here.read_text() == RULE
    lost = editctl("config", "edit", code=1, VISUAL=str(editor), TEXT="publish = 'rename'\n")
    assert f"{here}:5: review.rule.1.check" in lost.stderr
    assert "review.rule.1.check" in editctl("config", "set", "review.check", "[]", code=1).stderr
    assert file.read_text() == CHECK
    (tmp_path / "new.toml").write_text(RULE)
    assert "no review.check" in editctl("config", "check", str(tmp_path / "new.toml"), code=1).stderr


def test_a_file_can_be_edited_while_the_other_one_is_wrong(editctl: Run, file: Path, tmp_path: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("publsh = 3\n")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "publish = \'rename\'" > "$1"\n')
    editor.chmod(0o755)
    editctl("config", "edit", "--here", VISUAL=str(editor))
    assert next((file.parent / "workspaces").iterdir()).read_text() == "publish = 'rename'\n"


def test_a_daemon_that_runs_is_told_and_gc_compacts(editctl: Run, place: Workplace) -> None:
    place.write({"a.txt": "0\n"})
    with place.start():
        for number in range(6):
            editctl("replace", "a.txt", f"{number}", f"{number + 1}")
        assert "no transaction is beyond" in editctl("gc").stdout
        told = editctl("config", "set", "history.keep.count", "5").stdout
        assert told == "history.keep.count is in force\n"
        assert "encoding waits for a restart" in editctl("config", "set", "encoding", "latin-1").stdout
        assert editctl("config", "reload").stdout.startswith("encoding waits")
        planned = json.loads(editctl("gc", "--dry-run", "--json").stdout)
        assert (planned["oldest"], planned["compacted"]) == (1, 1)
        assert "one transaction is compacted: the history begins with 1" in editctl("gc").stdout
        assert "is compacted" in editctl("undo", "1", code=1).stderr
        assert "oldest 1" in editctl("status", "-v").stdout
