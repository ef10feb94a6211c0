"""The dialect roo: `search_and_replace`."""

from __future__ import annotations

import base64
import random
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from editd.edits.replace import replace
from editd.edits.search import LINE_END, Span, with_plain_line_ends
from editd.engine.text_search import search
from editd.errors import InvalidParams, NoMatch, Refused
from editd.tools.roo import RooCall, range_of, replacements_of, search_of
from fuzz_roo import calls
from tool_calls import on

if TYPE_CHECKING:
    from editd.edits.search import Match, Search

ROWS = "row 1 pine\nrow 2 pine\nrow 3 pine\n"


def after(text: str, search: str, new: str, **more: Any) -> str:
    place = on({"notes.txt": text})
    place.call("roo", "search_and_replace", {"path": "notes.txt", "search": search, "replace": new, **more})
    return place.text("notes.txt")


def refused(text: str | bytes, search: str, new: str, **more: Any) -> Refused:
    args = {"path": "notes.txt", "search": search, "replace": new, **more}
    refusal = on({"notes.txt": text}).refusal("roo", "search_and_replace", args)
    assert refusal.hint
    return refusal


def warnings(search: str, new: str, **more: Any) -> tuple[str, ...]:
    args = {"path": "notes.txt", "search": search, "replace": new, **more}
    plan = on({"notes.txt": "abc\n"}).call("roo", "search_and_replace", args)
    return tuple(warning for report in plan.reports.values() for warning in report.warnings)


def no_worker(_search: Search) -> tuple[Match, ...]:
    raise AssertionError("a plain text needs no expression")


def test_a_text_is_replaced_wherever_it_is_without_the_worker() -> None:
    made = replacements_of(RooCall("f", "a.b", "$&"), "a.b axb a.b", no_worker)
    assert replace("a.b axb a.b", made) == "$& axb $&"


def test_a_text_in_any_case_is_found_by_javascripts_own_folding() -> None:
    assert after("É ς [A]\n", "é σ [a]", "$&$1$$", ignore_case="true") == "$&$1$$\n"
    assert refused("ſ K\n", "s", "x", ignore_case=True).code == "no_match"


def test_an_expression_and_its_template_are_ecmascripts() -> None:
    assert after("ab ab\n", "(?<n>a)(b)", "$2$<n>$$", use_regex="true") == "ba$ ba$\n"
    assert after("a\nb\n", "^", "> ", use_regex=True) == "> a\nb\n"
    assert after("Ab\n", "aB", "x", use_regex=True, ignore_case=True) == "x\n"


def test_the_range_is_searched_once_as_one_text() -> None:
    assert after(ROWS, "pine", "oak", start_line=2, end_line=2) == ROWS.replace("2 pine", "2 oak")
    assert after(ROWS, "pine\nrow", "X", start_line="1", end_line="2") == "row 1 X 2 pine\nrow 3 pine\n"
    assert after(ROWS, "^[^]*$", "all", use_regex=True, start_line=1, end_line=3) == "all\n"
    assert after(ROWS, "$", "[$`]", use_regex=True, start_line=3, end_line=3).endswith("pine[row 3 pine]\n")


@pytest.mark.parametrize(
    ("start", "end", "span"),
    [
        (None, None, Span(0, 5)),
        (1, 1, Span(0, 1)),
        (2, None, Span(2, 5)),
        (3, 99, Span(5 - 1, 5 - 1 + 1)),
        (0, 2, Span(0, 3)),
        (-7, 2, Span(0, 3)),
    ],
)
def test_a_range_is_counted_in_lines_without_the_last_line_end(
    start: int | None, end: int | None, span: Span
) -> None:
    assert range_of(RooCall("f", "x", "y", start_line=start, end_line=end), "a\nb\nc") == span


@pytest.mark.parametrize(
    ("start", "end"), [(4, None), (3, 2), (None, 0), (None, -1), (5, 9), (2, 1), (-3, -3)]
)
def test_a_range_that_makes_no_sense_is_refused(start: int | None, end: int | None) -> None:
    with pytest.raises(InvalidParams) as caught:
        range_of(RooCall("f", "x", "y", start_line=start, end_line=end), "a\nb\nc")
    assert "from 1 to 3" in caught.value.hint
    assert caught.value.data["lines"] == 3


