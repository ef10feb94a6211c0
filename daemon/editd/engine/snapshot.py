"""What the files hold, as one turn of the engine sees them: the disk, and over it what is drafted.

The hash decides what is somebody else's: where the disk does not hold what the history says, the view
notes a stranger, which is adopted into the history before anything is done to that file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.errors import InUse, NotAFile, PathOutside, TooLarge
from editd.values.content import FileState

if TYPE_CHECKING:
    from editd.store.history import History
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry
    from editd.workspace.reader import WorkspaceReader


def is_same(entry: Entry | None, state: FileState | None) -> bool:
    """Does the file hold what the history says: the same bytes and git mode, or neither?"""
    if entry is None or state is None:
        return entry is None and state is None
    return entry.version == state.version and entry.mode == state.mode


class DiskSnapshot(Struct):
    """A snapshot of the paths that are asked for, read once each."""

    tree: WorkspaceReader
    history: History
    quiet: bool = True  # read a file only while nobody has it open for writing
    patient: bool = True  # else a file that is being written is read as it is
    drafted: dict[WorkspacePath, FileState | None] = field(default_factory=dict)
    strangers: dict[WorkspacePath, FileState | None] = field(default_factory=dict)

    def at(self, path: WorkspacePath) -> FileState | None:
        """What `path` itself holds, links not followed. Raises NotAFile, InUse, PathOutside, TooLarge."""
        if path in self.drafted:
            return self.drafted[path]
        known = self.history.entry(path)
        try:
            state = self._read(path, known)
        except (NotAFile, PathOutside):
            if known is not None:  # a folder stands where the history has a file, or a symlink above it
                self.strangers[path] = None
            raise
        self.drafted[path] = state
        if is_same(known, state):
            self.strangers.pop(path, None)  # A moment ago it was another's: a folder, or beyond a symlink.
        else:
            self.strangers[path] = state
        return state

    def file_at(self, path: WorkspacePath) -> FileState | None:
        """The same, with None where a folder stands, or a symlink above, which may have to go.

        `Files.check` says if it can.
        """
        try:
            return self.at(path)
        except (NotAFile, PathOutside):
            return None

    def _read(self, path: WorkspacePath, known: Entry | None) -> FileState | None:
        """Read the file. What the history has in memory is compared, which is cheaper than hashing."""
        guess = None if known is None else self.history.pending_content(known.version)
        try:
            found = self.tree.find(path, quiet=self.quiet)
        except InUse:
            if self.patient:
                raise
            found = self.tree.find(path)
        if found is not None and known is not None and found.content == guess:
            return FileState(found.content, found.mode, found.permissions, known.version)
        return None if found is None else found.state()

    def forget_strangers(self) -> None:
        """Look again at what was somebody else's when it is next asked for."""
        for path in self.strangers:
            self.drafted.pop(path, None)
        self.strangers.clear()

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        return self.tree.names(folder)

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """The path with every symlink followed: itself, where a file is found there at the first look."""
        state = self._look(path)
        return path if state is not None and not state.is_symlink else self.tree.resolve(path)

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        return self.tree.resolve_folder(path)

    def link(self, path: WorkspacePath) -> str | None:
        """Return the target of the symlink at `path`, relative to its folder; None for anything else."""
        state = self._look(path)
        if state is None or not state.is_symlink:
            return None
        if not state.content.startswith(b"/"):
            return os.fsdecode(state.content)
        return "../" * path.text.count("/") + os.fsdecode(self.tree.inside(state.content, path))

    def _look(self, path: WorkspacePath) -> FileState | None:
        try:
            return self.at(path)
        except (NotAFile, PathOutside, TooLarge):
            return None
