"""Proposals under any order of steps: nothing lands before its decision, no hunk lands twice, none is lost.

An author proposes, revises and withdraws, two reviewers approve and reject, others commit, and the engine is
killed: between two steps, and between the commit point of a landing and its verdicts. Each proposed line is a
word that is nowhere else, so its number in the files shows whether its hunk has landed, and how often.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from editd.engine.commands import Land
from editd.errors import Refused
from editd.review.proposals import Proposals
from editd.values.proposal import ProposalNumber, Reviewer
from editd.values.transaction import Authorship, Outcome
from support.harness import Harness, answer, apply, done, write
from support.reviews import opened, proposals, proposing, view

if TYPE_CHECKING:
    from editd.engine.engine import Engine
    from editd.values.proposal import HunkId, ProposedFile
    from editd.wire import messages

LINES = 12
PLACES = st.sets(st.integers(0, LINES - 1), min_size=1, max_size=4)
NAMES = st.sampled_from(["f", "g"])
REVIEWERS = st.sampled_from([Reviewer("ann", "a"), Reviewer("bob", "b")])
CHOICE = st.integers(0, 2**8 - 1)
AUTHOR = Reviewer("somebody", "claude-1")


class ProposalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="editd-proposals-")
        self.harness = Harness(Path(self.folder.name))
        self.words = 0
        # Of each proposal, the verdict of each word that its current revision proposes; None is undecided.
        self.verdicts: dict[ProposalNumber, dict[str, str | None]] = {}
        self.never: set[str] = set()  # the words that must not be in a file any more
        self.withdrawn: set[ProposalNumber] = set()
        self.parts = ExitStack()

    @initialize()
    def begin(self) -> None:
        text = "".join(f"line {number}\n" for number in range(LINES))
        self.harness.baseline({"f": text, "g": text})
        self.open()

    def open(self) -> None:
        self.engine: Engine = self.parts.enter_context(opened(self.harness))

    def teardown(self) -> None:
        self.parts.close()
        self.folder.cleanup()

    # ── steps ──

    @rule(name=NAMES, places=PLACES)
    def propose(self, name: str, places: set[int]) -> None:
        outcome = answer(self.engine, proposing(self.edit(name, places)))
        assert isinstance(outcome, Outcome)
        assert outcome.transaction is None
        assert outcome.proposal is not None
        self.note_revision(ProposalNumber(outcome.proposal))

    @precondition(lambda self: self.waiting())
    @rule(which=CHOICE, name=NAMES, places=PLACES)
    def revise(self, which: int, name: str, places: set[int]) -> None:
        number = self.waiting()[which % len(self.waiting())]
        request = replace(proposing(self.edit(name, places)), proposal=number)
        assert isinstance(answer(self.engine, request), Outcome)
        self.never |= {word for word, verdict in self.verdicts[number].items() if verdict != "landed"}
        self.note_revision(number)

    @rule(name=NAMES, place=st.integers(0, LINES - 1), is_insertion=st.booleans())
    def others(self, name: str, place: int, is_insertion: bool) -> None:
        lines = self.lines(name)
        lines[place : place + (0 if is_insertion else 1)] = [self.word("other")]
        done(self.engine, apply(write(name, "".join(lines)), session="another"))

    @precondition(lambda self: self.waiting())
    @rule(which=CHOICE, mask=CHOICE, by=REVIEWERS, is_killed=st.booleans(), rejects_rest=st.booleans())
    def approve(self, which: int, mask: int, by: Reviewer, is_killed: bool, rejects_rest: bool) -> None:
        number = self.waiting()[which % len(self.waiting())]
        shown = view(self.engine, number)
        fitting = [
            one.hunk.id for fitted in shown.files for one in fitted.hunks if one.state in ("fits", "there")
        ]
        chosen = frozenset(hunk for index, hunk in enumerate(fitting) if mask >> index & 1)
        request = Land(
            Authorship(by.actor, by.session), "reviewer", number, by, chosen or None,
            None if chosen else shown.token, rejects_rest=rejects_rest and not is_killed,
        )  # fmt: skip
        head = self.engine.history.head
        if is_killed:
            with mock.patch.object(Proposals, "landed", side_effect=SystemExit), pytest.raises(SystemExit):
                raise_if_refused(answer(self.engine, request))
            has_landed = self.engine.history.head > head
            self.restart()
        else:
            has_landed = isinstance(answer(self.engine, request), Outcome)
        assert has_landed or not fitting or is_killed
        if has_landed:
            self.note_landing(number, shown_words(shown.files[0].file), chosen or frozenset(fitting))
            if request.rejects_rest:
                self.note_rejection(number, None)

    @precondition(lambda self: self.waiting())
    @rule(which=CHOICE, mask=CHOICE, by=REVIEWERS)
    def reject(self, which: int, mask: int, by: Reviewer) -> None:
        number = self.waiting()[which % len(self.waiting())]
        words = shown_words(view(self.engine, number).files[0].file)
        undecided = [hunk for hunk, word in words.items() if self.verdicts[number][word] is None]
        chosen = frozenset(hunk for index, hunk in enumerate(undecided) if mask >> index & 1)
        proposals(self.engine).reject(number, by, chosen or None)
        self.note_rejection(number, {words[hunk] for hunk in chosen} or None)

    @precondition(lambda self: self.waiting())
    @rule(which=CHOICE)
    def withdraw(self, which: int) -> None:
        number = self.waiting()[which % len(self.waiting())]
        proposals(self.engine).withdraw(number, AUTHOR)
        self.withdrawn.add(number)

    @precondition(lambda self: self.settled())
    @rule(which=CHOICE, by=REVIEWERS)
    def decide_again(self, which: int, by: Reviewer) -> None:
        number = self.settled()[which % len(self.settled())]
        token = view(self.engine, number).token
        request = Land(Authorship(by.actor), "reviewer", number, by, None, token)
        assert isinstance(answer(self.engine, request), Refused)
        with pytest.raises(Refused):
            proposals(self.engine).reject(number, by)

    @rule()
    def restart(self) -> None:
        self.parts.close()
        self.open()

    # ── what holds after each step ──

    @invariant()
    def no_line_is_in_a_file_before_its_decision_or_twice(self) -> None:
        text = "".join(self.harness.files().values()).split("\n")
        for words in self.verdicts.values():
            for word, verdict in words.items():
                for line in word.split("\n"):
                    assert text.count(line) <= (verdict == "landed"), (line, verdict)
        assert not {line for word in self.never for line in word.split("\n")} & set(text)

    @invariant()
    def each_hunk_has_the_verdict_that_it_was_given(self) -> None:
        for number, words in self.verdicts.items():
            proposal = proposals(self.engine).get(number)
            (file,) = proposals(self.engine).store.files(number, proposal.revision)
            stored = {shown_words(file)[hunk.id]: hunk.verdict for hunk in file.hunks}
            assert stored == words
            assert (number in proposals(self.engine).store.open) == (number in self.waiting())

    # ── parts ──

    def waiting(self) -> list[ProposalNumber]:
        return [
            number
            for number, words in self.verdicts.items()
            if None in words.values() and number not in self.withdrawn
        ]

    def settled(self) -> list[ProposalNumber]:
        return [number for number in self.verdicts if number not in self.waiting()]

    def lines(self, name: str) -> list[str]:
        return self.harness.files()[name].splitlines(keepends=True)

    def word(self, kind: str) -> str:
        self.words += 1
        return f"{kind} {self.words}\n"

    def edit(self, name: str, places: set[int]) -> messages.Write:
        lines = self.lines(name)
        for place in places:
            lines[place] = self.word("mine")
        return write(name, "".join(lines))

    def note_revision(self, number: ProposalNumber) -> None:
        proposal = proposals(self.engine).get(number)
        (file,) = proposals(self.engine).store.files(number, proposal.revision)
        self.verdicts[number] = dict.fromkeys(shown_words(file).values())

    def note_landing(
        self, number: ProposalNumber, words: dict[HunkId, str], hunks: frozenset[HunkId]
    ) -> None:
        for hunk in hunks:
            self.verdicts[number][words[hunk]] = "landed"
            assert any(words[hunk] in text for text in self.harness.files().values()), "it has landed"

    def note_rejection(self, number: ProposalNumber, chosen: set[str] | None) -> None:
        for word, verdict in self.verdicts[number].items():
            if verdict is None and (chosen is None or word in chosen):
                self.verdicts[number][word] = "rejected"


def shown_words(file: ProposedFile) -> dict[HunkId, str]:
    """Return the new lines of each hunk."""
    assert file.proposed is not None
    lines = file.proposed.content.decode().splitlines()
    return {hunk.id: "\n".join(lines[hunk.new_start : hunk.new_end]) for hunk in file.hunks}


def raise_if_refused(result: object) -> None:
    if isinstance(result, Refused):
        raise SystemExit


ProposalMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestProposals = ProposalMachine.TestCase
