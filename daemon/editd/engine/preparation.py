"""A large request, planned and staged in slices while others use the engine.

Nothing of it is visible, and it has no number yet. Then the engine carries it out in one go, like any other
request, if no transaction made meanwhile has changed anything that the plan is built on. Otherwise the
preparation is dropped, and the engine plans the request again, without slices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.engine.commands import Undo
from editd.engine.undo_selection import BySession, ByTransaction, Latest, is_glob
from editd.errors import NothingToUndo
from editd.values.content import SYMLINK
from editd.values.path import folders_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from editd.engine.commands import Write
    from editd.engine.undo import UndoPlan
    from editd.engine.undo_selection import Scope, UndoTarget
    from editd.values.content import Change, Entry, FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Outcome, Transaction
    from editd.workspace.staged_change import StagedFiles

    PlannedUndo = tuple[list[UndoTarget], UndoPlan, tuple[str, ...]]
    """The targets of an undo, its plan, and warnings."""


def files_of(planned: PlannedUndo | NothingToUndo) -> tuple[Change[FileState], ...]:
    """Return the changes of a planned undo: none if nothing can be undone."""
    return () if isinstance(planned, NothingToUndo) else planned[1].changes


class Preparation(Struct):
    request: Write
    looked_at: set[WorkspacePath]  # every path that the plan has read
    meanwhile: Sequence[Transaction]  # all that were made since the start
    outcome: Outcome | None = None  # of an `Apply`
    undo: PlannedUndo | NothingToUndo | None = None
    staging: StagedFiles | None = None

    def take_staging(self) -> StagedFiles | None:
        """Return the staged files for the commit, which owns them from now on."""
        staging, self.staging = self.staging, None
        return staging

    def is_valid(self) -> bool:
        """Return whether the engine would still make the same plan."""
        if not self.meanwhile:
            return True
        if isinstance(self.request, Undo) and not is_selection_same(self.request.scope, self.meanwhile):
            return False
        above = folders_above(self.looked_at)
        return not any(
            self._is_affected(touch, above) for transaction in self.meanwhile for touch in transaction.touches
        )

    def _is_affected(self, touch: Change[Entry], above: set[str]) -> bool:
        if any(entry is not None and entry.mode == SYMLINK for entry in (touch.before, touch.after)):
            return True  # a path of the plan may lead through it
        for path in (touch.path, touch.source):
            if path is None:
                continue
            if path in self.looked_at or path.text in above:
                return True
            if any(folder in self.looked_at for folder in folders_of(path)):
                return True
        return False


def folders_above(paths: Iterable[WorkspacePath]) -> set[str]:
    """Return the folders on all these paths."""
    above: set[str] = set()
    for path in paths:
        folder = path.folder
        while folder and folder not in above:
            above.add(folder)
            folder = folder.rpartition("/")[0]
    return above


def is_selection_same(scope: Scope, meanwhile: Sequence[Transaction]) -> bool:
    """Return whether an undo selects the same transactions as before these were made."""
    if any(transaction.undoes for transaction in meanwhile):
        return False
    if isinstance(scope, ByTransaction):
        return True
    if isinstance(scope, BySession | Latest) and scope.session is not None and not is_glob(scope):
        return all(transaction.authorship.session != scope.session for transaction in meanwhile)
    return not meanwhile
