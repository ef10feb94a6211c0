"""How results are shown: on a terminal, in a pipe, as JSON."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from typing import TYPE_CHECKING

import pytest

from editd.wire import messages
from editd_client.cli import output
from editd_client.file_text import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

ODD = b"caf\xe9 \x1b[31m".decode("utf-8", "surrogateescape")
DIFF = f"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n--- old\n+{ODD}\r\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _colourful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def transaction(**more: object) -> messages.Transaction:
    given = {
        "seq": 12, "id": "abcdef1" + "0" * 33, "kind": "edit", "actor": "alice", "session": None,
        "message": "Why\n\nand how", "time": "2026-01-02T03:04:05.000006Z", "files": [], "undoes": [],
        "undone_by": None, "request_id": None,
    }  # fmt: skip
    return messages.Transaction(**{**given, **more})  # type: ignore[arg-type]


def test_off_a_terminal_a_diff_is_the_diff_byte_for_byte() -> None:
    assert "\n".join(output.diff_lines(DIFF)) + "\n" == DIFF


def test_on_a_terminal_a_diff_has_colours_and_no_control_characters_of_the_files() -> None:
    with contextlib.redirect_stdout(Terminal()):
        note, *lines = [output.shown(line, sys.stdout) for line in output.diff_lines(DIFF)]
    assert note == UNKNOWN
    assert lines[1] == "\x1b[1m--- a/a\x1b[0m"
    assert lines[4] == "\x1b[31m--- old\x1b[0m"  # a line that was deleted, not a header
    assert lines[5].startswith("\x1b[32m+caf\\xe9 \\x1b[31m\\x0d")


def test_a_terminal_gets_no_control_character_but_our_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last net: also where the text of a line was not made plain."""
    monkeypatch.setenv("EDITD_PAGER", "")
    attack = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\u202ee\r\x1b[8mf\x1b[30mg\x1b[0m"
    with contextlib.redirect_stdout(Terminal()) as terminal:
        output.echo(output.paint(attack, "red"))
        output.page([attack, "tab\tand é"])
    assert terminal.getvalue() == (
        "\x1b[31ma\\x1b]0;title\\x07b\\x1b[2Jc\\x9b31md\\u202ee\\x0d\\x1b[8mf\\x1b[30mg\\x1b[0m\x1b[0m\n"
        "a\\x1b]0;title\\x07b\\x1b[2Jc\\x9b31md\\u202ee\\x0d\\x1b[8mf\\x1b[30mg\\x1b[0m\n"
        "tab\tand é\n"
    )
    with contextlib.redirect_stderr(Terminal()) as errors:
        output.print_error(attack)
    assert "\x1b" not in errors.getvalue()
    with contextlib.redirect_stdout(io.StringIO()) as pipe:
        output.echo(attack)
    assert pipe.getvalue() == f"{attack}\n"


def test_the_pager_of_editd_comes_before_the_pager_of_all_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EDITD_PAGER", "PAGER"):
        monkeypatch.setenv(name, f"cat > {tmp_path / name}")
    with contextlib.redirect_stdout(Terminal()):
        output.page(["one"])
        monkeypatch.delenv("EDITD_PAGER")
        output.page(["two"])
    assert (tmp_path / "EDITD_PAGER").read_text() == "one\n"
    assert (tmp_path / "PAGER").read_text() == "two\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colour_gets_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with contextlib.redirect_stdout(Terminal()):
        assert output.shown(output.paint("text", "red"), sys.stdout) == "\x1b[31mtext\x1b[0m"
        monkeypatch.setenv(name, value)
        assert output.paint("text", "red") == "text"


def test_no_diff_is_no_line() -> None:
    assert list(output.diff_lines("")) == []


def test_applying_reports_the_transaction_and_a_line_a_file() -> None:
    def file(path: str, change: str | None, **more: object) -> messages.FileResult:
        return messages.FileResult(path=path, change=change, version=None, base=None, **more)  # type: ignore[arg-type]

    result = messages.ApplyResult(
        transaction=transaction(),
        files=[
            file("a", "modified"),
            file("b", "added", warnings=["mixed line ends"]),
            file("new\nname", "renamed", from_="old"),
            file("run", "mode", mode="100755"),
            file("same", None),
        ],
        merged=["a"],
    )
    assert list(output.applied(result, dry_run=False)) == [
        "[12 abcdef1] Why",
        " M a",
        " A b",
        " R old -> new\\x0aname",
        " M run (executable)",
        "merged with the current content: a",
        "warning: mixed line ends",
    ]


def test_a_transaction_without_files_has_no_empty_line_for_them() -> None:
    assert list(output.paragraph(transaction(message="Why")))[-1] == "    Why"


def test_a_line_of_the_log_says_what_was_undone() -> None:
    undone = transaction(kind="undo", undoes=[3, 4], undone_by=13, session="s")
    assert output.one_line(undone) == "12 abcdef1 undo by alice in s, of 3, 4, undone by 13: Why"


def test_a_line_of_the_log_names_the_files_where_there_is_no_message() -> None:
    files = [
        messages.Change(path=path, change="modified", base=None, version=None) for path in ("src/a", "src/b")
    ]
    outside = transaction(kind="outside", actor="outside", message="", files=files)
    assert output.one_line(outside) == "12 abcdef1 outside: src/a and 1 more"


def test_json_is_one_line_in_which_bytes_are_base64() -> None:
    result = messages.LogResult(transactions=[transaction(message=ODD)], more=False)
    text = output.json_text(result)
    assert "\n" not in text
    message = json.loads(text)["transactions"][0]["message"]
    assert base64.b64decode(message["base64"]) == b"caf\xe9 \x1b[31m"
