"""The gates between a plan and its transaction, in their order, and the gates of each kind of change.

A kind passes every gate unless its row in `GAPS` has a reason. A kind without a row cannot land.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from msgspec.structs import replace

from editd.engine.access import (
    EditPolicy,
    StoredBytes,
    permit_carried,
    permit_move,
    permit_proposal,
)
from editd.engine.answers import encode_notes
from editd.engine.commands import Apply, Undo
from editd.engine.hooks import apply_hooks
from editd.engine.sessions import ReadVersions
from editd.engine.unsaved import HeldDocuments
from editd.errors import Broken, PermissionDenied, Refused
from editd.review.policy import NEVER_ASKS
from editd.review.submission import LANDS, Submission, approved, judge, propose

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from editd.engine.access import AccessControl
    from editd.engine.commands import Reader, Restore, Result, Write
    from editd.engine.commit import Batch, PendingTransaction
    from editd.engine.external_changes import DiskSnapshot
    from editd.engine.hooks import Hook, Hooked
    from editd.engine.preparation import Preparation
    from editd.engine.recorder import Recorder
    from editd.review.choice import Landing
    from editd.review.policy import ReviewPolicy, Ruling
    from editd.review.proposals import Proposals
    from editd.tool_api.tool_set import ToolSet
    from editd.values.content import Change, Decoder, FileState
    from editd.values.path import WorkspacePath
    from editd.values.proposal import ProposalKind
    from editd.values.transaction import Authorship, Base, Outcome, Part, Seq
    from editd.wire.messages import Kind

Gate = Literal[
    "permit",  # protected, hidden and excluded paths; a session's scope, pause, leases and reads
    "hooks",  # the programs of the configuration that format a file, or refuse it
    "review",  # the rules that land changes, make them wait for a reviewer, or refuse them
    "owner",  # who may take back the work of others
    "unsaved",  # the trial of the changes on texts that editors hold unsaved; a dry run ends behind it
    "conflicts",  # later work in the way
    "adopt",  # changes of other programs become transactions first
    "outdated",  # the answer names files that the reader did not know as they are
    "quota",  # room for more history
    "propose",  # a proposal instead of a transaction, if the review asks for one
    "stage",  # the transaction, in the batch
]
LandingKind = Literal["edit", "collected edit", "undo", "restore", "approval", "arrival", "outside change"]

GATES: tuple[Gate, ...] = get_args(Gate)

_IN_PLACE = "The files have it already."
_EXACT = "It brings back exact bytes."
_BY_OTHERS = "The rules of the host that has landed it decided, and all hosts must agree."
_FITS = "What does not fit is refused by the plan."
_ONE_ANSWER = "Its plan is made from the files as they are, and its answer has all changes."

GAPS: Mapping[LandingKind, Mapping[Gate, str]] = MappingProxyType(
    {
        "edit": {
            "owner": "An edit of a file is no undo of the work of others.",
            "conflicts": _FITS,
        },
        "collected edit": {
            "owner": "An edit of a file is no undo of the work of others.",
            "unsaved": "No file changes yet: the approval passes this gate.",
            "conflicts": _FITS,
            "outdated": "It is planned on the files of the proposal.",
            "stage": "It becomes a part of the session's proposal.",
        },
        "undo": {
            "hooks": _EXACT,
            "outdated": _ONE_ANSWER,
        },
        "restore": {
            "hooks": _EXACT,
            "conflicts": "It replaces later work, as asked.",
            "outdated": _ONE_ANSWER,
        },
        "approval": {
            "review": "It is the review.",
            "owner": "The proposal has the author's right, and the reviewer's.",
            "conflicts": "A hunk that does not fit is left out of the view, or the approval is refused.",
            "outdated": "The reviewer has decided on this view.",
            "propose": "It was one.",
        },
        "arrival": {
            "permit": "Only a hidden folder refuses what the rules of another host have landed.",
            "hooks": _BY_OTHERS,
            "review": _BY_OTHERS,
            "owner": _BY_OTHERS,
            "unsaved": "Its editor sees that the file has changed, as after any other program.",
            "conflicts": "Its plan is refused if a file has changed, and made again by the exchange.",
            "outdated": "Nobody here has asked for it.",
            "quota": _BY_OTHERS,
            "propose": _BY_OTHERS,
        },
        "outside change": {
            "permit": _IN_PLACE,
            "hooks": _IN_PLACE,
            "review": _IN_PLACE,
            "owner": _IN_PLACE,
            "unsaved": _IN_PLACE,
            "conflicts": _IN_PLACE,
            "outdated": _IN_PLACE,
            "quota": "A full quota must not hide a change that has happened.",
            "propose": _IN_PLACE,
            "stage": "It is adopted.",
        },
    }
)


def gates_of(kind: LandingKind) -> frozenset[Gate]:
    """Return the gates that changes of this kind pass."""
    return frozenset(GATES) - GAPS[kind].keys()


class LandingRequest:
    """A request on its way through the gates. Each kind has a class with its own parts of the way."""

    kind: ClassVar[LandingKind]
    gates: ClassVar[frozenset[Gate]]
    is_exact = False  # no hook may change the bytes
    is_asked_for = False  # a review, by the request or its session
    is_free = False  # it takes effect beside a full quota
    is_recorded_without_changes = False
    repaired: Collection[WorkspacePath] = frozenset()  # protected paths that were changed in spite of that
    undoes: Sequence[Seq] = ()
    parts: Sequence[Part] = ()
    transaction_kind: Kind
    authorship: Authorship  # of the transaction
    view: DiskSnapshot  # the files that it is planned on
    asked: Write  # the request, in the name of the transaction's author
    wish: Apply | Undo | Restore  # the request, with the wish of its session for a review
    hooked: Hooked | None = None  # the results of the hooks for the last plan
    prepared: Preparation | None = None

    def __init_subclass__(cls) -> None:
        cls.gates = gates_of(cls.kind)

    def __init__(self, pipeline: LandingPipeline, batch: Batch, request: Write) -> None:
        self.pipeline, self.batch, self.view = pipeline, batch, batch.view
        self.request = self.asked = request
        self.authorship = request.authorship

    def plan(self) -> Outcome:
        """Return the planned changes. Raises Refused, and what asks for work elsewhere."""
        raise NotImplementedError

    def file_at(self, path: WorkspacePath) -> FileState | None:
        """Return a file that it is planned on, or None for a folder or a path below a symlink."""
        return self.view.file_at(path)

    def permit_taking_back(self, guard: AccessControl) -> None:
        """Raise PermissionDenied if it takes back the work of others without permission."""
        raise NotImplementedError

    def in_dry_run(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a dry run. Raises Refused if the files have no room for the changes."""
        if self.prepared is None:
            self.pipeline.files.check(outcome.changes)
        return outcome

    def beside_conflicts(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the conflicts that it leaves alone. Raises UndoConflict."""
        raise NotImplementedError

    def changes_of_files(self, outcome: Outcome) -> Sequence[Change[FileState]]:
        """Return the changes from the present files."""
        return outcome.changes

    def end_unchanged(self, outcome: Outcome) -> Outcome:
        """Return the answer if there is nothing to change."""
        return outcome

    def propose(self, outcome: Outcome, ruling: Ruling) -> Outcome:
        """Make a proposal of changes that could land, and return the outcome with its number."""
        pipeline = self.pipeline
        pipeline.files.check(outcome.changes)
        return propose(
            self.submission(), outcome, ruling, pipeline.opened_proposals(), self.undoes, self.parts
        )

    def submission(self) -> Submission:
        """Return the request as its review needs it."""
        request, guard = self.wish, self.pipeline.guard
        edit = request if isinstance(request, Apply) else None
        return Submission(
            self.authorship, _kind_of(request), request.fingerprint, request.propose,
            None if edit is None else edit.proposal, edit is not None and edit.is_draft,
            request.sender.is_reviewer, request.sender.pid,
            None if guard is None else guard.scope_of(self.authorship.session),
        )  # fmt: skip

    def stage(self, index: int, outcome: Outcome, ruling: Ruling) -> PendingTransaction:
        """Make the changes a transaction of the batch, for the request of this index."""
        pipeline = self.pipeline
        authorship = self.authorship
        if ruling is not LANDS:
            authorship = approved(authorship, ruling, pipeline.proposals)
        return self.batch.stage(
            self.transaction_kind, authorship, pipeline.recorder.clock.now_us(), outcome, request=index,
            undoes=self.undoes, parts=self.parts, notes=_notes(outcome, self.asked),
            staging=None if self.prepared is None else self.prepared.take_staging(),
        )  # fmt: skip


class LandingPipeline:
    """The gates of a workspace, and what they ask."""

    review: ReviewPolicy = NEVER_ASKS
    rules = EditPolicy()
    hooks: tuple[Hook, ...] = ()
    prepared: Preparation | None = None  # of the large request that is carried out

    def __init__(
        self,
        recorder: Recorder,
        decoder: Decoder,
        tooling: ToolSet,
        guard: AccessControl | None,
        proposals: Proposals | None,
    ) -> None:
        """Without a `guard`, sessions have no rules. Without `proposals`, nothing can wait for a review."""
        self.recorder, self.decoder, self.tooling = recorder, decoder, tooling
        self.history, self.files = recorder.history, recorder.files
        self.guard, self.proposals = guard, proposals
        self.seen = ReadVersions() if guard is None else guard.seen
        self.documents = HeldDocuments()
        self.landings: dict[Seq, Landing] = {}  # of the batch, by the drafts of their transactions

    def land(self, landing: LandingRequest, index: int) -> Result | None:
        """Plan a request, and carry its changes through the gates of its kind, in their order.

        Return None if the result depends on the commit of the batch. Raises NeedsCommit, Refused, and what
        asks for work elsewhere: NeedsSearch, NeedsComparison, HooksNotRun.
        """
        gates, batch, request = landing.gates, landing.batch, landing.request
        outcome = landing.plan()
        if "permit" in gates:
            self.permit(landing.asked, outcome, batch.expected, landing.repaired)
        if self.hooks and "hooks" in gates and not landing.is_exact:
            outcome = apply_hooks(outcome, self.hooks, landing.hooked, landing.file_at)
        ruling = LANDS
        if "review" in gates and (self.review is not NEVER_ASKS or landing.is_asked_for):
            ruling = self._judge(landing, outcome)
        if "owner" in gates:
            ruling = self._permit_ruling(landing, ruling)
        if self.documents.by_path and "unsaved" in gates and ruling.action != "ask":
            outcome = self._tried(request, outcome)
        if request.dry_run:
            return _would_propose(landing.in_dry_run(outcome), ruling)
        if "conflicts" in gates:
            outcome = landing.beside_conflicts(outcome)
        self.recorder.adopt_into(batch, request, changes=landing.changes_of_files(outcome))
        if "outdated" in gates:
            outdated = self.seen.outdated(request.reader, outcome.changes, batch.expected)
            outcome = replace(outcome, outdated=outdated) if outdated else outcome
        if not (outcome.changes or landing.is_recorded_without_changes):
            return landing.end_unchanged(outcome)
        if (
            self.rules.quota is not None
            and "quota" in gates
            and (ruling.action == "ask" or not landing.is_free)
        ):
            self.check_room()
        if ruling.action == "ask" or "stage" not in gates:
            return landing.propose(outcome, ruling)
        landing.stage(index, outcome, ruling)
        return None

    def take_prepared(self, request: Write) -> Preparation | None:
        """Return the preparation of the request if it is still valid. It serves once."""
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared.request is not request or self.hooks or not prepared.is_valid():
            return None
        if isinstance(request, Undo) and isinstance(prepared.undo, tuple) and self.guard is not None:
            try:
                targets, _ = self.guard.spare_published(request.scope, prepared.undo[0])
            except Refused:
                return None
            if targets != prepared.undo[0]:  # some were published meanwhile
                return None
        return prepared

    def permit(
        self,
        request: Write,
        outcome: Outcome,
        expected: Mapping[tuple[Reader, WorkspacePath], Base],
        repaired: Collection[WorkspacePath] = (),
    ) -> None:
        """Raise Refused if the session may not make these changes, even as a dry run.

        `repaired` has the protected paths that an undo may change, because a change went past the protection.
        """
        if self.rules.protected:
            self.rules.permit([change for change in outcome.changes if change.path not in repaired])
        for change in outcome.changes:
            self.recorder.hidden.refuse(change.path)
            if change.source is not None:
                permit_move(change.source, change.path, self.history.excluded.rule)
        for source, path in outcome.carried:
            permit_carried(source, path, self.history.excluded.rule)
        if self.guard is not None:
            self.guard.permit(request, outcome, expected)

    def _judge(self, landing: LandingRequest, outcome: Outcome) -> Ruling:
        """Return whether the planned changes land. Raises NeedsCommit, or Refused."""
        if not outcome.changes or (self.review.never_asks and not landing.is_asked_for):
            return LANDS
        ruling = judge(
            landing.submission(), outcome.changes, self.review, self.opened_proposals(),
            is_first=not landing.batch.steps,
        )  # fmt: skip
        if ruling.action == "ask":
            permit_proposal(outcome.changes, self.history.excluded.rule)
        return ruling

    def _permit_ruling(self, landing: LandingRequest, ruling: Ruling) -> Ruling:
        """Return the ruling about work that is taken back, if the sender may take it back.

        A proposal then waits for a reviewer: no check of the configuration lands it.
        """
        request = landing.wish
        if self.guard is None or request.dry_run or request.sender.refusal is None:
            return ruling
        if ruling.action != "ask":
            landing.permit_taking_back(self.guard)
        elif ruling.checks:
            try:
                landing.permit_taking_back(self.guard)
            except PermissionDenied:
                return replace(ruling, checks=())
        return ruling

    def _tried(self, request: Write, outcome: Outcome) -> Outcome:
        """Try the changes on what editors hold unsaved. Raises Unsaved if they do not merge with it."""
        trial = self.documents.try_changes(outcome.changes, request.unsaved, self.history.content)
        if trial is None:
            return outcome
        return replace(outcome, unsaved=trial.merged, warnings=outcome.warnings + trial.warnings)

    def check_room(self, more: int = 0) -> None:
        """Raise IoError (EDQUOT) if the quota is reached, or would be with `more` bytes."""
        if self.rules.quota is not None:
            self.rules.check_room(self.stored_bytes(), more)

    def stored_bytes(self) -> StoredBytes:
        """Return the bytes that the quota limits."""
        proposals = 0 if self.proposals is None else self.proposals.store.stored_bytes
        return StoredBytes(
            self.history.disk_bytes + self.history.excluded.bytes, proposals, self.documents.bytes,
            index=self.history.index.stored_bytes,
            marks=0 if self.guard is None else self.guard.sessions.sights.stored_bytes,
        )  # fmt: skip

    def opened_proposals(self) -> Proposals:
        """Return the proposals. Raises Broken if this engine was opened without them."""
        if self.proposals is None:
            raise Broken("The proposals are not open.", hint="Restart the daemon.")
        return self.proposals


def _kind_of(request: Apply | Undo | Restore) -> ProposalKind:
    if isinstance(request, Apply):
        return "edit"
    return request.kind if isinstance(request, Undo) else "restore"


def _would_propose(outcome: Outcome, ruling: Ruling) -> Outcome:
    return replace(outcome, would_propose=ruling.rule) if ruling.action == "ask" else outcome


def _notes(outcome: Outcome, request: Write) -> bytes:
    has_notes = request.authorship.request_id is not None or outcome.formatted_by
    return encode_notes(outcome, request.fingerprint) if has_notes else b""
