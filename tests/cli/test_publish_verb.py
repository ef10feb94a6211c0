"""editctl publish, through the real command, the real daemon and real git."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.pseudo_terminal import PseudoTerminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.workplace import Workplace

    Run = Callable[..., str]


@pytest.fixture
def editctl(place: Workplace) -> Iterator[Run]:
    """Runs `editctl` in a repository with one commit; the daemon that it starts is ended."""
    place.write({"app.txt": "one\ntwo\nthree\n", ".gitignore": "*.log\n"})
    place.git("init", "-q", "-b", "main")
    place.git("config", "user.name", "Ann")
    place.git("config", "user.email", "ann@example.org")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "first")

    def run(*words: str, code: int = 0) -> str:
        done = place.editctl(*words, EDITD_ACTOR="bot")
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    yield run
    run("stop")


def test_a_range_becomes_a_commit_and_the_line_that_git_would_print(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "two", "TWO")
    editctl("write", "x.log", "--", "app.txt")
    said = editctl("publish", "--from", "1", "-m", "Louder\n\nMuch.")
    commit = place.git("rev-parse", "--short=7", "HEAD").strip()
    assert said == f"{commit} on main: Louder\nleft out, as git would: x.log\n"
    assert place.git("log", "-1", "--format=%an|%b").startswith("Ann|Much.\n\nCo-authored-by: bot <")
    assert place.git("status", "--porcelain") == ""


def test_the_author_comes_from_the_configuration_that_a_variable_names(place: Workplace) -> None:
    place.write({"app.txt": "one\n"})
    (place.folder / "user").write_text("[user]\nname = Bo\nemail = bo@example.org\n")
    place.variables["GIT_CONFIG_GLOBAL"] = str(place.folder / "user")
    place.git("init", "-q", "-b", "main")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "first")
    try:
        assert place.editctl("replace", "app.txt", "one", "two").returncode == 0
        done = place.editctl("publish", "--from", "1", "-m", "Two")
        assert done.returncode == 0, done.stderr
    finally:
        place.editctl("stop")
    assert place.git("log", "-1", "--format=%an <%ae>") == "Bo <bo@example.org>\n"


def test_a_message_of_others_is_plain_on_the_terminal(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "two", "TWO")
    attack = "Fix\x1b]0;owned\x07\x1b[2J\x9b8m\u202eok"
    for options in (["--dry-run"], []):
        words = [str(place.provide_editctl() / "editctl"), "publish", "--to", "1", "-m", attack, *options]
        with PseudoTerminal(words, (80, 24), folder=str(place.root), environment=place.environment) as shown:
            shown.until(r"on main: Fix")
            while shown.read(20):
                continue
            printed = b"".join(part for _, part in shown.printed).decode()
        assert "\\x1b]0;owned\\x07\\x1b[2J\\x9b8m\\u202eok" in printed
        assert not re.search("[\x07\x9b\u202e]|\x1b(?!\\[[0-9]*m)", printed), printed


def test_a_new_branch_and_another_author(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "two", "TWO")
    editctl("publish", "--to", "1", "--branch", "louder", "--author", "Bob <bob@b>", "-m", "Louder", "--json")
    assert place.git("log", "-1", "--format=%an %s", "louder") == "Bob Louder\n"
    assert place.git("log", "-1", "--format=%s") == "first\n"


def test_what_is_published_must_be_said(editctl: Run) -> None:
    assert "Name the work" in editctl("publish", "-m", "x", code=2)
    assert "Use --session, or" in editctl("publish", "-m", "x", "--session", "s", "--to", "3", code=2)
    assert "in force" in editctl("publish", "-m", "x", "--session", "s", code=1)


def test_several_sessions_a_dry_run_and_the_lines_of_each_file(editctl: Run, place: Workplace) -> None:
    editctl("--session", "one", "replace", "app.txt", "two", "TWO")
    editctl("--session", "two", "write", "new.txt", "--", "app.txt")
    both = ("--session", "one", "--session", "two")
    stat = " M app.txt | +1 -1\n A new.txt | +3 -0\n 2 files changed, +4 -1\n"
    assert editctl("publish", *both, "-m", "Both", "--dry-run") == f"dry run: on main: Both\n{stat}"
    assert place.git("log", "--format=%s") == "first\n"
    assert "--message" in editctl("publish", *both, code=2)
    assert "needs a message" in editctl("publish", *both, "-m", "", code=1)
    said = editctl("publish", *both, "-m", "Both", "--stat")
    commit = place.git("rev-parse", "--short=7", "HEAD").strip()
    assert said == f"{commit} on main: Both\n{stat}"
    assert place.git("status", "--porcelain") == ""
    assert f"published as {commit}" in editctl("log", "--oneline")
    assert f"published as {commit}" in editctl("show", "1")


def test_a_session_is_published_by_its_name_alone(editctl: Run, place: Workplace) -> None:
    for name in ("one", "two"):
        editctl("--session", name, "write", f"{name}.txt", "--", "app.txt")
    both = editctl("publish", "one", "--session", "two", "-m", "Both", "--dry-run")
    assert both.endswith(" A one.txt | +3 -0\n A two.txt | +3 -0\n 2 files changed, +6 -0\n")
    editctl("publish", "one", "-m", "First")
    assert place.git("show", "--format=", "--name-only", "HEAD").split() == ["one.txt"]
