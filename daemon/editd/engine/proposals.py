"""Proposals: planned edits that wait for a reviewer, and the landing of their hunks.

The store has what was proposed and decided, and the history what has landed. A landing is one transaction
with an `Approval`, and the verdicts are stored after its commit point. If that fails, or the daemon is killed
in between, `recover` takes the verdicts from the history. So no hunk lands twice.

A proposal never touches a file before its decision. Nothing of it is stored anew when others commit: its view
is computed when somebody asks for it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.edits.proposed_hunks import proposed_files
from editd.edits.rebase import (
    FittedFile,
    Present,
    land,
    land_text,
    rebase,
    reviewer_diff,
    state_with,
    view_token,
)
from editd.errors import (
    Conflict,
    Decided,
    InvalidParams,
    IoError,
    PermissionDenied,
    Stale,
    UnknownProposal,
    ViewChanged,
)
from editd.values.glob import is_among
from editd.values.proposal import Decision, Proposal, ProposalNumber, Reviewer, state_after
from editd.values.transaction import Approval, Seq

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from editd.engine.access import Clock
    from editd.engine.commands import Land, ReviewedText
    from editd.store.history import History
    from editd.store.proposals import ProposalStore
    from editd.values.content import Change, FileState
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath
    from editd.values.proposal import DecisionKind, HunkId, ProposalState, ProposedHunk, Verdict
    from editd.values.transaction import Authorship

    Current = Callable[[WorkspacePath], FileState | None]

log = logging.getLogger(__name__)


class View(Struct, frozen=True):
    """A proposal on the present files, and the token of what is shown."""

    proposal: Proposal
    files: tuple[FittedFile, ...]
    token: str

    @property
    def undecided(self) -> dict[HunkId, ProposedHunk]:
        """The hunks that wait for a decision, by their ids."""
        return {hunk.id: hunk for fitted in self.files for hunk in fitted.file.undecided}


class Landing(Struct, frozen=True):
    """A planned decision to land hunks: its changes of the files, and its effect on the proposal."""

    view: View
    changes: tuple[Change[FileState], ...]
    authorship: Authorship  # of the transaction, with the approval
    decision: Decision
    verdicts: Mapping[HunkId, Verdict]
    reviewer_diff: str


class Proposals:
    """All proposals of a workspace. Used by the engine's thread."""

    def __init__(self, store: ProposalStore, history: History, clock: Clock) -> None:
        """Take over the store, and mark what has landed. Raises IoError or HistoryDamaged."""
        self.store = store
        self._history = history
        self._clock = clock
        self._is_behind = True  # the history may have landed hunks that the store has no verdict of
        self._catch_up()

    # ── the author ──

    def propose(
        self,
        changes: Iterable[Change[FileState]],
        authorship: Authorship,
        may_write: tuple[Glob, ...] | None,
        rule: str,
        fingerprint: str,
    ) -> Proposal:
        """Store planned changes as a new proposal; durable on return. Raises Overloaded or IoError."""
        now_us = self._clock.now_us()
        proposal = Proposal(
            ProposalNumber(0), "open", "edit", authorship, may_write, rule, self._history.head,
            now_us, now_us, fingerprint=fingerprint,
        )  # fmt: skip
        return self.store.add(proposal, proposed_files(changes))

    def first_proposal(self, authorship: Authorship, fingerprint: str) -> Proposal | None:
        """Return the proposal that a repeated request became, or None if its id is new (C7).

        Raises InvalidParams if the id was used for a different request.
        """
        key = authorship.request_id
        first = None if key is None else self.store.by_request(authorship.session, key)
        if first is not None and first.fingerprint != fingerprint:
            raise InvalidParams(
                f"request_id {key!r} was used for a different request, which became proposal {first.number}.",
                hint="Use a new id for a new request.",
                data={"request_id": key, "proposal": first.number},
            )
        return first

    def withdraw(self, number: ProposalNumber, by: Reviewer) -> Proposal:
        """Take a proposal back, which its author's session has verified. Raises Decided, UnknownProposal."""
        return self._settle(self._waiting(number), "withdrawn", "withdraw", by)

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
        return proposal

    def view(self, number: ProposalNumber, current: Current) -> View:
        """Return a proposal on the present files. `current` returns the state of a path.

        Raises UnknownProposal, IoError, or what `current` raises.
        """
        proposal = self.get(number)
        files = tuple(
            rebase(file, Present(current(file.path), None if file.source is None else current(file.source)))
            for file in self.store.files(number, proposal.revision)
        )
        return View(proposal, files, view_token(files))

    def landing(self, request: Land, current: Current) -> Landing:
        """Plan the landing that a reviewer asks for.

        Raises UnknownProposal, Decided, ViewChanged, Conflict, PermissionDenied if the
        author's session could not write a path, and InvalidParams.
        """
        self._waiting(request.proposal)
        view = self.view(request.proposal, current)
        texts = {text.path: text for text in request.texts}
        chosen = _chosen(view, request, texts)
        changes: list[Change[FileState]] = []
        diffs = []
        is_modified = False
        for fitted in view.files:
            text = texts.pop(fitted.file.path, None)
            if text is None:
                theirs = land(fitted, chosen)
                landed = state_with(fitted, chosen)
            else:
                theirs = land_text(fitted, text.content, self._shown(text, fitted))
                landed = theirs[-1].after if theirs else fitted.now
                is_modified |= landed != state_with(fitted, fitted.fitting)
            if theirs or text is not None:
                diffs.append(reviewer_diff(fitted, landed))
            changes += theirs
        if texts:
            path = next(iter(texts))
            raise InvalidParams(f"Proposal {request.proposal} has no file {path}.", data={"path": path.text})
        scope = view.proposal.may_write
        for change in changes:
            if scope is not None and not is_among(change.path, scope):
                raise PermissionDenied(
                    f"The session of proposal {request.proposal} may not write {change.path}.",
                    hint="Leave the hunks of this file out.",
                    data={"path": change.path.text, "proposal": request.proposal},
                )
        return self._planned(view, request, chosen, changes, "".join(diffs), is_modified=is_modified)

    def landed(self, landing: Landing, seq: Seq | None) -> None:
        """Store the verdicts of a landing, once its transaction is committed.

        `seq` is None if all chosen hunks were there. If the store cannot be written, the verdicts stay in the
        history, and each later question takes them from there first.
        """
        proposal = landing.view.proposal
        hunks = _after(landing.view, landing.verdicts)
        after = replace(
            proposal,
            state=state_after(hunks),
            changed_us=landing.decision.time_us,
            landed=proposal.landed if seq is None else (*proposal.landed, seq),
        )
        try:
            self.store.decide(after, replace(landing.decision, seq=seq), landing.verdicts)
        except IoError as refusal:
            if seq is None:
                raise
            log.error("the verdicts on proposal %s could not be stored: %s", proposal.number, refusal)
            self._is_behind = True

    def reject(
        self,
        number: ProposalNumber,
        by: Reviewer,
        hunks: frozenset[HunkId] | None = None,
        comment: str = "",
        request_id: str | None = None,
    ) -> Proposal:
        """Reject these hunks, or all that are undecided. Return the proposal; durable on return.

        Raises UnknownProposal, Decided, ViewChanged if a hunk is not undecided, and IoError.
        """
        proposal = self._waiting(number)
        files = self.store.files(number, proposal.revision)
        undecided = {hunk.id for file in files for hunk in file.undecided}
        chosen = undecided if hunks is None else hunks
        if not chosen <= undecided:
            raise _changed(number, None, chosen - undecided)
        verdicts: dict[HunkId, Verdict] = dict.fromkeys(chosen, _REJECTED)
        state = state_after(_decided(hunk, verdicts) for file in files for hunk in file.hunks)
        after = replace(proposal, state=state, changed_us=self._clock.now_us())
        decision = Decision(after.changed_us, by, "reject", _sorted(chosen), comment, request_id=request_id)
        self.store.decide(after, decision, verdicts)
        return after

    # ── after a crash ──

    def _catch_up(self) -> None:
        """Store the verdicts of transactions that the store does not know. Raises IoError, HistoryDamaged."""
        if not self._is_behind:
            return
        for proposal in list(self.store.open.values()):
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
        hunks = [hunk for file in files for hunk in file.hunks]
        verdicts: dict[HunkId, Verdict] = {
            hunk.id: "landed" for hunk in hunks if hunk.number in approval.hunks
        }
        state = state_after(_decided(hunk, verdicts) for hunk in hunks)
        after = replace(proposal, state=state, changed_us=transaction.time_us, landed=(*proposal.landed, seq))
        by = Reviewer(approval.actor or approval.rule or "", approval.session)
        decision = Decision(
            transaction.time_us, by, "approve", _sorted(verdicts), seq=seq, is_modified=approval.is_modified
        )
        self.store.decide(after, decision, verdicts)
        log.warning("transaction %s had landed hunks of proposal %s before the daemon ended", seq, number)

    # ── parts ──

    def _waiting(self, number: ProposalNumber) -> Proposal:
        """Return a proposal that can be decided. Raises UnknownProposal, or Decided."""
        proposal = self.get(number)
        if not proposal.is_settled:
            return proposal
        decisions = self.store.decisions(number)
        by = decisions[-1].by.actor if decisions else None
        raise Decided(
            f"Proposal {number} is {proposal.state}" + (f", by {by}." if by else "."),
            hint="Nothing was changed. Look at what it has become.",
            data={
                "proposal": number,
                "state": proposal.state,
                "by": by,
                "seq": decisions[-1].seq if decisions else None,
            },
        )

    def _settle(self, proposal: Proposal, state: ProposalState, what: DecisionKind, by: Reviewer) -> Proposal:
        after = replace(proposal, state=state, changed_us=self._clock.now_us())
        assert proposal.may_become(state)
        self.store.decide(after, Decision(after.changed_us, by, what))
        return after

    def _shown(self, text: ReviewedText, fitted: FittedFile) -> FileState | None:
        """Return the file that the reviewer edited. Raises Stale if its content is nowhere."""
        if text.base is None:
            return None
        for state in (fitted.now, fitted.file.base):
            if state is not None and state.version == text.base:
                return state
        content = self._history.content(text.base)
        model = fitted.now or fitted.file.base
        if content is None or model is None:
            raise Stale(text.path.text, text.base, None if fitted.now is None else fitted.now.version)
        return model.with_content(content)

    def _planned(
        self,
        view: View,
        request: Land,
        chosen: Collection[HunkId],
        changes: Iterable[Change[FileState]],
        diff: str,
        *,
        is_modified: bool,
    ) -> Landing:
        """Return the landing of the chosen hunks, which may be there already."""
        proposal = view.proposal
        undecided = view.undecided
        verdicts: dict[HunkId, Verdict] = dict.fromkeys(chosen, "landed")
        if request.rejects_rest:
            verdicts |= dict.fromkeys(undecided.keys() - verdicts.keys(), _REJECTED)
        decision = Decision(
            self._clock.now_us(), request.by, "approve", _sorted(chosen), request.comment,
            is_modified=is_modified, request_id=request.authorship.request_id,
        )  # fmt: skip
        numbers = sorted(undecided[hunk].number for hunk in chosen)
        approval = Approval(
            proposal.number, proposal.revision, tuple(numbers), request.by.actor, request.by.session,
            is_modified=is_modified,
        )  # fmt: skip
        message = request.authorship.message or proposal.authorship.message
        authorship = replace(proposal.authorship, approval=approval, message=message)
        return Landing(view, tuple(changes), authorship, decision, verdicts, diff)


