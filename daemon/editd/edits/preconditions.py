"""Preconditions: the base version of each path's edits, and the refusal or merge of a stale base.

A path's base is checked once, against the snapshot, when an edit first names the path. Earlier edits of
the same changeset never make a base stale, and later edits may name the same base. With `merge`, the
edits of a stale path are applied to their own base, and the result is merged with the current file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from editd.advice import Advice, operation_term
from editd.edits.merge import merge, merge_lines, merge_states
from editd.errors import LISTED_MAX, Conflict, FileMissing, NotAFile, PathOutside, Stale
from editd.values.content import SYMLINK, FileState
from editd.values.name_key import key_of
from editd.values.path import WorkspacePath, folders_of
from editd.values.transaction import Base, ReadMark

if TYPE_CHECKING:
    from editd.errors import Refused
    from editd.values.content import Version
    from editd.wire.messages import OnStale


class Snapshot(Protocol):
    """The file states of paths at one moment."""

    def at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of the path itself, a symlink not followed; NotAFile for a folder."""
        ...

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return the path with every symlink followed, the final one too; PathOutside if one leads out."""
        ...

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        """Return the path with the symlinks among its folders followed."""
        ...

    def link(self, path: WorkspacePath) -> str | None:
        """Return the target of the symlink at `path`, relative to its folder; None for anything else."""
        ...

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        """Return a folder's names (None: the root's), sorted, folders with a final `/`; None if no folder."""
        ...


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


# The overlay: a snapshot with the results of the edits so far on top.
#
# Paths are resolved through the symbolic links that the edits made or removed. Without such links, the
# snapshot resolves them.

_LINKS_MAX = 40  # the kernel's own limit (path_resolution(7))


class Overlay:
    """The state of each path: the snapshot's, or the state that an edit put there."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._before: dict[WorkspacePath, FileState | None] = {}
        self.after: dict[WorkspacePath, FileState | None] = {}  # put by edits, in that order
        self._thinned: set[WorkspacePath] = set()  # folders that lose files
        self._given_way: set[WorkspacePath] = set()  # the thinned folders that a file may replace
        self._has_own_links = False

    def before(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path` in the snapshot; None if there is no file."""
        if path not in self._before:
            is_below_put = bool(self.after) and self._is_below_put(path)
            self._before[path] = None if is_below_put else self._look(path)
        return self._before[path]

    def _look(self, path: WorkspacePath) -> FileState | None:
        try:
            return self._snapshot.at(path)
        except NotAFile:
            # A folder that loses files may be replaced by a file; the commit finds out if files remain.
            if path in self._thinned:
                self._given_way.add(path)
                return None
            raise

    def at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path` after the edits so far; None if there is no file."""
        if path in self.after:
            return self.after[path]
        return self._before[path] if path in self._before else self.before(path)

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        """Return the names in a folder of the snapshot, folders with a final `/`; None if it is no folder."""
        return self._snapshot.names(folder)

    def put(self, path: WorkspacePath, state: FileState | None) -> None:
        """Set the state of `path`."""
        before = self._before[path] if path in self._before else self.before(path)
        if SYMLINK in (before and before.mode, state and state.mode):
            self._has_own_links = True
        if state is None:
            self.expect_removal(path)
        self.after[path] = state

    def expect_removal(self, path: WorkspacePath) -> None:
        """Allow files at the folders of `path`, because a later edit removes `path`."""
        self._thinned.update(folders_of(path))

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with every symlink followed; PathOutside if one leaves the workspace or loops."""
        if self._has_own_links:
            return self._walk(path, is_final_followed=True)
        if self.after.get(path) is not None:
            return path
        resolved = self._snapshot.resolve(path)
        return path if resolved == path else self._spelled_anew(path, resolved)

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with the symlinks among its folders followed, the final name kept."""
        if self._has_own_links:
            return self._walk(path, is_final_followed=False)
        if self.after.get(path) is not None:
            return path
        resolved = self._snapshot.resolve_folder(path)
        return path if resolved == path else self._spelled_anew(path, resolved)

    def _spelled_anew(self, path: WorkspacePath, resolved: WorkspacePath) -> WorkspacePath:
        """Return the resolved path, with the given spelling of its name if an edit removes the disk's."""
        is_removed = self.after.get(resolved, resolved) is None
        if not is_removed or key_of(path.name) != key_of(resolved.name):
            return resolved
        return resolved.sibling(path.name)

    def _walk(self, path: WorkspacePath, *, is_final_followed: bool) -> WorkspacePath:
        """Resolve `path` name by name, as the kernel would after the edits."""
        done: list[str] = []
        left = path.text.split("/")[::-1]
        links = 0
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if not done:
                    raise _outside(path)
                done.pop()
                continue
            prefix = WorkspacePath.parse("/".join([*done, name]))
            target = self._target(prefix) if left or is_final_followed else None
            if target is None:
                done.append(name)
                continue
            links += 1
            if links > _LINKS_MAX or target.startswith("/"):
                raise _outside(path)
            left += target.split("/")[::-1]
        if not done:
            raise _outside(path)
        return WorkspacePath.parse("/".join(done))

    def _target(self, link: WorkspacePath) -> str | None:
        """Return the target of `link`, relative to its folder; None if it is no link."""
        if link in self.after:
            state = self.after[link]
            return os.fsdecode(state.content) if state is not None and state.is_symlink else None
        if self._is_below_put(link):
            return None
        return self._snapshot.link(link)

    def _is_below_put(self, path: WorkspacePath) -> bool:
        """Return whether an edit put a state above `path`: the snapshot then has no file below it."""
        if len(self.after) > path.text.count("/"):
            above = [folder for folder in folders_of(path) if folder in self.after]
        else:  # a deep path, and few edited paths
            above = [put for put in self.after if path.text.startswith(put.text + "/")]
        return any(folder not in self._given_way for folder in above)


def _outside(path: WorkspacePath) -> PathOutside:
    return PathOutside(
        f"{path} leads out of the workspace, or in a circle, by a symbolic link.",
        hint="Name the file itself.",
        data={"path": path.text},
    )
