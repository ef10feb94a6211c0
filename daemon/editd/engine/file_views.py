"""The files of a reader, other than the present ones: with pending changes, or after a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.edits.comparison import charge_bytes
from editd.errors import FileMissing
from editd.store.recorded_state import recorded_state

if TYPE_CHECKING:
    from editd.edits.pending_changes import PendingChanges
    from editd.engine.recorder import Recorder
    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Seq


class PendingView(Struct, frozen=True):
    """The present files with pending changes on top."""

    pending: PendingChanges
    recorder: Recorder

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return the path with every symlink on disk followed, unless the changes have a file there."""
        has_file = self.pending.states.get(path) is not None
        return path if has_file else self.recorder.tree.resolve(path)

    def at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of a resolved path. Content of another program is recorded first."""
        states = self.pending.states
        return states[path] if path in states else self.recorder.look(path)

    def missing(self, path: WorkspacePath) -> FileMissing:
        return FileMissing(f"{path} does not exist in {self.pending.owner.work}.", data={"path": path.text})

    @property
    def is_own(self) -> bool:
        """Whether the reader works on these files. Then a read counts, as that of a present file does."""
        return self.pending.owner.kind == "session"

    def is_present(self, path: WorkspacePath) -> bool:
        """Return whether a reader that works on these files works on the present file here."""
        return self.is_own and path not in self.pending.states


class PastView(Struct, frozen=True):
    """The recorded files right after a transaction."""

    history: History
    seq: Seq
    is_own = False

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        return path

    def is_present(self, _path: WorkspacePath) -> bool:
        return False

    def at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of a path. Raises NeedsThread for a large file, and HistoryDamaged."""
        entry = self.history.entry_at(path, self.seq)
        if entry is not None:
            charge_bytes(self.history.size_of(entry.version))
        return recorded_state(entry, self.history)

    def missing(self, path: WorkspacePath) -> FileMissing:
        return FileMissing(f"{path} was not there after transaction {self.seq}.", data={"path": path.text})


FilesView = PendingView | PastView
