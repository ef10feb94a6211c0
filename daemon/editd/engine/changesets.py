"""Changesets: edits that a connection stages in memory, until it commits or aborts them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.advice import Advice, step_term
from editd.engine.open_items import OPEN_MAX, OPEN_OF_ONE_MAX, OpenItem, OpenItems
from editd.errors import Overloaded, TooLarge

if TYPE_CHECKING:
    from editd.edits.search import Match, Search
    from editd.engine.commands import Reader
    from editd.errors import Refused
    from editd.values.transaction import Authorship
    from editd.wire.messages import AnyEdit, OnStale

EDITS_MAX = 100_000  # in one changeset
BYTES_MAX = 512 * 1024 * 1024  # staged by all connections together, in memory
BYTES_OF_ONE_MAX = 128 * 1024 * 1024  # of one connection: two messages of full length
EDIT_BYTES = 500  # the memory of an edit without its text


class OpenChangeset(OpenItem):
    """The staged edits of one connection."""

    authorship: Authorship
    on_stale: OnStale | None = None
    must_propose: bool = False  # its commit makes a proposal
    edits: list[AnyEdit] = field(default_factory=list)
    bytes: int = 0
    found: dict[Search, tuple[Match, ...] | Refused] = field(default_factory=dict)  # matches for its tools


class Changesets(OpenItems[OpenChangeset]):
    """All open changesets, with limits for each connection and for all together."""

    noun = field = "changeset"
    hint = Advice(step_term("open_changeset"))

    def begin(
        self,
        owner: int,
        reader: Reader,
        authorship: Authorship,
        on_stale: OnStale | None = None,
        *,
        must_propose: bool = False,
    ) -> str:
        """Open a changeset and return its id. Raises TooLarge or Overloaded if too many are open."""
        if len(self.of(owner)) >= OPEN_OF_ONE_MAX:
            raise Overloaded(
                f"{OPEN_OF_ONE_MAX} changesets are open on this connection.",
                hint="Commit or abort some of them first.",
            )
        if len(self.open) >= OPEN_MAX:
            raise TooLarge(f"{OPEN_MAX} changesets are open.", hint="Commit or abort some of them first.")
        name = secrets.token_hex(8)
        self.open[name] = OpenChangeset(owner, reader, authorship, on_stale, must_propose)
        return name

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
        own = sum(changeset.bytes for changeset in self.of(owner)) + more
        together = sum(changeset.bytes for changeset in self.open.values()) + more
        if own > BYTES_OF_ONE_MAX or together > BYTES_MAX:
            raise Overloaded(
                f"A connection may stage {BYTES_OF_ONE_MAX} bytes, all connections together {BYTES_MAX}.",
                hint="Commit or abort changesets first.",
            )

    def end_all(self, owner: int) -> None:
        """Discard all changesets of a closed connection."""
        for name in [name for name, changeset in self.open.items() if changeset.owner == owner]:
            del self.open[name]


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
