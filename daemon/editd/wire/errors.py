"""Errors as the wire has them: a name with its number, and the one exception of this floor.

Malformed    what came in is no request of this protocol; answered, and where `fatal` the stream
             cannot go on, for nobody can tell where the next message begins
"""

from __future__ import annotations

from typing import Any

from editd.wire.limits import LIMITS
from editd.wire.messages import ERROR_CODES, Error


def error(name: str, message: str, data: dict[str, Any] | None = None) -> Error:
    """The error of that name; `message` says what happened and what to do about it."""
    return Error(code=ERROR_CODES[name], name=name, message=message, data={} if data is None else data)


class Malformed(Exception):
    """What came in is no request: `name` is one of ERROR_CODES."""

    def __init__(self, name: str, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.error = error(name, message)
        self.fatal = fatal


def shown(text: str) -> str:
    """A client's own words, short enough to be said back to it."""
    return text if len(text) <= LIMITS.text_length_max else text[: LIMITS.text_length_max] + "…"
