"""Proposals: planned edits that wait for a reviewer, from the first request to the last decision.

The store has the proposals and the decisions, and the history has the landings. A landing is one transaction
with an `Approval`, and the verdicts are stored after its commit point. If that fails, or the daemon is killed
in between, `_catch_up` takes the verdicts from the history. So no hunk lands twice.

A proposal never touches a file before its decision. Nothing of it is stored anew when others commit: its view
is computed on request.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.edits.proposed_hunks import proposed_files
from editd.errors import Decided, InvalidParams, IoError, Refused, UnknownProposal
from editd.review.choice import Landing, check_is_whole, plan_landing
from editd.review.fit import FittedProposal, fit_proposal, view_changed
from editd.review.grants import Grants
from editd.review.lineage import author_program
from editd.review.planned import Planned
from editd.review.refusals import (
    check_comment,
    check_has_hunk,
    check_is_revisable,
    check_is_settled,
    check_is_submitted,
    check_length,
    decided,
)
from editd.review.repeats import check_is_repeated, check_is_same_decision, decision_with_id
from editd.review.verdicts import decision_of, left_changes, settled_elsewhere, with_verdicts
from editd.store.proposals import Intent
from editd.values.proposal import (
    Comment,
    Decision,
    Proposal,
    ProposalNumber,
    Reviewer,
    TrialResult,
    state_after,
)
from editd.values.transaction import Seq

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from editd.review.choice import Choice
    from editd.review.fit import Current
    from editd.store.history import History
    from editd.store.proposals import ProposalStore
    from editd.system.clock import Clock
    from editd.system.process import ProcessKey
    from editd.values.content import Decoder
    from editd.values.proposal import (
        DecisionKind,
        HunkId,
        ProposalState,
        ProposedFile,
        Verdict,
    )
    from editd.values.transaction import Authorship

log = logging.getLogger(__name__)

OUTPUT_CHARACTERS_MAX = 4_000  # of a check, its last ones
EDITD = Reviewer("editd", via="rule")  # decides when the time is over, or others have made the same
REOPENED: frozenset[ProposalState] = frozenset({"rejected", "withdrawn", "expired", "partly"})


class Proposals(Grants):
    """All proposals of a workspace, and its grants. Used by the engine's thread."""

    def __init__(
        self,
        store: ProposalStore,
        history: History,
        clock: Clock,
        agents: Container[ProcessKey] = (),
    ) -> None:
        """Take over the store, and mark what has landed. If that fails, the first question does it.

        `agents` has the processes of agents, each with a share of the proposals.
        """
        super().__init__(store, history, clock)
        self.changes = 0  # counts all changes of proposals
        self._agents = agents
        self.lifetime_us = 0  # after which an open proposal expires; 0 is never
        self.on_changed: list[Callable[[Proposal, str], None]] = []  # called when the change is durable
        self._is_behind = True  # the history may have landed hunks that the store has no verdict of
        self._intended = set[ProposalNumber]()  # the same, of these alone, whatever stops their landing
        try:
            self._catch_up()
        except Refused as refusal:
            log.error("the proposals could not be compared with the history: %s", refusal.text())

    # ── the author ──

    def propose(self, planned: Planned) -> Proposal:
        """Store planned changes as a new proposal; durable on return. Raises Overloaded or IoError."""
        return self._add(planned, proposed_files(planned.changes))

    def revise(self, number: ProposalNumber, planned: Planned) -> Proposal:
        """Replace what an open proposal proposes by planned changes; durable on return.

        Raises UnknownProposal, Decided, PermissionDenied if it is another author's, Overloaded or IoError.
        """
        proposal = self.revisable(number, planned.authorship)
        now_us = self._clock.now_us()
        message = planned.authorship.message or proposal.authorship.message
        after = replace(
            proposal, authorship=replace(planned.authorship, message=message),
            may_write=planned.may_write, at=self._history.head, changed_us=now_us,
            expires_us=self._expiry(now_us), revision=proposal.revision + 1, fingerprint=planned.fingerprint,
        )  # fmt: skip
        program = author_program(planned.line, self._agents)
        self.store.revise(after, proposed_files(planned.changes), planned.line, program)
        return self._changed(after, "revised")

    def revisable(self, number: ProposalNumber, author: Authorship) -> Proposal:
        """Return a proposal that this author may revise.

        Raises UnknownProposal, Decided, or PermissionDenied if it is another author's.
        """
        proposal = self._waiting(number)
        check_is_revisable(proposal, author)
        return proposal

    def first_proposal(self, authorship: Authorship, fingerprint: str) -> Proposal | None:
        """Return the proposal that a repeated request became, or None if its id is new (C7).

        Raises InvalidParams if the id was used for a different request.
        """
        key = authorship.request_id
        first = None if key is None else self.store.by_request(authorship.session, key)
        if first is None:
            return None
        check_is_repeated(authorship, fingerprint, first)
        return first[0]

    def collecting(self, session: str | None) -> Proposal | None:
        """Return the open proposal that collects the edits of a session, or None. Raises IoError."""
        self._catch_up()
        for proposal in self.store.open.values():
            if proposal.is_collecting and proposal.authorship.session == session:
                return None if self.get(proposal.number).is_settled else proposal
        return None

    def submit(self, number: ProposalNumber, by: Reviewer) -> Proposal:
        """Open a draft for review. Raises UnknownProposal, Decided, InvalidParams if it is no draft."""
        proposal = self._waiting(number)
        if proposal.state != "draft":
            raise InvalidParams(f"Proposal {number} is open already.", data={"proposal": number})
        return self._settle(proposal, "open", "submit", by, "opened")

    def withdraw(self, number: ProposalNumber, by: Reviewer) -> Proposal:
        """Take a proposal back, which its author's session has verified. Raises Decided, UnknownProposal."""
        return self._settle(self._waiting(number), "withdrawn", "withdraw", by, "withdrawn")

    def reopen(self, number: ProposalNumber, authorship: Authorship, by: Reviewer) -> Proposal:
        """Make a new proposal of `authorship` from all that has not landed of a settled one.

        It waits on the same base, so its hunks fit as the settled proposal's would.
        Raises UnknownProposal, Decided if nothing of it was rejected, InvalidParams if it still waits.
        """
        proposal = self.get(number)
        check_is_settled(proposal)
        if proposal.state not in REOPENED:
            raise self._decided(proposal)
        files = self.store.files(number, proposal.revision)
        changes = [change for file in files for change in left_changes(file)]
        planned = Planned(
            tuple(changes), authorship, proposal.may_write, proposal.rule, proposal.fingerprint,
            proposal.kind, proposal.undoes, proposal.parts,
            line=next(iter(reversed(self.store.lines(number))), ()),
        )  # fmt: skip
        return self._add(planned, proposed_files(changes), at=proposal.at, by=by, reopened=proposal)

    # ── the reviewer ──

    def get(self, number: ProposalNumber) -> Proposal:
        """Return a proposal, open or settled. Raises UnknownProposal."""
        self._catch_up()
        proposal = self.store.open.get(number) or self.store.get(number)
        if proposal is None:
            raise UnknownProposal(
                f"There is no proposal {number}.",
                hint="List the proposals.",
                data={"proposal": number},
            )
        return self._expire(proposal) if _is_over(proposal, self._clock.now_us()) else proposal

    def view(self, number: ProposalNumber, current: Current, revision: int | None = None) -> FittedProposal:
        """Return a proposal, or an earlier revision of it, on the present files.

        `current` returns the state of a path. Raises UnknownProposal, IoError, or what `current` raises.
        """
        proposal = self.get(number)
        wanted = proposal.revision if revision is None else revision
        if not 0 < wanted <= proposal.revision:
            raise UnknownProposal(
                f"Proposal {number} has no revision {wanted}; the newest is {proposal.revision}.",
                data={"proposal": number, "revision": proposal.revision},
            )
        return fit_proposal(proposal, self.store.files(number, wanted), current, self._history)

    def settle_moot(self, view: FittedProposal) -> FittedProposal:
        """Settle an open proposal if others have made all that is undecided. Return it as it is then."""
        known = self.store.open.get(view.proposal.number)
        if known is None or known != view.proposal or known.state != "open" or not view.is_moot:
            return view
        return replace(view, proposal=self._settle(known, "moot", "moot", EDITD, "moot"))

    def landing(self, choice: Choice, current: Current, decoder: Decoder) -> Landing:
        """Plan the landing that a reviewer asks for.

        Raises UnknownProposal, Decided, ViewChanged, Conflict, PermissionDenied if the
        author's session could not write a path, and InvalidParams.
        """
        self._reviewable(choice.proposal)
        check_length(choice.comment)
        view = self.view(choice.proposal, current)
        return plan_landing(view, choice, self._history, self._clock.now_us(), decoder)

    def intend(self, landing: Landing) -> None:
        """Store the decision of a landing before its transaction is committed; durable on return.

        Otherwise a kill between the two would cost all of it that the transaction does not have: the
        reviewer's request, its comment, and the rejected rest. Raises IoError.
        """
        proposal, approval = landing.view.proposal, landing.authorship.approval
        assert approval is not None, "a landing has one"
        intent = Intent(proposal.revision, approval.hunks, landing.decision, dict(landing.verdicts))
        self._intended.add(proposal.number)
        self.store.intend(proposal.number, intent)

    def landed(self, landing: Landing, seq: Seq | None) -> None:
        """Store the verdicts of a landing, once its transaction is committed.

        `seq` is None if all chosen hunks were there. If the store cannot be written, the verdicts stay in the
        history, and each later question takes them from there first.
        """
        proposal = landing.view.proposal
        files = (fitted.file for fitted in landing.view.files)
        after = replace(
            proposal,
            state=state_after(with_verdicts(files, landing.verdicts)),
            changed_us=landing.decision.time_us,
            landed=proposal.landed if seq is None else (*proposal.landed, seq),
        )
        try:
            self.store.decide(after, replace(landing.decision, seq=seq), landing.verdicts)
        except IoError as refusal:
            if seq is None:
                raise
            self._intended.add(proposal.number)
            log.error("the verdicts on proposal %s could not be stored: %s", proposal.number, refusal)
        else:
            self._intended.discard(proposal.number)
            self._changed(after, "landed")

    def reject(
        self,
        number: ProposalNumber,
        by: Reviewer,
        hunks: frozenset[HunkId] | None = None,
        comment: str = "",
        request_id: str | None = None,
    ) -> Proposal:
        """Reject these hunks, or all that are undecided. Return the proposal; durable on return.

        Raises UnknownProposal, Decided, ViewChanged if a hunk is not undecided, InvalidParams and IoError.
        """
        if self.first_decision(number, by, "reject", request_id) is not None:
            return self.get(number)
        proposal = self._reviewable(number)
        check_length(comment)
        files = self.store.files(number, proposal.revision)
        undecided = {hunk.id for file in files for hunk in file.undecided_hunks}
        chosen = undecided if hunks is None else hunks
        if not chosen <= undecided:
            raise view_changed(number, None, chosen - undecided)
        check_is_whole(proposal, chosen, undecided)
        verdicts: dict[HunkId, Verdict] = dict.fromkeys(chosen, "rejected")
        state = state_after(with_verdicts(files, verdicts))
        after = replace(proposal, state=state, changed_us=self._clock.now_us())
        decision = Decision(
            after.changed_us, by, "reject", tuple(sorted(chosen)), comment, request_id=request_id
        )
        self.store.decide(after, decision, verdicts)
        return self._changed(after, "rejected")

    def settle_elsewhere(self, number: ProposalNumber, state: str, by: Reviewer, comment: str) -> Proposal:
        """Settle an open proposal as another host has settled its own. Raises UnknownProposal, Decided."""
        proposal = self._waiting(number)
        files = partial(self.store.files, number, proposal.revision)
        settled, what, verdicts = settled_elsewhere(state, files)
        after = replace(proposal, state=settled, changed_us=self._clock.now_us())
        self.store.decide(after, Decision(after.changed_us, by, what, comment=comment), verdicts)
        return self._changed(after, settled)

    def first_decision(
        self,
        number: ProposalNumber,
        by: Reviewer,
        what: DecisionKind,
        request_id: str | None,
        fingerprint: str = "",
    ) -> Decision | None:
        """Return the decision that a reviewer's repeated request made, or None if its id is new.

        Raises InvalidParams if the id was used for a different request.
        """
        if request_id is None:
            return None
        self._catch_up()
        first = decision_with_id(request_id, by, self.store.decisions(number))
        if first is not None:
            check_is_same_decision(number, first, what, fingerprint)
        return first

    def comment(
        self,
        number: ProposalNumber,
        by: Reviewer,
        text: str,
        hunk: HunkId | None = None,
        path: str | None = None,
        line: int | None = None,
    ) -> Proposal:
        """Add words to a proposal, to a hunk of it, or to a line of a file of it; durable on return.

        A settled one takes them, too. Raises UnknownProposal, InvalidParams and IoError.
        """
        proposal = self.get(number)
        files = self.store.files(number, proposal.revision)
        check_comment(proposal, files, text, hunk, path, line)
        after = replace(proposal, changed_us=self._clock.now_us())
        self.store.comment(after, Comment(after.changed_us, by, proposal.revision, text, hunk, path, line))
        return self._changed(after, "commented")

    def check(
        self,
        number: ProposalNumber,
        view: str,
        name: str,
        exit: int,  # noqa: A002  # as on the wire
        seconds: float,
        output: str,
        by: Reviewer,
        command: tuple[str, ...] = (),
        hunks: Sequence[HunkId] = (),
    ) -> Proposal:
        """Note the result of a command on a view of a proposal, with the end of its output.

        `command` is given for a check that the daemon has run itself. Any other result is a claim, and may
        be about some `hunks` alone.

        Raises UnknownProposal, Decided, InvalidParams and IoError.
        """
        proposal = self._waiting(number)
        files = self.store.files(number, proposal.revision) if hunks else ()
        for hunk in hunks:
            check_has_hunk(proposal, files, hunk)
        after = replace(proposal, changed_us=self._clock.now_us())
        end = output[-OUTPUT_CHARACTERS_MAX:]
        result = TrialResult(after.changed_us, by, name, view, exit, seconds, end, command, tuple(hunks))
        self.store.check(after, result)
        return self._changed(after, "checked")

    def has_verdict(self, proposal: Proposal) -> bool:
        """Return whether a reviewer has landed or rejected a part of it. Raises IoError."""
        return any(one.what in ("approve", "reject") for one in self.store.decisions(proposal.number))

    # ── time ──

    def waiting(self) -> list[Proposal]:
        """Return the proposals that are not settled, once those whose time is over are. Raises IoError."""
        self.expire(self._clock.now_us())
        return list(self.store.open.values())

    def count(self) -> int:
        """Return the number of proposals that wait, without those whose time is over. Writes nothing."""
        now_us = self._clock.now_us()
        return sum(not _is_over(one, now_us) for one in self.store.open.values())

    def expire(self, now_us: int) -> list[Proposal]:
        """Settle the proposals whose time is over. Return them. Raises IoError."""
        self._catch_up()
        return [self._expire(one) for one in list(self.store.open.values()) if _is_over(one, now_us)]

    def tidy(self, keep_us: int) -> int:
        """Expire what is over, and forget the proposals that were settled so long ago. Raises IoError.

        Return the bytes of content that this frees.
        """
        now_us = self._clock.now_us()
        self.expire(now_us)
        return self.store.forget_settled(now_us - keep_us)

    # ── after a crash ──

    def _catch_up(self) -> None:
        """Store the verdicts of transactions that the store does not know. Raises IoError, HistoryDamaged."""
        self._intended &= self.store.open.keys()
        for number in list(self.store.open if self._is_behind else self._intended):
            proposal = self.store.open[number]
            for seq in self._history.index.of_proposal(proposal.number):
                known = self.store.open.get(proposal.number)
                if known is not None and seq not in known.landed:
                    self._note_landed(known, Seq(seq))
        self._is_behind = False

    def _note_landed(self, proposal: Proposal, seq: Seq) -> None:
        number = proposal.number
        transaction = self._history.find(seq)
        approval = transaction.authorship.approval
        assert approval is not None, "the index names it as an approved one"
        files = self.store.files(number, approval.revision or proposal.revision)
        intent = self.store.intent(number)
        if intent is not None and (intent.revision, intent.numbers) == (approval.revision, approval.hunks):
            decision, verdicts = replace(intent.decision, seq=seq), intent.verdicts
        else:
            decision, verdicts = decision_of(transaction, approval, files)
        state = state_after(with_verdicts(files, verdicts))
        after = replace(proposal, state=state, changed_us=transaction.time_us, landed=(*proposal.landed, seq))
        self.store.decide(after, decision, verdicts)
        log.warning("transaction %s had landed hunks of proposal %s before the daemon ended", seq, number)
        self._changed(after, "landed")

    # ── parts ──

    def _add(
        self,
        planned: Planned,
        files: tuple[ProposedFile, ...],
        *,
        at: Seq | None = None,
        by: Reviewer | None = None,
        reopened: Proposal | None = None,
    ) -> Proposal:
        now_us = self._clock.now_us()
        state: ProposalState = "draft" if planned.is_draft else "open"
        proposal = Proposal(
            ProposalNumber(0), state, planned.kind, planned.authorship, planned.may_write, planned.rule,
            self._history.head if at is None else at, now_us, now_us, self._expiry(now_us),
            fingerprint=planned.fingerprint, undoes=planned.undoes, parts=planned.parts,
            is_collecting=planned.is_collecting, lands_after=planned.lands_after,
        )  # fmt: skip
        made = self.store.add(proposal, files, planned.line, author_program(planned.line, self._agents))
        if by is not None and reopened is not None:
            self.store.decide(made, Decision(now_us, by, "reopen", comment=f"P{reopened.number}"))
        return self._changed(made, "opened")

    def _expire(self, proposal: Proposal) -> Proposal:
        return self._settle(proposal, "expired", "expire", EDITD, "expired")

    def _expiry(self, now_us: int) -> int | None:
        return now_us + self.lifetime_us if self.lifetime_us else None

    def _changed(self, proposal: Proposal, word: str) -> Proposal:
        self.changes += 1
        if proposal.state != "draft":  # no client is notified of a draft
            for listener in self.on_changed:
                listener(proposal, word)
        return proposal

    def _waiting(self, number: ProposalNumber) -> Proposal:
        """Return a proposal that is not settled. Raises UnknownProposal, or Decided."""
        proposal = self.get(number)
        if proposal.is_settled:
            raise self._decided(proposal)
        return proposal

    def _reviewable(self, number: ProposalNumber) -> Proposal:
        """Return a proposal that can be decided. Raises UnknownProposal, Decided or PermissionDenied."""
        proposal = self._waiting(number)
        check_is_submitted(proposal)
        return proposal

    def _decided(self, proposal: Proposal) -> Decided:
        return decided(proposal, self.store.decisions(proposal.number))

    def _settle(
        self, proposal: Proposal, state: ProposalState, what: DecisionKind, by: Reviewer, word: str
    ) -> Proposal:
        after = replace(proposal, state=state, changed_us=self._clock.now_us())
        assert proposal.may_become(state)
        self.store.decide(after, Decision(after.changed_us, by, what))
        return self._changed(after, word)


def _is_over(proposal: Proposal, now_us: int) -> bool:
    """Return whether the time of an unsettled proposal is over."""
    return not proposal.is_settled and proposal.expires_us is not None and proposal.expires_us <= now_us
