"""Tests of `editd.tools.wcgw`, through the real planning."""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from editd.errors import (
    FileMissing,
    InvalidParams,
    MalformedEdit,
    NoMatch,
    NotAFile,
    NotText,
    PathOutside,
    PathProtected,
    PermissionDenied,
    Refused,
    Unread,
)
from editd.tool_api.tool_settings import ToolSettings
from editd.tools.wcgw import DIALECT
from editd.values.content import version_of
from fuzz_wcgw import REFUSALS, calls, check
from tool_calls import ROOT, Workspace, on

TEXT = "open\nread\nlog\nclose\n"


def block(search: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{new}\n>>>>>>> REPLACE\n"


def arguments(text: str, percentage: Any = 10, path: str = f"{ROOT}/a.txt", **more: Any) -> dict[str, Any]:
    given = {"file_path": path, "percentage_to_change": percentage, "text_or_search_replace_blocks": text}
    return {**given, "thread_id": "t1", **more}


def edited(place: Workspace, text: str, *more: Any, **others: Any) -> str:
    (answer,) = place.call("wcgw", "FileWriteOrEdit", arguments(text, *more, **others)).answers
    assert answer is not None
    return answer


def refused(kind: type[Refused], place: Workspace, text: str, *more: Any, **others: Any) -> Refused:
    refusal = place.refusal("wcgw", "FileWriteOrEdit", arguments(text, *more, **others))
    assert type(refusal) is kind
    assert refusal.hint
    return refusal


def read(place: Workspace, *paths: str, thread: str | None = "t1") -> str:
    given = {"file_paths": [f"{ROOT}/{path}" for path in paths]}
    (answer,) = place.call(
        "wcgw", "ReadFiles", given if thread is None else {**given, "thread_id": thread}
    ).answers
    assert answer is not None
    return answer


# ── Edit ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_edit_answers_in_the_originals_words() -> None:
    place = on({"a.txt": TEXT})
    assert edited(place, block("read", "READ")) == "File edited successfully."
    assert place.text("a.txt") == "open\nREAD\nlog\nclose\n"


def test_a_tolerance_is_warned_of_in_the_answer_and_in_the_report() -> None:
    place = on({"a.txt": "    open\n"})
    plan = place.call("wcgw", "FileWriteOrEdit", arguments(block("open", "shut")))
    (report,) = plan.reports.values()
    assert report.warnings[0].startswith("indentation: block 1 ")
    assert plan.answers == (f"File edited successfully.\n{report.warnings[0]}",)
    assert place.text("a.txt") == "    shut\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\n", b"a\r\nx\r\ny\r\n"),
        (b"a\rb\r", b"a\rx\ry\r"),
        (b"a\nb\r\nc\n", b"a\nx\r\ny\r\nc\n"),
        (b"\xef\xbb\xbfb\n", b"\xef\xbb\xbfx\ny\n"),
        (b"\xff\xfea\0\n\0b\0", b"\xff\xfea\0\n\0x\0\n\0y\0"),
    ],
)
def test_line_ends_mark_and_encoding_stay_the_files_own(before: bytes, after: bytes) -> None:
    for argument in (block("b", "x\ny"), block("b", "x\ny").replace("\n", "\r\n")):
        place = on({"a.txt": before})
        edited(place, argument)
        assert place.files == {"a.txt": after}


def test_the_last_lines_go_with_the_whole_line_end_before_them() -> None:
    for before, argument, after in (
        (b"a\r\nb", "<<<<<<< SEARCH\nb\n=======\n>>>>>>> REPLACE", b"a"),
        (b"a\r\nb\r\n", "<<<<<<< SEARCH\nb\n=======\n>>>>>>> REPLACE", b"a\r\n"),
        (b"a\r\nb\r\n", "<<<<<<< SEARCH\nb\n\n=======\n>>>>>>> REPLACE", b"a"),
    ):
        place = on({"a.txt": before})
        edited(place, argument)
        assert place.files == {"a.txt": after}


def test_a_character_that_no_encoding_holds_is_refused_and_the_file_left() -> None:
    refused(NotText, on({"a.txt": "a\n"}), block("a", "\ud800"))
    refused(NotText, on({}), "\ud800", 100)


def test_an_escape_too_many_before_quotes_is_forgiven() -> None:
    place = on({"a.txt": 'print("up")\n'})
    edited(place, block(r"print(\"up\")", r"print(\"down\")"))
    assert place.text("a.txt") == 'print("down")\n'


def test_the_first_refusal_is_told_where_the_second_try_fails_too() -> None:
    refusal = refused(NoMatch, on({"a.txt": 'f("x")\nf("x")\n'}), block(r"f(\"x\")", "g"))
    assert refusal.data["block"] == 1


