"""Covering: which folders are watched. Those in scope, and those in which something out of scope is known.

Asked in the watcher's thread, folder by folder from the root down; what else is to be covered is told
from another.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from editd.workspace.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.workspace.gitindex import GitIndex
    from editd.workspace.rules import Rules

FRESH_SECONDS = 1.0  # for so long, the ignore rules are taken to be what they were


class Covering:
    def __init__(self, root: str) -> None:
        self._root = root
        self._also: frozenset[bytes] = frozenset()
        self._renew()

    def add(self, folders: Iterable[bytes]) -> set[bytes]:
        """Take these folders in, and those above them; return the topmost that are new."""
        new: set[bytes] = set()
        for folder in folders:
            names = folder.split(b"/") if folder else []
            ways = [b"/".join(names[:depth]) for depth in range(1, len(names) + 1)]
            missing = [way for way in ways if way not in self._also]
            new.update(missing[:1])
            self._also |= set(missing)
        return new

    def has(self, folder: bytes) -> bool:
        """Whether this folder is to be watched."""
        if folder in self._also:
            return True
        if time.monotonic() - self._made > FRESH_SECONDS:
            self._renew()
        return self._is_in_scope(folder)

    def _renew(self) -> None:
        self._scope = Scope(self._root)
        self._indexes: dict[bytes, GitIndex | None] = {}
        self._known: dict[bytes, bool] = {}
        self._made = time.monotonic()

    def _is_in_scope(self, folder: bytes) -> bool:
        if not folder:
            return True
        known = self._known.get(folder)
        if known is None:
            above = folder.rpartition(b"/")[0]
            known = self._known[folder] = self._is_in_scope(above) and self._is_taken(folder, above)
        return known

    def _is_taken(self, folder: bytes, above: bytes) -> bool:
        rules = self._rules_in(above)
        if self._scope.takes(folder, rules, is_folder=True):
            return True
        if rules is None or self._scope.is_kept_out(folder):
            return False
        if rules.place not in self._indexes:
            self._indexes[rules.place] = rules.index()
        index = self._indexes[rules.place]
        return index is not None and index.is_tracked(rules.inside(folder), is_folder=True)

    def _rules_in(self, folder: bytes) -> Rules | None:
        rules = self._scope.rules(b"", None)
        names = folder.split(b"/") if folder else []
        for depth in range(1, len(names) + 1):
            rules = self._scope.rules(b"/".join(names[:depth]), rules)
        return rules
