"""The kinds of requests that land: how each is planned, and its own part of the way through the gates."""

from __future__ import annotations

from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.edits.pending_changes import Owner, PendingChanges
from editd.edits.plan import plan
from editd.engine.access import plan_undo
from editd.engine.arrivals import arriving
from editd.engine.changes_by_time import by_time
from editd.engine.commands import Apply, Arrive, Land, Restore, Undo, reader_of
from editd.engine.external_changes import DiskSnapshot
from editd.engine.landing_pipeline import LandingRequest
from editd.engine.restore import restore
from editd.engine.undo_conflicts import NoRoom, UndoConflict, undo_conflicts
from editd.engine.undo_selection import BySession, LastEditOf, message_of, rests
from editd.engine.unsaved import NOBODY, note_of, refusal_of
from editd.errors import NotAFile, NothingToUndo, Refused, Stale
from editd.review.submission import LANDS, NeedsCommit, collect, landing_by_rule
from editd.store.path_history import HistoryWalker
from editd.values.path import WorkspacePath, is_url
from editd.values.transaction import Outcome
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.edits.overlay import Overlay, Snapshot
    from editd.engine.access import AccessControl
    from editd.engine.commands import Reader, Write
    from editd.engine.commit import Batch, PendingTransaction
    from editd.engine.landing_pipeline import LandingPipeline
    from editd.engine.preparation import PlannedUndo
    from editd.engine.sessions import ReadVersions
    from editd.engine.undo import UndoPlan
    from editd.engine.undo_selection import UndoTarget
    from editd.engine.unsaved import HeldDocuments
    from editd.review.choice import Landing
    from editd.review.policy import Ruling
    from editd.store.history import History
    from editd.values.content import Change, FileState, Version
    from editd.values.transaction import Base, ConflictReport, ReadMark

    Expected = Mapping[tuple[Reader, WorkspacePath], Base]

_SEQ = attrgetter("transaction.seq")
FREE_MESSAGE_CHARACTERS = 1000  # of an undo, which needs no room for it beside a full quota


def landing_request(pipeline: LandingPipeline, batch: Batch, request: Write) -> LandingRequest:
    """Return a request on its way, as its kind goes."""
    if isinstance(request, Apply) and request.is_collected and request.proposal is None:
        return CollectedLanding(pipeline, batch, request)
    return _KINDS[type(request)](pipeline, batch, request)


def is_asked_for(request: Apply | Undo | Restore) -> bool:
    """Return whether the request becomes a proposal even if the policy asks for no review."""
    if isinstance(request, Apply) and (request.proposal is not None or request.is_collected):
        return True
    return request.propose is not None


# ── edits ──


class EditLanding(LandingRequest):
    """Edits of files, in a changeset."""

    kind = "edit"
    transaction_kind = "edit"
    request: Apply

    def __init__(self, pipeline: LandingPipeline, batch: Batch, request: Apply) -> None:
        super().__init__(pipeline, batch, request)
        self.wish, self.hooked = request, request.hooked
        self.is_asked_for = is_asked_for(request)

    def plan(self) -> Outcome:
        pipeline = self.pipeline
        if pipeline.prepared is not None:
            self.prepared = pipeline.take_prepared(self.request)
            if self.prepared is not None and self.prepared.outcome is not None:
                return self.prepared.outcome
        return planned_edits(pipeline, self.view, self.request, self.batch.expected)

    def end_unchanged(self, outcome: Outcome) -> Outcome:
        self.pipeline.seen.note_outcome(self.request.reader, outcome)
        return outcome


