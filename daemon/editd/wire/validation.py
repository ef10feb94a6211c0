"""What a request calls things and says of itself: Unicode, and no longer than it makes sense.

These words go into commit messages, the index and every `log`; the engine can rely on them. Paths and content
are bytes as well, and are not looked at here.
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
GROUPS = frozenset({"filter"})  # which have names in them


def check_words(given: Message, where: str) -> None:
    """Raises Malformed (invalid_params) where a name or a message in `given` cannot be one."""
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
    """Attribute and name on the wire of each field that is to be looked at."""
    fields = ((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
    return tuple(pair for pair in fields if pair[1] in NAMES | TEXTS | GROUPS)
