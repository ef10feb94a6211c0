"""Arguments of a tool's call, and the refusal of a missing or mistyped one by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Mapping


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


def refuse_unknown(arguments: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(set(arguments) - known)
    if unknown:
        raise InvalidParams(
            f"`{unknown[0]}` is no argument of this tool.",
            hint=f"It takes {', '.join(sorted(known))}.",
            data={"argument": unknown[0]},
        )


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
