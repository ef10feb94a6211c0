"""docs/errors.md: every error is there, with what a real daemon answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from editd.wire.messages import ERROR_CODES
from refusals import PAGE, REFUSALS, answers, rendered

if TYPE_CHECKING:
    from support.workplace import Workplace

NOT_SHOWN = {
    "internal_error", "io_error", "shutting_down", "history_damaged", "unknown_proposal", "decided",
    "content_forgotten", "content_excluded", "not_installed",
}  # fmt: skip


def test_the_page_shows_what_the_daemon_answers(place: Workplace) -> None:
    """`python tests/docs/refusals.py --write` puts there what is to stand there."""
    given = answers(place)
    for name, (_, answer) in given.items():
        assert answer["error"]["data"]["name"] == name, answer
    page = PAGE.read_text()
    assert page == rendered(page, given)


def test_the_page_has_every_error_with_its_number_in_the_order_of_the_protocol() -> None:
    page = PAGE.read_text()
    sections = re.findall(r"^### (\w+)\n\nCode (-?\d+)\.", page, re.MULTILINE)
    assert [(name, int(code)) for name, code in sections] == list(ERROR_CODES.items())


def test_the_page_has_an_example_of_each_error_that_can_be_shown() -> None:
    examples = re.findall(r"^<!-- example: (\w+) -->$", PAGE.read_text(), re.MULTILINE)
    assert examples == [refusal.name for refusal in REFUSALS]
    assert set(examples) == set(ERROR_CODES) - NOT_SHOWN
