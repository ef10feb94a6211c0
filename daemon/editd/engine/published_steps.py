"""The steps of a run that a branch has already, by its commits.

A step is published if the trailers of a commit name it, and the commit's content agrees. Without trailers,
as after a squash, a content publishes the steps until then: the history has recorded it after them, and the
file did not have it before them. A later commit may have changed the same lines.

A revert takes back the steps that the reverted commit made, and the steps after them. From there on, a step
is published only if a commit's content includes it: contents of the history were recorded after the step and
lack it.

A step that a later transaction took out of the file is not published (`PresentFile`), because the commit
would put text back that the file lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd.edits.merge import merge_states
from editd.errors import Conflict
from editd.values.content import FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

State = FileState | None


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A run's file in a commit and in the commit's first parent."""

    before: State
    after: State
    is_moved: bool  # the commit does not have the file at the run's source
    makes_move: bool  # the commit moves the file from the run's source
    named: frozenset[int] = frozenset()  # the transactions in the commit's trailers
    reverted: tuple[CommittedFile, ...] = ()  # the commits that this one reverts


@dataclass(frozen=True, slots=True)
class RunSteps:
    """A run, with the states of its file before the run and from the run on, by all authors."""

    seqs: Sequence[int]
    states: Sequence[State]  # one more than `seqs`
    earlier: Sequence[State]
    later: Sequence[tuple[int, State]]

    def count_steps(self, commits: Iterable[CommittedFile]) -> int:
        """Return how many steps the commits have. Parents come first."""
        count, is_reverted = 0, False
        for commit in commits:
            taken = [step for one in commit.reverted if (step := self._first_made_by(one)) is not None]
            if taken:
                count, is_reverted = min(count, *taken), True
            else:
                count = max(
                    self._count_named(commit, count),
                    self._count_included(commit, count) if is_reverted else self._count_held(commit),
                )
        return count

    def _count_named(self, commit: CommittedFile, count: int) -> int:
        """Return how many steps are published with a commit whose trailers name the next ones."""
        until = count
        while until < len(self.seqs) and self.seqs[until] in commit.named:
            until += 1
        if until == count or not commit.is_moved:
            return count
        before, after = self.states[count], self.states[until]
        return until if commit.after == after or has_already(before, commit.after, after) else count

    def _count_held(self, commit: CommittedFile) -> int:
        """Return how many steps the history recorded until it recorded a commit's content."""
        if commit.before == commit.after or not commit.is_moved or commit.after in self.earlier:
            return 0
        held = [seq for seq, state in self.later if state == commit.after]
        return sum(seq <= held[-1] for seq in self.seqs) if held else 0

    def _count_included(self, commit: CommittedFile, count: int) -> int:
        """Return how many steps are published with a commit whose content includes the next ones."""
        if commit.before == commit.after or not commit.is_moved:
            return count
        start = self.states[count]
        ends = range(len(self.seqs), count, -1)
        return next((end for end in ends if has_already(start, commit.after, self.states[end])), count)

    def _first_made_by(self, commit: CommittedFile) -> int | None:
        """Return the index of the first step that a commit made: its parent lacks the step."""
        if commit.makes_move:
            return 0
        if commit.before == commit.after:
            return None
        pairs = [(step, step + 1) for step in range(len(self.seqs))]
        had = max((end for start, end in pairs if self._has(commit.before, start, end)), default=0)
        several = [(had, end) for end in range(had + 1, len(self.states))]
        made = (
            start
            for start, end in [*several, *pairs]
            if self._has(commit.after, start, end) and not self._has(commit.before, start, end)
        )
        return next(made, None)

    def _has(self, state: State, start: int, end: int) -> bool:
        return state == self.states[end] or has_already(self.states[start], state, self.states[end])


@dataclass(slots=True)
class PresentFile:
    """A file as it is now, and the steps that a later transaction took out of it.

    A step is out if the file has its old text again. New text in its place counts as later work.
    """

    state: State
    seqs: list[int] = field(default_factory=list)  # the steps that are out
    _chain: tuple[State, State] | None = None  # before and after all of these steps, without other steps

    def in_force(self, seqs: Sequence[int], states: Sequence[State]) -> tuple[list[int], list[State]]:
        """Return a run without the steps that are out. It stays whole if the others do not merge alone."""
        kept, made, out = list[int](), [states[0]], list[int]()
        chain = self._chain
        try:
            for seq, before, after in zip(seqs, states[:-1], states[1:], strict=True):
                longer = self._chain_with(chain, before, after, states[-1])
                if longer is None:
                    made.append(merge_states(before, made[-1], after))
                    kept.append(seq)
                else:
                    chain = longer
                    out.append(seq)
        except Conflict:
            return list(seqs), list(states)
        self._chain = chain
        self.seqs += out
        return kept, made

    def _chain_with(
        self, chain: tuple[State, State] | None, before: State, after: State, last: State
    ) -> tuple[State, State] | None:
        """Return the chain with a step that is out, or None if the step is in force or undone by its run."""
        is_out = self._lacks(before, after, last)
        if chain is None:
            return (before, after) if is_out else None
        try:
            longer = chain[0], merge_states(before, chain[1], after)
        except Conflict:
            return chain if is_out else None
        return longer if is_out or (longer != chain and self._lacks(*longer, last)) else None

    def _lacks(self, before: State, after: State, last: State) -> bool:
        return _is_out(before, after, self.state) and not _is_out(before, after, last)


def _is_out(before: State, after: State, state: State) -> bool:
    """Return whether a state has the text before a change, and not the text after it."""
    return has_already(after, state, before) and not has_already(before, state, after)


def has_already(base: State, ours: State, theirs: State) -> bool:
    """Return whether a merge of `theirs` leaves `ours` unchanged."""
    try:
        return merge_states(base, ours, theirs) == ours
    except Conflict:
        return False
