"""The views of proposals that lists show, kept until a proposal or one of its files changes.

Of settled proposals only the last ones that were listed are kept: nothing else would ever remove them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.server.convert_proposals import ProposalSummary
    from editd.values.path import WorkspacePath
    from editd.values.proposal import Proposal

SETTLED_MAX = 1_000  # as many as one answer lists


class ProposalSummaries:
    """The kept summaries. `by_path` has the proposals whose summary depends on a path."""

    def __init__(self, compute: Callable[[Proposal], ProposalSummary]) -> None:
        self._compute = compute
        self._kept: dict[int, tuple[int, ProposalSummary]] = {}  # by number, with the time of the change
        self._settled: deque[int] = deque()  # the settled ones among them, the oldest first
        self.by_path: dict[WorkspacePath, set[int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, proposal: Proposal) -> ProposalSummary:
        """Return the summary of a proposal. Raises what the computation raises."""
        number = int(proposal.number)
        known = self._kept.get(number)
        if known is not None and known[0] == proposal.changed_us:
            return known[1]
        self.forget(number)
        shown = self._compute(proposal)
        self._kept[number] = proposal.changed_us, shown
        for path in shown.paths:
            self.by_path.setdefault(path, set()).add(number)
        if proposal.is_settled:
            self._settled.append(number)
            if len(self._settled) > SETTLED_MAX:
                self.forget(self._settled.popleft())
        return shown

    def forget_path(self, path: WorkspacePath) -> tuple[int, ...]:
        """Forget the summaries that depend on a path. Return their proposals. From any thread."""
        numbers = tuple(self.by_path.get(path, ()))
        for number in numbers:
            self.forget(number)
        return numbers

    def forget(self, number: int) -> None:
        known = self._kept.pop(number, None)
        for path in () if known is None else known[1].paths:
            numbers = self.by_path.get(path)
            if numbers is not None:
                numbers.discard(number)
                if not numbers:
                    self.by_path.pop(path, None)