def test_an_ambiguous_block_is_not_tried_again_with_other_quotes() -> None:
    place = on({"a.txt": 'f(\\"x\\")\nf(\\"x\\")\nf("x")\n'})
    refusal = place.refusal("wcgw", "FileWriteOrEdit", arguments(block(r"f(\"x\")", "g")))
    assert refusal.data == {"block": 1, "line": 1, "found": 2, "lines": [1, 2]}


def test_where_nothing_is_to_be_edited_it_says_so() -> None:
    refused(FileMissing, on({}), block("a", "b"))
    refused(NotAFile, on({"a.txt/b": ""}), block("a", "b"))
    refused(NotText, on({"a.txt": b"caf\xe9\n"}), block("a", "b"))
    refused(MalformedEdit, on({"a.txt": TEXT}), "no block", 50)


# ── Which of the two ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("percentage", [1, 50, "30", " +30.0 ", 30.0, '"30"'])
def test_up_to_half_is_an_edit_and_so_is_what_begins_with_a_block(percentage: Any) -> None:
    refused(FileMissing, on({}), "whole\n", percentage)
    for other in (percentage, 0, -5, 51, 100):
        place = on({"a.txt": TEXT})
        edited(place, f"\u00a0\n{block('read', 'x')}", other)
        assert place.text("a.txt") == "open\nx\nlog\nclose\n"


@pytest.mark.parametrize("percentage", [0, -5, 51, 100, 150, 1e300])
def test_else_it_is_the_whole_file(percentage: Any) -> None:
    place = on({})
    assert edited(place, " \r\nwhole", percentage, f"{ROOT}/new/a.txt") == "Success"
    assert place.files == {"new/a.txt": b" \r\nwhole"}


def test_a_whole_file_with_a_block_in_it_is_refused() -> None:
    assert refused(MalformedEdit, on({}), f"Here:\n{block('a', 'b')}", 80).data == {"line": 2}
    place = on({})
    edited(place, "about SEARCH\n <<<<<<< SEARCH\n", 80)
    assert place.text("a.txt") == "about SEARCH\n <<<<<<< SEARCH\n"


# ── Arguments ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("percentage", [30.5, "30%", "30.5", None, True, [], "", float("inf"), "9" * 5000])
def test_a_percentage_is_a_whole_number(percentage: Any) -> None:
    refusal = refused(InvalidParams, on({"a.txt": TEXT}), block("read", "x"), percentage)
    assert refusal.data == {"argument": "percentage_to_change"}


@pytest.mark.parametrize(
    "name", ["file_path", "percentage_to_change", "text_or_search_replace_blocks", "thread_id"]
)
def test_each_argument_must_be_given_and_be_of_its_type(name: str) -> None:
    given = arguments(block("read", "x"))
    for wrong in ({key: value for key, value in given.items() if key != name}, {**given, name: []}):
        refusal = on({"a.txt": TEXT}).refusal("wcgw", "FileWriteOrEdit", wrong)
        assert refusal.code == "invalid_params"
        assert refusal.data == {"argument": name}


def test_an_unknown_argument_is_refused() -> None:
    assert refused(InvalidParams, on({}), "x", 100, other=1).data == {"argument": "other"}


def test_texts_that_are_json_are_read_as_such_where_the_arguments_make_no_sense_else() -> None:
    place = on({})
    edited(place, '"a\\nb"', '"100"')
    assert place.text("a.txt") == "a\nb"
    place = on({})
    edited(place, '"a\\nb"', 100)
    assert place.text("a.txt") == '"a\\nb"'
    refused(InvalidParams, on({}), "[1]", '"100"')
    refused(InvalidParams, on({}), "[" * 100_000, "?")


def test_a_thread_must_have_a_name_whatever_else_is_wrong() -> None:
    for thread in ("", "--", " "):
        assert refused(InvalidParams, on({}), "x", 100, "a.txt", thread_id=thread).data == {
            "argument": "thread_id"
        }


def test_a_path_is_absolute_or_begins_at_home() -> None:
    for path in ("a.txt", "", "~/a.txt", "~bob/a.txt"):
        refused(InvalidParams, on({"a.txt": TEXT}), block("read", "x"), 10, path)
    place = on({"h/a.txt": TEXT}, settings=ToolSettings(home=f"{ROOT}/h/"))
    edited(place, block("read", "x"), 10, "~/a.txt")
    assert place.text("h/a.txt") == "open\nx\nlog\nclose\n"


def test_a_path_stays_in_the_workspace() -> None:
    place = on({"a.txt": TEXT}, links={"out": "../b"})
    refused(PathOutside, place, "x", 100, f"{ROOT}/../a.txt")
    refused(PathOutside, place, "x", 100, f"{ROOT}/out")
    refused(PathProtected, place, "x", 100, f"{ROOT}/.git/config")
    edited(place, block("read", "x"), 10, f"{ROOT}/d/../a.txt")


