"""What is said of a regular expression that has no answer: it is wrong, too slow, or finds too much."""

from __future__ import annotations

from editd.errors import InvalidRegex, Timeout, TooLarge

_SHOWN_MAX = 500  # characters of a client's own words that an error repeats


def invalid(message: str, pattern: str, position: int | None, hint: str) -> InvalidRegex:
    """`position` is an offset in the pattern, where the engine tells it."""
    return InvalidRegex(
        _shown(message), hint=hint, data={"position": position, "pattern": _shown(pattern)}
    )  # fmt: skip


def out_of_time(pattern: str, seconds: float) -> Timeout:
    return Timeout(
        f"The regular expression was stopped after {seconds:g} s.",
        hint="Make it cheaper: one quantifier inside another, such as (a+)+, tries every way to share "
        "the text between them.",
        data={"seconds": seconds, "pattern": _shown(pattern)},
    )


def too_many(matches_max: int) -> TooLarge:
    return TooLarge(
        f"The regular expression matches more than {matches_max} times.",
        hint="Match longer stretches, or fewer lines at a time.",
        data={"limit": matches_max},
    )


def too_large(what: str) -> TooLarge:
    """`what` it would have taken, as in "more than 1 GiB of memory"."""
    return TooLarge(
        f"The regular expression takes {what}.",
        hint="Let it match and capture less at a time.",
    )


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
