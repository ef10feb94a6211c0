"""The overlay: a snapshot of the files with changes on top.

A plan puts the results of its edits on an overlay, one after the other. Paths are resolved through the
symbolic links that the edits made or removed. Without such links, the snapshot resolves them.

An overlay is a snapshot itself: an edit on top of changes that have not landed is planned on their overlay
(`pending_changes`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from editd.errors import NotAFile, PathOutside
from editd.values.content import SYMLINK
from editd.values.name_key import key_of
from editd.values.path import WorkspacePath, folders_of

if TYPE_CHECKING:
    from editd.values.content import FileState


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

    def file_at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path`, or None for a folder or a path below a symlink."""
        try:
            return self.at(path)
        except (NotAFile, PathOutside):
            return None

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
            target = self.link(prefix) if left or is_final_followed else None
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

    def link(self, path: WorkspacePath) -> str | None:
        """Return the target of the symlink at `path`, relative to its folder; None if it is none."""
        if path in self.after:
            state = self.after[path]
            return os.fsdecode(state.content) if state is not None and state.is_symlink else None
        if self._is_below_put(path):
            return None
        return self._snapshot.link(path)

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