class CollectedLanding(LandingRequest):
    """An edit on top of its session's open proposal, which becomes a part of that."""

    kind = "collected edit"
    request: Apply

    def __init__(self, pipeline: LandingPipeline, batch: Batch, request: Apply) -> None:
        super().__init__(pipeline, batch, request)
        self.wish = replace(request, propose=request.propose or "session", proposal=None)
        self.hooked, self.is_asked_for = request.hooked, True
        self._below: PendingChanges
        self._files: Overlay
        self._changes: tuple[Change[FileState], ...] = ()

    def plan(self) -> Outcome:
        if self.batch.steps:
            raise NeedsCommit
        pipeline = self.pipeline
        self._below = collected_changes(pipeline, self.request.authorship.session)
        present = DiskSnapshot(pipeline.recorder.tree, pipeline.history, quiet=False)
        self._files = self._below.over(present)
        outcome = planned_edits(pipeline, self._files, self.request)
        return replace(outcome, warnings=outcome.warnings + self._below.warnings)

    def file_at(self, path: WorkspacePath) -> FileState | None:
        return self._files.file_at(path)

    def in_dry_run(self, outcome: Outcome) -> Outcome:
        return outcome

    def changes_of_files(self, outcome: Outcome) -> Sequence[Change[FileState]]:
        if outcome.changes:
            self._changes = self._below.then(outcome.changes, self.batch.view.file_at).changes
            self.pipeline.files.check(self._changes)
        return self._changes

    def propose(self, outcome: Outcome, ruling: Ruling) -> Outcome:
        proposals = self.pipeline.opened_proposals()
        return collect(self.submission(), outcome, self._changes, ruling, proposals)


def collected_changes(pipeline: LandingPipeline, session: str | None) -> PendingChanges:
    """Return the changes of the proposal that collects a session's edits; none without a proposal."""
    proposals, owner = pipeline.opened_proposals(), Owner("session", session or "")
    known = proposals.collecting(session)
    if known is None:
        return PendingChanges(owner)
    snapshot = DiskSnapshot(pipeline.recorder.tree, pipeline.history, quiet=False)
    return proposals.view(known.number, snapshot.file_at).pending(owner)


def planned_edits(
    pipeline: LandingPipeline, view: Snapshot, request: Apply, expected: Expected = MappingProxyType({})
) -> Outcome:
    """Return the outcome of edits on the files of a view. `expected` is as in `_Knowledge`.

    Raises Refused, and NeedsSearch or NeedsComparison for work of another process.
    """
    guard, tooling = pipeline.guard, pipeline.tooling
    knowledge = _Knowledge(
        pipeline.history, pipeline.seen, request.reader, expected, pipeline.documents, request.unsaved.owner
    )
    try:
        return plan(
            request.edits,
            view if guard is None else guard.within(view, request.authorship.session),
            knowledge,
            on_stale=request.on_stale,
            fallback_encoding=pipeline.decoder.fallback,
            tools=tooling.with_results(request.found) if request.found else tooling,
        )
    except Refused:
        for edit in request.edits:  # A hidden file has its own refusal, in place of a missing file's.
            if not isinstance(edit, messages.Patch | messages.Tool) and not is_url(edit.path):
                pipeline.recorder.hidden.refuse(WorkspacePath.parse(edit.path))
        raise


class _Knowledge(Struct, frozen=True):
    """The state of the history and of the reader that planning needs."""

    history: History
    seen_by: ReadVersions
    reader: Reader
    expected: Expected  # bases that readers will know after the earlier requests of this turn
    documents: HeldDocuments
    owner: int  # the connection of the request

    def content(self, version: Version) -> bytes | None:
        held = self.documents.text(version) if self.documents.by_path else None
        return self.history.content(version) if held is None else held

    def base_of(self, path: WorkspacePath) -> Base | None:
        return self.expected.get((self.reader, path)) or self.seen_by.by(self.reader, path)

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        return self.seen_by.sight(reader_of(reader), path) or self.seen_by.sight(self.reader, path)

    def unsaved_refusal(self, path: WorkspacePath, version: Version) -> Refused | None:
        held = [one for one in self.documents.others(path, NOBODY) if one.version == version]
        return refusal_of(path, held) if held else None

    def is_held_by_sender(self, path: WorkspacePath) -> bool:
        return self.owner in self.documents.by_path.get(path, ())

    def note_of_unsaved(self, path: WorkspacePath) -> str | None:
        return note_of(self.documents.others(path, self.owner), self.history.content)


# ── work that is taken back ──


