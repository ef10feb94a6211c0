"""Tests of `editd.tools.claude`: the pure core, and the tool through the real planning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from editd.edits.replace import replace
from editd.errors import Ambiguous, InvalidParams, NoMatch
from editd.tools.claude import (
    DIALECT,
    TOOL,
    insertion_of,
    lines_in,
    number_lines,
    path_to_undo,
    range_of,
    replacement_of,
)
from editd.values.content import version_of
from editd.values.transaction import Base
from tool_calls import ROOT, Workspace, on

if TYPE_CHECKING:
    from editd.errors import Refused

TEXT = "one\ntwo\nthree\n"


def call(place: Workspace, command: str, path: str, **args: Any) -> str:
    (answer,) = place.call("claude", TOOL.name, {"command": command, "path": path, **args}).answers
    assert answer is not None
    return answer


def refused(place: Workspace, code: str, command: str, path: str, **args: Any) -> Refused:
    refusal = place.refusal("claude", TOOL.name, {"command": command, "path": path, **args})
    assert refusal.code == code, refusal.text()
    assert refusal.hint
    return refusal


# ── The core ───────────────────────────────────────────────────────────────────────────────────────


def replaced(text: str, old: str, new: str) -> str:
    return replace(text, [replacement_of(text, old, new)])


def inserted(text: str, line: int, new: str) -> str:
    return replace(text, [insertion_of(text, line, new)])


def test_the_one_place_is_replaced() -> None:
    assert replaced(TEXT, "two", "2") == "one\n2\nthree\n"
    assert replaced(TEXT, "two\n", "") == "one\nthree\n"
    assert replaced(TEXT, "one\r\ntwo", "1") == "1\nthree\n"
    assert replaced("\tx", "\t", "    ") == "    x"


def test_a_replacement_is_literal() -> None:
    assert replaced("a b", "b", "$1 \\1 $&") == "a $1 \\1 $&"


def test_text_that_is_not_there_is_refused_with_what_is_nearest() -> None:
    with pytest.raises(NoMatch) as caught:
        replacement_of("def f():\n    return 1\n", "def f():\n  return 1\n", "")
    assert caught.value.data["nearest"]["start_line"] == 1
    assert caught.value.data["differs"] == ["indentation"]


def test_text_that_is_there_more_than_once_is_refused_with_its_lines() -> None:
    with pytest.raises(Ambiguous) as caught:
        replacement_of("x\ny\nx\n", "x", "z", "a.txt")
    assert caught.value.data == {"found": 2, "lines": [1, 3]}
    assert "lines 1, 3" in caught.value.message
    assert "count" not in caught.value.hint


def test_places_that_overlap_are_two() -> None:
    with pytest.raises(Ambiguous) as caught:
        replacement_of("aaa", "aa", "b")
    assert caught.value.data == {"found": 2, "lines": [1, 1]}


def test_lines_are_inserted_after_a_line() -> None:
    assert inserted(TEXT, 0, "zero") == "zero\none\ntwo\nthree\n"
    assert inserted(TEXT, 1, "1.5") == "one\n1.5\ntwo\nthree\n"
    assert inserted(TEXT, 3, "four\nfive") == "one\ntwo\nthree\nfour\nfive\n"
    assert inserted("", 0, "first") == "first\n"


def test_a_final_line_end_of_what_is_inserted_is_no_further_line() -> None:
    assert inserted(TEXT, 1, "1.5\n") == inserted(TEXT, 1, "1.5")
    assert inserted(TEXT, 1, "1.5\n\n") == "one\n1.5\n\ntwo\nthree\n"
    assert inserted(TEXT, 1, "") == inserted(TEXT, 1, "\n") == "one\n\ntwo\nthree\n"


def test_a_missing_final_newline_stays_missing() -> None:
    assert inserted("a\nb", 2, "c") == inserted("a\nb", 2, "c\n") == "a\nb\nc"
    assert inserted("a\nb", 1, "c") == "a\nc\nb"


@pytest.mark.parametrize(("text", "line"), [(TEXT, 4), (TEXT, -1), ("", 1), ("a\nb", 3)])
def test_a_line_that_is_not_there_is_no_place_to_insert(text: str, line: int) -> None:
    with pytest.raises(InvalidParams) as caught:
        insertion_of(text, line, "x")
    assert caught.value.data == {"argument": "insert_line", "lines": len(lines_in(text))}


def test_lines_are_counted_as_cat_does() -> None:
    assert number_lines(lines_in("a\n\tb\n\n"), 9) == "     9\ta\n    10\t\tb\n    11\t\n"
    assert lines_in("") == []
    assert lines_in("a") == lines_in("a\n") == ["a"]


def test_a_range_names_lines_up_to_the_end() -> None:
    assert range_of(None, 3) is None
    assert range_of([2, 3], 3) == range_of([2, -1], 3) == (2, 3)
    assert range_of([1, -1], 0) == (1, 1)


@pytest.mark.parametrize(
    "value",
    [[0, 1], [4, 4], [1, 4], [3, 2], [2, -2], [1], [1, 2, 3], ["1", "2"], [True, 2], [1.0, 2], "1-2", {}],
)
def test_a_range_that_makes_no_sense_is_refused_with_the_number_of_lines(value: object) -> None:
    with pytest.raises(InvalidParams) as caught:
        range_of(value, 3)
    assert caught.value.data == {"argument": "view_range", "lines": 3}
    assert "[1, 3]" in caught.value.hint


# ── The tool ───────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_viewed_with_its_line_numbers() -> None:
    place = on({"a.txt": TEXT, "empty.txt": "", "crlf.txt": "a\r\nb\r\n"})
    head = "Here's the result of running `cat -n` on a.txt:\n"
    assert call(place, "view", "a.txt") == f"{head}     1\tone\n     2\ttwo\n     3\tthree\n"
    assert call(place, "view", "a.txt", view_range=[2, 2]) == f"{head}     2\ttwo\n"
    assert call(place, "view", "a.txt", view_range=[2, -1]) == f"{head}     2\ttwo\n     3\tthree\n"
    assert call(place, "view", "a.txt", view_range=None).endswith("three\n")
    assert call(place, "view", "empty.txt").count("\n") == 1
    assert call(place, "view", "crlf.txt").endswith("     1\ta\n     2\tb\n")
    assert call(place, "view", f"{ROOT}/a.txt", view_range=[1, 1]) == (
        f"Here's the result of running `cat -n` on {ROOT}/a.txt:\n     1\tone\n"
    )


def test_a_view_is_noted_as_what_its_reader_has_seen() -> None:
    place = on({"a.txt": TEXT})
    args = {"command": "view", "path": "a.txt"}
    (whole,) = place.call("claude", TOOL.name, args).sights
    (part,) = place.call("claude", TOOL.name, {**args, "view_range": [2, -1]}).sights
    assert (whole[0], whole[1].text) == ("", "a.txt")
    assert whole[2].base == part[2].base == Base(version_of(TEXT.encode()))
    assert whole[2].lines is None
    assert part[2].lines == ((2, 3),)


def test_a_view_changes_nothing() -> None:
    place = on({"a.txt": TEXT})
    assert place.call("claude", TOOL.name, {"command": "view", "path": "a.txt"}).changes == ()


def test_a_folder_is_listed_two_levels_deep_without_what_is_hidden() -> None:
    place = on(
        dict.fromkeys(
            ["b.txt", "a/c.txt", "a/d/e.txt", "a/d/f/g.txt", ".env", "a/.h", "node_modules/x/y.js"], "x"
        )
    )
    excluded = "excluding hidden items and node_modules:"
    assert call(place, "view", ".").split("\n") == [
        f"Here're the files and directories up to 2 levels deep in ., {excluded}",
        ".", "./a/", "./a/c.txt", "./a/d/", "./b.txt", "",
    ]  # fmt: skip
    assert call(place, "view", f"{ROOT}/a/").split("\n")[1:] == [
        f"{ROOT}/a/", f"{ROOT}/a/c.txt", f"{ROOT}/a/d/", f"{ROOT}/a/d/e.txt", f"{ROOT}/a/d/f/", "",
    ]  # fmt: skip


def test_a_range_of_a_folder_is_refused() -> None:
    refused(on({"a/b.txt": "x"}), "invalid_params", "view", "a", view_range=[1, 2])


def test_a_file_is_created_with_its_folders() -> None:
    place = on({})
    assert call(place, "create", "a/b.txt", file_text="x\r\ny") == "File created successfully at: a/b.txt"
    assert place.files == {"a/b.txt": b"x\r\ny"}
    assert call(place, "create", "empty", file_text="") == "File created successfully at: empty"
    assert place.files["empty"] == b""


def test_a_file_that_exists_is_not_created() -> None:
    place = on({"a.txt": TEXT, "b/c.txt": "x"})
    refused(place, "file_exists", "create", "a.txt", file_text="new")
    refused(place, "not_a_file", "create", "b", file_text="new")
    refused(place, "not_a_file", "create", "a.txt/d", file_text="new")


def test_text_is_replaced_and_shown_with_four_lines_around_it() -> None:
    place = on({"a.txt": "".join(f"line {number}\n" for number in range(1, 21))})
    answer = call(place, "str_replace", "a.txt", old_str="line 10\n", new_str="ten\n10b\n")
    assert place.text("a.txt").split("\n")[8:12] == ["line 9", "ten", "10b", "line 11"]
    assert answer.startswith(
        "The file a.txt has been edited. Here's the result of running `cat -n` on a snippet of a.txt:\n"
        "     6\tline 6\n"
    )
    assert "\n    10\tten\n    11\t10b\n" in answer
    assert "\n    16\tline 15\nReview the changes and make sure they are as expected." in answer


def test_without_a_new_text_the_old_one_is_removed() -> None:
    place = on({"a.txt": TEXT})
    call(place, "str_replace", "a.txt", old_str="two\n")
    call(place, "str_replace", "a.txt", old_str="three\n", new_str=None)
    assert place.text("a.txt") == "one\n"


def test_line_ends_mark_encoding_and_tabs_stay_the_files_own() -> None:
    place = on({"a.txt": "\ufeff\ta\r\nb\r\nc".encode("utf-16-le"), "b.txt": b"\xef\xbb\xbf\ta\r\nb\n\tc"})
    for name in place.files:
        call(place, "str_replace", name, old_str="b\n", new_str="B\nB2\n")
        call(place, "insert", name, insert_line=4, insert_text="d\n")
    assert place.files["a.txt"] == "\ufeff\ta\r\nB\r\nB2\r\nc\r\nd".encode("utf-16-le")
    assert place.files["b.txt"] == b"\xef\xbb\xbf\ta\r\nB\nB2\n\tc\nd"


def test_lines_are_inserted_and_shown_with_four_lines_around_them() -> None:
    place = on({"a.txt": "".join(f"line {number}\n" for number in range(1, 21))})
    answer = call(place, "insert", "a.txt", insert_line=10, insert_text="new\nnewer\n")
    assert place.text("a.txt").split("\n")[9:13] == ["line 10", "new", "newer", "line 11"]
    shown = [line for line in answer.split("\n") if "\t" in line]
    assert shown[0] == "     7\tline 7"
    assert shown[4:6] == ["    11\tnew", "    12\tnewer"]
    assert shown[-1] == "    16\tline 14"


def test_what_is_inserted_may_be_given_by_its_older_name() -> None:
    place = on({"a.txt": TEXT})
    call(place, "insert", "a.txt", insert_line=0, new_str="old")
    call(place, "insert", "a.txt", insert_line=0, new_str=None, insert_text="new")
    assert place.text("a.txt") == "new\nold\n" + TEXT


def test_undo_stands_alone_and_names_its_file() -> None:
    assert path_to_undo({"command": "undo_edit", "path": "a.txt"}) == "a.txt"
    assert path_to_undo({"command": "view", "path": "a.txt"}) is None
    assert TOOL.undoes is path_to_undo
    with pytest.raises(InvalidParams):
        path_to_undo({"command": "undo_edit"})
    refusal = refused(on({"a.txt": TEXT}), "invalid_params", "undo_edit", "a.txt")
    assert refusal.message == "undo_edit must be the only edit of a request."


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"command": "view"},
        {"command": "view", "path": ""},
        {"command": "view", "path": 1},
        {"command": "delete", "path": "a.txt"},
        {"command": "create", "path": "b.txt"},
        {"command": "create", "path": "b.txt", "file_text": ["x"]},
        {"command": "str_replace", "path": "a.txt"},
        {"command": "str_replace", "path": "a.txt", "old_str": "", "new_str": "x"},
        {"command": "str_replace", "path": "a.txt", "old_str": "one", "new_str": 1},
        {"command": "insert", "path": "a.txt", "insert_text": "x"},
        {"command": "insert", "path": "a.txt", "insert_line": 1},
        {"command": "insert", "path": "a.txt", "insert_line": True, "insert_text": "x"},
        {"command": "insert", "path": "a.txt", "insert_line": "1", "insert_text": "x"},
        {"command": "insert", "path": "a.txt", "insert_line": 9, "insert_text": "x"},
    ],
)
def test_an_argument_that_is_missing_or_makes_no_sense_is_refused(args: dict[str, Any]) -> None:
    refusal = on({"a.txt": TEXT}).refusal("claude", TOOL.name, args)
    assert refusal.code == "invalid_params"
    assert refusal.hint


def test_a_file_or_a_place_that_is_not_there_is_refused() -> None:
    place = on({"a.txt": TEXT, "b/c.txt": "x", "binary": b"\x00\xff"})
    for command, args in (
        ("view", {}),
        ("str_replace", {"old_str": "x"}),
        ("insert", {"insert_line": 0, "new_str": ""}),
    ):
        refused(place, "file_missing", command, "missing.txt", **args)
        refused(place, "path_outside", command, "../a.txt", **args)
        refused(place, "path_protected", command, ".git/config", **args)
        refused(place, "not_text", command, "binary", **args)
    refused(place, "not_a_file", "str_replace", "b", old_str="x")
    refused(place, "no_match", "str_replace", "a.txt", old_str="four")
    refused(place, "ambiguous", "str_replace", "a.txt", old_str="t")


def test_the_schema_names_every_argument_that_is_taken() -> None:
    (tool,) = DIALECT.tools
    assert set(tool.schema["properties"]) == {
        "command", "path", "file_text", "view_range", "old_str", "new_str", "insert_line", "insert_text",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["var a = 1;" + "x" * 600_000 + "\n", "".join(f"{'é' * 900}{n}\n" for n in range(20)) + "var a = 1;\n"],
    ids=["one", "many"],
)
def test_the_answer_after_an_edit_is_short_and_names_the_cut(text: str) -> None:
    place = on({"a.js": text})
    answers = [
        call(place, "str_replace", "a.js", old_str="var a", new_str="let a"),
        call(place, "insert", "a.js", insert_line=1, insert_text="\n".join("y" * 900 for _ in range(30))),
        call(place, "str_replace", "a.js", old_str="let a", new_str="\n" * 3000 + "let b"),
    ]
    for answer in answers:
        assert len(answer.encode()) < 4096 + 400
        assert "not shown.]" in answer
