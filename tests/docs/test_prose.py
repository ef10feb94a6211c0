"""Every page and every package is in plain English; a page has one sentence a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prose import RATE_MAX, code_texts, crowded_lines, habits, words
from support.workplace import TOP
from test_pages import PAGES, named

if TYPE_CHECKING:
    from pathlib import Path

READ = [*PAGES, TOP / "CHANGELOG.md"]
PACKAGES = sorted({file.parent for top in ("daemon", "client") for file in (TOP / top).rglob("*.py")})


def test_the_pages_have_few_habits_that_stop_a_reader() -> None:
    texts = [page.read_text() for page in READ]
    shown = [habit for text in texts for habit in habits(text)]
    assert len(shown) <= RATE_MAX * sum(map(words, texts)) / 1000, shown


@pytest.mark.parametrize("package", named(PACKAGES))
def test_the_code_of_a_package_has_few_habits_that_stop_a_reader(package: Path) -> None:
    texts = [text for file in sorted(package.glob("*.py")) for text in code_texts(file.read_text())]
    shown = habits("\n".join(texts))
    assert len(shown) <= RATE_MAX * words("\n".join(texts)) / 1000, shown


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


def test_the_texts_of_code_are_its_docstrings_comments_and_longer_strings() -> None:
    source = '''
def read(path):  # Who is asked?
    """Return what is there."""
    # "Quoted": a comment.
    raise OSError(f"{path} is not # what it was" "!", 'a short # string')
'''
    assert set(code_texts(source)) == {
        "Return what is there.",
        " is not # what it was!",
        "a short # string",
        "Who is asked?",
        '"Quoted": a comment.',
    }
