"""The query of a timeline, as a person types it: `session:claude path:src is:unreviewed retry`.

The name of a session or an actor matches by its beginning, `=NAME` by the whole name, and a glob as it is.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self, get_args

from editd.wire.messages import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS: tuple[str, ...] = get_args(Kind)
FIELDS = ("session", "actor", "path", "kind")
NAMES = ("session", "actor")
UNREVIEWED = "is:unreviewed"
WHOLE = "="  # before a name: it matches as a whole
_GLOB_SIGNS = frozenset("*?[")


def exactly(name: str) -> str:
    """Return the word of a query for one name alone, and not for the names that begin with it."""
    return WHOLE + name


def is_named(name: str | None, words: Iterable[str]) -> bool:
    """Return whether a name matches one of the words of a query; without words, every name does."""
    words = tuple(words)
    return not words or (name is not None and any(fnmatchcase(name, _glob_of(word)) for word in words))


def _glob_of(word: str) -> str:
    """Return a word of a query as the glob that the daemon takes."""
    if not word.startswith(WHOLE) and _GLOB_SIGNS & set(word):
        return word
    literal = "".join(f"[{sign}]" if sign in _GLOB_SIGNS else sign for sign in word.removeprefix(WHOLE))
    return literal if word.startswith(WHOLE) else f"{literal}*"


class QueryError(ValueError):
    """A query with an unknown kind, or an unfinished quotation."""


@dataclass(frozen=True, slots=True)
class TransactionQuery:
    """The transactions of a timeline: any of the values of each field, and a text in the message.

    With `is_unreviewed`, only work of agents that no person has approved or marked as reviewed.
    Created by `parse`, so that its kinds exist. An empty query matches every transaction.
    """

    session: tuple[str, ...] = ()
    actor: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    grep: str = ""
    is_unreviewed: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the query of `FIELD:VALUE` words; all other words are text in the message.

        Raises QueryError.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise QueryError(f"{text!r} is not finished: {error}.") from None
        values: dict[str, list[str]] = {field: [] for field in FIELDS}
        plain: list[str] = []
        is_unreviewed = False
        for word in words:
            field, colon, value = word.partition(":")
            if word == UNREVIEWED:
                is_unreviewed = True
            elif colon and field == "is":
                raise QueryError(f"{value!r} is not a state. The state is unreviewed.")
            elif colon and field in FIELDS and value:
                values[field].append(value.rstrip("/") if field == "path" else value)
            else:
                plain.append(word)
        if unknown := sorted(set(values["kind"]) - set(KINDS)):
            raise QueryError(f"{unknown[0]!r} is not a kind. The kinds are {', '.join(KINDS)}.")
        fields = {field: tuple(some) for field, some in values.items()}
        return cls(**fields, grep=" ".join(plain), is_unreviewed=is_unreviewed)

    @property
    def text(self) -> str:
        """The query as it is typed."""
        words = [f"{field}:{value}" for field in FIELDS for value in self._values(field)]
        words += [UNREVIEWED] if self.is_unreviewed else []
        return shlex.join([*words, *([self.grep] if self.grep else [])])

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of `log` and `log.count`."""
        fields: dict[str, Any] = {
            field: [_glob_of(one) if field in NAMES else one for one in self._values(field)] or None
            for field in FIELDS
        }
        return {**fields, "grep": self.grep or None, "unreviewed": self.is_unreviewed}

    @property
    def is_empty(self) -> bool:
        """Whether the query matches every transaction."""
        return self == type(self)()

    def is_below(self, path: str) -> bool:
        """Whether a path is one of the query's, or below such a path."""
        return any(path == folder or path.startswith(f"{folder}/") for folder in self.path)

    def _values(self, field: str) -> Iterable[str]:
        values: tuple[str, ...] = getattr(self, field)
        return values