class UndoLanding(LandingRequest):
    """An undo, a redo or a rollback."""

    kind = "undo"
    is_recorded_without_changes = True
    request: Undo

    def __init__(self, pipeline: LandingPipeline, batch: Batch, request: Undo) -> None:
        super().__init__(pipeline, batch, request)
        self.wish, self.is_asked_for = request, is_asked_for(request)
        self.transaction_kind = request.kind
        self.is_free = len(request.authorship.message) <= FREE_MESSAGE_CHARACTERS
        self._past = HistoryWalker(pipeline.history)
        self._targets: list[UndoTarget]
        self._inverted: UndoPlan

    def plan(self) -> Outcome:
        request, scope = self.request, self.request.scope
        planned = self._planned()
        if request.dry_run and self.view.strangers:
            self.pipeline.recorder.record_strangers(self.view)
            self._past = HistoryWalker(self.pipeline.history)
            planned = planned_undo(self.pipeline, request, self._past, self.view)
        if isinstance(planned, NothingToUndo):
            raise planned
        self._targets, self._inverted, warnings = planned
        self._refuse_hidden()
        targets = self._inverted.targets
        if self.pipeline.rules.protected:
            self.repaired = _repaired(request, self._targets)
        self.undoes, self.parts = list(map(_SEQ, targets)), []
        for target in targets:
            if target.paths is not None:
                self.parts += target.parts
        if not self.authorship.message:
            message = message_of(scope, self.authorship.session)
            self.authorship = replace(self.authorship, message=message)
        answers = (f"The last edit of {scope.path} is undone.",) if isinstance(scope, LastEditOf) else ()
        return Outcome(self._inverted.changes, warnings=warnings + rests(targets), answers=answers)

    def _planned(self) -> PlannedUndo | NothingToUndo:
        pipeline = self.pipeline
        if pipeline.prepared is not None:
            self.prepared = pipeline.take_prepared(self.request)
            if self.prepared is not None and self.prepared.undo is not None:
                return self.prepared.undo
        return planned_undo(pipeline, self.request, self._past, self.view)

    def _refuse_hidden(self) -> None:
        """Raise PermissionDenied if a target's file is hidden, although the undo might not change it now."""
        by_folder: dict[bytes, WorkspacePath] = {}
        for target in self._targets:
            for touch in target.touches:
                by_folder[touch.path.raw.rpartition(b"/")[0]] = touch.path
        for path in by_folder.values():
            self.pipeline.recorder.hidden.refuse(path)

    def permit_taking_back(self, guard: AccessControl) -> None:
        guard.check_taken_back(self.request, self._targets, self._past, self.view)

    def in_dry_run(self, outcome: Outcome) -> Outcome:
        in_the_way = self._conflicts()
        if self.request.on_conflict == "skip" or not in_the_way:
            # Otherwise the changes are incomplete and may clash.
            in_the_way = self._without_room() or in_the_way
        return replace(outcome, conflicts=in_the_way, by_time=by_time(self._targets))

    def beside_conflicts(self, outcome: Outcome) -> Outcome:
        is_partial = self.request.on_conflict == "skip"
        if self._inverted.places and not (is_partial and outcome.changes):
            raise UndoConflict(self._inverted.places, self._targets, self.request.scope)
        return replace(outcome, conflicts=self._conflicts()) if is_partial else outcome

    def _conflicts(self) -> tuple[ConflictReport, ...]:
        return undo_conflicts(
            self._inverted.places, self._targets, self.request.scope, self._past, self.view.file_at
        )

    def _without_room(self) -> tuple[ConflictReport, ...]:
        """Return the files that have no room for the undo, which would be refused."""
        if self.prepared is not None:
            return ()  # the preparation has checked them
        try:
            self.pipeline.files.check(self._inverted.changes)
        except NotAFile as refusal:
            return NoRoom(refusal, self.pipeline.history).files
        return ()


def planned_undo(
    pipeline: LandingPipeline, request: Undo, past: HistoryWalker, view: DiskSnapshot
) -> PlannedUndo | NothingToUndo:
    """Return the plan of an undo on the files of a view, or the refusal if there is nothing to undo.

    Raises other refusals.
    """
    try:
        return plan_undo(request, past, view, pipeline.guard)
    except NothingToUndo as refusal:
        return refusal


