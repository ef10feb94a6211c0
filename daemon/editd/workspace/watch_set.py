"""Covering: which folders are watched. Those in scope, and those in which something out of scope is known.

Asked in the watcher's thread, folder by folder from the root down; what else is to be covered is told
from another.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from editd.values.path import PATH_BYTES_MAX, ways_down
from editd.workspace.scope import WorkspaceScope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.workspace.git_ignore import IgnoreRules
    from editd.workspace.git_index import GitIndex

FRESH_SECONDS = 1.0  # for so long, the ignore rules are taken to be what they were
FRESH_SHARE = 10  # and for so many times longer for each second that it took to apply them, deep in a tree


class WatchSet:
    def __init__(self, root: str) -> None:
        self._root = root
        self._also: frozenset[bytes] = frozenset()
        self._renew()

    def add(self, folders: Iterable[bytes]) -> set[bytes]:
        """Take these folders in, and those above them; return the topmost that are new."""
        new: set[bytes] = set()
        also = set(self._also)
        for folder in folders:
            missing = ways_down(folder, also)
            new.update(missing[:1])
            also.update(missing)
        self._also = frozenset(also)
        return new

    def has(self, folder: bytes) -> bool:
        """Whether this folder is to be watched."""
        if folder in self._also:
            return True
        began = time.monotonic()
        if began - self._made > FRESH_SECONDS * max(1.0, FRESH_SHARE * self._spent_seconds):
            self._renew()
        is_in = self._is_in_scope(folder)
        self._spent_seconds += time.monotonic() - began
        return is_in

    def _renew(self) -> None:
        self._scope = WorkspaceScope(self._root)
        self._indexes: dict[bytes, GitIndex | None] = {}
        self._known: dict[bytes, tuple[IgnoreRules | None, bool]] = {
            b"": (self._scope.rules(b"", None), True)
        }
        self._made = time.monotonic()
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
        if rules is None or self._scope.is_kept_out(folder):
            return False
        if rules.place not in self._indexes:
            self._indexes[rules.place] = rules.index()
        index = self._indexes[rules.place]
        return index is not None and index.is_tracked(rules.inside(folder), is_folder=True)
