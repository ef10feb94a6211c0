"""Proposals against a real daemon, in any order: none lands before its decision, none twice, none is lost.

An author proposes, revises and withdraws. Two reviewers decide, one after the other, at the same time, or
again with the same `request_id`. Others commit through the daemon and write past it, a rule lands what has
passed its check, and the daemon ends, is killed, or is killed in the middle of a decision.

Each proposed line is a word that is nowhere else, so its number in the files shows whether its hunk has
landed, and how often. The model has the verdict of each word, and nothing else of the daemon.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from editd.wire import messages
from editd_client.errors import EditdError, Unreachable
from support.reviewers import PIN, config_folder, set_pin
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client

EXAMPLES, EXAMPLES_LONG = 2, 400
STEPS = 40
RESTARTS_MAX = 2  # in one example; a start takes as long as a hundred decisions
CHECKS_MAX = 1  # in one example; a daemon looks for work four times a second
LINES = 12
NAMES = ("f", "g")
SECONDS_MAX = 30.0
CONFIG = """
[[review.check]]
name = "grep"
command = ["sh", "-c", "! grep -q bad tested"]
[[review.rule]]
name = "tested"
paths = ["tested"]
action = "land"
check = "grep"
"""

names = st.sampled_from(NAMES)
places = st.sets(st.integers(0, LINES - 1), min_size=1, max_size=4)
choices = st.integers(0, 2**8 - 1)
reviewers = st.sampled_from(["ann", "bob"])


class Reviews(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="editd-reviews-"))
        self.parts = contextlib.ExitStack()
        self.parts.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.place = self.parts.enter_context(workplace(self.folder / "place"))
        self.clients: dict[str, Client] = {}
        self.token: str | None = None
        self.words = self.requests = self.checks = 0
        self.restarts = -1
        # Of each proposal, the verdict of each word of its current revision, by the hunk's number; None is
        # undecided.
        self.verdicts: dict[int, dict[int, tuple[str, str | None]]] = {}
        self.never: set[str] = set()  # words that must not come into a file any more
        self.withdrawn: set[int] = set()

    @initialize()
    def begin(self) -> None:
        set_pin(self.place)
        (config_folder(self.place) / "config.toml").write_text(CONFIG)
        text = "".join(f"line {number}\n" for number in range(LINES))
        self.place.write(dict.fromkeys((*NAMES, "tested"), text))
        self.come_up()

    def come_up(self) -> None:
        """Start the daemon, and connect the author, the reviewers and another one."""
        self.restarts += 1
        for client in self.clients.values():
            client.close()
        self.clients = {"other": self.place.start()}
        self.clients["other"].settle()
        author = self.clients["author"] = self.place.client()
        if self.token is None:
            self.token = author.session_open("agent", actor="claude").token
        else:
            author.hello("claude", session="agent", token=self.token)
            for name in (*NAMES, "tested"):
                author.read(name)  # a kill may have lost the record of what it has read
        for name in ("ann", "bob"):
            client = self.clients[name] = self.place.client()
            client.hello(name)
            client.review_unlock(PIN)

    def teardown(self) -> None:
        try:
            if self.clients:
                self.land_all()
        finally:
            for client in self.clients.values():
                client.close()
            self.parts.close()

    # ── the author and others ──

    @rule(name=names, where=places)
    def propose(self, name: str, where: set[int]) -> None:
        made = self.clients["author"].apply(self.edit(name, where), propose=True)
        self.note_revision(number_of(made))

    @precondition(lambda self: self.waiting())
    @rule(which=choices, name=names, where=places)
    def revise(self, which: int, name: str, where: set[int]) -> None:
        number = self.waiting()[which % len(self.waiting())]
        before = self.verdicts[number]
        made = self.clients["author"].apply(self.edit(name, where), proposal=number)
        assert number_of(made) == number
        self.never |= {word for word, verdict in before.values() if verdict != "landed"}
        self.note_revision(number)

    @precondition(lambda self: self.waiting())
    @rule(which=choices)
    def withdraw(self, which: int) -> None:
        number = self.waiting()[which % len(self.waiting())]
        assert self.clients["author"].proposal_withdraw(number).proposal.state == "withdrawn"
        self.withdrawn.add(number)

    @rule(name=names, at=st.integers(0, LINES - 1), is_insertion=st.booleans(), is_outside=st.booleans())
    def others(self, name: str, at: int, is_insertion: bool, is_outside: bool) -> None:
        lines = self.lines(name)
        lines[at : at + (0 if is_insertion else 1)] = [self.word("other")]
        if is_outside:
            self.place.write({name: "".join(lines)})
            self.clients["other"].settle()
        else:
            assert self.clients["other"].apply([write(name, "".join(lines))]).transaction is not None

    @precondition(lambda self: self.checks < CHECKS_MAX)
    @rule(is_bad=st.booleans())
    def propose_for_a_check(self, is_bad: bool) -> None:
        """A rule lets it land after its check, and only then."""
        self.checks += 1
        word = self.word("bad" if is_bad else "good")
        made = self.clients["author"].apply([write("tested", word)])
        number = number_of(made)
        assert made.transaction is None
        self.note_revision(number)
        author = self.clients["author"]
        until = time.monotonic() + SECONDS_MAX
        while not author.proposal_get(number).checks and time.monotonic() < until:
            time.sleep(0.02)
        waited = author.proposal_wait(number, timeout=0.1 if is_bad else SECONDS_MAX)
        assert waited.state == ("open" if is_bad else "landed"), waited.proposal.checks
        if is_bad:
            author.proposal_withdraw(number)
            self.withdrawn.add(number)
        else:
            assert self.place.files()["tested"] == word.encode()
            self.note(number, "landed", None)

    # ── the reviewers ──

    @precondition(lambda self: self.waiting())
    @rule(which=choices, mask=choices, by=reviewers, rejects_rest=st.booleans(), is_again=st.booleans())
    def approve(self, which: int, mask: int, by: str, rejects_rest: bool, is_again: bool) -> None:
        number, numbers, ask = self.approval(which, mask, rejects_rest)
        if not numbers:
            return
        made = ask(self.clients[by])
        assert made.transaction is not None
        self.note_landing(number, numbers, rejects_rest=rejects_rest)
        if is_again:
            assert ask(self.clients[by]).transaction == made.transaction

    @precondition(lambda self: self.waiting())
    @rule(which=choices, mask=choices, by=reviewers, is_again=st.booleans())
    def reject(self, which: int, mask: int, by: str, is_again: bool) -> None:
        number, numbers, ask = self.rejection(which, mask)
        made = ask(self.clients[by])
        self.note(number, "rejected", numbers)
        if is_again:
            assert ask(self.clients[by]).proposal.decisions == made.proposal.decisions

    @precondition(lambda self: self.waiting())
    @rule(which=choices)
    def two_at_once(self, which: int) -> None:
        """Both approve all that fits, as it was shown to both: one of them lands it."""
        number = self.waiting()[which % len(self.waiting())]
        shown = self.clients["ann"].proposal_get(number)
        numbers = {hunk.number for hunk in shown.files[0].hunks if hunk.state in ("fits", "there")}
        outcomes: list[Any] = []

        def ask(by: str) -> None:
            try:
                outcomes.append(self.clients[by].proposal_approve(number, view=shown.view))
            except EditdError as refusal:
                outcomes.append(refusal.name)

        tasks = [threading.Thread(target=ask, args=(by,)) for by in ("ann", "bob")]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        refusals = [one for one in outcomes if isinstance(one, str)]
        if numbers:
            assert len(refusals) == 1, outcomes
            assert refusals[0] in ("decided", "stale", "conflict"), outcomes
            self.note_landing(number, numbers)
        else:
            assert refusals == ["conflict", "conflict"], outcomes

    @precondition(lambda self: self.settled())
    @rule(which=choices, by=reviewers)
    def decide_again(self, which: int, by: str) -> None:
        number = self.settled()[which % len(self.settled())]
        view = self.clients[by].proposal_get(number).view
        for decide in (
            lambda: self.clients[by].proposal_approve(number, view=view),
            lambda: self.clients[by].proposal_reject(number),
        ):
            with pytest.raises(EditdError, check=lambda error: error.name == "decided"):
                decide()

    # ── the daemon ──

    @precondition(lambda self: self.restarts < RESTARTS_MAX)
    @rule(is_kill=st.booleans())
    def restart(self, is_kill: bool) -> None:
        if is_kill:
            self.place.kill()
        else:
            self.place.stop()
        self.come_up()

    @precondition(lambda self: self.waiting() and self.restarts < RESTARTS_MAX)
    @rule(
        which=choices, mask=choices, by=reviewers, is_approval=st.booleans(), rejects_rest=st.booleans(),
        delay=st.integers(0, 12),
    )  # fmt: skip
    def kill_in_a_decision(
        self, which: int, mask: int, by: str, is_approval: bool, rejects_rest: bool, delay: int
    ) -> None:
        """SIGKILL while a reviewer decides; asked for again with its id, it is done once, and whole."""
        ask: Callable[[Client], Any]
        if is_approval:
            number, numbers, ask = self.approval(which, mask, rejects_rest)
        else:
            number, numbers, ask = self.rejection(which, mask)
        if not numbers:
            return
        answers: list[Any] = []

        def decide() -> None:
            with contextlib.suppress(Unreachable):
                answers.append(ask(self.clients[by]))

        task = threading.Thread(target=decide)
        task.start()
        time.sleep(delay / 1000)
        self.place.kill()
        task.join()
        self.come_up()
        made: Any = ask(self.clients[by])
        if not is_approval:
            self.note(number, "rejected", numbers)
            return
        assert made.transaction is not None
        assert all(one.transaction == made.transaction for one in answers)
        self.note_landing(number, numbers, rejects_rest=rejects_rest)

    # ── what holds after each step ──

    @invariant()
    def no_line_is_in_a_file_before_its_decision_or_twice(self) -> None:
        text = b"".join(self.place.files().values()).decode().split("\n")
        for hunks in self.verdicts.values():
            for word, verdict in hunks.values():
                for line in word.split("\n"):
                    assert text.count(line) <= (verdict == "landed"), (line, verdict)
        assert not {line for word in self.never for line in word.split("\n")} & set(text)

    @invariant()
    def each_hunk_has_the_verdict_that_it_was_given(self) -> None:
        if not self.verdicts:
            return
        client = self.clients["other"]
        waiting = [one.proposal for one in client.proposal_list(limit=1000).proposals]
        assert sorted(waiting) == self.waiting()
        for number, hunks in self.verdicts.items():
            shown = client.proposal_get(number)
            states = {hunk.number: hunk.state for hunk in shown.files[0].hunks}
            decided = {at: state if state in ("landed", "rejected") else None for at, state in states.items()}
            assert decided == {at: verdict for at, (_, verdict) in hunks.items()}, number

    # ── parts ──

    def land_all(self) -> None:
        """What waits at the end, and fits, can still be landed."""
        for number in self.waiting():
            shown = self.clients["ann"].proposal_get(number)
            numbers = {hunk.number for hunk in shown.files[0].hunks if hunk.state in ("fits", "there")}
            if numbers:
                self.clients["ann"].proposal_approve(number, view=shown.view)
                self.note_landing(number, numbers)
            self.no_line_is_in_a_file_before_its_decision_or_twice()
            self.each_hunk_has_the_verdict_that_it_was_given()

    def waiting(self) -> list[int]:
        return [
            number
            for number, hunks in self.verdicts.items()
            if number not in self.withdrawn and any(verdict is None for _, verdict in hunks.values())
        ]

    def settled(self) -> list[int]:
        return [number for number in self.verdicts if number not in self.waiting()]

    def approval(
        self, which: int, mask: int, rejects_rest: bool
    ) -> tuple[int, set[int], Callable[[Client], messages.ProposalApproveResult]]:
        """Return a proposal, some of its hunks that fit, and their approval, the same request each time."""
        number = self.waiting()[which % len(self.waiting())]
        shown = self.clients["other"].proposal_get(number)
        fitting = [hunk for hunk in shown.files[0].hunks if hunk.state in ("fits", "there")]
        chosen = [hunk for at, hunk in enumerate(fitting) if mask >> at & 1] or fitting
        ids, request_id = [hunk.hunk for hunk in chosen], self.request_id()
        rest: messages.RestOfHunks = "reject" if rejects_rest else "keep"
        return (
            number,
            {hunk.number for hunk in chosen},
            lambda client: client.proposal_approve(number, hunks=ids, rest=rest, request_id=request_id),
        )

    def rejection(
        self, which: int, mask: int
    ) -> tuple[int, set[int], Callable[[Client], messages.ProposalResult]]:
        """Do as `approval`, for a rejection of some undecided hunks."""
        number = self.waiting()[which % len(self.waiting())]
        shown = self.clients["other"].proposal_get(number)
        undecided = [hunk for hunk in shown.files[0].hunks if hunk.state not in ("landed", "rejected")]
        chosen = [hunk for at, hunk in enumerate(undecided) if mask >> at & 1] or undecided
        ids, request_id = [hunk.hunk for hunk in chosen], self.request_id()
        return (
            number,
            {hunk.number for hunk in chosen},
            lambda client: client.proposal_reject(number, hunks=ids, request_id=request_id),
        )

    def note_revision(self, number: int) -> None:
        (file,) = self.clients["other"].proposal_get(number).files
        self.verdicts[number] = {hunk.number: (new_lines(hunk.text), None) for hunk in file.hunks}

    def note_landing(self, number: int, numbers: set[int], *, rejects_rest: bool = False) -> None:
        self.note(number, "landed", numbers)
        text = b"".join(self.place.files().values()).decode()
        assert all(self.verdicts[number][at][0] in text for at in numbers), "it has landed"
        if rejects_rest:
            self.note(number, "rejected", None)

    def note(self, number: int, verdict: str, numbers: set[int] | None) -> None:
        """Note a verdict on these hunks, or on all that are undecided."""
        for at, (word, earlier) in self.verdicts[number].items():
            if (earlier is None) if numbers is None else at in numbers:
                self.verdicts[number][at] = word, verdict

    def lines(self, name: str) -> list[str]:
        return self.place.files()[name].decode().splitlines(keepends=True)

    def edit(self, name: str, where: set[int]) -> list[messages.AnyEdit]:
        lines = self.lines(name)
        for at in where:
            lines[at] = self.word("mine")
        return [write(name, "".join(lines))]

    def word(self, kind: str) -> str:
        self.words += 1
        return f"{kind} {self.words}\n"

    def request_id(self) -> str:
        self.requests += 1
        return f"request {self.requests}"


def number_of(made: messages.ApplyResult) -> int:
    assert made.transaction is None
    assert isinstance(made.proposal, messages.ProposedResult)
    assert made.proposal.proposal is not None
    return made.proposal.proposal


def new_lines(diff: str) -> str:
    """Return the lines that a hunk adds."""
    return "\n".join(line[1:] for line in diff.splitlines() if line.startswith("+"))


@pytest.mark.timeout(7200)
def test_in_any_order_nothing_lands_before_its_decision_no_hunk_twice_and_none_is_lost(is_long: bool) -> None:
    run_state_machine_as_test(
        Reviews,
        settings=settings(
            max_examples=EXAMPLES_LONG if is_long else EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            print_blob=True,
        ),
    )