def test_the_empty_piece_after_a_final_line_end_is_a_line() -> None:
    assert after("a\n", "^$", "tail", use_regex=True, start_line=2) == "a\ntail"


@pytest.mark.parametrize(
    ("given", "number"),
    [("2", 2), (2, 2), (2.7, 2), ("2.9", 2), (" \ufeff+2nd", 2), ("1e3", 1), ("", None), (None, None),
     (0, 0), ("9" * 5000, 10**16 - 1), (1e300, 10**15)],
)  # fmt: skip
def test_a_line_number_is_read_as_javascript_reads_it(given: Any, number: int | None) -> None:
    args = {"path": "f", "search": "a", "replace": "", "start_line": given, "end_line": given}
    call = RooCall.parse(args)
    assert (call.start_line, call.end_line) == (number, number)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({"start_line": -1}, ["`start_line` is '-1', and was read as line 1"]),
        ({"start_line": 0}, ["`start_line` is '0', and was read as line 1"]),
        ({"start_line": "0"}, ["`start_line` is '0', and was read as line 1"]),
        (
            {"start_line": 1.5, "end_line": "3rd"},
            ["'1.5', and was read as line 1", "'3rd', and was read as line 3"],
        ),
        ({"start_line": "", "end_line": ""}, []),
        ({"start_line": " 1", "end_line": 3.0}, []),
        ({"start_line": 1, "end_line": 1e300}, []),
    ],
)
def test_a_line_number_that_is_read_as_another_one_is_named(args: dict[str, Any], named: list[str]) -> None:
    """The original takes such numbers, and so do the recordings of it."""
    place = on({"f": "a\na\na\n"})
    outcome = place.call("roo", "search_and_replace", {"path": "f", "search": "a", "replace": "b", **args})
    assert place.text("f") == "b\nb\nb\n"
    warnings = [warning for report in outcome.reports.values() for warning in report.warnings]
    assert len(warnings) == len(named)
    for warning, words in zip(warnings, named, strict=True):
        assert warning.startswith("line_number: ")
        assert words in warning


@pytest.mark.parametrize("value", [0, 0.5, "0", -1])
def test_a_last_line_below_the_first_is_refused(value: Any) -> None:
    assert refused("a\n", "a", "b", end_line=value).data == {"argument": "end_line", "lines": 2}


@pytest.mark.parametrize(
    ("name", "value"),
    [("start_line", "x"), ("end_line", "-"), ("end_line", True), ("start_line", []), ("use_regex", "yes"),
     ("ignore_case", 1), ("use_regex", []), ("search", ""), ("path", ""), ("replace", None), ("search", 7)],
)  # fmt: skip
def test_an_argument_that_makes_no_sense_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidParams) as caught:
        RooCall.parse({"path": "f", "search": "a", "replace": "b", name: value})
    assert caught.value.data == {"argument": name}
    assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ("true", True),
        (True, True),
        (" True", True),
        ("false", False),
        (False, False),
        ("", False),
        (None, False),
    ],
)
def test_a_flag_is_a_boolean_or_one_as_a_string(given: Any, flag: bool) -> None:
    args = {"path": "f", "search": "a", "replace": "b", "use_regex": given, "ignore_case": given, "other": 1}
    call = RooCall.parse(args)
    assert (call.is_regex, call.ignore_case) == (flag, flag)


def test_nothing_found_is_told_with_the_nearest_passage() -> None:
    refusal = refused("one\ndef greet(name):\n", "def greet(nam):", "x")
    assert refusal.code == "no_match"
    assert refusal.data["nearest"]["start_line"] == 2
    refusal = refused("one\ndef greet(name):\n", "^def greet\\(nam\\):", "x", use_regex=True)
    assert refusal.code == "no_match"
    assert refusal.data["nearest"]["text"] == "def greet(name):\n"
    assert "`^`" in refusal.hint
    assert refused("one\n", "q{9}", "x", use_regex=True).data == {"nearest": None, "differs": []}


def test_what_is_only_outside_the_range_is_told_with_its_lines() -> None:
    refusal = refused(ROWS, "PINE", "oak", ignore_case=True, start_line=4)
    assert refusal.code == "no_match"
    assert refusal.data == {"found": 3, "lines": [1, 2, 3]}
    assert "lines 1, 2, 3" in refusal.hint
    crossing = refused(ROWS, "pine\nrow 2", "", start_line=2)
    assert crossing.data == {"found": 1, "lines": [1]}


