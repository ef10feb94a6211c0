"""The names and messages in a request: valid Unicode, and of a sensible length.

They go into commit messages, the index and every `log`, and the engine relies on them. Paths and content
may be any bytes, and are not checked here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from editd.wire.errors import Malformed
from editd.wire.limits import LIMITS

if TYPE_CHECKING:
    from editd.wire.messages import Message

NAMES = frozenset({
    "actor", "session", "request_id", "name", "token", "changeset", "lease", "exec", "tx", "at", "from", "to",
    "since", "until", "branch", "author",
})  # fmt: skip
TEXTS = frozenset({"message", "command"})
GROUPS = frozenset({"filter"})  # maps with names in them


def check_words(given: Message, where: str) -> None:
    """Raise Malformed (invalid_params) for an invalid name or message in `given`."""
    for attribute, name in _words_of(type(given)):
        value = getattr(given, attribute)
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str):
                _check(word, f"{where}: `{name}`", is_name=name in NAMES)
        if name in GROUPS and value is not None and not isinstance(value, list):
            check_words(value, f"{where}: {name}")


def _check(value: str, what: str, *, is_name: bool) -> None:
    shortest, longest = (1, LIMITS.name_length_max) if is_name else (0, LIMITS.message_length_max)
    if not shortest <= len(value) <= longest:
        raise Malformed("invalid_params", f"{what} is between {shortest} and {longest} characters long.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Malformed("invalid_params", f"{what} is text, and these bytes are not UTF-8.") from None


@functools.cache
def _words_of(kind: type[Message]) -> tuple[tuple[str, str], ...]:
    """Return the attribute and the wire name of each field to check."""
    fields = ((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
    return tuple(pair for pair in fields if pair[1] in NAMES | TEXTS | GROUPS)
