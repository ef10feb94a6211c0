"""Changesets that are being put together: staged edits that nobody else sees, and nothing keeps."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.errors import InvalidParams, Overloaded, TooLarge

if TYPE_CHECKING:
    from editd.edits.regex import Match, Search
    from editd.engine.commands import Reader
    from editd.errors import Refused
    from editd.values.changeset import Edit, OnStale
    from editd.values.transaction import Authorship

EDITS_MAX = 100_000  # in one changeset
OPEN_MAX = 1000  # changesets at once, of all connections
OPEN_OF_ONE_MAX = 100  # of one connection, so that it leaves some for the others
BYTES_MAX = 512 * 1024 * 1024  # staged, of all connections: it is all in memory
BYTES_OF_ONE_MAX = 128 * 1024 * 1024  # of one connection: two messages of full length
EDIT_BYTES = 500  # what an edit takes beside its text


class OpenChangeset(Struct):
    owner: int  # the connection that began it; it is gone when that ends
    reader: Reader
    authorship: Authorship
    on_stale: OnStale | None = None
    edits: list[Edit] = field(default_factory=list)
    bytes: int = 0
    found: dict[Search, tuple[Match, ...] | Refused] = field(default_factory=dict)  # for its tools


class Changesets:
    def __init__(self) -> None:
        self._open: dict[str, OpenChangeset] = {}

    def begin(
        self, owner: int, reader: Reader, authorship: Authorship, on_stale: OnStale | None = None
    ) -> str:
        """Open a changeset and return its id. Raises TooLarge, Overloaded where too many are open."""
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
        """The changeset, if it is this connection's. Raises InvalidParams."""
        found = self._open.get(name)
        if found is None or found.owner != owner:
            raise InvalidParams(
                f"There is no changeset {name!r} on this connection.",
                hint="`begin` opens one; it ends with `commit`, `abort` or the connection.",
                data={"changeset": name},
            )
        return found

    def add(self, name: str, owner: int, edits: tuple[Edit, ...]) -> None:
        found = self.get(name, owner)
        if len(found.edits) + len(edits) > EDITS_MAX:
            raise TooLarge(f"A changeset holds at most {EDITS_MAX} edits.")
        found.edits.extend(edits)
        found.bytes += bytes_of(edits)

    def check_room(self, owner: int, edits: tuple[Edit, ...]) -> None:
        """Raises Overloaded where there is no room to stage these as well."""
        more = bytes_of(edits)
        own = sum(changeset.bytes for changeset in self._of(owner)) + more
        together = sum(changeset.bytes for changeset in self._open.values()) + more
        if own > BYTES_OF_ONE_MAX or together > BYTES_MAX:
            raise Overloaded(
                f"At most {BYTES_OF_ONE_MAX} bytes are staged on a connection, {BYTES_MAX} on all of them.",
                hint="Commit or abort changesets first.",
            )

    def discard(self, name: str) -> None:
        """End it: it is committed, or given up."""
        self._open.pop(name, None)

    def end_all(self, owner: int) -> None:
        """The connection is gone."""
        for name in [name for name, changeset in self._open.items() if changeset.owner == owner]:
            del self._open[name]

    def _of(self, owner: int) -> list[OpenChangeset]:
        return [changeset for changeset in self._open.values() if changeset.owner == owner]


def bytes_of(value: object) -> int:
    """About how much memory edits take, or what is in them."""
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
