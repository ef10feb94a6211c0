"""The fit of a proposal: its hunks on the present files, and the token of this view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.edits.pending_changes import Owner, PendingChanges
from editd.edits.rebase import FittedFile, Present, land, rebase, view_token
from editd.errors import ViewChanged
from editd.store.path_history import HistoryWalker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.proposal import HunkId, Proposal, ProposalNumber, ProposedFile, ProposedHunk
    from editd.values.transaction import Seq

    Current = Callable[[WorkspacePath], FileState | None]


class FittedProposal(Struct, frozen=True):
    """A proposal on the present files, and the token of this view."""

    proposal: Proposal
    files: tuple[FittedFile, ...]
    token: str
    head: Seq  # the newest transaction that it is shown on

    @property
    def undecided(self) -> dict[HunkId, ProposedHunk]:
        """The hunks that wait for a decision, by their ids."""
        return {hunk.id: hunk for fitted in self.files for hunk in fitted.file.undecided_hunks}

    def pending(self, owner: Owner) -> PendingChanges:
        """Return the changes that all hunks which fit would make."""
        changes = [change for fitted in self.files for change in land(fitted, fitted.fitting)]
        left_out = [
            fitted.file.path for fitted in self.files if any(one.state == "conflict" for one in fitted.hunks)
        ]
        return PendingChanges(owner, tuple(changes), tuple(left_out))

    @property
    def is_moot(self) -> bool:
        """Whether others have made all that is undecided."""
        undecided = self.undecided
        states = {one.state for fitted in self.files for one in fitted.hunks if one.hunk.id in undecided}
        return states == {"there"}


def fit_proposal(
    proposal: Proposal, files: Iterable[ProposedFile], current: Current, history: History
) -> FittedProposal:
    """Return a proposal on the present files. `current` returns the state of a path.

    A file that others have moved since has its new path.
    """
    walker = HistoryWalker(history)
    fitted = tuple(_fitted(file, int(proposal.at), current, walker) for file in files)
    return FittedProposal(proposal, fitted, view_token(fitted), history.head)


def check_view(view: FittedProposal, token: str) -> None:
    """Raise ViewChanged if the view is not the one with this token, but for hunks that only moved."""
    if token.partition("-")[0] != view.token.partition("-")[0]:
        raise view_changed(view.proposal.number, view.token, ())


def view_changed(number: ProposalNumber, token: str | None, changed: Collection[HunkId]) -> ViewChanged:
    """Return the refusal of a decision about something else than what is there now."""
    return ViewChanged(
        f"Proposal {number} has changed since it was shown.",
        hint="Show it again, and decide on what it is now.",
        data={"proposal": number, "view": token, "changed": sorted(changed)},
    )


def _fitted(file: ProposedFile, at: int, current: Current, walker: HistoryWalker) -> FittedFile:
    state = current(file.path)
    if file.source is not None:
        return rebase(file, Present(state, current(file.source)))
    if file.base is None:
        return rebase(file, Present(state))
    path = walker.follow_path(file.path, at).path
    if path == file.path:
        return rebase(file, Present(state))
    return replace(rebase(file, Present(current(path))), path=path)
