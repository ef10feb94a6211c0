"""Changesets that are being put together: staged edits that nobody else sees, and nothing keeps."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd.errors import InvalidParams, TooLarge

if TYPE_CHECKING:
    from editd.edits.expressions import Match, Search
    from editd.engine.requests import Reader
    from editd.errors import Refused
    from editd.values.changeset import Edit
    from editd.values.transaction import Authorship

EDITS_MAX = 100_000  # in one changeset
OPEN_MAX = 1000  # changesets at once, of all connections


@dataclass
class Changeset:
    owner: int  # the connection that began it; it is gone when that ends
    reader: Reader
    authorship: Authorship
    edits: list[Edit] = field(default_factory=list)
    found: dict[Search, tuple[Match, ...] | Refused] = field(default_factory=dict)  # for its tools


class Changesets:
    def __init__(self) -> None:
        self._open: dict[str, Changeset] = {}

    def begin(self, owner: int, reader: Reader, authorship: Authorship) -> str:
        """Open a changeset and return its id. Raises TooLarge where too many are open."""
        if len(self._open) >= OPEN_MAX:
            raise TooLarge(f"{OPEN_MAX} changesets are open.", hint="Commit or abort some of them first.")
        name = secrets.token_hex(8)
        self._open[name] = Changeset(owner, reader, authorship)
        return name

    def get(self, name: str, owner: int) -> Changeset:
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

    def discard(self, name: str) -> None:
        """End it: it is committed, or given up."""
        self._open.pop(name, None)

    def end_all(self, owner: int) -> None:
        """The connection is gone."""
        for name in [name for name, changeset in self._open.items() if changeset.owner == owner]:
            del self._open[name]
