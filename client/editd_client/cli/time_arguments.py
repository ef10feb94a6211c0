"""Times on the command line: as people write and read them, and in the protocol's form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from datetime import datetime

_AGO = re.compile(
    r"(\d{1,6})\s*(s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?|mo(?:nths?)?"
    r"|y(?:ears?)?)(?:\s+ago)?",
    re.IGNORECASE,
)
_DAY = re.compile(r"(today|yesterday|now)?\s*(?:at\s+)?(\d{1,2}:\d\d(?::\d\d)?)?", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ID = re.compile("[0-9a-f]{4,}")  # `100d` is the beginning of an id rather than a hundred days
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "mo": 2_592_000, "y": 31_536_000}
_UNITS = (  # an age is given in the largest unit of which it has two or more
    ("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400), ("week", 604_800), ("month", 2_592_000),
    ("year", 31_536_000),
)  # fmt: skip


def parse_time(text: str) -> str:
    """Return the time as RFC 3339 in UTC. `2h` is two hours ago; a time without a zone is local.

    Raises click's BadParameter for anything else.
    """
    from datetime import UTC, datetime

    given = text.strip()
    try:
        time = _relative(given) or datetime.fromisoformat(given).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time. Examples: 2h, yesterday, 2026-03-01, '2026-03-01 14:30'."
        ) from None
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond:06d}Z"


def is_time(text: str) -> bool:
    """Whether the text is a time rather than the number or id of a transaction."""
    given = text.strip()
    if _DATE.match(given) or (_AGO.fullmatch(given) and not _ID.fullmatch(given)):
        return True
    return bool(given and _DAY.fullmatch(given))


def local_time(time: str) -> str:
    """Return a time of the protocol in the local zone, to the second."""
    from datetime import datetime

    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M:%S}"


def age(time: str) -> str:
    """Return the age of a time of the protocol, as in `5 minutes ago`."""
    from datetime import UTC, datetime

    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds())
    unit, length = max(
        (unit for unit in _UNITS if unit[1] == 1 or seconds >= 2 * unit[1]), key=lambda unit: unit[1]
    )
    number = int(seconds // length)
    return f"{number} {unit}{'' if number == 1 else 's'} ago"


def _relative(given: str) -> datetime | None:
    """Return a time relative to now or to a day, or None for an absolute one."""
    from datetime import UTC, datetime, timedelta
    from datetime import time as Clock  # noqa: N812  # a time of day; `time` is a time of the protocol here

    now = datetime.now(UTC)
    if ago := _AGO.fullmatch(given):
        unit = ago[2].lower()
        return now - timedelta(seconds=int(ago[1]) * SECONDS["mo" if unit.startswith("mo") else unit[0]])
    day = _DAY.fullmatch(given)
    if not given or day is None:
        return None
    word = (day[1] or "today").lower()
    if word == "now":
        return now
    begin = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    begin -= timedelta(days=word == "yesterday")
    if day[2]:
        clock = Clock.fromisoformat(day[2] if day[2][1] != ":" else f"0{day[2]}")
        begin = begin.replace(hour=clock.hour, minute=clock.minute, second=clock.second)
    return begin.astimezone(UTC)
