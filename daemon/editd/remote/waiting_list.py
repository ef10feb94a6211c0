"""The transactions of a host that are not in the log yet, in the host's order.

A transaction is found by its origin, and by the files that it touches. So the work for an entry of the log
does not grow with the number of transactions that wait elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from editd.values.path import folders_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from editd.remote.entries import Tentative
    from editd.values.path import WorkspacePath
    from editd.values.transaction import CommitId

    _Index = defaultdict[WorkspacePath, dict[Tentative, None]]


class WaitingList:
    """Waiting transactions, by origin and by path, in the order of their `seq`."""

    def __init__(self) -> None:
        self._by_origin: dict[CommitId, Tentative] = {}
        self._at: _Index = defaultdict(dict)  # transactions that touch a path
        self._below: _Index = defaultdict(dict)  # transactions that touch a path below a folder

    def __iter__(self) -> Iterator[Tentative]:
        return iter(self._by_origin.values())

    def __len__(self) -> int:
        return len(self._by_origin)

    def get(self, origin: CommitId | None) -> Tentative | None:
        return None if origin is None else self._by_origin.get(origin)

    @property
    def first(self) -> Tentative | None:
        return next(iter(self._by_origin.values()), None)

    def add(self, one: Tentative) -> None:
        """Add the newest transaction."""
        self._by_origin[one.origin] = one
        for change in one.changes:
            self._at[change.path][one] = None
            for folder in folders_of(change.path):
                self._below[folder][one] = None

    def remove(self, one: Tentative) -> None:
        del self._by_origin[one.origin]
        for change in one.changes:
            _drop(self._at, change.path, one)
            for folder in folders_of(change.path):
                _drop(self._below, folder, one)

    def put_back(self, removed: Iterable[Tentative]) -> None:
        """Add transactions again that were removed, at their places."""
        added = list(removed)
        for one in added:
            self.add(one)
        if added:
            ordered = sorted(self._by_origin.values(), key=lambda one: one.seq)
            self._by_origin = {one.origin: one for one in ordered}
            for path in {change.path for one in added for change in one.changes}:
                self._at[path] = dict.fromkeys(sorted(self._at[path], key=lambda one: one.seq))

    def is_free(self, path: WorkspacePath) -> bool:
        """Return whether no transaction touches a path, a file below it, or one above it."""
        return next(self._near(path), None) is None

    def is_first(self, one: Tentative) -> bool:
        """Return whether no earlier transaction touches the files of `one`, or leaves no room for them."""
        return all(
            next(iter(self._at[change.path])) is one
            and change.path not in self._below
            and not any(folder in self._at for folder in folders_of(change.path))
            for change in one.changes
        )

    def at(self, path: WorkspacePath) -> Iterable[Tentative]:
        """Return the transactions that touch a path, in their order."""
        return self._at.get(path, ())

    def connected(self, paths: Iterable[WorkspacePath]) -> tuple[set[WorkspacePath], list[Tentative]]:
        """Return the transactions that depend on these paths, also indirectly, and all their paths.

        A path includes the files below and above it: they cannot exist beside it.
        """
        joined = set(paths)
        chosen: dict[Tentative, None] = {}
        left = list(joined)
        while left:
            path = left.pop()
            for one in self._near(path):
                if one in chosen:
                    continue
                chosen[one] = None
                for change in one.changes:
                    if change.path not in joined:
                        joined.add(change.path)
                        left.append(change.path)
        return joined, sorted(chosen, key=lambda one: one.seq)

    def _near(self, path: WorkspacePath) -> Iterator[Tentative]:
        """Yield the transactions that touch a path, a file below it, or one above it."""
        for index, folder in ((self._at, path), (self._below, path)):
            if folder in index:
                yield from index[folder]
        for folder in folders_of(path):
            if folder in self._at:
                yield from self._at[folder]


def _drop(index: _Index, path: WorkspacePath, one: Tentative) -> None:
    index[path].pop(one, None)  # it may touch several files below a folder
    if not index[path]:
        del index[path]
