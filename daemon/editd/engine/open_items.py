"""Work that a connection has begun and not ended: a changeset, or the bracket of a running command.

It is visible to its connection only, and ends with the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from editd.errors import InvalidParams

if TYPE_CHECKING:
    from editd.advice import Advice
    from editd.engine.commands import Reader

OPEN_MAX = 1000  # items of one kind at once, of all connections
OPEN_OF_ONE_MAX = 100  # of one connection, so that it leaves some for the others


class OpenItem(Struct):
    """Something that one connection has begun. It ends at the latest with the connection."""

    owner: int  # the connection
    reader: Reader


Item = TypeVar("Item", bound=OpenItem)


class OpenItems(Generic[Item]):
    """The open items of one kind, of all connections, by name."""

    noun: str
    field: str  # in the data of a refusal
    hint: Advice

    def __init__(self) -> None:
        self.open: dict[str, Item] = {}

    def get(self, name: str, owner: int) -> Item:
        """Return the item. Raises InvalidParams if this connection has none of that name."""
        item = self.open.get(name)
        if item is None or item.owner != owner:
            raise InvalidParams(
                f"There is no {self.noun} {name!r} on this connection.",
                hint=self.hint,
                data={self.field: name},
            )
        return item

    def end(self, name: str) -> bool:
        """Forget an item. Return whether it was open."""
        return self.open.pop(name, None) is not None

    def of(self, owner: int) -> list[Item]:
        """Return the items of a connection."""
        return [item for item in self.open.values() if item.owner == owner]
