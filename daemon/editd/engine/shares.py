"""Shares: the entries that all clients together, and one client alone, may keep in a list of the daemon.

A full list refuses every client. So one holder has a smaller limit, and the refusal is for this holder alone.
A holder is a session, or a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable


class Share(Struct, frozen=True):
    """The limits of one list. `hint` is the way out for a holder that has reached its own limit."""

    noun: str
    all_max: int
    one_max: int
    holder: str
    hint: str

    def check(self, holders: Collection[Hashable], own: Hashable) -> None:
        """Raise Overloaded if one more entry of `own` does not fit. `holders` has one for each entry."""
        if sum(holder == own for holder in holders) >= self.one_max:
            raise Overloaded(
                f"{self.one_max} {self.noun} of this {self.holder} are the limit.",
                hint=self.hint,
                data={"limit": self.one_max},
            )
        if len(holders) >= self.all_max:
            raise Overloaded(
                f"{self.all_max} {self.noun} are the limit of all clients.",
                hint=self.hint,
                data={"limit": self.all_max},
            )


SESSIONS = Share("open sessions", 1000, 500, "connection", "Close some of them first.")
LEASES = Share("leases", 1000, 250, "session", "Release some of them first.")
LEASE_REQUESTS = Share("waiting requests for leases", 1000, 100, "session", "Wait for some of them first.")
COMMANDS = Share("running commands", 1000, 250, "session or connection", "End some of them first.")
SHARES = (SESSIONS, LEASES, LEASE_REQUESTS, COMMANDS)
