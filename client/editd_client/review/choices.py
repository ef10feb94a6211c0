"""The choices of a reviewer, hunk by hunk, before anything is sent.

A choice belongs to a hunk's id, so it stays while the lines move. A hunk with another id is another hunk:
it loses the choice, and the reviewer has to look again. A hunk in conflict cannot be approved, only rejected
or left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.wire.messages import ProposalGetResult, ProposalHunk

Choice = Literal["approve", "reject", "open"]
ORDER: tuple[Choice, ...] = ("approve", "reject", "open")  # as the space bar turns them
SIGNS: dict[Choice, str] = {"approve": "x", "reject": "-", "open": " "}
DECIDABLE = ("fits", "conflict")


class HunkChoices:
    """What becomes of each hunk of a shown proposal. At first, all that fit are to land."""

    def __init__(self, shown: ProposalGetResult) -> None:
        self.shown = shown
        self._hunks = _decidable(shown)
        is_whole = shown.kind != "edit"
        may_land = not is_whole or all(one.state == "fits" for one in self._hunks.values())
        self._chosen: dict[str, Choice] = {
            one.hunk: "approve" if may_land and one.state == "fits" else "open"
            for one in self._hunks.values()
        }

    def of(self, hunk: str) -> Choice | None:
        """Return the choice about a hunk; None if nothing is left to decide about it."""
        return self._chosen.get(hunk)

    def set(self, hunk: str, choice: Choice) -> bool:
        """Choose about a hunk, and about the move that it needs. Return whether that is possible."""
        one = self._hunks.get(hunk)
        if one is None or (choice == "approve" and one.state != "fits"):
            return False
        if self.shown.kind != "edit":
            return self._set_whole(choice)
        self._chosen[hunk] = choice
        if choice == "approve":
            for needed in one.needs:
                self.set(needed, "approve")
        else:
            for other in self._hunks.values():
                if hunk in other.needs and self._chosen[other.hunk] == "approve":
                    self.set(other.hunk, choice)
        return True

    def _set_whole(self, choice: Choice) -> bool:
        """Choose about an undo or the like, which lands as a whole or not at all."""
        if choice == "approve" and any(one.state != "fits" for one in self._hunks.values()):
            return False
        self._chosen = dict.fromkeys(self._hunks, choice)
        return True

    def turn(self, hunk: str) -> Choice | None:
        """Choose the next of approve, reject and leave open."""
        now = self._chosen.get(hunk)
        if now is None:
            return None
        after = ORDER.index(now) + 1
        return next(one for one in (ORDER * 2)[after:] if self.set(hunk, one))

    def set_all(self, choice: Choice, path: str | None = None) -> None:
        """Choose about all hunks, or all of a file, as far as that is possible."""
        for file in self.shown.files:
            if path in (None, file.path):
                for hunk in file.hunks:
                    self.set(hunk.hunk, choice)

    def replace(self, shown: ProposalGetResult) -> list[str]:
        """Take a newer view. Return the hunks that are new or fit no more: nothing is chosen for them."""
        before, self.shown, self._hunks = self._chosen, shown, _decidable(shown)
        altered = [
            hunk
            for hunk, one in self._hunks.items()
            if hunk not in before or (before[hunk] == "approve" and one.state != "fits")
        ]
        self._chosen = {hunk: "open" if hunk in altered else before[hunk] for hunk in self._hunks}
        return altered

    def hunks_with(self, choice: Choice) -> list[str]:
        """Return the hunks with this choice, in the order of the proposal."""
        return [hunk for hunk in self._hunks if self._chosen[hunk] == choice]

    def count(self, path: str | None = None) -> tuple[int, int]:
        """Return the numbers of hunks to land and of all decidable hunks; of one file or of all."""
        hunks = [
            hunk.hunk
            for file in self.shown.files
            if path in (None, file.path)
            for hunk in file.hunks
            if hunk.hunk in self._hunks
        ]
        return sum(self._chosen[one] == "approve" for one in hunks), len(hunks)


def _decidable(shown: ProposalGetResult) -> dict[str, ProposalHunk]:
    hunks: Iterable[ProposalHunk] = (hunk for file in shown.files for hunk in file.hunks)
    return {one.hunk: one for one in hunks if one.state in DECIDABLE} if shown.state == "open" else {}
