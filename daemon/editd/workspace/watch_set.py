"""The folders to watch: those in scope, and those with recorded files out of scope.

The watcher's thread queries it folder by folder from the root down; `add` is called from another thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from editd.values.path import PATH_BYTES_MAX, ways_down
from editd.workspace.scope import WorkspaceScope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.workspace.git_ignore import IgnoreRules
    from editd.workspace.git_worktree import GitIndex

FRESH_SECONDS = 1.0  # how long the ignore rules are cached
FRESH_SHARE = 10  # so many times longer for each second spent on applying them, deep in a tree


class WatchSet:
    def __init__(self, root: str) -> None:
        self._root = root
        self._also: frozenset[bytes] = frozenset()
        self._renew()

    def add(self, folders: Iterable[bytes]) -> set[bytes]:
        """Add these folders and those above them; return the topmost of the new ones."""
        new: set[bytes] = set()
        also = set(self._also)
        for folder in folders:
            missing = ways_down(folder, also)
            new.update(missing[:1])
            also.update(missing)
        self._also = frozenset(also)
        return new

    def has(self, folder: bytes) -> bool:
        """Return whether this folder is to be watched."""
        if folder in self._also:
            return True
        began = time.monotonic()
        if began - self._renewed_at > FRESH_SECONDS * max(1.0, FRESH_SHARE * self._spent_seconds):
            self._renew()
        is_in = self._is_in_scope(folder)
        self._spent_seconds += time.monotonic() - began
        return is_in or folder in self._scope.inner  # whose `.git` may go

    def renew(self) -> None:
        """Apply the ignore rules and the repositories as they are now. Called in the watcher's thread."""
        self._renew()

    def _renew(self) -> None:
        self._scope = WorkspaceScope(self._root)
        self._indexes: dict[bytes, GitIndex | None] = {}
        self._known: dict[bytes, tuple[IgnoreRules | None, bool]] = {
            b"": (self._scope.rules(b"", None), True)
        }
        self._renewed_at = time.monotonic()
        self._spent_seconds = 0.0

    def _is_in_scope(self, folder: bytes) -> bool:
        if len(folder) > PATH_BYTES_MAX:
            return False
        for way in ways_down(folder, self._known):
            rules, is_in = self._known[way.rpartition(b"/")[0]]
            is_in = is_in and self._is_taken(way, rules)
            self._known[way] = (self._scope.rules(way, rules) if is_in else rules), is_in
        return self._known[folder][1]

    def _is_taken(self, folder: bytes, rules: IgnoreRules | None) -> bool:
        if self._scope.takes(folder, rules, is_folder=True):
            return True
        if rules is None or self._scope.is_kept_out(folder, is_folder=True):
            return False
        if rules.worktree not in self._indexes:
            self._indexes[rules.worktree] = rules.index()
        index = self._indexes[rules.worktree]
        return index is not None and index.is_tracked(rules.inside(folder), is_folder=True)
