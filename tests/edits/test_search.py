"""Tests of `edits.search`."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.edits import search
from editd.edits.search import (
    Span,
    line_starts,
    lines_of,
    nearest,
    occurrences,
    overlapping,
    without_line_numbers,
)


def check(text: str, needle: str, *expected: tuple[int, int]) -> None:
    assert occurrences(text, needle) == [Span(*span) for span in expected]


def test_occurrences_are_found_from_the_left_and_do_not_overlap() -> None:
    check("aXbX", "X", (1, 2), (3, 4))
    check("aaaa", "aa", (0, 2), (2, 4))
    check("abc", "d")


def test_a_line_end_of_the_needle_matches_whatever_the_file_has() -> None:
    check("a\r\nb\r\nc", "a\nb", (0, 4))
    check("a\rb", "a\nb", (0, 3))
    check("a\nb", "a\r\nb", (0, 3))
    check("x\r\ny\r\nx\r\ny", "x\ny", (0, 4), (6, 10))


def test_an_exact_match_goes_before_one_that_differs_in_line_ends() -> None:
    check("a\r\nb a\nb", "a\nb", (5, 8))


def test_a_match_never_takes_half_of_a_crlf() -> None:
    check("bar\r\nfoo", "\nfoo", (3, 8))
    check("bar\r\nfoo", "bar\r", (0, 5))


@given(
    st.lists(st.sampled_from(["a", "b", "\n"]), max_size=12).map("".join),
    st.sampled_from(["a\nb", "b\n", "\na"]),
)
def test_turning_every_line_end_into_crlf_finds_the_same_places(text: str, needle: str) -> None:
    plain = occurrences(text, needle)
    crlf = occurrences(text.replace("\n", "\r\n"), needle)
    assert [span.start + text[: span.start].count("\n") for span in plain] == [span.start for span in crlf]


def test_an_overlapping_second_place_is_found() -> None:
    assert overlapping("aaa", Span(0, 2)) == Span(1, 3)
    assert overlapping("aab", Span(0, 2)) is None


def test_lines_are_counted_from_one_and_end_in_any_of_three_ways() -> None:
    assert line_starts("a\r\nb\nc\rd") == [0, 3, 5, 7]
    assert line_starts("a\n") == [0, 2]
    assert lines_of("a\r\nb\nc", [0, 1, 3, 5]) == [1, 1, 2, 3]


def check_nearest(text: str, needle: str, lines: tuple[int, int], *differs: str) -> None:
    near = nearest(text, needle)
    assert near is not None
    assert (near.start_line, near.end_line) == lines
    assert near.differs == differs


def test_the_nearest_passage_says_in_what_it_differs() -> None:
    text = "import os\n\ndef greet(name):\n    print('hello', name)\n    return name\n"
    check_nearest(text, "def greet(name):\n  print('hello', name)\n", (3, 4), "indentation")
    check_nearest(text, "DEF greet(name):\n", (3, 3), "case")
    check_nearest(text, 'print("hello", name)', (4, 4), "quotes")
    check_nearest(text, "def greet( name):", (3, 3), "text")
    check_nearest(text, "def  greet(name):", (3, 3), "whitespace")
    check_nearest(text, "    return name\n\n\n", (5, 5), "line ends")
    check_nearest(text, "def greet(nom):\n    print('hello', nom)\n", (3, 4), "text")


@pytest.mark.parametrize(
    "needle",
    [
        "     3\tdef greet(name):\n     4\t    print('hello', name)\n",  # cat -n
        "3:def greet(name):\n4:    print('hello', name)",  # grep -n
        "3: def greet(name):\n4:     print('hello', name)",
        "3 | def greet(name):\n4 |     print('hello', name)",
        "  3\u2192def greet(name):\n  4\u2192    print('hello', name)",
        "3 def greet(name):\n4     print('hello', name)",
    ],
)
def test_pasted_line_numbers_are_ignored_and_named(needle: str) -> None:
    text = "import os\n\ndef greet(name):\n    print('hello', name)\n    return name\n"
    check_nearest(text, needle, (3, 4), "line numbers")
    check_nearest(text, needle.replace("hello", "bye"), (3, 4), "line numbers", "text")


def test_numbers_that_do_not_count_are_no_line_numbers() -> None:
    for needle in ("3 apples", "3\tgreen\n5\tblue", "3: green\nno number", "\n\n", "three"):
        assert without_line_numbers(needle) is None
    assert without_line_numbers("7\tx") == "x"
    assert without_line_numbers("7\tx\n8\t\n9\ty\n") == "x\n\ny\n"
    check_nearest("3 apples\n4 pears\n", "3 Apples\n4 pears\n", (1, 2), "case")
    check_nearest("3 apples\n4 pears\n", "3 apples\n4 peas\n", (1, 2), "text")


@pytest.mark.parametrize(
    ("needle", "line"),
    [("x=1", 4), ("timeuot", 2), ("max_retries=3", 2), ("retires', 3", 3), ("retrun", 5), ("y +=", 6)],
)
def test_a_short_needle_is_found_in_a_long_line_and_though_no_word_of_it_is_there(
    needle: str, line: int
) -> None:
    text = (
        "import os\n"
        "    client = Client(base_url=URL, timeout=10, max_retries = 5, verify=True, headers=HEADERS)\n"
        "    self.retries = config.get('retries', 3)\n"
        "    x = 1\n    return name\n    y -= 2\n"
    )
    check_nearest(text, needle, (line, line), "text")


def test_the_nearest_passage_is_given_as_it_stands_in_the_file() -> None:
    near = nearest("a = 1\r\nb = value_of(2)\r\n", "b = value_of(3)\n")
    assert near is not None
    assert near.text == "b = value_of(2)\r\n"


def test_nothing_is_named_where_nothing_resembles_it() -> None:
    assert nearest("alpha\nbeta\n", "zzzz qqqq\n") is None
    assert nearest("", "x") is None
    assert nearest("text\n", "\n\n") is None
    for needle in ("zz", "fob", "->", "qqqqqqqq"):
        assert nearest("def foo(name):\n    return foo\n", needle) is None


@given(st.text(alphabet="ab \n\r'ß", max_size=40), st.text(alphabet="ab \n\r'ß", min_size=1, max_size=12))
def test_the_nearest_passage_is_always_lines_of_the_text(text: str, needle: str) -> None:
    near = nearest(text, needle)
    if near is not None:
        starts = [*line_starts(text), len(text)]
        assert text[starts[near.start_line - 1] : starts[near.end_line]] == near.text


def test_no_expression_runs_over_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: one line of 20 MB, for which an expression holds Python's lock for ten seconds."""
    lengths: list[int] = []

    def noted(text: str) -> str:
        lengths.append(len(text))
        return text

    monkeypatch.setattr(search, "_BLINDNESS", dict.fromkeys(search._BLINDNESS, noted))
    long = "a b " * 100_000
    assert (near := nearest(long, "a b " * 200 + "c")) is not None
    assert near.differs == ("text",)
    assert (near := nearest(long, long + "c")) is not None
    assert near.differs == ("text",)
    assert lengths == []
    assert nearest("x = 1\n", "x  = 1\n") is not None
    assert lengths != []


@given(st.text("ab\n", max_size=40), st.integers(1, 7))
def test_lines_are_those_of_split(text: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_PIECE_OF_WORK", piece)
        assert search._lines(text) == text.split("\n")


def test_a_megabyte_is_searched_in_a_moment() -> None:
    dice = random.Random(1)
    words = ["".join(dice.choices("abcdefghij", k=dice.randint(3, 9))) for _ in range(2000)]
    lines = ["    " * dice.randint(0, 3) + " ".join(dice.choices(words, k=5)) for _ in range(25_000)]
    needle = "\n".join(lines[12_000:12_030]).replace("a", "b", 20)
    text = "\n".join(lines)
    shorts = ("(", "a" * 80, "q" * 80, "retires = 3", "4:    abcdefg hij")
    for wanted, line in ((needle, 12_001), *((short, None) for short in shorts)):
        times = []
        for _ in range(5):
            start = time.process_time()
            near = nearest(text, wanted)
            times.append(time.process_time() - start)
            assert line is None or (near is not None and near.start_line == line)
        assert min(times) < 0.1, wanted  # 35 ms on the machine it was written on; twice that is a moment
