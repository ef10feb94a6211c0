"""The overlay: a snapshot with the results of the edits so far on top.

Paths are resolved through the symbolic links that the edits made or removed. Without such links, the
snapshot resolves them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from editd.errors import NotAFile, PathOutside
from editd.values.path import WorkspacePath, folders_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.edits.plan import Snapshot
    from editd.values.content import FileState

_LINKS_MAX = 40  # the kernel's own limit (path_resolution(7))


class Overlay:
    """The state of each path: the snapshot's, or the one that an edit put there."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._before: dict[WorkspacePath, FileState | None] = {}
        self._after: dict[WorkspacePath, FileState | None] = {}
        self._thinned: set[WorkspacePath] = set()  # folders that lose files
        self._given_way: set[WorkspacePath] = set()  # those of them that a file may replace
        self._has_own_links = False

    def __iter__(self) -> Iterator[WorkspacePath]:
        """Iterate over the paths that edits put states to, in that order."""
        return iter(self._after)

    def before(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path` in the snapshot; None if there is no file."""
        if path not in self._before:
            self._before[path] = None if self._is_below_put(path) else self._look(path)
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
        return self._after[path] if path in self._after else self.before(path)

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        """Return the names in a folder of the snapshot, folders with a final `/`; None if it is no folder."""
        return self._snapshot.names(folder)

    def put(self, path: WorkspacePath, state: FileState | None) -> None:
        """Set the state of `path`."""
        links = [held for held in (self.before(path), state) if held is not None and held.is_symlink]
        self._has_own_links |= bool(links)
        if state is None:
            self.expect_removal(path)
        self._after[path] = state

    def expect_removal(self, path: WorkspacePath) -> None:
        """Allow files at the folders of `path`, because a later edit removes `path`."""
        self._thinned.update(folders_of(path))

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with every symlink followed; PathOutside if one leaves the workspace or loops."""
        return (
            self._walk(path, is_final_followed=True) if self._has_own_links else self._snapshot.resolve(path)
        )

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with the symlinks among its folders followed, the final name kept."""
        if self._has_own_links:
            return self._walk(path, is_final_followed=False)
        return self._snapshot.resolve_folder(path)

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
        if link in self._after:
            state = self._after[link]
            return os.fsdecode(state.content) if state is not None and state.is_symlink else None
        if self._is_below_put(link):
            return None
        return self._snapshot.link(link)

    def _is_below_put(self, path: WorkspacePath) -> bool:
        """Return whether an edit put a state above `path`: the snapshot then has no file below it."""
        if len(self._after) > path.text.count("/"):
            above = [folder for folder in folders_of(path) if folder in self._after]
        else:  # a deep path, and few edited paths
            above = [put for put in self._after if path.text.startswith(put.text + "/")]
        return any(folder not in self._given_way for folder in above)


def _outside(path: WorkspacePath) -> PathOutside:
    return PathOutside(
        f"{path} leads out of the workspace, or in a circle, by a symbolic link.",
        hint="Name the file itself.",
        data={"path": path.text},
    )
