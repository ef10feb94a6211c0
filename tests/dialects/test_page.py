"""docs/dialects.md says what the tables say."""

from __future__ import annotations

from page import PAGE, rendered


def test_the_page_is_as_the_vectors_and_tables_make_it() -> None:
    page = PAGE.read_text()
    assert rendered(page) == page, "python tests/dialects/page.py --write"
