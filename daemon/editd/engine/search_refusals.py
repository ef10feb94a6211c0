"""The refusals of a search that is invalid, too slow, or matches too much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.errors import InvalidRegex, Timeout, TooLarge

if TYPE_CHECKING:
    from editd.edits.search import Search

_SHOWN_MAX = 500  # characters of a client's text that an error repeats


def invalid(message: str, pattern: str, position: int | None, hint: str) -> InvalidRegex:
    """Refuse an invalid expression. `position` is the offset of the error in the pattern, if known."""
    return InvalidRegex(
        _shorten(message), hint=hint, data={"position": position, "pattern": _shorten(pattern)}
    )  # fmt: skip


_KINDS_OF_TEXT_SEARCH = {
    "approximate": "approximate search",
    "lines": "search for the lines",
    "tokens": "search for the tokens",
}


def out_of_time(wanted: Search, seconds: float) -> Timeout:
    """Refuse a search that exceeded its time limit."""
    pattern = wanted.pattern
    kind = _KINDS_OF_TEXT_SEARCH.get(wanted.language)
    if kind is not None:
        return Timeout(
            f"The {kind} was stopped after {seconds:g} s.",
            hint="Send the text exactly as it is in the file.",
            data={"seconds": seconds, "pattern": _shorten(pattern)},
        )
    return Timeout(
        f"The regular expression was stopped after {seconds:g} s.",
        hint="Simplify it. Avoid nested quantifiers such as (a+)+, which try every way to divide the text.",
        data={"seconds": seconds, "pattern": _shorten(pattern)},
    )


def too_many(matches_max: int) -> TooLarge:
    """Refuse an expression with too many matches."""
    return TooLarge(
        f"The regular expression matches more than {matches_max} times.",
        hint="Match longer texts, or fewer lines at a time.",
        data={"limit": matches_max},
    )


def too_large(amount: str) -> TooLarge:
    """Refuse an expression that needs too much. `amount` is such as "more than 1 GiB of memory"."""
    return TooLarge(
        f"The regular expression takes {amount}.",
        hint="Match and capture less at a time.",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
