"""The table of the calls that the helper may serve, and the same answers by both ways."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from editd_client.cli import VERBS
from editd_client.resident import routes

if TYPE_CHECKING:
    from support.resident import Resident

VERB_NAMES = [verb for section in VERBS.values() for verb in section]
ENVIRONMENT = {"PAGER": "cat"}
CALLS = {  # a call of each verb with a route, and its standard input
    "blame": (["blame", "a.txt"], ""),
    "diff": (["diff", "1"], ""),
    "log": (["log", "-n", "5"], ""),
    "read": (["read", "a.txt"], ""),
    "redo": (["redo"], ""),
    "replace": (["replace", "a.txt", "two", "2"], ""),
    "sessions": (["sessions"], ""),
    "settle": (["settle"], ""),
    "show": (["show", "1"], ""),
    "status": (["status"], ""),
    "undo": (["undo"], ""),
    "write": (["write", "new.txt"], "new\n"),
}


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_a_verb_without_a_row_runs_in_a_process_of_its_own(verb: str) -> None:
    against = routes.reason_against([verb], ENVIRONMENT)
    assert against == ("" if verb in routes.ROUTES else f"the verb {verb}")


def test_each_row_is_of_a_verb_and_has_a_call_here() -> None:
    assert set(routes.ROUTES) <= set(VERB_NAMES)
    assert set(routes.ROUTES) == set(CALLS)
    slow = ("exec", "mcp", "web", "review", "integrate", "remote", "publish", "config", "start", "watch")
    assert not routes.ROUTES.keys() & set(slow)


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (["-C", "log", "status"], "status"),
        (["-Clog", "status"], "status"),
        (["--workspace=log", "--nested", "--session", "log", "status"], "status"),
        (["--session=log", "status"], "status"),
        (["--help"], ""),
        (["--version", "log"], ""),
        (["--workspace"], ""),
        ([], ""),
        (["--unknown", "log"], ""),
    ],
)
def test_the_verb_of_a_command_line(words: list[str], verb: str) -> None:
    assert routes.verb_of(words) == verb


@pytest.mark.parametrize(
    ("words", "variables", "against"),
    [
        (["log"], {"EDITD_RESIDENT": "no"}, "EDITD_RESIDENT=no"),
        (["log"], {"PYTHONPATH": "src"}, "a relative PYTHONPATH"),
        (["undo", "1", "-i"], {}, "a person is asked"),
        (["stop"], {routes.COMPLETE: "bash_complete"}, ""),
        (["log"], {routes.COMPLETE: "bash_source"}, "the script of a completion"),
    ],
)
def test_a_call_that_needs_more_than_an_answer_is_slow(
    words: list[str], variables: dict[str, str], against: str
) -> None:
    assert routes.reason_against(words, variables) == against


def test_a_pager_needs_the_terminal_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 1)
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
    for verb, kind in routes.ROUTES.items():
        assert (routes.reason_against([verb], {}) == "the pager") == (kind == routes.PAGED)
        assert routes.reason_against([verb], {"EDITD_PAGER": "cat", "PAGER": "less"}) == ""


def test_a_background_job_reads_its_terminal_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 0)
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    assert routes.reason_against(["write", "a"], {}) == "a background job"


@pytest.mark.parametrize("verb", CALLS)
def test_the_helper_gives_the_same_answer(resident: Resident, verb: str) -> None:
    resident.warm()
    resident.run("write", "b.txt", stdin="b\n")
    words, stdin = CALLS[verb]
    answers = []
    for way in ("no", "yes"):
        if verb == "redo":
            resident.run("undo")
        if verb == "undo":
            resident.run("write", "b.txt", "--force", stdin=f"{way}\n")
        if verb in ("replace", "write"):
            resident.place.write({"a.txt": "one\ntwo\n"})
            (resident.place.root / "new.txt").unlink(missing_ok=True)
            resident.run("settle")
        resident.reasons()
        done = resident.run(*words, stdin=stdin, way=way)
        assert resident.reasons() == (["EDITD_RESIDENT=no"] if way == "no" else [])
        answers.append((done.returncode, *(without_counts(text) for text in (done.stdout, done.stderr))))
    assert answers[0] == answers[1]
    assert answers[0][0] == 0, answers[0]


def without_counts(text: str) -> str:
    """Return the text without the number, the id and the time of a transaction, and the daemon's uptime."""
    return re.sub(r"\d+ [0-9a-f]{7}\b|\[?\d+\]|up .*|\b\d+\b|[0-9a-f]{40}", "N", text)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["log", "--since", "yesterday"], {"TZ": "Asia/Tokyo"}),
        (["log"], {"TZ": "America/New_York"}),
        (["undo", "--help"], {"COLUMNS": "60"}),
        (["undo", "--help"], {"LC_ALL": "C"}),
        (["log", "--unknown"], {}),
        (["read", "missing.txt"], {}),
        (["read", "missing.txt", "--json"], {}),
        (["-C", "/", "log"], {}),
        (["-C", "..", "status"], {}),
        (["status"], {"EDITD_SOCKET": "none.sock"}),
        (["log"], {"EDITD_SESSION": "unknown", "EDITD_TOKEN": "none"}),
        (["read", "b\udcff.txt"], {}),
        (["log", "lo"], {routes.COMPLETE: "bash_complete", "COMP_WORDS": "editctl lo", "COMP_CWORD": "1"}),
    ],
)
def test_both_ways_agree_on_the_environment_and_on_errors(
    resident: Resident, words: list[str], variables: dict[str, str]
) -> None:
    resident.place.write({"b\udcff.txt": b"\xff\n", "sub/c.txt": "c\n"})
    resident.run("settle")
    resident.warm()
    resident.run(*words, **variables)  # another environment of Python starts another helper
    for _ in range(200):
        if not resident.reasons():
            break
        resident.run(*words, folder="sub", **variables)
    else:
        pytest.fail("the helper never served it")
    fast = resident.run(*words, folder="sub", **variables)
    slow = resident.run(*words, folder="sub", way="no", **variables)
    assert resident.reasons() == ["EDITD_RESIDENT=no"]
    assert (fast.returncode, fast.stderr) == (slow.returncode, slow.stderr)
    assert [re.sub("up .* s", "up", text.stdout) for text in (fast, slow)] == [
        re.sub("up .* s", "up", slow.stdout)
    ] * 2