def test_a_match_that_is_replaced_by_itself_is_no_change() -> None:
    for more in ({}, {"use_regex": True}, {"ignore_case": True}):
        refusal = refused("a b a\n", "a", "a", **more)
        assert refusal.code == "no_change"
        assert refusal.data == {"found": 2}
    assert refused("a\r\nb", "a\nb", "a\r\nb").code == "no_change"


def test_a_template_in_a_literal_search_is_put_in_as_it_stands_and_a_warning_says_so() -> None:
    assert after("abc\n", "b", "[$&$`$']") == "a[$&$`$']c\n"
    assert after("abc\n", "B", "[$&$$]", ignore_case=True) == "a[$&$$]c\n"
    (warning,) = warnings("b", "cost $$5")
    assert warning.startswith("template: `$$`")
    assert warnings("b", "$1 $<n> $x $") == ()
    assert warnings("b", "$$", use_regex=True) == ()


def test_line_ends_and_the_mark_stay_the_files_own() -> None:
    assert after("\ufeffone\r\ntwo\r\n", "^one\\n(two)$", "1\n2\n$1", use_regex=True, end_line=2) == (
        "\ufeff1\r\n2\r\ntwo\r\n"
    )
    assert after("a\r\nb\nc\rd", "[abcd]", "x", use_regex=True) == "x\r\nx\nx\rx"
    assert after("a\r\nb", "a\r\nb", "c\r\nd") == "c\r\nd"


def test_half_a_character_is_never_left() -> None:
    assert after("x\U0001f642", ".", "-", use_regex=True) == "---"
    assert refused("x\U0001f642", "x.", "-", use_regex=True).code == "invalid_regex"


def test_files_that_are_none_or_no_text_are_refused() -> None:
    assert refused("a\n", "a", "b", path="other.txt").code == "file_missing"
    assert refused("a\n", "a", "b", path="../notes.txt").code == "path_outside"
    assert refused("a\n", "a", "b", path=".git/config").code == "path_protected"
    assert refused("a\n", "(", "b", use_regex=True, path="other.txt").code == "file_missing"
    assert refused(base64.b64decode("cP8K"), "p", "b").code == "not_text"


def test_an_expression_that_is_none_is_refused_as_v8_says_it() -> None:
    refusal = refused("a\n", "a++", "b", use_regex=True, ignore_case=True)
    assert refusal.code == "invalid_regex"
    assert refusal.message.startswith("Invalid regular expression: /a++/gi: ")


def test_the_answer_says_how_many_matches_were_replaced() -> None:
    place = on({"notes.txt": "a b a\n"})
    args = {"path": "notes.txt", "search": "a", "replace": "c"}
    plan = place.call("roo", "search_and_replace", args)
    assert plan.answers == ("Replaced 2 matches in notes.txt.",)


def test_whatever_is_asked_the_file_keeps_its_line_ends_or_stays_as_it_is() -> None:
    outcomes = set[str]()
    for text, args in islice(calls(random.Random(7)), 1500):
        place = on({"notes.txt": text})
        try:
            place.call("roo", "search_and_replace", args)
            outcomes.add("ok")
        except Refused as refusal:
            outcomes.add(refusal.code if refusal.hint else f"{refusal.message}: no hint")
        ends = set(LINE_END.findall(text))
        made = place.text("notes.txt")
        assert not ends or set(LINE_END.findall(made)) <= ends, (text, args)
    assert outcomes == {"ok", "no_match", "no_change", "invalid_params", "invalid_regex", "file_missing"}


def test_a_plain_search_finds_what_its_text_as_an_expression_does() -> None:
    for raw, args in islice(calls(random.Random(8)), 500):
        text = with_plain_line_ends(raw)
        try:
            call = RooCall.parse({**args, "use_regex": False, "ignore_case": False})
            plain = replacements_of(call, text, no_worker)
        except (InvalidParams, NoMatch):
            continue
        span = range_of(call, text)
        as_expression = search(search_of(call, text[span.start : span.end]))
        assert [(made.start - span.start, made.end - span.start, made.text) for made in plain] == [
            (match.start, match.end, match.expansion) for match in as_expression
        ]
