"""Arguments of a tool's call, and the refusal of a missing or mistyped one by its name."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from editd.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def text_of(arguments: Mapping[str, Any], name: str, *, may_be_empty: bool = True) -> str:
    """Return the argument; InvalidParams if it is missing or not a string."""
    if name not in arguments:
        raise InvalidParams(f"`{name}` is missing.", hint="Send it as a string.", data={"argument": name})
    value = arguments[name]
    if not isinstance(value, str):
        raise InvalidParams(
            f"`{name}` must be a string, not {kind_of(value)}.", hint="Send it as a string.",
            data={"argument": name},
        )  # fmt: skip
    if not value and not may_be_empty:
        raise InvalidParams(f"`{name}` is empty.", hint="Send a value.", data={"argument": name})
    return value


def refuse_unknown(arguments: Iterable[str], known: Iterable[str], owner: str = "this tool") -> None:
    """Raise InvalidParams for an argument that `owner` does not take: it would be ignored otherwise."""
    names = sorted(known)
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        similar = get_close_matches(_snake_case(unknown[0]), names, 1, _SIMILARITY)
        question = f"Did you mean `{similar[0]}`? " if similar else ""
        raise InvalidParams(
            f"`{unknown[0]}` is no argument of {owner}.",
            hint=f"{question}It takes {', '.join(names)}.",
            data={"argument": unknown[0]} | ({"similar": similar[0]} if similar else {}),
        )


_SIMILARITY = 0.6  # of two names of arguments, from 0 to 1


def _snake_case(name: str) -> str:
    return re.sub("(?<=[a-z0-9])[A-Z]", r"_\g<0>", name[:NAME_COMPARED_MAX]).lower().replace("-", "_")


NAME_COMPARED_MAX = 100  # characters of an unknown name that are compared


def kind_of(value: object) -> str:
    """Return the JSON name of the value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def refuse_half_characters(text: str, argument: str) -> None:
    """Raise InvalidParams if the text of this argument holds half of a surrogate pair."""
    if has_half_character(text):
        raise InvalidParams(
            f"`{argument}` holds half of a surrogate pair, which no file can hold.",
            hint="Send the whole character.",
            data={"argument": argument},
        )


def has_half_character(text: str) -> bool:
    """Return whether a text holds half of a surrogate pair. Encoding takes a tenth of a search's time."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def argument(kind: str | list[str], description: str, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of one argument. Several kinds are an `anyOf`: some clients warn of a list."""
    kinds = {"type": kind} if isinstance(kind, str) else {"anyOf": [{"type": one} for one in kind]}
    return {**kinds, **more, "description": description}
