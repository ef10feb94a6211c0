"""`editctl why`, `turns` and the filters of `log` by turn, as people and scripts use them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.workplace import replace

if TYPE_CHECKING:
    from support.workplace import Workplace

NAME = "codex-1"


@pytest.fixture
def worked(place: Workplace) -> Workplace:
    """Two turns: transactions 1 and 2, the second undone by 3."""
    place.write({"app.py": "one\ntwo\nthree\n"})
    with place.start() as client:
        client.hello("codex")
        client.settle()
        for prompt, old, new in (("Make it\na number", "two", "2"), ("and the third", "three", "3")):
            client.turn_begin("talk", session=NAME, prompt=prompt, model="gpt-5.5", transcript="/t.jsonl")
            client.apply([replace("app.py", old, new)], session=NAME, message=f"Write {new}")
        client.undo(2)
    return place


def test_why_shows_the_lines_and_their_reason(worked: Workplace) -> None:
    shown = worked.editctl("why", "app.py:1-2")
    assert (shown.returncode, shown.stderr) == (0, "")
    blocks = shown.stdout.split("\n\n")
    assert blocks[0].startswith("1  one\n transaction  0 baseline")
    assert blocks[1].startswith("2  2\n transaction  1 edit: Write 2\n")
    for part in (
        "      author  codex in codex-1\n", "       agent  codex, gpt-5.5\n",
        "      prompt  Make it\n              a number\n", "  transcript  /t.jsonl\n",
    ):  # fmt: skip
        assert part in blocks[1]
    at = worked.editctl("why", "app.py:3", "--at", "2")
    assert "and the third" in at.stdout


def test_why_as_json_is_the_protocols_result(worked: Workplace) -> None:
    found = json.loads(worked.editctl("why", "app.py:2", "--json").stdout)["lines"][0]
    keys = {"line", "path", "transaction", "actor", "session", "agent", "model", "turn", "prompt", "time"}
    assert set(found) >= keys | {"reviewed", "host"}
    assert (found["prompt"], found["reviewed"]) == ("Make it\na number", None)


@pytest.mark.parametrize("words", [["app.py"], ["app.py:0"], ["app.py:3-1"], ["app.py:x"]])
def test_a_place_that_is_no_line_is_wrong_usage(worked: Workplace, words: list[str]) -> None:
    assert worked.editctl("why", *words).returncode == 2


def test_turns_lists_the_prompts_in_order_with_their_transactions(worked: Workplace) -> None:
    lines = worked.editctl("turns", NAME).stdout.splitlines()
    assert lines[0].startswith("codex-1  turn 1  +1 -1  gpt-5.5")
    assert lines[1].endswith("Make it a number")
    assert lines[2] == "     1 edit  +1 -1  Write 2"
    assert lines[3].startswith("codex-1  turn 2  +0 -0  gpt-5.5  under way")
    assert lines[5] == "     2 edit  +1 -1  Write 3  undone by 3"
    everything = json.loads(worked.editctl("turns", "--json").stdout)
    assert [turn["turn"] for turn in everything["turns"]] == [2, 1]
    newest = worked.editctl("turns", "-n", "1").stdout.splitlines()
    assert newest[0].startswith("… earlier turns")


def test_log_finds_transactions_by_turn_and_prompt(worked: Workplace) -> None:
    assert worked.editctl("log", "--of", NAME, "--turn", "1", "--format", "{seq}").stdout == "1\n"
    assert worked.editctl("log", "--prompt", "THIRD", "--format", "{seq}").stdout == "2\n"
    assert worked.editctl("log", "--turn", "1").returncode == 2