def _repaired(request: Undo, targets: Sequence[UndoTarget]) -> frozenset[WorkspacePath]:
    """Return the paths with only work of a session to take back, in spite of a protection.

    An undo is never taken back there: that would make the change again.
    """
    if request.kind == "redo":
        return frozenset()
    ours: set[WorkspacePath] = set()
    others: set[WorkspacePath] = set()
    for target in targets:
        made = target.transaction
        is_work = made.kind in ("edit", "exec", "outside") and not made.undoes
        is_sessions = isinstance(request.scope, BySession) or made.authorship.session is not None
        (ours if is_work and is_sessions else others).update(touch.path for touch in target.touches)
    return frozenset(ours - others)


class RestoreLanding(LandingRequest):
    """Files as they were."""

    kind = "restore"
    transaction_kind = "restore"
    request: Restore

    def __init__(self, pipeline: LandingPipeline, batch: Batch, request: Restore) -> None:
        super().__init__(pipeline, batch, request)
        self.wish, self.is_asked_for = request, is_asked_for(request)
        self._changes: Sequence[Change[FileState]] = ()

    def plan(self) -> Outcome:
        name, changes, warnings = restore(self.request, self.pipeline.history, self.view.file_at)
        self._changes = changes
        if not self.authorship.message:
            self.authorship = replace(self.authorship, message=f"Restore {name}")
        return Outcome(changes, warnings=warnings)

    def permit_taking_back(self, guard: AccessControl) -> None:
        guard.check_restored(self.request, self._changes, self.pipeline.history)


# ── changes that were decided before ──


class ApprovalLanding(LandingRequest):
    """Hunks of a proposal, as a transaction of its author."""

    kind = "approval"
    request: Land

    def plan(self) -> Outcome:
        pipeline, request = self.pipeline, self.request
        proposals = pipeline.opened_proposals()
        landing, ruling = proposals.landing(request, self.view.file_at, pipeline.decoder), LANDS
        if request.passed is not None:
            landing, ruling = landing_by_rule(landing, request.passed, pipeline.review, proposals)
        self._landing: Landing = landing
        self._ruling: Ruling = ruling
        proposal = landing.view.proposal
        self.transaction_kind, self.authorship = proposal.kind, landing.authorship
        self.undoes, self.parts = proposal.undoes, proposal.parts
        self.is_exact, self.hooked = landing.is_as_proposed, request.hooked
        self.asked = replace(request, authorship=landing.authorship, fingerprint=proposal.fingerprint)
        return Outcome(landing.changes, reviewer_diff=landing.decision.reviewer_diff)

    def end_unchanged(self, outcome: Outcome) -> Outcome:
        self.pipeline.opened_proposals().landed(self._landing, None)
        return outcome

    def stage(self, index: int, outcome: Outcome, ruling: Ruling) -> PendingTransaction:
        proposals = self.pipeline.opened_proposals()
        proposals.use(self._ruling)
        proposals.intend(self._landing)
        step = super().stage(index, outcome, ruling)
        self.pipeline.landings[step.draft.transaction.seq] = self._landing
        return step


class ArrivalLanding(LandingRequest):
    """What another host has landed."""

    kind = "arrival"
    request: Arrive

    def plan(self) -> Outcome:
        pipeline, request, chain = self.pipeline, self.request, self.request.chain
        if chain.stopped_by is not None and chain.stopped_by is not request:
            raise Stale(next((path.text for path in request.after), ""), None, None)
        chain.stopped_by = request  # until it is staged
        self.transaction_kind, self.undoes, self.parts = request.kind, request.undoes, request.parts
        self.is_recorded_without_changes = bool(request.undoes and not request.after)
        outcome = Outcome(arriving(request, pipeline.history, self.view.file_at))
        for change in outcome.changes:
            pipeline.recorder.hidden.refuse(change.path)
        return outcome

    def end_unchanged(self, outcome: Outcome) -> Outcome:
        self.request.chain.stopped_by = None
        return outcome

    def stage(self, index: int, outcome: Outcome, ruling: Ruling) -> PendingTransaction:
        step = super().stage(index, outcome, ruling)
        self.request.chain.stopped_by = None
        return step


_KINDS: Mapping[type, type[LandingRequest]] = MappingProxyType(
    {
        Apply: EditLanding,
        Undo: UndoLanding,
        Restore: RestoreLanding,
        Land: ApprovalLanding,
        Arrive: ArrivalLanding,
    }
)
