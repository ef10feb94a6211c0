"""The methods `proposal.*` and `review.*`: reviewers and their permission, views, decisions, and waiting.

`server.gate` decides who may do that.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from editd.advice import Advice, command_term
from editd.config.paths import histories_folder
from editd.config.pin import pin_path, read_pin
from editd.edits.comparison import NeedsComparison, NeedsThread
from editd.edits.pending_changes import Owner
from editd.engine.commands import Apply, Land, Restore, Undo
from editd.engine.external_changes import DiskSnapshot
from editd.engine.unsaved import UnsavedRule
from editd.errors import InvalidParams, PermissionDenied, Refused, Rejected
from editd.review.fit import check_view
from editd.review.pin_tries import PinTries, tree_below, tree_of
from editd.review.proposals import EDITD, Proposals
from editd.server import convert
from editd.server import convert_proposals as wire
from editd.server.gate import line_of
from editd.server.proposal_summaries import ProposalSummaries
from editd.store.index_tables import SessionWork
from editd.store.line_blame import LineBlame
from editd.store.proposal_seals import is_or_are, remaining_flaws
from editd.store.transaction_record import rfc3339
from editd.system.process import process_at
from editd.tool_api import review_answers
from editd.tool_api.review_answers import ChangedEdit
from editd.wire import messages
from editd.wire.raw_text import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from editd.config.schema import ReviewKeys
    from editd.edits.pending_changes import PendingChanges
    from editd.edits.rebase import FittedFile, FittedHunk
    from editd.engine.commands import Write
    from editd.engine.engine import Engine
    from editd.review.fit import FittedProposal
    from editd.server.check_runs import CheckRuns
    from editd.server.connection import Answer, ClientState
    from editd.server.convert_proposals import ProposalSummary
    from editd.server.engine_queue import EngineQueue
    from editd.server.gate import Gate
    from editd.server.methods.sessions import SessionMethods
    from editd.server.subscriptions import Subscriptions
    from editd.values.grant import Grant
    from editd.values.path import WorkspacePath
    from editd.values.proposal import Comment, Decision, Proposal, ProposalNumber, Reviewer, TrialResult, Via
    from editd.values.transaction import Outcome, Transaction

WAIT_SECONDS_MAX = 600.0
TOLD_MAX = 1000  # edits by tools whose answers are kept for a retry
LIST_MAX = 1000  # proposals in one answer
DECIDE_MAX = 1000  # in one request
BLAME_SECONDS_MAX = 0.05  # for the transactions in the way of one conflict
BLOCKING_MAX = 10  # transactions in the way that are named, the newest
GRANT_SECONDS_MAX = 86400.0
CLOSED = ("withdrawn", "expired")
MOVED_SECONDS = 0.25  # between two events that say so of one proposal
RULES = "review rules"  # the reader of a landing that a rule decides

Marked = TypeVar("Marked", Apply, Undo, Restore)
Noted = TypeVar("Noted", "Decision", "Comment", "TrialResult")
Proposing = (
    messages.Apply | messages.Commit | messages.Undo | messages.Redo | messages.Rollback | messages.Restore
)


class ProposalMethods:
    def __init__(
        self,
        engine: Engine,
        proposals: Proposals,
        queue: EngineQueue,
        subscriptions: Subscriptions,
        sessions: SessionMethods,
        gate: Gate,
        runs: CheckRuns,
    ) -> None:
        self._engine = engine
        self._proposals = proposals
        self._gate = gate
        self._queue = queue
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._loop = asyncio.get_running_loop()
        self._summaries = ProposalSummaries(lambda proposal: wire.summary(self._view(proposal.number)))
        self.by_path = self._summaries.by_path  # empty if no transaction concerns what a list shows
        # The tools' own answers to the newest edits that became proposals, for the same request again.
        self._told: OrderedDict[int, list[str | None]] = OrderedDict()
        self._tries = PinTries(histories_folder(), engine.clock.now_us)
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._telling: set[asyncio.Task[None]] = set()  # of events that wait for a comparison
        self._moved: set[int] = set()  # whose subscribers get an event soon
        self.on_moved: list[Callable[[int], None]] = []  # called with a proposal whose view may have moved
        self._runs = runs
        self._is_closing = False
        self.may_ask = True  # whether an edit that says nothing about it may become a proposal
        proposals.on_changed.append(self._changed)
        sessions.on_withdraw.append(self.withdraw_all)

    # ── for other methods ──

    @property
    def count(self) -> int:
        """The number of proposals that wait for a decision."""
        return self._proposals.count()

    def open_numbers(self) -> list[int]:
        """Return the proposals that wait for a decision."""
        return sorted(self._proposals.store.open)

    def weaker(self) -> list[str]:
        """Return the sentence of `status` if a damaged database has cost proposals."""
        if self._proposals.store.is_whole:
            return []
        store = self._proposals.store
        flaws = remaining_flaws(store.lost, {request for _, request in store.requests})
        if any(flaw.key is None for flaw in flaws):
            lost = "the proposals that waited are lost, and nothing"
        elif flaws:
            lost = f"{is_or_are(flaws)} lost, no other one, and nothing"
        else:
            lost = "no proposal is lost, and nothing"
        return [f"proposals.db was damaged: {lost} that has landed."]

    def stop_waiting(self) -> None:
        """Answer all who wait, because the daemon ends."""
        self._is_closing = True
        for events in self._waiting.values():
            for event in events:
                event.set()

    def end(self) -> None:
        self._proposals.store.close()

    def recorded(self, transaction: Transaction) -> None:
        """Forget the summaries of proposals that change a path of the transaction. From any thread."""
        approval = transaction.authorship.approval
        for touch in transaction.touches:
            for number in self._summaries.forget_path(touch.path):
                self._loop.call_soon_threadsafe(self._note_moved, number)
                if approval is None or approval.proposal != number:  # a landing has its own event
                    self._loop.call_soon_threadsafe(self._say_moved, number)

    def configure(self, review: ReviewKeys) -> None:
        """Apply the settings of reviews."""
        self.may_ask = not self._engine.landing.review.never_asks
        self._proposals.lifetime_us = int(review.expire * 1_000_000)

    def marked(self, request: Marked, params: Proposing, caller: ClientState) -> Marked:
        """Return the request with its sender, to be proposed if it asks for that or its session does."""
        request = replace(request, sender=self._gate.sender(caller, params))
        if isinstance(params.propose, bool) and params.propose:
            request = replace(request, propose="request")
        elif request.propose is None and (wish := self._sessions.wish_of(request.authorship.session)):
            request = replace(request, propose=wish)
        given = getattr(params, "proposal", UNSET)
        if given is UNSET:
            return request
        number = convert.proposal_number(given)
        self._gate.check_author(number, caller)
        return replace(request, proposal=number)

    def queued(
        self,
        request: Write,
        render: Callable[[Outcome], messages.Message],
        params: Proposing,
        caller: ClientState,
    ) -> Answer:
        """Carry out a request that may become a proposal, and answer now or after the decision."""
        if isinstance(params.wait, float | int) and params.wait:
            return self.submit(request, render, params.wait, caller)
        return self._queue.submit(request, lambda outcome: self.answer_of(outcome, render(outcome), caller))

    def withdraw_all(self, session: str) -> None:
        """Take back the open proposals of a session."""
        by = convert.reviewer(session, session, "socket", None)
        for number in self.open_of(session):
            self._proposals.withdraw(convert.proposal_number(number), by)

    def open_of(self, session: str) -> list[int]:
        """Return the proposals of a session that wait for a decision."""
        return sorted(
            int(one.number) for one in self._proposals.waiting() if one.authorship.session == session
        )

    def waiting_sessions(self) -> dict[str, SessionWork]:
        """Return the sessions with a proposal that waits, as the history would describe their work."""
        found: dict[str, SessionWork] = {}
        for one in self._proposals.waiting():
            name, made = one.authorship.session, one.created_us
            if name is not None:
                known = found.get(name, SessionWork(name, one.authorship.actor, made, made))
                first, last = min(known.first_us, made), max(known.last_us, made)
                found[name] = SessionWork(name, one.authorship.actor, first, last)
        return found

    def waited_since(self, numbers: Sequence[int]) -> int | None:
        """Return the time of the oldest of them whose decision a request waits for; None if none is."""
        waited = (number for number in numbers if number in self._waiting)
        return min(
            (self._proposals.get(convert.proposal_number(number)).created_us for number in waited),
            default=None,
        )

    def answer_of(self, outcome: Outcome, answer: messages.Message, caller: ClientState) -> messages.Message:
        """Add to the answer of an edit the proposal that it became."""
        if outcome.would_propose is not None and isinstance(answer, messages.ApplyResult):
            return replace(answer, would_propose=wire.would_propose(outcome.would_propose))
        if outcome.proposal is None:
            return answer
        proposal = self._proposals.get(convert.proposal_number(outcome.proposal))
        self._gate.note_author(proposal.number, caller)
        if not isinstance(answer, messages.ApplyResult):
            return answer
        answers = answer.answers
        if isinstance(answers, list):
            self._keep_answers(proposal.number, answers)
            said = review_answers.answer_while_open(proposal.number, proposal.rule)
            answers = [None if one is None else said for one in answers]
        pause = self._sessions.pause_of(proposal.authorship.session)
        warnings = [*answer.warnings, pause.text] if pause is not None and proposal.rule == "pause" else None
        shown = wire.reply_of(proposal, self._summary(proposal))
        return replace(answer, proposal=shown, answers=answers, warnings=warnings or answer.warnings)

    def pending(self, given: int) -> PendingChanges:
        """Return the changes that the hunks which fit would make. Raises UnknownProposal."""
        return self._view(convert.proposal_number(given)).pending(Owner("proposal", str(given)))

    async def submit(
        self, request: Write, render: Callable[[Outcome], messages.Message], wait: float, caller: ClientState
    ) -> messages.Message:
        """Carry out a request; if it becomes a proposal, wait for the decision, and answer with that."""
        if not 0 <= wait <= WAIT_SECONDS_MAX:
            raise InvalidParams(f"`wait` is a number of seconds, up to {WAIT_SECONDS_MAX:g}.")
        outcome = await self._queue.result_of(request)
        rendered = await self._queue.run(partial(render, outcome))
        answer = await self._queue.run(partial(self.answer_of, outcome, rendered, caller))
        if not isinstance(answer, messages.ApplyResult) or not isinstance(rendered, messages.ApplyResult):
            return answer
        became = outcome.proposal
        if became is None and outcome.transaction is not None:  # it may have landed since it was sent first
            approval = outcome.transaction.authorship.approval
            became = None if approval is None else approval.proposal
        if became is None:
            return answer
        number = convert.proposal_number(became)
        await self._wait(number, wait)
        decided = partial(self._decided, number, answer)
        if isinstance(request, Apply) and any(isinstance(one, messages.Tool) for one in request.edits):
            decided = partial(self._decided_tools, number, request, answer)
        return await self._queue.run(decided)

    # ── for the daemon's own checks ──

    def for_checks(self, number: int) -> tuple[Proposal, ProposalSummary, list[TrialResult]] | None:
        """Return an open proposal with its view and the results of checks; None if it is not open."""
        proposal = self._proposals.store.open.get(convert.proposal_number(number))
        if proposal is None or proposal.state != "open":
            return None
        return proposal, self._summary(proposal), self._proposals.store.checks(proposal.number)

    def note_check(
        self,
        number: int,
        view: str,
        name: str,
        status: int,
        seconds: float,
        output: str,
        command: tuple[str, ...],
    ) -> None:
        """Store the result of a check that the daemon has run. Raises Decided if it comes too late."""
        of = convert.proposal_number(number)
        self._proposals.check(of, view, name, status, seconds, output, EDITD, command)

    async def land_by_rule(self, number: int, passed: frozenset[str]) -> None:
        """Land a proposal that has passed these checks, if the rules let it. Raises Refused."""
        request = await self._queue.run(partial(self._landing_by_rule, number, passed))
        try:
            await self._queue.result_of(request)
        finally:
            await self._queue.run(partial(self._engine.seen.forget, RULES))

    def _landing_by_rule(self, number: int, passed: frozenset[str]) -> Land:
        proposal = self._proposals.get(convert.proposal_number(number))
        view = self._summary(proposal).token
        return Land(convert.NOBODY, RULES, proposal.number, EDITD, view=view, passed=passed)

    # ── the methods ──

    def list_proposals(
        self, params: messages.ProposalList, _caller: ClientState
    ) -> messages.ProposalListResult:
        if not 1 <= params.limit <= LIST_MAX:
            raise InvalidParams(f"`limit` is between 1 and {LIST_MAX}.")
        if params.state == []:
            raise InvalidParams("`state` names no state.", hint="Leave it out for the waiting proposals.")
        self._proposals.expire(self._engine.clock.now_us())
        found, more = self._proposals.store.find(
            ("draft", "open") if params.state is None else params.state,
            session=params.session,
            path=None if params.path is None else convert.path(params.path),
            before=None if params.before is None else convert.proposal_number(params.before),
            limit=params.limit,
        )
        return messages.ProposalListResult(proposals=[self._entry(one) for one in found], more=more)

    def get(self, params: messages.ProposalGet, _caller: ClientState) -> messages.ProposalGetResult:
        paths = None if params.paths is None else {convert.path(path) for path in params.paths}
        view = self._view(convert.proposal_number(params.proposal), params.revision)
        return self._whole(view, paths, content=params.content, context=params.context)

    async def approve(
        self, params: messages.ProposalApprove, caller: ClientState
    ) -> messages.ProposalApproveResult:
        number = convert.proposal_number(params.proposal)
        request = await self._queue.run(partial(self._landing, params, caller))
        outcome = await self._queue.result_of(request)
        render = partial(
            convert.outcome,
            return_content=params.dry_run,
            diff=params.dry_run,
            decoder=self._engine.decoder,
        )
        answer = await self._queue.run(partial(render, outcome))
        return await self._queue.run(
            lambda: messages.ProposalApproveResult(
                transaction=answer.transaction,
                files=answer.files,
                proposal=self._entry(self._proposals.get(number)),
                reviewer_diff=outcome.reviewer_diff,
                warnings=answer.warnings,
            )
        )

    def reject(self, params: messages.ProposalReject, caller: ClientState) -> Answer:
        number = convert.proposal_number(params.proposal)
        by = self._reviewer(params, number, caller)
        hunks = wire.hunk_ids(params.hunks)
        return self._result(
            self._proposals.reject(number, by, hunks, params.comment or "", params.request_id)
        )

    async def decide(
        self, params: messages.ProposalDecide, caller: ClientState
    ) -> messages.ProposalDecideResult:
        if not 1 <= len(params.proposals) <= DECIDE_MAX:
            raise InvalidParams(f"`proposals` names between 1 and {DECIDE_MAX} proposals.")
        done: list[messages.DecidedProposal] = []
        left: list[messages.LeftProposal] = []
        for one in params.proposals:
            try:
                seq = await self._decide(one, params, caller)
                done.append(messages.DecidedProposal(proposal=one.proposal, seq=seq))
            except Refused as refusal:
                left.append(messages.LeftProposal(proposal=one.proposal, error=convert.error(refusal)))
        return messages.ProposalDecideResult(done=done, left=left)

    async def wait(self, params: messages.ProposalWait, _caller: ClientState) -> messages.ProposalWaitResult:
        if not 0 <= params.timeout <= WAIT_SECONDS_MAX:
            raise InvalidParams(f"`timeout` is a number of seconds, up to {WAIT_SECONDS_MAX:g}.")
        number = convert.proposal_number(params.proposal)
        proposal = await self._queue.run(lambda: self._proposals.get(number))
        if params.until == "settled":
            await self._wait(number, params.timeout)
        elif params.since is None or proposal.changed_us <= convert.time_us(params.since):
            await self._wait_for_change(number, params.timeout)
        return await self._queue.run(partial(self._waited, number))

    def comment(self, params: messages.ProposalComment, caller: ClientState) -> Answer:
        number = convert.proposal_number(params.proposal)
        hunk = None if params.hunk is None else convert.hunk_id(params.hunk)
        by = self._by(caller)
        self._engine.landing.check_room()
        return self._result(self._proposals.comment(number, by, params.text, hunk, params.path, params.line))

    def submit_draft(self, params: messages.ProposalSubmit, caller: ClientState) -> Answer:
        number = convert.proposal_number(params.proposal)
        self._gate.check_author(number, caller)
        return self._result(self._proposals.submit(number, self._by(caller)))

    def withdraw(self, params: messages.ProposalWithdraw, caller: ClientState) -> Answer:
        number = convert.proposal_number(params.proposal)
        self._gate.check_author(number, caller)
        return self._result(self._proposals.withdraw(number, self._by(caller)))

    def reopen(self, params: messages.ProposalReopen, caller: ClientState) -> Answer:
        number = convert.proposal_number(params.proposal)
        self._gate.check_proposal_holder(params, number, caller)
        authorship = self._proposals.get(number).authorship
        self._engine.landing.check_room()
        made = self._proposals.reopen(number, replace(authorship, request_id=None), self._by(caller))
        return self._result(made)

    def check(self, params: messages.ProposalCheck, caller: ClientState) -> Answer:
        number = convert.proposal_number(params.proposal)
        self._engine.landing.check_room()
        made = self._proposals.check(
            number, params.view, params.name[:200], params.exit, params.seconds, params.output,
            self._by(caller), hunks=[convert.hunk_id(hunk) for hunk in params.hunks or ()],
        )  # fmt: skip
        return self._result(made)

    def allow(self, params: messages.ReviewAllow, caller: ClientState) -> Answer:
        if not 0 < params.ttl <= GRANT_SECONDS_MAX:
            raise InvalidParams("`ttl` is a number of seconds, a day at most.")
        self._gate.check_grant(params.session, caller)
        made = self._proposals.allow(
            convert.globs(params.paths, "A grant"), int(params.ttl * 1_000_000), params.session,
            params.uses, params.lines, self._by(caller),
        )  # fmt: skip
        return self._queue.now_or_again(partial(self._allowed, made))

    def _allowed(self, made: Grant) -> messages.ReviewAllowResult:
        matching = [
            int(one.number)
            for one in self._proposals.waiting()
            if all(made.fits(path, one.authorship.session) for path in self._summary(one).paths)
        ]
        for number in matching:
            self._changed(self._proposals.get(convert.proposal_number(number)), "allowed")
        return messages.ReviewAllowResult(
            grant=made.number, expires=rfc3339(made.expires_us), matching=matching
        )

    def grants(self, _params: messages.ReviewGrants, _caller: ClientState) -> messages.ReviewGrantsResult:
        return messages.ReviewGrantsResult(grants=[wire.grant(one) for one in self._proposals.grants()])

    def revoke(self, params: messages.ReviewRevoke, _caller: ClientState) -> messages.Empty:
        self._proposals.revoke(params.grant)
        return messages.Empty()

    async def unlock(self, params: messages.ReviewUnlock, caller: ClientState) -> messages.Empty:
        known = read_pin(pin_path())
        if known is None:
            raise PermissionDenied(
                "No PIN is set.",
                hint=Advice(command_term("review pin"), " sets one, on a terminal of your own."),
            )
        tree = await self._queue.run(lambda: self._tree_of(caller))
        await asyncio.to_thread(self._tries.begin, tree)
        if not await asyncio.to_thread(known.matches, params.pin):
            raise PermissionDenied("That is not the PIN.", data={"needs_pin": True})
        await asyncio.to_thread(self._tries.take_back, tree)
        self._gate.unlock(caller)
        return messages.Empty()

    # ── who ──

    def _tree_of(self, caller: ClientState) -> str:
        """Return the tree of processes whose wrong PINs count together: below an agent, or an author."""
        agent = self._gate.agent_of(caller)
        return tree_of(self._gate.lines_of(None), line_of(caller)) if agent is None else tree_below(agent)

    def _by(self, caller: ClientState) -> Reviewer:
        peer = caller.listener.peer
        actor = self._sessions.actor(None, caller) or convert.ANYBODY
        via: Via = "review socket" if caller.listener.is_reviewers else "socket"
        return convert.reviewer(actor, caller.session, via, None if peer is None else process_at(peer.pid))

    def _reviewer(
        self,
        params: messages.Params,
        number: ProposalNumber,
        caller: ClientState,
        *,
        is_elicited: bool = False,
    ) -> Reviewer:
        """Return the reviewer, who may decide about the proposal. Raises PermissionDenied."""
        self._gate.check_reviewer(params, number, caller, is_elicited=is_elicited)
        by = self._by(caller)
        return replace(by, via="elicitation") if is_elicited else by

    # ── views ──

    def _present(self) -> DiskSnapshot:
        """Return the files as they are now."""
        return DiskSnapshot(self._engine.tree, self._engine.history, quiet=False, patient=False)

    def _view(self, number: ProposalNumber, revision: int | None = None) -> FittedProposal:
        view = self._proposals.view(number, self._present().file_at, revision)
        return self._proposals.settle_moot(view) if revision is None else view

    def _summary(self, proposal: Proposal) -> ProposalSummary:
        """Return what a list shows, kept until the proposal or one of its files changes."""
        return self._summaries.of(proposal)

    def _entry(self, proposal: Proposal) -> messages.ProposalEntry:
        return wire.entry(proposal, self._summary(proposal), self._notes(proposal))

    def _notes(self, proposal: Proposal) -> wire.ProposalNotes:
        store, number = self._proposals.store, proposal.number
        return wire.ProposalNotes(
            self._without_pids(store.decisions(number)), self._without_pids(store.comments(number)),
            self._without_pids(store.checks(number)), self._runs.under_way(int(number)),
            len(self._waiting.get(number, ())),
        )  # fmt: skip

    def _without_pids(self, notes: Sequence[Noted]) -> Sequence[Noted]:
        """Return the notes; with a reviewers' socket, no answer names the process of a person."""
        if not self._gate.has_review_socket:
            return notes
        return [replace(note, by=replace(note.by, pid=None)) for note in notes]

    def _result(self, proposal: Proposal) -> Answer:
        """Return a proposal that was changed. Only this is done again if it needs a comparison."""
        return self._queue.now_or_again(lambda: messages.ProposalResult(proposal=self._entry(proposal)))

    def _whole(
        self, view: FittedProposal, paths: Collection[WorkspacePath] | None, *, content: bool, context: int
    ) -> messages.ProposalGetResult:
        shown = wire.entry(view.proposal, wire.summary(view), self._notes(view.proposal))
        blocking = partial(self._blocking, view.proposal)
        return wire.whole(
            view, shown, blocking, self._engine.decoder, paths=paths, content=content, context=context
        )

    def _blocking(self, proposal: Proposal, fitted: FittedFile, one: FittedHunk) -> list[int]:
        """Return the transactions that changed the lines of a conflict, the newest last."""
        history = self._engine.history
        now = history.entry(fitted.path)
        if now is not None and fitted.now is not None and now.version == fitted.now.version:
            wanted = wire.region_lines(fitted, one)
            blame = LineBlame(history, fitted.path, now.version, wanted)
            if len(wanted) and blame.run_for(BLAME_SECONDS_MAX):
                seqs = {blame.seqs[line] for line in wanted if blame.seqs[line] > proposal.at}
                if seqs:
                    return sorted(seqs)[-BLOCKING_MAX:]
        return history.index.touches_after(fitted.path, int(proposal.at))[-BLOCKING_MAX:]

    # ── deciding ──

    def _landing(
        self, params: messages.ProposalApprove, caller: ClientState, *, is_elicited: bool = False
    ) -> Land:
        number = convert.proposal_number(params.proposal)
        if params.dry_run:
            by = self._by(caller)
        else:
            by = self._reviewer(params, number, caller, is_elicited=is_elicited)
        authorship = convert.authorship_of_reviewer(params, by)
        request = wire.landing(params, authorship, caller.reader(caller.session), by)
        return replace(request, unsaved=UnsavedRule(caller.number))

    async def _decide(
        self, one: messages.ProposalView, params: messages.ProposalDecide, caller: ClientState
    ) -> int | None:
        """Decide about one of several proposals, as it was shown. Return the transaction, if any."""
        number = convert.proposal_number(one.proposal)
        approval = messages.ProposalApprove(proposal=one.proposal, view=one.view, comment=params.comment)
        if params.what == "approve":
            landing = partial(self._landing, approval, caller, is_elicited=params.elicited)
            outcome = await self._queue.result_of(await self._queue.run(landing))
            return None if outcome.transaction is None else int(outcome.transaction.seq)

        def reject() -> None:
            by = self._reviewer(params, number, caller, is_elicited=params.elicited)
            check_view(self._view(number), one.view)
            self._proposals.reject(number, by, None, params.comment or "")

        await self._queue.run(reject)
        return None

    # ── waiting ──

    async def _wait(self, number: ProposalNumber, seconds: float) -> None:
        """Return when the proposal is settled, or after so many seconds."""
        until = self._loop.time() + seconds
        while number in self._proposals.store.open and not self._is_closing:
            left = until - self._loop.time()
            if left <= 0:
                return
            await self._wait_for_change(number, left)

    async def _wait_for_change(self, number: int, seconds: float) -> None:
        event = asyncio.Event()
        self._waiting.setdefault(number, set()).add(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return
        finally:
            events = self._waiting[number]
            events.discard(event)
            if not events:
                del self._waiting[number]

    def _decided(self, number: ProposalNumber, answer: messages.ApplyResult) -> messages.ApplyResult:
        """Return the answer to the author of an edit that has waited. Raises Rejected."""
        waited = self._waited(number)
        if waited.state in ("draft", "open"):
            return answer
        made = waited.transactions
        if not made and waited.state != "moot":
            raise _rejection(waited)
        last = made[-1] if made else None
        proposal = self._proposals.get(number)
        return replace(
            answer,
            transaction=last,
            files=waited.files,
            proposal=wire.reply_of(proposal, self._summary(proposal)),
            approved_by=UNSET if last is None else last.approved_by,
            transactions=made,
            comments=waited.comments,
            reviewer_diff=waited.reviewer_diff,
        )

    def _decided_tools(
        self,
        number: ProposalNumber,
        request: Apply,
        answer: messages.ApplyResult,
    ) -> messages.ApplyResult:
        """Return the answer to tools of other systems, each in its original's words."""
        calls = [edit if isinstance(edit, messages.Tool) else None for edit in request.edits]
        try:
            decided = self._decided(number, answer)
        except Rejected as refusal:
            proposal = self._proposals.get(number)
            said = [None if call is None else self._rejected_answer(call, refusal) for call in calls]
            shown = wire.reply_of(proposal, self._summary(proposal))
            return replace(answer, answers=said, proposal=shown)
        diff = decided.reviewer_diff
        if decided is answer:  # it is still open
            waits = review_answers.answer_while_open(number, self._proposals.get(number).rule)
            return replace(decided, answers=[None if call is None else waits for call in calls])
        told = self._told.get(number, [None] * len(calls))
        if isinstance(diff, str) and diff:
            told = [
                None if call is None else self._changed_answer(call, one or "", diff)
                for call, one in zip(calls, told, strict=True)
            ]
        return replace(decided, answers=told)

    def _keep_answers(self, number: int, answers: list[str | None]) -> None:
        """Keep what the tools answered, which is known when the edit is planned only."""
        self._told[number] = answers
        self._told.move_to_end(number)
        if len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)

    def _changed_answer(self, call: messages.Tool, answer: str, diff: str) -> str:
        """Return the answer to a tool's call where the reviewer has changed what landed."""
        given = call.args.get("file_path", call.args.get("path"))
        answers = self._engine.tooling.review_answers(call)
        if not answers.is_of_one_file or not isinstance(given, str):
            return answers.to_changes(ChangedEdit(answer, diff))
        path = self._engine.tree.resolve(self._engine.tooling.paths.parse(given))
        part = review_answers.part_of(diff, path.text)
        state = self._present().file_at(path)
        shown = self._engine.decoder.in_utf8(state)
        text = "" if shown is None else text_of(shown.content)
        return answers.to_changes(ChangedEdit(answer, part, path.text, text)) if part else answer

    def _rejected_answer(self, call: messages.Tool, refusal: Rejected) -> str:
        """Return the answer to a tool's call that was rejected, or whose proposal has no decision."""
        if refusal.data["state"] in CLOSED:
            return f"{refusal.message} {refusal.hint}"
        return self._engine.tooling.review_answers(call).to_rejection(refusal.data["comment"] or "")

    def _waited(self, number: ProposalNumber) -> messages.ProposalWaitResult:
        proposal = self._proposals.get(number)
        made = self._engine.history.index.transactions(map(int, proposal.landed))
        notes = self._notes(proposal)
        shown = wire.entry(proposal, self._summary(proposal), notes)
        return messages.ProposalWaitResult(
            state=proposal.state,
            proposal=shown,
            transactions=[convert.transaction_result(one) for one in made],
            files=convert.file_results(made),
            comments=shown.comments,
            reviewer_diff="".join(one.reviewer_diff for one in notes.decisions),
        )

    def _changed(self, proposal: Proposal, what: str) -> None:
        """Notify subscribers and waiting clients. From the engine's thread or the loop's."""
        self._loop.call_soon_threadsafe(self._tell, proposal, what)

    def _tell(self, proposal: Proposal, what: str) -> None:
        self._queue.when_idle(partial(self._tell_or_compare, proposal, what))

    def _say_moved(self, number: int) -> None:
        """Notify subscribers soon that a file of an open proposal has changed."""
        if number in self._moved or self._is_closing or not len(self._subscriptions):
            return
        self._moved.add(number)
        self._loop.call_later(MOVED_SECONDS, self._queue.when_idle, partial(self._tell_moved, number))

    def _tell_moved(self, number: int) -> None:
        self._moved.discard(number)
        proposal = self._proposals.store.open.get(convert.proposal_number(number))
        if proposal is not None and proposal.state == "open" and not self._is_closing:
            self._tell_or_compare(proposal, "moved")

    def _tell_or_compare(self, proposal: Proposal, what: str) -> None:
        try:
            self._tell_now(proposal, what)
        except (NeedsComparison, NeedsThread) as need:
            task = self._loop.create_task(self._tell_later(proposal, what, need))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell_later(self, proposal: Proposal, what: str, need: NeedsComparison | NeedsThread) -> None:
        """Compute what an event shows of a large proposal, then tell."""
        await self._queue.again(partial(self._summary, proposal), need)
        self._queue.when_idle(partial(self._tell_or_compare, proposal, what))

    def _tell_now(self, proposal: Proposal, what: str) -> None:
        for event in self._waiting.get(proposal.number, ()):
            event.set()
        if len(self._subscriptions):
            seq = proposal.landed[-1] if what == "landed" and proposal.landed else None
            shown = self._entry(proposal)
            paths = self._summary(proposal).paths
            self._subscriptions.tell("proposal", {"what": what, "proposal": shown, "seq": seq}, paths)
        if proposal.is_settled:
            self._summaries.forget(int(proposal.number))
        self._note_moved(proposal.number)

    def _note_moved(self, number: int) -> None:
        for listener in self.on_moved:
            listener(number)


def _rejection(waited: messages.ProposalWaitResult) -> Rejected:
    """Return the refusal of an edit that was rejected, withdrawn or has expired while it waited."""
    proposal = waited.proposal
    last = proposal.decisions[-1] if proposal.decisions else None
    who = "Nobody" if last is None else last.by.actor
    said = f": {last.comment}" if last is not None and last.comment else "."
    what = (
        f"Proposal {proposal.proposal} was {waited.state}{said}"
        if waited.state in CLOSED
        else f"{who} rejected proposal {proposal.proposal}{said}"
    )
    return Rejected(
        what,
        hint="Nothing was changed.",
        data={
            "proposal": proposal.proposal,
            "state": waited.state,
            "comment": None if last is None else last.comment,
            "comments": [{"text": one.text, "by": one.by.actor, "hunk": one.hunk} for one in waited.comments],
            "by": who,
        },
    )
