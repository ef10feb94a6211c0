"""Preconditions: the base version of each path's edits, and the refusal or merge of a stale base.

A path's base is checked once, against the snapshot, when an edit first names the path. Earlier edits of
the same changeset never make a base stale, and later edits may name the same base. With `merge`, the
edits of a stale path are applied to their own base, and the result is merged with the current file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from editd.advice import Advice, operation_term
from editd.edits.merge import merge, merge_lines, merge_states
from editd.errors import LISTED_MAX, Conflict, FileMissing, Stale
from editd.values.content import FileState
from editd.values.transaction import Base, ReadMark

if TYPE_CHECKING:
    from editd.edits.overlay import Overlay
    from editd.errors import Refused
    from editd.values.content import Version
    from editd.values.path import WorkspacePath
    from editd.wire.messages import OnStale


class BaseSource(Protocol):
    """The versions that the history has and that the session has seen."""

    def content(self, version: Version) -> bytes | None:
        """Return the bytes of any version that was ever recorded."""
        ...

    def base_of(self, path: WorkspacePath) -> Base | None:
        """Return the version that this session last read or wrote at `path`."""
        ...

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        """Return what `reader`, or without it this session, has seen of `path`."""
        ...

    def unsaved_refusal(self, path: WorkspacePath, version: Version) -> Refused | None:
        """Return the refusal of a collision with the text that a client holds unsaved in this version.

        None if no client holds it. The result of an edit of such a text is merged with the file.
        """
        ...

    def is_held_by_sender(self, path: WorkspacePath) -> bool:
        """Return whether the sender holds the file unsaved. Its merge then joins changes of adjacent lines.

        So does the trial of another's edit on that text: what has passed it can be merged into the text.
        """
        ...

    def note_of_unsaved(self, path: WorkspacePath) -> str | None:
        """Return a line for the reader of a file that another client holds unsaved, or None."""
        ...


class BaseChecker:
    """The versions that the author of a changeset knows of each path in it."""

    def __init__(self, overlay: Overlay, knowledge: BaseSource, on_stale: OnStale) -> None:
        self._overlay = overlay
        self._knowledge = knowledge
        self._on_stale = on_stale
        self._rebased: dict[WorkspacePath, FileState | None] = {}  # the base state of each stale path
        self.known: dict[WorkspacePath, set[Base]] = {}
        self.merged: set[WorkspacePath] = set()
        self.based: set[WorkspacePath] = set()  # edited with an explicit base
        self.guarded: set[WorkspacePath] = set()  # checked only by the old text in the edits themselves
        self._unjudged: set[WorkspacePath] = set()  # edited by old text, with no base checked yet

    def is_known(self, path: WorkspacePath) -> bool:
        """Return whether the author named a version of `path`, or the session has seen one."""
        return bool(self.known.get(path)) or self._knowledge.base_of(path) is not None

    def note(self, path: WorkspacePath, *versions: Version) -> None:
        """Record that the changeset names `path`, and that its author knows these versions."""
        self.guarded.discard(path)
        self.known.setdefault(path, set()).update(map(Base, versions))

    def forget_base(self, path: WorkspacePath) -> None:
        """Drop the older base of `path`: its new content does not derive from it, so nothing is merged."""
        self.guarded.discard(path)
        self._rebased.pop(path, None)

    def look(self, path: WorkspacePath, base: Base | None, *, may_merge: bool = True) -> FileState | None:
        """Check `base` and return the state of `path` that the edit applies to; Stale if it is stale."""
        self.guarded.discard(path)
        if base is not None:
            self.based.add(path)
        if path in self._unjudged:
            self._unjudged.discard(path)
            if (stale := self._stale(path, base)) is not None:
                raise stale  # Its earlier edits apply to the current file, so a merge is impossible.
            return self._overlay.at(path)
        if path in self.known:
            self._look_again(path, base)
            return self._overlay.at(path)
        stale = self._stale(path, base)
        if stale is not None:
            (expected,) = self.known[path]
            is_rejected = self._on_stale == "reject" and self._unsaved_refusal(path, expected.version) is None
            if is_rejected or not may_merge:
                raise stale
            self._rebase(path, expected, self._overlay.before(path), stale)
        return self._overlay.at(path)

    def look_unjudged(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path` for an edit that is guarded by its own old text, without a base check.

        A later edit of the path in the same changeset is checked as usual.
        """
        if path not in self.known:
            self.known[path] = set()
            self._unjudged.add(path)
            self.guarded.add(path)
        return self._overlay.at(path)

    def _stale(self, path: WorkspacePath, base: Base | None) -> Stale | None:
        """Record the version of `path` that the author knows; return Stale if the snapshot has another."""
        expected = base or self._knowledge.base_of(path)
        self.known[path] = set() if expected is None else {expected}
        current = version_at(self._overlay.before(path))
        if expected is None or expected.version == current:
            return None
        return Stale(path.text, expected.version, current)

    def _unsaved_refusal(self, path: WorkspacePath, base: Version | None) -> Refused | None:
        return None if base is None else self._knowledge.unsaved_refusal(path, base)

    def _look_again(self, path: WorkspacePath, base: Base | None) -> None:
        """Check the base of a path's later edit: an earlier edit's base, or a version before or after it."""
        now = version_at(self._overlay.at(path))
        fine = {*self.known[path], Base(version_at(self._overlay.before(path))), Base(now)}
        if base is not None and base not in fine:
            raise Stale(path.text, base.version, now)
        if base is not None:
            self.known[path].add(base)

    def _rebase(self, path: WorkspacePath, base: Base, before: FileState | None, stale: Stale) -> None:
        """Apply the edits of `path` to `base`; a version has no mode, so the current mode is used."""
        state = None
        if base.version is not None:
            content = self._knowledge.content(base.version)
            if content is None:
                raise stale
            state = FileState(content) if before is None else before.with_content(content)
        self._rebased[path] = state
        self._overlay.put(path, state)

    def merge(self, path: WorkspacePath) -> None:
        """Merge a stale path with the current file; do nothing for other paths. Raises Conflict."""
        if path not in self._rebased:
            return
        base, before = self._rebased.pop(path), self._overlay.before(path)
        try:
            join = merge_lines if self._knowledge.is_held_by_sender(path) else merge
            merged = merge_states(base, before, self._overlay.at(path), path=path.text, merge=join)
        except Conflict as conflict:
            unsaved = self._unsaved_refusal(path, version_at(base))
            if unsaved is not None:
                raise unsaved from conflict
            for file in conflict.data["files"]:
                file |= {"base": version_at(base), "current": version_at(before)}
            raise
        self._overlay.put(path, merged)
        self.merged.add(path)

    def existing(self, path: WorkspacePath, base: Base | None) -> FileState:
        """Return the state of `path` as `look` does; FileMissing if there is no file."""
        return _present(path, self.look(path, base))

    def existing_unjudged(self, path: WorkspacePath) -> FileState:
        """Return the state of `path` as `look_unjudged` does; FileMissing if there is no file."""
        return _present(path, self.look_unjudged(path))

    def merge_all(self) -> None:
        """Merge every path that was edited on an older base with its current file."""
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
            sentences = [conflict.message for conflict in conflicts[:LISTED_MAX]]
            if len(conflicts) > LISTED_MAX:
                sentences.append(f"{len(conflicts) - LISTED_MAX} more files do not merge.")
            raise Conflict(
                " ".join(sentences),
                hint="Read these files again, and make the edits for their current content.",
                data={"files": files},
            )


def _present(path: WorkspacePath, state: FileState | None) -> FileState:
    if state is None:
        raise FileMissing(
            f"There is no file {path}.",
            hint=Advice("Check the path; ", operation_term("write"), " makes a file."),
            data={"path": path.text},
        )
    return state


def version_at(state: FileState | None) -> Version | None:
    """Return the version of `state`, None for a missing file."""
    return None if state is None else state.version
