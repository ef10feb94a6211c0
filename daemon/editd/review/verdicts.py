"""The verdicts of decisions on the hunks of a proposal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.edits.proposed_hunks import landed_base
from editd.values.content import Change
from editd.values.proposal import Decision, Reviewer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from editd.values.content import FileState
    from editd.values.proposal import (
        DecisionKind,
        HunkId,
        ProposalState,
        ProposedFile,
        ProposedHunk,
        Verdict,
    )
    from editd.values.transaction import Approval, Transaction

ELSEWHERE: Mapping[str, tuple[ProposalState, DecisionKind]] = {
    "landed": ("landed", "approve"),
    "partly": ("partly", "approve"),
    "rejected": ("rejected", "reject"),
    "withdrawn": ("withdrawn", "withdraw"),
    "expired": ("expired", "expire"),
    "moot": ("moot", "moot"),
}


def settled_elsewhere(
    state: str, files: Callable[[], Iterable[ProposedFile]]
) -> tuple[ProposalState, DecisionKind, dict[HunkId, Verdict]]:
    """Return how a proposal is settled as another host has settled its own of the same transaction.

    An unknown `state`, from a newer editd, counts as `moot`.
    """
    settled, what = ELSEWHERE.get(state, ELSEWHERE["moot"])
    if settled not in ("landed", "rejected"):
        return settled, what, {}
    verdict: Verdict = "landed" if settled == "landed" else "rejected"
    return settled, what, {hunk.id: verdict for file in files() for hunk in file.undecided_hunks}


def with_verdicts(
    files: Iterable[ProposedFile], verdicts: Mapping[HunkId, Verdict]
) -> Iterator[ProposedHunk]:
    """Yield the hunks of files with these verdicts."""
    for file in files:
        for hunk in file.hunks:
            yield replace(hunk, verdict=verdicts.get(hunk.id, hunk.verdict))


def decision_of(
    transaction: Transaction, approval: Approval, files: Iterable[ProposedFile]
) -> tuple[Decision, dict[HunkId, Verdict]]:
    """Return the decision that landed hunks of these files, by what the transaction has of it."""
    verdicts: dict[HunkId, Verdict] = {
        hunk.id: "landed" for file in files for hunk in file.hunks if hunk.number in approval.hunks
    }
    by = Reviewer(approval.actor or "", approval.session)
    if approval.rule is not None:
        by = Reviewer(approval.rule, via="rule")
    decision = Decision(
        transaction.time_us, by, "approve", tuple(sorted(verdicts)), seq=transaction.seq,
        is_modified=approval.is_modified,
    )  # fmt: skip
    return decision, verdicts


def left_changes(file: ProposedFile) -> list[Change[FileState]]:
    """Return the hunks of a file that have not landed, as changes of the landed ones; none if all have."""
    if all(hunk.verdict == "landed" for hunk in file.hunks):
        return []
    base = landed_base(file)
    move = file.move
    if file.source is None or move is None or move.verdict == "landed":
        return [Change(file.path, base, file.proposed)]
    return [Change(file.source, base, None), Change(file.path, None, file.proposed, file.source)]
