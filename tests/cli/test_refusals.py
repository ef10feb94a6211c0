"""How a no is told, to people and to programs."""

from __future__ import annotations

import json

import pytest

from editd.advice import Advice, argument_term, method_term, option_term
from editd_client.cli.output import print_refusal
from editd_client.errors import EditdError, refusal


def test_a_refusal_gives_the_fact_then_the_hint_in_the_words_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    advice = Advice("Read it again", option_term("on_stale", "merge", lead=", or use "), ".")
    made_by = {
        "seq": 12, "id": "abcdef1" + "0" * 33, "kind": "edit", "actor": "alice", "session": None,
        "message": "Why\n\nand how", "time": "2026-01-02T03:04:05.000006Z", "files": [], "undoes": [],
        "undone_by": None, "request_id": None,
    }  # fmt: skip
    data = {"changed_by": [made_by], "diff": "diff --git a/a b/a\n"}
    error = refusal("stale", "a has changed.", hint=advice, data=data)
    print_refusal(error, as_json=False)
    told = capsys.readouterr().err.splitlines()
    assert told[:3] == [
        "editctl: a has changed.",
        "hint: Read it again, or use --merge.",
        "changed by 12 abcdef1 edit by alice: Why",
    ]
    assert told[3] == "diff --git a/a b/a"


@pytest.mark.parametrize(
    ("advice", "told"),
    [
        (Advice("Ask for a lease with ", argument_term("wait"), "."), "Ask for a lease with --wait."),
        (Advice(method_term("lease.list"), " lists them."), "`editctl lease list` lists them."),
        (Advice("Such as `src/main.c`; `git fsck` may tell."), "Such as `src/main.c`; `git fsck` may tell."),
    ],
)
def test_a_hint_names_what_can_be_typed(
    advice: Advice, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_refusal(refusal("conflict", "No.", hint=advice), as_json=False)
    assert capsys.readouterr().err == f"editctl: No.\nhint: {told}\n"


def test_a_conflict_names_the_transactions_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    hunk = "@@ -3,1 +3,1 @@\n-made\n+there now\n"
    data = {"files": [{"path": "a", "blocking": [7, 9], "hunks": [hunk]}, {"path": "b", "blocking": [9]}]}
    print_refusal(EditdError(2, "conflict", "No.", data), as_json=False)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  a, in the way: 7, 9",
        "@@ -3,1 +3,1 @@",
        "-made",
        "+there now",
        "  b, in the way: 9",
    ]


def test_a_refusal_as_json_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_refusal(EditdError(12, "file_missing", "No.", {"path": "a"}), as_json=True)
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "error": {"code": 12, "name": "file_missing", "message": "No.", "data": {"path": "a"}}
    }
    assert told.err == ""


def test_a_conflict_of_many_files_names_ten_and_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    files = [{"path": f"file{number}", "blocking": [7]} for number in range(30)]
    print_refusal(EditdError(2, "conflict", "They do not merge.", {"files": files}), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "  file0, in the way: 7"
    assert lines[10:] == ["  file9, in the way: 7", "  and 20 more (--json has all)"]
