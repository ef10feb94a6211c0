"""Bases: which version each path's edits were made for, and what comes of it when that is stale.

A path is judged once, when it is first named, against the snapshot: what the changeset itself did to
it makes nothing stale, and its later edits may name the same base. With `merge`, the edits of a stale
path are made on the base that they were written for, and merged with what is there afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.merge import merge_states
from editd.errors import Conflict, FileMissing, Stale
from editd.values.changeset import Base
from editd.values.content import FileState

if TYPE_CHECKING:
    from editd.edits.overlay import Overlay
    from editd.edits.plan import BaseSource
    from editd.values.changeset import OnStale
    from editd.values.content import Version
    from editd.values.path import WorkspacePath


class BaseChecker:
    """What the author of a changeset knows of each path that it names."""

    def __init__(self, overlay: Overlay, knowledge: BaseSource, on_stale: OnStale) -> None:
        self._overlay = overlay
        self._knowledge = knowledge
        self._on_stale = on_stale
        self._rebased: dict[WorkspacePath, FileState | None] = {}  # what a stale path's edits start from
        self.known: dict[WorkspacePath, set[Base]] = {}
        self.merged: set[WorkspacePath] = set()
        self.based: set[WorkspacePath] = set()  # for which a base was given
        self.guarded: set[WorkspacePath] = (
            set()
        )  # for which nothing but an edit's own text says what they held
        self._unjudged: set[WorkspacePath] = set()  # edited by their text, whatever version they are at

    def is_known(self, path: WorkspacePath) -> bool:
        """True where the author has shown to know what `path` holds, or the session has seen it."""
        return bool(self.known.get(path)) or self._knowledge.seen(path) is not None

    def note(self, path: WorkspacePath, *versions: Version) -> None:
        """From now on `path` is named, and its author knows these versions of it."""
        self.guarded.discard(path)
        self.known.setdefault(path, set()).update(map(Base, versions))

    def forget_base(self, path: WorkspacePath) -> None:
        """What `path` is to hold no longer comes from an older base: there is nothing to merge."""
        self.guarded.discard(path)
        self._rebased.pop(path, None)

    def look(self, path: WorkspacePath, base: Base | None, *, may_merge: bool = True) -> FileState | None:
        """Return what `path` holds for an edit with `base`, which is judged; Stale where it is stale."""
        self.guarded.discard(path)
        if base is not None:
            self.based.add(path)
        if path in self._unjudged:
            self._unjudged.discard(path)
            if (stale := self._stale(path, base)) is not None:
                raise stale  # Its edits are made on what is there now, and cannot be merged.
            return self._overlay.at(path)
        if path in self.known:
            self._look_again(path, base)
            return self._overlay.at(path)
        stale = self._stale(path, base)
        if stale is not None:
            if self._on_stale == "reject" or not may_merge:
                raise stale
            (expected,) = self.known[path]
            self._rebase(path, expected, self._overlay.before(path), stale)
        return self._overlay.at(path)

    def look_unjudged(self, path: WorkspacePath) -> FileState | None:
        """Return what `path` holds for an edit that its own text guards: no base makes that stale.

        An edit of the path that comes later in the changeset is judged all the same.
        """
        if path not in self.known:
            self.known[path] = set()
            self._unjudged.add(path)
            self.guarded.add(path)
        return self._overlay.at(path)

    def _stale(self, path: WorkspacePath, base: Base | None) -> Stale | None:
        """Note which version of `path` the author knows; Stale where the snapshot holds another."""
        expected = base or self._knowledge.seen(path)
        self.known[path] = set() if expected is None else {expected}
        current = version_at(self._overlay.before(path))
        if expected is None or expected.version == current:
            return None
        return Stale(path.text, expected.version, current)

    def _look_again(self, path: WorkspacePath, base: Base | None) -> None:
        """A path's next edit may name the base of an earlier one, or what is there, before or by now."""
        now = version_at(self._overlay.at(path))
        fine = {*self.known[path], Base(version_at(self._overlay.before(path))), Base(now)}
        if base is not None and base not in fine:
            raise Stale(path.text, base.version, now)
        if base is not None:
            self.known[path].add(base)

    def _rebase(self, path: WorkspacePath, base: Base, before: FileState | None, stale: Stale) -> None:
        """Start the edits of `path` from `base`; a version names no mode, so today's is taken."""
        state = None
        if base.version is not None:
            content = self._knowledge.content(base.version)
            if content is None:
                raise stale
            state = FileState(content) if before is None else before.with_content(content)
        self._rebased[path] = state
        self._overlay.put(path, state)

    def merge(self, path: WorkspacePath) -> None:
        """Merge a stale path with what is there now, and do nothing for another; Conflict."""
        if path not in self._rebased:
            return
        base, before = self._rebased.pop(path), self._overlay.before(path)
        try:
            merged = merge_states(base, before, self._overlay.at(path), path=path.text)
        except Conflict as conflict:
            for file in conflict.data["files"]:
                file |= {"base": version_at(base), "current": version_at(before)}
            raise
        self._overlay.put(path, merged)
        self.merged.add(path)

    def existing(self, path: WorkspacePath, base: Base | None) -> FileState:
        """What `path` holds, as `_look` does; FileMissing where there is no file."""
        return _present(path, self.look(path, base))

    def existing_unjudged(self, path: WorkspacePath) -> FileState:
        """Return what `path` holds, as `look_unjudged` does; FileMissing where there is no file."""
        return _present(path, self.look_unjudged(path))

    def merge_all(self) -> None:
        """Merge every path whose edits were made on an older base with what is there now."""
        conflicts = []
        for path in tuple(self._rebased):
            try:
                self.merge(path)
            except Conflict as conflict:
                conflicts.append(conflict)
        if len(conflicts) == 1:
            raise conflicts[0]
        if conflicts:
            files = [file for conflict in conflicts for file in conflict.data["files"]]
            raise Conflict(
                " ".join(conflict.message for conflict in conflicts),
                hint="Read these files again and make the edits for what they hold now.",
                data={"files": files},
            )


def _present(path: WorkspacePath, state: FileState | None) -> FileState:
    if state is None:
        raise FileMissing(
            f"There is no file {path}.",
            hint="Check the path; `write` makes a file.",
            data={"path": path.text},
        )
    return state


def version_at(state: FileState | None) -> Version | None:
    """The version of `state`, None for "no such file"."""
    return None if state is None else state.version
