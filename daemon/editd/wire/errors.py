"""The errors of the wire: a name with its number, and the one exception of this floor.

Malformed    the input is not a request of this protocol; it is answered. If it is `fatal`, the stream
             cannot continue, because the begin of the next message is unknown
"""

from __future__ import annotations

from typing import Any

from editd.wire.limits import LIMITS
from editd.wire.messages import ERROR_CODES, Error

Id = int | str


def error(name: str, message: str, data: dict[str, Any] | None = None) -> Error:
    """Return the error with that name; `message` states the fact and the next step."""
    return Error(code=ERROR_CODES[name], name=name, message=message, data={} if data is None else data)


class Malformed(Exception):
    """An input that is not a request: `name` is one of ERROR_CODES, `to` the id to answer if it is known.

    After a `fatal` one the stream cannot go on, because the begin of the next message is unknown.
    """

    def __init__(self, name: str, message: str, *, fatal: bool = False, to: Id | None = None) -> None:
        super().__init__(message)
        self.error = error(name, message)
        self.fatal = fatal
        self.to = to


def shorten(text: str) -> str:
    """Return a client's own words, short enough to be repeated to it."""
    return text if len(text) <= LIMITS.text_length_max else text[: LIMITS.text_length_max] + "…"
