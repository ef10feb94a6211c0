"""The commits of the log as entries, in their order: the place of a commit in the chain is its number.

An entry that cannot be used keeps its place, and changes no file. The entry behind it is compared with the
files before it, so the rest of the log goes on. Only the first entry has to be usable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.errors import Refused
from editd.remote.entries import LogEntry, check_files, read_entry, unusable_entry
from editd.remote.entry_decoder import Unusable
from editd.store.git_objects import EMPTY_TREE, CommitObject

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from editd.remote.log_objects import LogObjects
    from editd.store.git_objects import Oid
    from editd.values.transaction import CommitId


class Forked(Refused):
    """The log on the server does not continue the log that this host has taken in."""

    code = "conflict"


class FileChecks(Struct):
    """The entries whose files were checked: each only once, because a check compares two trees."""

    through: int = -1  # the last of these entries
    problems: dict[int, str] = field(default_factory=dict)  # of the unusable ones, by number

    def up_to(self, number: int) -> FileChecks:
        """Return the checks of the entries up to this one."""
        problems = {entry: reason for entry, reason in self.problems.items() if entry <= number}
        return FileChecks(min(self.through, number), problems)


def commits_back(objects: LogObjects, head: Oid, known: Container[Oid]) -> tuple[list[Oid], Oid | None]:
    """Return the commits behind the first known one up to `head`, the oldest first, and the known one.

    It is None if the chain has none. Raises Forked if a commit cannot be read.
    """
    commits: list[Oid] = []
    commit: Oid | None = head
    while commit is not None and commit not in known:
        commits.append(commit)
        try:
            commit = CommitObject.decode(objects.commit(commit)).parent
        except (KeyError, ValueError) as error:
            raise Forked(f"The log has an object that is none of its entries: {error}.") from error
    commits.reverse()
    return commits, commit


def read_entries(
    objects: LogObjects,
    commits: Sequence[Oid],
    last: LogEntry | None,
    landed: Mapping[CommitId, int],
    checks: FileChecks,
) -> list[LogEntry]:
    """Read the entries of these commits, which follow `last`. Raises Forked if the first one is no beginning.

    `landed` has the origins of the entries up to `last`.
    """
    entries: list[LogEntry] = []
    tree, number = (EMPTY_TREE, 0) if last is None else (last.tree, last.number + 1)
    origins: dict[CommitId, int] = {}
    for number, commit in enumerate(commits, number):  # noqa: B020  # it goes on from the last entry
        try:
            entry = read_entry(objects, commit, number, tree)
            origin = entry.arrival.origin
            if origin is not None:
                _check_origin(entry, landed.get(origin, origins.get(origin)))
            _check_files(objects, entry, checks)
            if origin is not None:
                origins[origin] = number
        except Unusable as error:
            if number == 0:
                raise Forked(f"The log does not begin with an entry of editd: {error.reason}.") from error
            entry = unusable_entry(commit, number, tree, error)
        checks.through = max(checks.through, number)
        entries.append(entry)
        tree = entry.tree
    return entries


def _check_origin(entry: LogEntry, number: int | None) -> None:
    if number is not None:
        raise Unusable(f"its transaction is entry {number} already", entry.arrival.host)


def _check_files(objects: LogObjects, entry: LogEntry, checks: FileChecks) -> None:
    """Check the files of an entry, or remember the result of an earlier check. Raises Unusable."""
    number = entry.number
    if number in checks.problems:
        raise Unusable(checks.problems[number], entry.arrival.host)
    if number <= checks.through:
        return
    try:
        check_files(objects, entry)
    except Unusable as error:
        checks.problems[number] = error.reason
        raise
