"""Every page is in plain English, one sentence a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prose import RATE_MAX, crowded_lines, habits, words
from test_pages import PAGES, named
from workplace import TOP

if TYPE_CHECKING:
    from pathlib import Path

READ = [*PAGES, TOP / "CHANGELOG.md"]


def test_the_pages_have_few_habits_that_stop_a_reader() -> None:
    texts = [page.read_text() for page in READ]
    shown = [habit for text in texts for habit in habits(text)]
    assert len(shown) <= RATE_MAX * sum(map(words, texts)) / 1000, shown


@pytest.mark.parametrize("page", named(READ))
def test_a_line_of_a_page_holds_one_sentence(page: Path) -> None:
    assert list(crowded_lines(page.read_text())) == []


def test_a_habit_and_a_crowded_line_would_be_found() -> None:
    assert habits("Nothing is told of what is there.") == [
        "a clause as a noun: of what is",
        "telling without a teller: is told",
    ]
    assert list(crowded_lines("One fact. Another fact.\n| A cell. Another sentence. |\n`a. B` is code.")) == [
        "One fact. Another fact."
    ]
