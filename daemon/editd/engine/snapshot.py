"""The view of the files during one turn of the engine: the disk, overlaid with the drafted changes.

The view compares each file with the history, by hash. It puts a file that differs into `strangers`: another
program wrote it, and its content is recorded before editd changes the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.errors import InUse, NotAFile, PathOutside, TooLarge
from editd.values.content import SYMLINK, FileState

if TYPE_CHECKING:
    from editd.store.history import History
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry
    from editd.workspace.reader import OpenFiles, WorkspaceReader


def is_same(entry: Entry | None, state: FileState | None) -> bool:
    """Return whether a file has its recorded content and git mode, or is absent in both."""
    if entry is None or state is None:
        return entry is None and state is None
    return entry.version == state.version and entry.mode == state.mode


class DiskSnapshot(Struct):
    """A snapshot that reads each path once, at its first use."""

    tree: WorkspaceReader
    history: History
    quiet: bool = True  # do not read a file that is open for writing
    patient: bool = True  # raise InUse for such a file; otherwise read it anyway
    kept: OpenFiles | None = None  # gets the files that were read, still open
    drafted: dict[WorkspacePath, FileState | None] = field(default_factory=dict)
    strangers: dict[WorkspacePath, FileState | None] = field(default_factory=dict)

    def at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path`, links not followed. Raises NotAFile, InUse, PathOutside or TooLarge."""
        if path in self.drafted:
            return self.drafted[path]
        known = self.history.entry(path)
        try:
            state = self._read(path, known)
        except (NotAFile, PathOutside):
            if known is not None:  # the recorded file was replaced by a folder or by a symlink above it
                self.strangers[path] = None
            raise
        self.drafted[path] = state
        if is_same(known, state):
            self.strangers.pop(path, None)  # an earlier call may have found a folder there
        else:
            self.strangers[path] = state
        return state

    def file_at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path`, or None for a folder or a path below a symlink.

        `WorkspaceWriter.check` verifies whether a file can take that path.
        """
        try:
            return self.at(path)
        except (NotAFile, PathOutside):
            return None

    def _read(self, path: WorkspacePath, known: Entry | None) -> FileState | None:
        """Read the file. Comparing it with content in memory is cheaper than hashing it."""
        guess = None if known is None else self.history.pending_content(known.version)
        try:
            file = self.tree.find(path, quiet=self.quiet, kept=self.kept)
        except InUse:
            if self.patient:
                raise
            file = self.tree.find(path)
        if file is not None and known is not None and file.content == guess:
            return FileState(file.content, file.mode, file.permissions, known.version)
        return None if file is None else file.state()

    def forget_strangers(self) -> None:
        """Forget the files that differ from the history. Their next use reads them again."""
        for path in self.strangers:
            self.drafted.pop(path, None)
        self.strangers.clear()

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        return self.tree.names(folder)

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return the path with every symlink followed. A regular file needs no resolving."""
        try:
            state = self.at(path)
        except (NotAFile, PathOutside, TooLarge):
            state = None
        return path if state is not None and state.mode != SYMLINK else self.tree.resolve(path)

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        return self.tree.resolve_folder(path)

    def link(self, path: WorkspacePath) -> str | None:
        """Return the target of the symlink at `path`, relative to its folder; None for anything else."""
        try:
            state = self.at(path)
        except (NotAFile, PathOutside, TooLarge):
            state = None
        if state is None or state.mode != SYMLINK:
            return None
        if not state.content.startswith(b"/"):
            return os.fsdecode(state.content)
        return "../" * path.text.count("/") + os.fsdecode(self.tree.inside(state.content, path))
