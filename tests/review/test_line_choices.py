"""Single lines of a hunk: taken or left, and the text of the file with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.edits.line_changes import shown_hunks
from editd_client.review.line_choices import TakenHunk, changed_rows, text_with
from editd_client.review.patch import Row, rows_of

TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c\r\n", "d"]), max_size=12).map("".join)


def hunks_of(before: str, after: str) -> list[list[Row]]:
    texts = shown_hunks(before.encode(), after.encode())
    return [[row for row in rows_of(text) if row.kind != "place"] for text in texts]


@given(TEXTS, TEXTS)
def test_all_lines_of_all_hunks_make_the_new_text_and_none_the_old_one(before: str, after: str) -> None:
    hunks = hunks_of(before, after)
    assert text_with(before, map(TakenHunk.whole, hunks)) == after
    assert text_with(before, [TakenHunk(rows, frozenset()) for rows in hunks]) == before


@given(TEXTS, TEXTS, st.data())
def test_a_taken_line_is_there_and_a_left_one_is_not(before: str, after: str, data: st.DataObject) -> None:
    hunks = hunks_of(before, after)
    changed = [sorted(changed_rows(rows)) for rows in hunks]
    taken = [data.draw(st.sets(st.sampled_from(rows))) if rows else set() for rows in changed]
    made = text_with(before, [TakenHunk(*pair) for pair in zip(hunks, map(frozenset, taken), strict=True)])
    expected = len(lines(before))
    for rows, numbers in zip(hunks, taken, strict=True):
        expected += sum(1 if rows[number].kind == "added" else -1 for number in numbers)
    assert len(lines(made)) == expected


def lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


@pytest.mark.parametrize(
    ("taken", "text"),
    [
        ({1, 3}, "1\ntwo\n3\n4\n"),  # one removed and the first added
        ({4}, "1\n2\n3\nthree\n4\n"),  # only added
        ({1, 2}, "1\n4\n"),  # only removed
    ],
)
def test_lines_of_one_hunk(taken: set[int], text: str) -> None:
    (rows,) = hunks_of("1\n2\n3\n4\n", "1\ntwo\nthree\n4\n")
    assert [row.text for row in rows] == ["1", "2", "3", "two", "three", "4"]
    assert text_with("1\n2\n3\n4\n", [TakenHunk(rows, frozenset(taken))]) == text
