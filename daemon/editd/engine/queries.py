"""Questions: what the files and the history hold, for who only asks. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.engine.external_changes import recorded_state
from editd.errors import NotAFile, PathOutside
from editd.values.changeset import Change
from editd.values.path import is_among

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.store.history import History
    from editd.store.index import LogQuery
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Transaction
    from editd.workspace.reader import WorkspaceReader


class Queries:
    def __init__(self, history: History, tree: WorkspaceReader) -> None:
        self._history = history
        self._tree = tree

    def states(self, paths: Sequence[WorkspacePath]) -> list[FileState | None]:
        """What these paths hold now; folders and the like count as nothing. Notes nothing."""
        found: list[FileState | None] = []
        for path in paths:
            try:
                found.append(self._tree.read(self._tree.resolve_folder(path)))
            except NotAFile:
                found.append(None)
        return found

    def transactions(self, wanted: LogQuery, limit: int) -> tuple[list[Transaction], bool]:
        """The newest `limit` that are wanted, and whether there are more."""
        found = self._history.index.log(wanted, limit + 1)
        return found[:limit], len(found) > limit

    def changes_between(
        self, start: int, end: int | None, paths: Sequence[WorkspacePath] | None = None
    ) -> tuple[Change, ...]:
        """What differs between two transactions; `end` None is the files as they are now."""
        through = self._history.head if end is None else end
        low, high = min(start, through), max(start, through)
        changes: list[Change] = []
        wanted = None if paths is None else frozenset(paths)
        candidates = set(self._history.index.changed_paths(low, high))
        if end is None and paths is not None:
            candidates.update(paths)
        for path in sorted(candidates):
            if wanted is not None and not is_among(path, wanted):
                continue
            before = recorded_state(self._history.entry_at(path, start), self._history)
            after = self._now_or_at(path, end)
            if before != after:
                changes.append(Change(path, before, after))
        return tuple(changes)

    def _now_or_at(self, path: WorkspacePath, end: int | None) -> FileState | None:
        if end is not None:
            return recorded_state(self._history.entry_at(path, end), self._history)
        try:
            return self._tree.read(path)
        except (NotAFile, PathOutside):  # a folder in its place, or a symlink in that of a folder above it
            return None


def changes_of(transaction: Transaction, history: History) -> tuple[Change, ...]:
    """The changes of a transaction, with their bytes."""
    return tuple(
        Change(
            touch.path,
            recorded_state(touch.before, history),
            recorded_state(touch.after, history),
            touch.source,
        )
        for touch in transaction.touches
    )
