"""Tests of `edits.replace`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.edits.replace import Overlap, Replacement, replace, replace_exactly
from editd.errors import Ambiguous, CountMismatch, InvalidParams, NoMatch, Refused


def check(text: str, old: str, new: str, expected: str, count: int = 1) -> None:
    assert replace_exactly(text, old, new, count) == expected


def refusal(kind: type[Refused], text: str, old: str, count: int = 1) -> dict[str, Any]:
    with pytest.raises(kind) as caught:
        replace_exactly(text, old, "new", count, path="f.txt")
    assert caught.value.hint
    return caught.value.data


def test_replacements_are_made_as_though_all_at_once() -> None:
    assert replace("abcdef", [Replacement(4, 6, "Y"), Replacement(0, 2, "XXX")]) == "XXXcdY"
    assert replace("ab", []) == "ab"


def test_insertions_at_one_place_keep_their_order_before_what_replaces_it() -> None:
    assert replace("ab", [Replacement(1, 2, "B"), Replacement(1, 1, "1"), Replacement(1, 1, "2")]) == "a12B"


def test_overlapping_spans_are_refused_and_both_named() -> None:
    with pytest.raises(Overlap) as caught:
        replace("abcdef", [Replacement(2, 5, ""), Replacement(0, 3, "")])
    assert caught.value.data == {"first": [0, 3], "second": [2, 5]}


@given(st.text(max_size=30), st.lists(st.integers(0, 30), max_size=8), st.text(max_size=3))
def test_replacing_disjoint_spans_is_replacing_them_from_the_right_one_by_one(
    text: str, cuts: list[int], new: str
) -> None:
    edges = sorted({min(cut, len(text)) for cut in cuts})
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    expected = text
    for start, end in reversed(spans):
        expected = expected[:start] + new + expected[end:]
    assert replace(text, [Replacement(start, end, new) for start, end in spans]) == expected


def test_exact_text_is_replaced() -> None:
    check("one two three", "two", "2", "one 2 three")
    check("a a a", "a", "b", "b b b", count=3)
    check("same", "same", "same", "same")
    check("a $1 \\1", "$1", "$& \\0", "a $& \\0 \\1")


def test_what_is_put_in_takes_the_line_ends_of_the_file() -> None:
    check("a\r\nb\r\n", "b\n", "x\ny\n", "a\r\nx\r\ny\r\n")
    check("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n")
    check("a\nb\n", "b\n", "x\r\ny\r\n", "a\nx\ny\n")
    check("a\rb\r", "b", "x\ny", "a\rx\ry\r")
    check("no end", "no", "two\nlines", "two\nlines end")
    check("bar\r\nfoo", "\nfoo", "\nbaz", "bar\r\nbaz")


def test_in_a_mixed_file_each_line_keeps_its_own_line_end() -> None:
    check("a\r\nb\nc\rd", "b\nc", "B\nc", "a\r\nB\nc\rd")
    check("1\r\n2\n3\r\n4\n", "1\n2\n3\n4\n", "1\n2\nnew\n3\n4\n", "1\r\n2\nnew\n3\r\n4\n")
    check("1\r\n2\n3\r\n", "1\n2\n3\n", "1\n3\n", "1\r\n3\r\n")


def test_an_edit_of_nothing_but_line_ends_means_it() -> None:
    check("a\nb\n", "a\nb\n", "a\r\nb\r\n", "a\r\nb\r\n")
    check("a\r\nb\r\n", "a\r\nb\r\n", "a\nb\n", "a\nb\n")


@given(
    st.text("ab\n", max_size=10),
    st.text("xy\n", max_size=10),
    st.text("ab\n", max_size=10),
    st.text("cd\n", min_size=1),
)
def test_a_crlf_file_comes_out_as_the_lf_file_would_in_crlf(head: str, new: str, tail: str, old: str) -> None:
    text = f"{head}<{old}>{tail}"
    expected = replace_exactly(text, f"<{old}>", new).replace("\n", "\r\n")
    if "\n" in text:
        assert replace_exactly(text.replace("\n", "\r\n"), f"<{old}>", new) == expected


def test_text_that_is_not_there_is_refused_with_the_nearest_passage() -> None:
    data = refusal(NoMatch, "def f():\n    return 1\n", "def f():\n  return 1\n")
    assert data["nearest"] == {"start_line": 1, "end_line": 2, "text": "def f():\n    return 1\n"}
    assert data["differs"] == ["indentation"]
    assert refusal(NoMatch, "abc\n", "zzz qqq") == {"nearest": None, "differs": []}


def hint_of(text: str, old: str, new: str, count: int = 1) -> str:
    with pytest.raises(NoMatch) as caught:
        replace_exactly(text, old, new, count, path="f.txt")
    return caught.value.hint


def test_the_hint_names_one_line_as_one_and_pasted_line_numbers() -> None:
    text = "a = 1\nb = value(2)\nc = value(3)\n"
    assert hint_of(text, "b = value(9)", "x").startswith("The nearest passage is at line 2: copy")
    assert hint_of(text, "  b = value(2)\n  c = value(3)", "x").startswith(
        "The nearest passage is at lines 2-3 and differs in indentation: copy"
    )
    assert hint_of(text, "     2\tb = value(2)\n", "x") == (
        "The nearest passage is at line 2 and differs in line numbers: "
        "copy the text from there as it stands, without line numbers."
    )


def test_the_hint_says_when_the_new_text_is_already_there() -> None:
    text = "[network]\nretries = 9\n\n[limits]\ntimeout = 30\n"
    assert hint_of(text, "retries = 3", "retries = 9") == (
        "Leave the edit out if it was made before: the new text is at line 2."
    )
    both = hint_of(text, "timeout = 5\n", "retries = 9\n\n[limits]\n")
    assert "made before: the new text is at lines 2-4. The nearest passage is at line 5: copy" in both
    assert "at line 1." in hint_of("new new\n", "old", "new", count=2)


def test_the_hint_does_not_take_chance_for_an_edit_that_was_made() -> None:
    text = "}\nreturn value\nreturn value\nx\n"
    for new in ("}", "x", "", "return value", "value\nx\n"):
        assert "made before" not in hint_of(text, "zzz\nreturn value\nx\n", new)


def test_between_several_places_nothing_is_guessed() -> None:
    assert refusal(Ambiguous, "x\ny\nx\n", "x") == {"found": 2, "lines": [1, 3]}
    assert refusal(Ambiguous, "aaa", "aa") == {"found": 2, "lines": [1, 1]}


def test_another_count_than_expected_is_refused_with_the_lines() -> None:
    assert refusal(CountMismatch, "x\ny\nx\n", "x", 3) == {"expected": 3, "found": 2, "lines": [1, 3]}
    assert refusal(CountMismatch, "x\n", "x", 2) == {"expected": 2, "found": 1, "lines": [1]}


def test_an_empty_text_or_count_is_refused() -> None:
    refusal(InvalidParams, "abc", "")
    refusal(InvalidParams, "abc", "a", 0)