@pytest.mark.parametrize(
    ("glob", "matches"),
    [
        (f"{ROOT}/src/a.py", True),
        (f"{ROOT}/src/*.py", True),
        (f"{ROOT}/src/[ab].p?", True),
        (f"{ROOT}/**", True),
        (f"{ROOT}/**/a.py", True),
        (f"{ROOT}/**/src/**/a.py", True),
        ("**/*", True),
        (f"{ROOT}/*", False),
        (f"{ROOT}/*.py", False),
        ("*.py", False),
        ("src/*", False),
        (f"{ROOT}/src/a.py/**", True),
        (f"{ROOT}/src/a.py/*", False),
    ],
)
def test_globs_say_what_may_be_changed(glob: str, matches: bool) -> None:
    place = on({"src/a.py": ""}, settings=ToolSettings(edit_globs=(), write_globs=("/no", glob)))
    path = f"{ROOT}/other/../src/a.py"
    assert refused(PermissionDenied, place, block("", "x"), 10, path).data["path"] == "src/a.py"
    if matches:
        edited(place, "x", 100, path)
    else:
        refused(PermissionDenied, place, "x", 100, path)


def test_a_hidden_name_must_be_written_in_a_glob() -> None:
    for glob, matches in ((f"{ROOT}/**", False), (f"{ROOT}/*/a", False), (f"{ROOT}/.c/*", True),
                          (f"{ROOT}/**/.c/**", True), (f"{ROOT}/.*/a", True)):  # fmt: skip
        place = on({}, settings=ToolSettings(write_globs=(glob,)))
        if matches:
            edited(place, "x", 100, f"{ROOT}/.c/a")
        else:
            refused(PermissionDenied, place, "x", 100, f"{ROOT}/.c/a")


# ── Reading first ──────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_written_over_only_when_read_and_the_refusal_counts_as_reading() -> None:
    place = on({"a.txt": TEXT})
    refusal = refused(Unread, place, "x\n", 100)
    assert refusal.data == {"reason": "never_read", "unread": [[1, 5]]}
    assert "<file-contents-numbered>\n1 open\n2 read\n3 log\n4 close\n5 \n</file-" in refusal.message
    refused(Unread, place, "x\n", 100, thread_id="t2")
    assert edited(place, "x\n", 100, thread_id="t-1") == "Success"
    assert place.text("a.txt") == "x\n"
    assert edited(place, "y\n", 100) == "Success"


def test_a_blank_file_is_written_over_unread() -> None:
    place = on({"a.txt": " \n\t\n", "b.txt": b"\xef\xbb\xbf"})
    edited(place, "x", 100)
    edited(place, "x", 100, f"{ROOT}/b.txt")


def test_what_has_changed_since_it_was_read_must_be_read_again() -> None:
    place = on({"a.txt": TEXT})
    read(place, "a.txt")
    place.files["a.txt"] = b"other\n"
    refusal = refused(Unread, place, "x\n", 100)
    assert refusal.data == {"reason": "changed_since_read", "unread": [[1, 2]]}
    place.files["a.txt"] = b"third\n"
    refused(Unread, place, "x\n", 100)
    edited(place, "x\n", 100)


def test_ninety_nine_of_a_hundred_lines_must_have_been_read() -> None:
    place = on({"a.txt": "\n".join(f"row {number}" for number in range(1, 101))})
    read(place, "a.txt:-40", "a.txt:31-98")
    refusal = refused(Unread, place, "x\n", 100)
    assert refusal.data == {"reason": "partially_read", "unread": [[99, 100]]}
    assert "<file-contents-numbered>\n99 row 99\n100 row 100\n</file-" in refusal.message
    edited(place, "x\n", 100)
    place = on({"a.txt": "\n".join(f"row {number}" for number in range(1, 101))})
    read(place, "a.txt:2-")
    edited(place, "x\n", 100)


def test_lines_read_of_an_older_content_do_not_count() -> None:
    place = on({"a.txt": "\n".join("abcdefgh")})
    read(place, "a.txt:1-4")
    place.files["a.txt"] = "\n".join("ABCDEFGH").encode()
    read(place, "a.txt:5-99")
    assert refused(Unread, place, "x", 100).data["unread"] == [[1, 4]]


def test_an_edit_keeps_what_was_read_and_adds_what_was_put_in() -> None:
    place = on({"a.txt": TEXT})
    edited(place, block("read", "1\n2"))
    assert refused(Unread, place, "x", 100).data == {"reason": "partially_read", "unread": [[1, 1], [4, 6]]}
    place = on({"a.txt": TEXT})
    place.read("t1", "a.txt", 3, 10**12)
    edited(place, block("read", "1\n2"))
    assert refused(Unread, place, "x", 100).data["unread"] == [[1, 1]]
    place = on({"a.txt": TEXT})
    read(place, "a.txt")
    edited(place, block("read", "1\n2"))
    edited(place, "x", 100)