_REJECTED: Verdict = "rejected"


def _chosen(view: View, request: Land, texts: Mapping[WorkspacePath, ReviewedText]) -> frozenset[HunkId]:
    """Return the hunks to land, with all of each file that has the reviewer's text.

    Raises ViewChanged if they are not those that were shown, and InvalidParams if the request names none.
    """
    number = view.proposal.number
    undecided = view.undecided
    replaced = {
        hunk.id for fitted in view.files if fitted.file.path in texts for hunk in fitted.file.undecided
    }
    if request.hunks is not None:
        if missing := request.hunks - undecided.keys():
            raise _changed(number, view, missing)
        chosen = request.hunks
    elif request.view is not None:
        if request.view.partition("-")[0] != view.token.partition("-")[0]:
            raise _changed(number, view, ())
        chosen = frozenset(
            one.hunk.id for fitted in view.files for one in fitted.hunks if one.state in ("fits", "there")
        )
    elif texts:
        chosen = frozenset()
    else:
        raise InvalidParams("`hunks` or `view` is required.", hint="Show the proposal first.")
    chosen |= replaced
    if not chosen:
        raise Conflict(
            f"No hunk of proposal {number} fits the present files.",
            hint="Reject it, or give the text that a file should have.",
            data={"proposal": number, "view": view.token},
        )
    return chosen


def _changed(number: ProposalNumber, view: View | None, changed: Collection[HunkId]) -> ViewChanged:
    return ViewChanged(
        f"Proposal {number} has changed since it was shown.",
        hint="Show it again, and decide on what it is now.",
        data={"proposal": number, "view": view and view.token, "changed": sorted(changed)},
    )


def _after(view: View, verdicts: Mapping[HunkId, Verdict]) -> list[ProposedHunk]:
    return [_decided(hunk, verdicts) for fitted in view.files for hunk in fitted.file.hunks]


def _decided(hunk: ProposedHunk, verdicts: Mapping[HunkId, Verdict]) -> ProposedHunk:
    return replace(hunk, verdict=verdicts.get(hunk.id, hunk.verdict))


def _sorted(hunks: Iterable[HunkId]) -> tuple[HunkId, ...]:
    return tuple(sorted(hunks))
