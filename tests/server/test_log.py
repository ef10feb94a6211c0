"""cli: nobody fills the log by making the daemon complain."""

from __future__ import annotations

import logging

from editd.cli import ALIKE_MAX, PERIOD_SECONDS, RateLimitFilter


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("editd.server.connection", logging.WARNING, __file__, 1, text, values, None)


def test_what_is_said_again_and_again_is_counted_and_told_later() -> None:
    now = 0.0
    sparing = RateLimitFilter(lambda: now)
    passed = [sparing.filter(record("closed a connection of %s", number)) for number in range(1000)]
    assert passed == [True] * ALIKE_MAX + [False] * (1000 - ALIKE_MAX)
    assert sparing.filter(record("something else"))
    now = PERIOD_SECONDS
    later = record("closed a connection of %s", 1)
    assert sparing.filter(later)
    assert later.getMessage() == f"closed a connection of 1 (and {1000 - ALIKE_MAX} more like it, not logged)"
