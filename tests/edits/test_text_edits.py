"""Tests of `edits.replace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.edits.replace import edit_text
from editd.errors import InvalidParams
from support.edit_messages import text_edit

if TYPE_CHECKING:
    from editd.wire.messages import PositionEncoding, TextEdit


def check(text: str, expected: str, *edits: TextEdit, encoding: PositionEncoding = "utf-16") -> None:
    assert edit_text(text, edits, encoding) == expected


def check_refused(text: str, *edits: TextEdit, encoding: PositionEncoding = "utf-16") -> None:
    with pytest.raises(InvalidParams):
        edit_text(text, edits, encoding)


def test_edits_are_placed_in_the_text_as_it_was_before_the_first() -> None:
    check("ab\ncd\n", "Ab\nc\n", text_edit((0, 0), (0, 1), "A"), text_edit((1, 1), (1, 2), ""))
    check("ab\ncd\n", "acd\n", text_edit((0, 1), (1, 0), ""))


def test_inserts_at_one_place_keep_their_order() -> None:
    check("ab", "a12b", text_edit((0, 1), (0, 1), "1"), text_edit((0, 1), (0, 1), "2"))


def test_lines_end_with_lf_crlf_or_cr_and_text_is_put_in_as_given() -> None:
    check("a\r\nb\rc\nd", "a\r\nB\n\rc\nD", text_edit((1, 0), (1, 1), "B\n"), text_edit((3, 0), (3, 1), "D"))


def test_a_character_beyond_the_end_of_the_line_is_its_end() -> None:
    check("ab\r\ncd", "ab!\r\ncd", text_edit((0, 99), (0, 99), "!"))
    check("äb\ncd", "äb!\ncd", text_edit((0, 99), (0, 99), "!"))


def test_the_line_after_the_last_line_end_is_there() -> None:
    check("a\n", "a\nb", text_edit((1, 0), (1, 0), "b"))


def test_characters_are_units_of_the_encoding() -> None:
    units: dict[PositionEncoding, int] = {"utf-8": 6, "utf-16": 3, "utf-32": 2}
    for encoding, before in units.items():
        check("é😀x", "é😀", text_edit((0, before), (0, before + 1), ""), encoding=encoding)


def test_a_place_inside_a_character_is_refused() -> None:
    check_refused("😀", text_edit((0, 1), (0, 2), "x"))
    check_refused("é", text_edit((0, 1), (0, 2), "x"), encoding="utf-8")


def test_places_that_are_not_there_are_refused() -> None:
    check_refused("a\n", text_edit((2, 0), (2, 0), "x"))
    check_refused("a\n", text_edit((-1, 0), (0, 0), "x"))
    check_refused("a\n", text_edit((0, -1), (0, 0), "x"))
    check_refused("ab\n", text_edit((0, 1), (0, 0), "x"))


def test_overlapping_edits_are_refused() -> None:
    check_refused("abc", text_edit((0, 0), (0, 2), "x"), text_edit((0, 1), (0, 3), "y"))


@given(st.text(alphabet="aé😀\n\r", max_size=20), st.data())
def test_the_three_encodings_name_the_same_places(text: str, data: st.DataObject) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    number = data.draw(st.integers(0, len(lines) - 1))
    column = data.draw(st.integers(0, len(lines[number])))
    head = lines[number][:column]
    columns: dict[PositionEncoding, int] = {
        "utf-8": len(head.encode()),
        "utf-16": len(head.encode("utf-16-le")) // 2,
        "utf-32": column,
    }
    results = {
        edit_text(text, [text_edit((number, units), (number, units), "|")], encoding)
        for encoding, units in columns.items()
    }
    assert len(results) == 1
