"""wire.codec, its errors: names with their numbers."""

from __future__ import annotations

import pytest

from editd.wire.errors import error, shorten
from editd.wire.limits import LIMITS
from editd.wire.messages import ERROR_CODES


@pytest.mark.parametrize(("name", "code"), ERROR_CODES.items())
def test_a_name_finds_its_number(name: str, code: int) -> None:
    assert error(name, "Why.").code == code


def test_two_names_never_share_a_number() -> None:
    assert len(set(ERROR_CODES.values())) == len(ERROR_CODES)


def test_a_long_text_is_cut_and_a_short_one_is_not() -> None:
    assert shorten("short") == "short"
    assert shorten("x" * 10_000) == "x" * LIMITS.text_length_max + "…"
