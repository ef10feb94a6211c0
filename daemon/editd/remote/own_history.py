"""This host's history as the exchange reads it: its commits, and the origin of each in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.store.git_objects import CommitObject
from editd.store.transaction_record import parse
from editd.values.transaction import CommitId

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from editd.remote.log_objects import LogObjects
    from editd.store.git_objects import Oid
    from editd.store.transaction_record import ParsedMessage


def commits_after(objects: LogObjects, head: Oid, seq: int) -> list[Oid]:
    """Return the commits of this host's history after transaction `seq`, the oldest first.

    Compacted ones are left out: none of them waits.
    """
    commits: list[Oid] = []
    for commit, message in _back(objects, head):
        if message.seq <= seq:
            break
        commits.append(commit)
    commits.reverse()
    return commits


def origin_of(commit: Oid, message: ParsedMessage) -> CommitId | None:
    """Return the origin of a transaction in the log; None for a step of the exchange itself."""
    arrival = message.authorship.arrival
    return CommitId(commit.hex()) if arrival is None else arrival.origin


def origins_after(objects: LogObjects, head: Oid, seq: int) -> dict[CommitId | None, int]:
    """Return the origins of this host's transactions after `seq`, each with its number here.

    None is the origin of each step of the exchange itself.
    """
    origins: dict[CommitId | None, int] = {}
    for commit in commits_after(objects, head, seq):
        written = parse(CommitObject.decode(objects.commit(commit)).message)
        origins[origin_of(commit, written)] = int(written.seq)
    return origins


def earliest_of(objects: LogObjects, head: Oid, origins: Set[CommitId]) -> int | None:
    """Return the oldest transaction of this host that a log has: the host was in that log before.

    None if there is none.
    """
    left, earliest = set(origins), None
    for commit, message in _back(objects, head):
        if not left:
            break
        origin = origin_of(commit, message)
        if origin in left:
            left.discard(origin)
            earliest = int(message.seq)
    return earliest


def _back(objects: LogObjects, head: Oid) -> Iterator[tuple[Oid, ParsedMessage]]:
    """Yield the commits of the history and their messages, the newest first. Raises KeyError without any."""
    commit: Oid | None = head
    while commit is not None:
        try:
            decoded = CommitObject.decode(objects.commit(commit))
        except KeyError:
            if commit == head:
                raise
            return
        yield commit, parse(decoded.message)
        commit = decoded.parent
