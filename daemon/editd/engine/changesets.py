"""Open changesets: edits staged in memory, visible to their connection only."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.errors import InvalidParams, Overloaded, TooLarge

if TYPE_CHECKING:
    from editd.edits.search import Match, Search
    from editd.engine.commands import Reader
    from editd.errors import Refused
    from editd.values.changeset import OnStale
    from editd.values.transaction import Authorship
    from editd.wire.messages import AnyEdit

EDITS_MAX = 100_000  # in one changeset
OPEN_MAX = 1000  # changesets at once, of all connections
OPEN_OF_ONE_MAX = 100  # of one connection, so that it leaves some for the others
BYTES_MAX = 512 * 1024 * 1024  # staged by all connections together, in memory
BYTES_OF_ONE_MAX = 128 * 1024 * 1024  # of one connection: two messages of full length
EDIT_BYTES = 500  # the memory of an edit without its text


class OpenChangeset(Struct):
    """The staged edits of one connection. They are discarded when the connection ends."""

    owner: int  # the connection
    reader: Reader
    authorship: Authorship
    on_stale: OnStale | None = None
    edits: list[AnyEdit] = field(default_factory=list)
    bytes: int = 0
    found: dict[Search, tuple[Match, ...] | Refused] = field(default_factory=dict)  # matches for its tools


class Changesets:
    """All open changesets, with limits for each connection and for all together."""

    def __init__(self) -> None:
        self._open: dict[str, OpenChangeset] = {}

    def begin(
        self, owner: int, reader: Reader, authorship: Authorship, on_stale: OnStale | None = None
    ) -> str:
        """Open a changeset and return its id. Raises TooLarge or Overloaded if too many are open."""
        if len(self._of(owner)) >= OPEN_OF_ONE_MAX:
            raise Overloaded(
                f"{OPEN_OF_ONE_MAX} changesets are open on this connection.",
                hint="Commit or abort some of them first.",
            )
        if len(self._open) >= OPEN_MAX:
            raise TooLarge(f"{OPEN_MAX} changesets are open.", hint="Commit or abort some of them first.")
        name = secrets.token_hex(8)
        self._open[name] = OpenChangeset(owner, reader, authorship, on_stale)
        return name

    def get(self, name: str, owner: int) -> OpenChangeset:
        """Return the changeset. Raises InvalidParams if this connection has none of that name."""
        changeset = self._open.get(name)
        if changeset is None or changeset.owner != owner:
            raise InvalidParams(
                f"There is no changeset {name!r} on this connection.",
                hint="Open one with `begin`. It ends with `commit`, `abort` or the connection.",
                data={"changeset": name},
            )
        return changeset

    def add(self, name: str, owner: int, edits: tuple[AnyEdit, ...]) -> None:
        """Append edits to a changeset. Raises InvalidParams or TooLarge."""
        changeset = self.get(name, owner)
        if len(changeset.edits) + len(edits) > EDITS_MAX:
            raise TooLarge(f"A changeset holds at most {EDITS_MAX} edits.")
        changeset.edits.extend(edits)
        changeset.bytes += bytes_of(edits)

    def check_room(self, owner: int, edits: tuple[AnyEdit, ...]) -> None:
        """Raise Overloaded if these edits would exceed a limit on staged bytes."""
        more = bytes_of(edits)
        own = sum(changeset.bytes for changeset in self._of(owner)) + more
        together = sum(changeset.bytes for changeset in self._open.values()) + more
        if own > BYTES_OF_ONE_MAX or together > BYTES_MAX:
            raise Overloaded(
                f"A connection may stage {BYTES_OF_ONE_MAX} bytes, all connections together {BYTES_MAX}.",
                hint="Commit or abort changesets first.",
            )

    def discard(self, name: str) -> None:
        """Forget a changeset that was committed or aborted."""
        self._open.pop(name, None)

    def end_all(self, owner: int) -> None:
        """Discard all changesets of a closed connection."""
        for name in [name for name, changeset in self._open.items() if changeset.owner == owner]:
            del self._open[name]

    def _of(self, owner: int) -> list[OpenChangeset]:
        return [changeset for changeset in self._open.values() if changeset.owner == owner]


def bytes_of(value: object) -> int:
    """Estimate the memory that edits, or parts of edits, take."""
    match value:
        case str() | bytes():
            return len(value)
        case tuple() | list():
            return sum(map(bytes_of, value))
        case Mapping():
            return EDIT_BYTES + sum(bytes_of(key) + bytes_of(held) for key, held in value.items())
        case Struct():
            return EDIT_BYTES + sum(bytes_of(getattr(value, name)) for name in value.__struct_fields__)
        case _:
            return 0