def test_what_was_read_goes_by_the_file() -> None:
    place = on({"a.txt": TEXT}, links={"b.txt": "a.txt"})
    read(place, "./b.txt")
    edited(place, "x\n", 100)


def test_a_long_file_is_shown_a_part_at_a_time() -> None:
    lines = [f"{number:05} " + "x" * 93 for number in range(1, 2001)]
    place = on({"a.txt": "\n".join(lines)})
    first = refused(Unread, place, "x", 100)
    assert len(first.message) < 110_000
    assert "ReadFiles" in first.hint
    second = refused(Unread, place, "x", 100)
    assert second.data["reason"] == "partially_read"
    assert second.data["unread"][0][0] > 900
    third = refused(Unread, place, "x", 100)
    assert "ReadFiles" not in third.hint
    edited(place, "x", 100)


def test_the_note_of_a_successful_call_names_the_version_written() -> None:
    plan = on({}).call("wcgw", "FileWriteOrEdit", arguments("x\n", 100))
    ((reader, path, sight),) = plan.sights
    assert (reader, path.text, sight.base.version, sight.lines) == ("t1", "a.txt", version_of(b"x\n"), None)


# ── ReadFiles ──────────────────────────────────────────────────────────────────────────────────────


def test_files_are_shown_with_their_numbers() -> None:
    place = on({"a.txt": "one\r\ntwo\r\n", "b.txt": "1\n2\n3"})
    assert read(place, "a.txt", "b.txt:2-9") == (
        f'<file-contents-numbered path="{ROOT}/a.txt:1-3">\n1 one\n2 two\n3 \n</file-contents-numbered>\n'
        f'<file-contents-numbered path="{ROOT}/b.txt:2-3">\n2 2\n3 3\n</file-contents-numbered>'
    )


def test_what_is_read_by_nobody_counts_for_nobody() -> None:
    place = on({"a.txt": TEXT})
    read(place, "a.txt", thread=None)
    assert refused(Unread, place, "x", 100).data["reason"] == "never_read"


def test_what_does_not_fit_is_named() -> None:
    place = on({"a.txt": "x" * 100_000 + "\nshort\n", "b.txt": "b\nc"})
    answer = read(place, "a.txt", "b.txt")
    assert f"go on with {ROOT}/a.txt:2-3." in answer
    assert f'{ROOT}/b.txt:1-1">\n1 b\n' in answer
    assert f"go on with {ROOT}/b.txt:2-2." in answer


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        ([], "invalid_params"),
        ("a.txt", "invalid_params"),
        ([1], "invalid_params"),
        (["a.txt"], "invalid_params"),
        ([f"{ROOT}/a.txt:0-2"], "invalid_params"),
        ([f"{ROOT}/a.txt:3-2"], "invalid_params"),
        ([f"{ROOT}/a.txt:6-"], "invalid_params"),
        ([f"{ROOT}/a.txt:-"], "file_missing"),
        ([f"{ROOT}/a.txt:7"], "file_missing"),
        ([f"{ROOT}/no.txt:1-2"], "file_missing"),
        ([f"{ROOT}/../a.txt:1-2"], "path_outside"),
    ],
)
def test_what_cannot_be_read_is_refused(paths: Any, code: str) -> None:
    refusal = on({"a.txt": TEXT}).refusal("wcgw", "ReadFiles", {"file_paths": paths, "thread_id": "t1"})
    assert refusal.code == code
    assert refusal.hint


# ── As a whole ─────────────────────────────────────────────────────────────────────────────────────


def test_random_calls_end_in_an_edit_or_a_refusal_that_is_listed() -> None:
    outcomes = Counter(check(text, args) for text, args in islice(calls(random.Random(7)), 2500))
    assert set(outcomes) == REFUSALS | {"edited", "edited with a warning", "written"}
    assert outcomes["edited"] + outcomes["edited with a warning"] > 500


def test_a_megabyte_is_planned_in_a_moment() -> None:
    lines = [f"    value_{number} = function({number}, 'abc')" for number in range(25_000)]
    place = on({"a.txt": "\n".join(lines)})
    start = time.process_time()
    edited(place, block("\n".join(lines[20_000:20_005]), "x"))
    assert time.process_time() - start < 0.15


def test_the_schemas_name_what_the_tools_take() -> None:
    for tool in DIALECT.tools:
        assert tool.schema["additionalProperties"] is False
        assert set(tool.schema["required"]) <= set(tool.schema["properties"])
        assert all(entry["description"] for entry in tool.schema["properties"].values())
