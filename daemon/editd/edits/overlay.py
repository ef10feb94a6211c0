"""The overlay: a snapshot with what the edits so far have made of it on top.

Symbolic links that the edits themselves made or removed are followed as they are now; until there
are any, the snapshot's own word on links is taken.
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
    """What each path holds: the snapshot's state, or the one that was put there since."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._before: dict[WorkspacePath, FileState | None] = {}
        self._after: dict[WorkspacePath, FileState | None] = {}
        self._thinned: set[WorkspacePath] = set()  # folders that something is removed from
        self._given_way: set[WorkspacePath] = set()  # those of them that may become something else
        self._has_own_links = False

    def __iter__(self) -> Iterator[WorkspacePath]:
        """The paths that something was put to, in that order."""
        return iter(self._after)

    def before(self, path: WorkspacePath) -> FileState | None:
        """What `path` holds in the snapshot; None for no file there."""
        if path not in self._before:
            self._before[path] = None if self._is_below_put(path) else self._look(path)
        return self._before[path]

    def _look(self, path: WorkspacePath) -> FileState | None:
        try:
            return self._snapshot.at(path)
        except NotAFile:
            # A folder whose files go may give way to a file; whether all of them go shows on the disk.
            if path in self._thinned:
                self._given_way.add(path)
                return None
            raise

    def at(self, path: WorkspacePath) -> FileState | None:
        """What `path` holds by now; None for no file there."""
        return self._after[path] if path in self._after else self.before(path)

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        """The names in a folder of the snapshot, folders with a final `/`; None where it is no folder."""
        return self._snapshot.names(folder)

    def put(self, path: WorkspacePath, state: FileState | None) -> None:
        """Let `path` hold `state` from now on."""
        links = [held for held in (self.before(path), state) if held is not None and held.is_symlink]
        self._has_own_links |= bool(links)
        if state is None:
            self.expect_removal(path)
        self._after[path] = state

    def expect_removal(self, path: WorkspacePath) -> None:
        """Let something else be put to the folders of `path`, since that is going to be removed."""
        self._thinned.update(folders_of(path))

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with every symlink followed; PathOutside where that leads out, or in a circle."""
        return (
            self._walk(path, is_final_followed=True) if self._has_own_links else self._snapshot.resolve(path)
        )

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with the symlinks among its folders followed, the final name kept."""
        if self._has_own_links:
            return self._walk(path, is_final_followed=False)
        return self._snapshot.resolve_folder(path)

    def _walk(self, path: WorkspacePath, *, is_final_followed: bool) -> WorkspacePath:
        """Name by name, each seen in the overlay first: what the kernel does, on what is to be."""
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
            here = WorkspacePath.parse("/".join([*done, name]))
            target = self._target(here) if left or is_final_followed else None
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
        """Where `link` leads, relative to its folder; None where it is no link."""
        if link in self._after:
            state = self._after[link]
            return os.fsdecode(state.content) if state is not None and state.is_symlink else None
        if self._is_below_put(link):
            return None
        return self._snapshot.link(link)

    def _is_below_put(self, path: WorkspacePath) -> bool:
        """True where something that is no folder in the snapshot stands on the way: nothing lies below."""
        if len(self._after) > path.text.count("/"):
            above = [folder for folder in folders_of(path) if folder in self._after]
        else:  # a deep path, and few that something was put to
            above = [put for put in self._after if path.text.startswith(put.text + "/")]
        return any(folder not in self._given_way for folder in above)


def _outside(path: WorkspacePath) -> PathOutside:
    return PathOutside(
        f"{path} leads out of the workspace, or in a circle, by a symbolic link.",
        hint="Name the file itself.",
        data={"path": path.text},
    )
