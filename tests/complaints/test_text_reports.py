"""Public reports about the text that a tool writes: one test for each, with its repository and number.

Each through the real socket, with the tool that the report is about, or with editd's own edits.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.messages import Patch, Tool
from editd_client.errors import EditdError
from support.reviewers import configure

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace


def call(client: Client, dialect: str, tool: str, **args: Any) -> Any:
    return client.apply([Tool(dialect=dialect, tool=tool, args=args)], session="agent")


def refused(client: Client, dialect: str, tool: str, **args: Any) -> EditdError:
    with pytest.raises(EditdError) as refusal:
        call(client, dialect, tool, **args)
    return refusal.value


def test_the_marker_of_a_block_is_written_into_the_file(place: Workplace) -> None:
    """cline/cline#4216: `>>>>>>> REPLACE` was saved as text."""
    place.write({"a.txt": "a\nb\n"})
    diff = "<<<<<<< SEARCH\na\n=======\nA\n>>>>>>> REPLACE</diff>\n"
    with place.start() as client:
        assert refused(client, "cline", "replace_in_file", path="a.txt", diff=diff).name == "malformed_edit"
    assert place.files() == {"a.txt": b"a\nb\n"}


def test_an_edit_destroys_the_characters_elsewhere_in_a_file_of_another_encoding(place: Workplace) -> None:
    """anthropics/claude-code#85842: bytes that are not UTF-8 became U+FFFD, far from the edited lines."""
    configure(place, 'encoding = "cp1252"\n')
    before = "x = 1;\n// café ñandú\n".encode("cp1252")
    place.write({"a.c": before})
    with place.start() as client:
        args = {"command": "str_replace", "path": "a.c", "old_str": "x = 1", "new_str": "x = 2"}
        call(client, "claude", "str_replace_based_edit_tool", **args)
    assert place.files()["a.c"] == before.replace(b"1", b"2")


def test_inserted_text_is_utf8_in_a_file_that_is_shift_jis(place: Workplace) -> None:
    """anthropics/claude-code#62723: the old bytes stayed Shift-JIS, and the new ones were UTF-8."""
    configure(place, 'encoding = "shift_jis"\n')
    place.write({"a.txt": "設定\n".encode("shift_jis")})
    with place.start() as client:
        args = {"command": "insert", "path": "a.txt", "insert_line": 1, "insert_text": "追加"}
        call(client, "claude", "str_replace_based_edit_tool", **args)
        client.apply([Patch(patch="--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@\n-追加\n+変更\n")])
    assert place.files()["a.txt"].decode("shift_jis") == "設定\n変更\n"


def test_a_tolerant_match_joins_two_lines(place: Workplace) -> None:
    """google-gemini/gemini-cli#22111: the line end after a match with other white space was dropped."""
    place.write({"a.py": "def f():\n        return 1\nx = 2\n"})
    with place.start() as client:
        args = {"file_path": f"{place.root}/a.py", "instruction": "x", "old_string": "return 1 "}
        call(client, "gemini", "replace", **args, new_string="return 3")
    assert place.files()["a.py"] == b"def f():\n        return 3\nx = 2\n"


def test_a_whole_write_turns_cr_lf_into_lf(place: Workplace) -> None:
    """anthropics/claude-code#19565: the edit tools saved files with CR LF line ends with LF."""
    place.write({"unit1.pas": "unit a;\r\nend.\r\n"})
    patch = (
        "*** Begin Patch\n*** Delete File: unit1.pas\n*** Add File: unit1.pas\n+unit b;\n+end.\n*** End Patch"
    )
    with place.start() as client:
        call(client, "codex", "apply_patch", input=patch)
    assert place.files()["unit1.pas"] == b"unit b;\r\nend.\r\n"


def test_a_tilde_makes_a_folder_of_that_name(place: Workplace) -> None:
    """cursor/cursor#3146: a file for the home folder went into a new folder `~` of the workspace."""
    with place.start() as client:
        args = {"command": "create", "path": "~/.config/a.desktop", "file_text": "x\n"}
        refusal = refused(client, "claude", "str_replace_based_edit_tool", **args)
    assert f"{place.environment['HOME']}/.config/a.desktop" in refusal.hint
    assert place.files() == {}


def test_an_escaped_line_end_is_only_said_to_be_missing(place: Workplace) -> None:
    """google-gemini/gemini-cli#2011: `\\n` and a line end were mistaken for each other."""
    place.write({"a.go": "if n > 0 {\n\tb = b[:n-1]\n}\n"})
    with place.start() as client:
        args = {"command": "str_replace", "path": "a.go", "old_str": "n > 0 {\\n\\tb = b", "new_str": "x"}
        refusal = refused(client, "claude", "str_replace_based_edit_tool", **args)
    assert (refusal.data["nearest"]["start_line"], refusal.data["differs"][0]) == (1, "escapes")


def test_a_search_that_ends_within_a_line_is_said_to_match_nothing(place: Workplace) -> None:
    """cline/cline#11439: the text was there, as part of a line, and the refusal did not say so."""
    place.write({"a.cpp": "x = live.f;\n// Build tree spheres with audio\n"})
    diff = "------- SEARCH\nx = live.f;\n// Build tree spheres\n=======\ny\n+++++++ REPLACE"
    with place.start() as client:
        refusal = refused(client, "cline", "replace_in_file", path="a.cpp", diff=diff)
    assert refusal.data["differs"] == ["part of a line"]


def test_a_whole_write_makes_utf8_of_a_file_in_another_encoding(place: Workplace) -> None:
    """esengine/DeepSeek-Reasonix#3354: the tool that writes a whole file always wrote UTF-8."""
    configure(place, 'encoding = "gb18030"\n')
    place.write({"a.txt": "\u4f60\u597d\n".encode("gb18030")})
    patch = "*** Begin Patch\n*** Delete File: a.txt\n*** Add File: a.txt\n+\u4e16\u754c\n*** End Patch"
    with place.start() as client:
        call(client, "codex", "apply_patch", input=patch)
    assert place.files()["a.txt"] == "\u4e16\u754c\n".encode("gb18030")


def test_an_edit_turns_bytes_that_are_not_utf8_into_replacement_characters(place: Workplace) -> None:
    """anomalyco/opencode#49600: bytes of ISO-8859-1 became U+FFFD, and the tool reported success."""
    before = b"const x = 1;\n// caf\xe9 note\n"
    place.write({"a.ts": before})
    args = {"command": "str_replace", "path": "a.ts", "old_str": "x = 1", "new_str": "x = 2"}
    with place.start() as client:
        refusal = refused(client, "claude", "str_replace_based_edit_tool", **args)
    assert refusal.name == "not_text"
    assert "`encoding`" in refusal.hint
    assert place.files()["a.ts"] == before


def test_half_of_an_emoji_makes_a_message_that_nobody_can_read(place: Workplace) -> None:
    """microsoft/playwright-mcp#1410: half of a surrogate pair in a text made every later message fail."""
    edit = rb'{"op": "write", "path": "a", "content": "\ud83d"}'
    line = b'{"id": 7, "method": "apply", "params": {"edits": [%b]}}\n' % edit
    with place.start(), socket.socket(socket.AF_UNIX) as stream:
        stream.connect(place.socket)
        stream.sendall(line + b'{"id": 8, "method": "status"}\n')
        answers = [json.loads(answer) for _, answer in zip(range(2), stream.makefile("rb"), strict=False)]
    assert [(answer["id"], "error" in answer) for answer in answers] == [(7, True), (8, False)]
    assert place.files() == {}
