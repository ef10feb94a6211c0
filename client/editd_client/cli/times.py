"""Times as people give them on a command line, and as the protocol takes them."""

from __future__ import annotations

import re

import click

AGO = re.compile(r"(\d{1,6})\s*([smhdw])(?:\s+ago)?")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def moment(text: str) -> str:
    """The time as RFC 3339 in UTC: `2h` is so long ago, a date or time without a zone is local.

    Raises click's BadParameter for anything else.
    """
    from datetime import UTC, datetime, timedelta

    ago = AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            found = datetime.now(UTC) - timedelta(seconds=int(ago[1]) * SECONDS[ago[2]])
        else:
            found = datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is no time: give one such as 2h, 2026-03-01 or 2026-03-01T14:30."
        ) from None
    return f"{found:%Y-%m-%dT%H:%M:%S}.{found.microsecond:06d}Z"


def local(time: str) -> str:
    """A time of the protocol's, for people: in their own zone, to the second."""
    from datetime import datetime

    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M:%S}"
