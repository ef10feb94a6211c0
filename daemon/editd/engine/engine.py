"""The engine: one method for each verb, called from one thread. It and its recorder own all mutable state.

`carry_out` plans each request on the result of the previous one, makes all of them durable with one sync, and
publishes them. The other methods answer requests that change nothing. Nothing here is async. The time of an
edit does not depend on the size of the workspace.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections import deque
from itertools import filterfalse
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from editd.edits.comparison import NeedsComparison
from editd.edits.diff import unified
from editd.edits.plan import plan
from editd.edits.search import NeedsSearch
from editd.engine.access import (
    EditPolicy,
    StoredBytes,
    permit_carried,
    permit_move,
    permit_proposal,
    plan_undo,
)
from editd.engine.answers import (
    encode_notes,
    explain,
    first_answer,
    first_landing,
    kept_changing,
    suggest,
    with_changes_since,
)
from editd.engine.arrivals import arriving
from editd.engine.changes_by_time import by_time
from editd.engine.collection import CollectedFiles, collected, overlay_of
from editd.engine.commands import (
    Apply,
    Arrive,
    Land,
    NeedsComparing,
    NeedsDelay,
    NeedsHooks,
    NeedsRegex,
    Reader,
    Restore,
    Result,
    Sender,
    Undo,
    Write,
    reader_of,
)
from editd.engine.external_changes import (
    DiskSnapshot,
    recorded_state,
)
from editd.engine.hooks import Hook, HooksNotRun, hooked
from editd.engine.path_history import HistoryWalker, restore
from editd.engine.preparation import Preparation, files_of
from editd.engine.review import (
    LANDS,
    NeedsCommit,
    approved,
    collect,
    is_asked_for,
    judge,
    landing_by_rule,
    propose,
)
from editd.engine.review_policy import NEVER_ASKS
from editd.engine.sessions import ReadVersions
from editd.engine.undo_conflicts import NoRoom, UndoConflict, undo_conflicts
from editd.engine.undo_selection import BySession, LastEditOf, message_of, rests
from editd.engine.unsaved import NOBODY, HeldDocuments, note_of, refusal_of
from editd.engine.unshared import FirstWarnings, excluded_warnings
from editd.engine.weight import weight_of
from editd.errors import (
    Broken,
    FileMissing,
    InUse,
    NotAFile,
    NothingToUndo,
    PermissionDenied,
    Refused,
    Stale,
    Unread,
)
from editd.tools.api import ToolSet
from editd.values.content import Change, Decoder, FileState
from editd.values.name_key import is_same_form
from editd.values.path import WorkspacePath, is_url
from editd.values.transaction import Authorship, Base, Outcome, ReadMark, Seq, Transaction
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

    from editd.edits.search import Match, Search
    from editd.engine.access import AccessControl
    from editd.engine.commit import Batch, PendingTransaction
    from editd.engine.preparation import PlannedUndo
    from editd.engine.proposal_view import Landing
    from editd.engine.proposals import Proposals
    from editd.engine.recorder import Recorder
    from editd.engine.review_policy import ReviewPolicy, Ruling
    from editd.engine.undo_selection import UndoTarget
    from editd.engine.unshared import Unshared
    from editd.store.history import History, TransactionDraft
    from editd.values.content import Version
    from editd.values.transaction import ConflictReport
    from editd.wire.messages import OnStale

    Expected = Mapping[tuple[Reader, WorkspacePath], Base]

log = logging.getLogger(__name__)


FREE_MESSAGE_CHARACTERS = 1000  # of an undo, which needs no room for it beside a full quota
ROUNDS_MAX = 50  # attempts to plan an edit of a file that other programs keep changing
WRITER_WAIT_SECONDS = 0.005  # until a file that is open for writing is read again
PACKING_WAIT_SECONDS = 0.05  # until packing may have caught up


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

    def seen(self, path: WorkspacePath) -> Base | None:
        return self.expected.get((self.reader, path)) or self.seen_by.by(self.reader, path)

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        return self.seen_by.sight(reader_of(reader), path) or self.seen_by.sight(self.reader, path)

    def refusal_of_unsaved(self, path: WorkspacePath, version: Version) -> Refused | None:
        held = [one for one in self.documents.others(path, NOBODY) if one.version == version]
        return refusal_of(path, held) if held else None

    def is_held_by_sender(self, path: WorkspacePath) -> bool:
        return self.owner in self.documents.by_path.get(path, ())

    def note_of_unsaved(self, path: WorkspacePath) -> str | None:
        return note_of(self.documents.others(path, self.owner), self.history.content)


class Engine:
    """What carries out the requests to a workspace, with the recorder of its history and files."""

    guard: AccessControl | None = None
    proposals: Proposals | None = None
    review: ReviewPolicy = NEVER_ASKS
    rules = EditPolicy()
    hooks: tuple[Hook, ...] = ()
    unshared: Unshared | None = None
    """What other hosts do not get from this one; None if it has joined no log of several hosts."""
    _prepared: Preparation | None = None
    _is_between_slices = False  # of a large request

    def __init__(
        self, recorder: Recorder, *, fallback_encoding: str | None = None, tooling: ToolSet | None = None
    ) -> None:
        """`recorder` has recovered. `tooling` has the dialects whose tools an edit may call."""
        self.recorder = recorder
        self.history, self.tree, self.files = recorder.history, recorder.tree, recorder.files
        self.clock = recorder.clock
        self.seen = ReadVersions()
        self.documents = HeldDocuments()
        self.decoder = Decoder(fallback_encoding)
        self.tooling = tooling or ToolSet()
        self._warned_of_excluded = FirstWarnings()
        self._landings: dict[Seq, Landing] = {}  # of the batch, by the drafts of their transactions

    # ── changing ──

    def run_batch(self, requests: Sequence[Write]) -> list[Result]:
        """Carry out requests in their order. Return one result for each."""
        results = self.carry_out(requests)
        self.recorder.clean_up()
        return results

    def carry_out(self, requests: Sequence[Write]) -> list[Result]:
        """Do as `run_batch`, but leave what no client can notice to `clean_up`, after the replies."""
        if self.recorder.last_batch is not None:
            self.recorder.clean_up()
        absence = self.recorder.absence()
        results: list[Result | None] = []
        waiting: deque[tuple[int, Write]] = deque()
        for index, request in enumerate(requests):
            results.append(absence or self._check_writable(request))
            if results[index] is None:
                waiting.append((index, self._as_undo(request)))
        rounds, is_alone = 0, False  # after a conflict within a batch, each request gets its own batch
        while waiting:
            if rounds:
                self.recorder.remove_replaced()  # so that emptied folders are gone for the next batch
            self._landings.clear()
            batch, is_last = self.recorder.batch(), False
            try:
                taken = self._fill(batch, waiting, results, is_alone=is_alone)
                again = self._commit(batch, results, taken)
                is_last = not waiting and batch.is_published
            except Exception:  # a bug
                if batch.is_committed or self.recorder.broken is not None:
                    raise
                log.exception("requests could not be recorded")
                batch.roll_back(0)
                again = []
                waiting.clear()
                results = [_not_recorded() if result is None else result for result in results]
            finally:
                if is_last:
                    self.recorder.last_batch = batch
                else:
                    batch.close()
            rounds += 1
            is_alone = bool(again)
            if rounds > ROUNDS_MAX:
                for index, request in again:
                    results[index] = kept_changing(request)
                again = []
            waiting.extendleft(reversed(again))
        for staging in self.recorder.unfinished:
            if staging.is_visible:
                self.recorder.remove_replaced()  # so that a client with a reply finds no temporary of editd
                break
        answers: list[Result] = []
        for request, result in zip(requests, results, strict=True):
            assert result is not None, "a request was left without an answer"
            is_detailed = isinstance(result, Outcome) and not result.outdated
            answers.append(result if is_detailed else self._with_details(result, request.authorship.session))
        return answers

    def _fill(
        self,
        batch: Batch,
        waiting: deque[tuple[int, Write]],
        results: list[Result | None],
        *,
        is_alone: bool,
    ) -> dict[int, Write]:
        """Stage the waiting requests that can be one batch, or only the first. Return those taken."""
        taken: dict[int, Write] = {}
        while (
            waiting
            and not (is_alone and taken)
            and (not batch.steps or self._can_join(batch, waiting[0][1], taken.values()))
        ):
            index, request = waiting[0]
            try:
                results[index] = self._stage(batch, index, request)
            except NeedsCommit:
                break
            waiting.popleft()
            taken[index] = request
            if results[index] is None:
                batch.expect(request.reader)
        return taken

    def run_large(self, request: Write, breathe: Callable[[], None]) -> list[Result]:
        """Carry out one large request. Others use the engine meanwhile, in each call of `breathe`.

        Planning, staging and the removal of the replaced files are done in slices, and so are the diffs of a
        dry run. The commit, with the publishing of all files, is one.
        """

        def let_others_in() -> None:
            self._is_between_slices = True
            try:
                breathe()
            finally:
                self._is_between_slices = False

        self.recorder.clean_up()
        prepared = self._prepare(request, let_others_in)
        self._prepared, self.recorder.breathe = prepared, let_others_in
        try:
            results = self.carry_out([request])
            self.recorder.clean_up()
            if request.dry_run:
                results = [_with_diffs_if_known(result, self.decoder, let_others_in) for result in results]
            return results
        finally:
            self._prepared = self.recorder.breathe = None
            if prepared is not None and prepared.staging is not None:
                self.files.discard(prepared.staging)

    def _prepare(self, request: Write, breathe: Callable[[], None]) -> Preparation | None:
        """Plan and stage a request. Return None if it must be done in one go, or is to be refused."""
        is_plain = isinstance(request, Undo) or (
            isinstance(request, Apply) and not any(isinstance(edit, messages.Tool) for edit in request.edits)
        )
        if not is_plain or self.hooks or self.recorder.absence() or self._check_writable(request):
            return None
        self.history.concluded = meanwhile = list[Transaction]()
        try:
            view = DiskSnapshot(self.tree, self.history, breathe=breathe)
            prepared = Preparation(request, set(), meanwhile)
            if isinstance(request, Apply):
                prepared.outcome = self._plan(view, request)
                changes = prepared.outcome.changes
            else:
                assert isinstance(request, Undo)
                prepared.undo = self._plan_undo(request, HistoryWalker(self.history), view)
                changes = files_of(prepared.undo)
            prepared.looked_at = {*view.drafted, *view.strangers}
            if view.strangers:
                return None  # they are recorded first, and may change the plan
            self.files.check(changes, breathe=breathe)
            if any(self.history.excluded.rule.covers(change.path) for change in changes):
                return None  # their contents are kept before they are staged, and that is the turn's
            may_land = self.review.never_asks and not is_asked_for(request)
            if may_land and not request.dry_run and changes:
                prepared.staging = self.files.stage(changes, secrets.token_hex(8), breathe=breathe)
            return prepared
        except Exception:  # noqa: BLE001  # the turn meets it again, and answers it
            return None
        finally:
            self.history.concluded = None

    def _take_prepared(self, request: Write) -> Preparation | None:
        """Return the preparation of the request if it is still valid. It serves once."""
        prepared, self._prepared = self._prepared, None
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

    def _with_details(self, result: Result, session: str | None) -> Result:
        """Add the facts of the history to a refusal or to an outcome whose reader was not up to date."""
        try:
            with contextlib.suppress(Refused):  # without details if the index or the history fails
                if isinstance(result, Refused):
                    view = DiskSnapshot(self.tree, self.history, quiet=False)
                    explain(result, self.history, view.file_at, self.decoder)
                    self.suggest(result, session)
                elif isinstance(result, Outcome):
                    result = with_changes_since(result, self.history, session)
        except (
            NeedsComparison
        ) as need:  # Only of a refusal: nothing was committed, so it can be planned again.
            return NeedsComparing(need.comparison)
        refusal = result.reason if isinstance(result, NeedsDelay) else result
        if isinstance(refusal, Refused):
            refusal.forget_stack()
        return result

    def suggest(self, refusal: Refused, session: str | None) -> None:
        """Add the paths that the session probably meant to the refusal of a missing file."""
        if isinstance(refusal, FileMissing):
            may_read = self.guard.may_read if self.guard is not None else lambda _session, _path: True
            suggest(refusal, self.tree.names, lambda path: may_read(session, path))

    def _as_undo(self, request: Write) -> Write:
        """Return an undo if the request is a tool's call that undoes an edit. Return others unchanged."""
        call = request.edits[0] if isinstance(request, Apply) and len(request.edits) == 1 else None
        if not isinstance(call, messages.Tool):
            return request
        try:
            tool = self.tooling.tool(call)
            tool.refuse_unknown(call.args)
            name = tool.undoes(call.args)
            path = None if name is None else self.tree.resolve(self.tooling.path(name))
        except Refused:  # planning raises the same refusal
            return request
        if path is None:
            return request
        authorship = request.authorship
        return Undo(
            authorship, request.reader, LastEditOf(path, authorship.session), dry_run=request.dry_run,
            fingerprint=request.fingerprint if isinstance(request, Apply) else "",
            propose=request.propose if isinstance(request, Apply) else None,
            sender=request.sender if isinstance(request, Apply) else Sender(),
        )  # fmt: skip

    def weight(self, request: Write) -> int:
        """Estimate how many bytes a request will read, hash and write, for the queue."""
        return weight_of(request, self.history, self.tree, self.tooling)

    def _check_writable(self, request: Write) -> Result | None:
        """Return the refusal or the delay if the engine takes no writes at present."""
        if request.dry_run:
            return None
        if self.recorder.broken is not None:
            return self.recorder.broken
        if self.history.is_backed_up:
            reason = Broken(
                "Packing has not kept up, and the journal is full.", hint="Try again in a moment."
            )
            return NeedsDelay(reason, PACKING_WAIT_SECONDS)
        if self.history.index.flaw is not None and self.history.index.is_backed_up:
            return self.history.index.flaw
        return None

    def _can_join(self, batch: Batch, request: Write, taken: Iterable[Write]) -> bool:
        """Return whether the request can be planned behind the batch's steps, without a commit before it."""
        if isinstance(request, Arrive):  # of edits, the history must know whether they came after its plan
            return not batch.is_closed and all(isinstance(other, Arrive) for other in taken)
        if batch.is_closed or not isinstance(request, Apply) or request.dry_run:
            return False
        if request.propose is not None:  # its base must not be a draft that may be aborted
            return False
        authorship = request.authorship
        key = (authorship.session, authorship.request_id)
        return authorship.request_id is None or all(
            (other.authorship.session, other.authorship.request_id) != key for other in taken
        )

    def _stage(self, batch: Batch, index: int, request: Write) -> Result | None:
        """Plan and stage one request. Return None if its result depends on the commit."""
        steps = len(batch.steps)
        try:
            has_id = request.authorship.request_id is not None and not isinstance(request, Land)
            if has_id and (repeated := self._first_answer(request)) is not None:
                return repeated
            if isinstance(request, Apply):
                return self._stage_apply(batch, index, request)
            return self._stage_recorded(batch, index, request)
        except InUse as refusal:
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return NeedsDelay(refusal, WRITER_WAIT_SECONDS)
        except NeedsSearch as need:
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return NeedsRegex(need.search)
        except NeedsComparison as need:
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return NeedsComparing(need.comparison)
        except NeedsCommit:
            batch.view.forget_strangers()
            raise
        except HooksNotRun as need:
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return NeedsHooks(need.job)
        except Refused as refusal:
            if isinstance(refusal, NotAFile) and self._is_between_slices:
                batch.roll_back(steps)  # the temporaries of a request in slices may be in that folder
                batch.view.forget_strangers()
                return NeedsDelay(refusal, WRITER_WAIT_SECONDS)
            if isinstance(refusal, Unread):
                self.seen.note_sights(request.reader, refusal.sights)
            with contextlib.suppress(Refused):
                self.recorder.adopt_into(batch, request)
            return refusal
        except Exception:  # a bug: only this request fails, because nothing of it is committed yet
            log.exception("a request could not be planned")
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return _not_recorded()

    def _first_answer(self, request: Write) -> Outcome | None:
        """Return the first answer to a repeated request: its transaction, or the proposal that it became."""
        repeated = first_answer(request, self.history)
        if repeated is not None:
            self.seen.note_outcome(request.reader, repeated, is_news=False)
        elif self.proposals is not None and not request.dry_run:
            author = request.authorship
            if (author.session, author.request_id) not in self.proposals.store.requests:
                return None
            first = self.proposals.first_proposal(author, request.fingerprint)
            if first is not None:
                return Outcome((), proposal=first.number)
        return repeated

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

    def _judge(self, batch: Batch, request: Apply | Undo | Restore, outcome: Outcome) -> Ruling:
        """Return whether the planned changes land. Raises NeedsCommit, or Refused."""
        if not outcome.changes or (self.review.never_asks and not is_asked_for(request)):
            return LANDS
        ruling = judge(request, outcome.changes, self.review, self._proposals(), is_first=not batch.steps)
        if ruling.action == "ask":
            permit_proposal(outcome.changes, self.history.excluded.rule)
        return ruling

    def overlay(self, session: str | None) -> CollectedFiles:
        """Return the files of the proposal that collects a session's edits, as it would leave them."""
        proposals = self._proposals()
        known = proposals.collecting(session)
        snapshot = DiskSnapshot(self.tree, self.history, quiet=False)
        return (
            CollectedFiles() if known is None else overlay_of(proposals.view(known.number, snapshot.file_at))
        )

    def _stage_collected(self, batch: Batch, request: Apply) -> Result:
        """Plan an edit on top of its session's open proposal, and make it part of that."""
        if batch.steps:
            raise NeedsCommit
        below = self.overlay(request.authorship.session)
        view = DiskSnapshot(self.tree, self.history, quiet=False, drafted=dict(below.states))
        outcome = self._plan(view, request)
        self._permit(request, outcome)
        if self.hooks:
            outcome = hooked(outcome, self.hooks, request.hooked, view.file_at)
        outcome = replace(outcome, warnings=outcome.warnings + below.warnings)
        wish = replace(request, propose=request.propose or "session", proposal=None)
        ruling = self._judge(batch, wish, outcome)
        if request.dry_run or not outcome.changes:
            return _would_propose(outcome, ruling) if request.dry_run else outcome
        changes = collected(below, outcome.changes, batch.view.file_at)
        self.files.check(changes)
        self.check_room()
        self.recorder.adopt_into(batch, request, changes=changes)
        return collect(request, outcome, changes, ruling, self._proposals(), self.guard)

    def _stage_apply(self, batch: Batch, index: int, request: Apply) -> Result | None:
        if request.is_collected and request.proposal is None:
            return self._stage_collected(batch, request)
        prepared = None if self._prepared is None else self._take_prepared(request)
        if prepared is None or prepared.outcome is None:
            outcome = self._plan(batch.view, request, batch.expected)
        else:
            outcome = prepared.outcome
        self._permit(request, outcome, batch.expected)
        if self.hooks:
            outcome = hooked(outcome, self.hooks, request.hooked, batch.view.file_at)
        ruling = LANDS
        if self.review is not NEVER_ASKS or request.propose is not None or request.proposal is not None:
            ruling = self._judge(batch, request, outcome)
        if self.documents.by_path and ruling.action != "ask":
            outcome = self._tried(request, outcome)
        if request.dry_run:
            if prepared is None:
                self.files.check(outcome.changes)
            return _would_propose(outcome, ruling)
        self.recorder.adopt_into(batch, request, changes=outcome.changes)
        if outdated := self.seen.outdated(request.reader, outcome.changes, batch.expected):
            outcome = replace(outcome, outdated=outdated)
        if not outcome.changes:
            self.seen.note_outcome(request.reader, outcome)
            return outcome
        self.check_room()
        if ruling.action == "ask":
            return self._propose(request, outcome, ruling)
        authorship = request.authorship
        if ruling is not LANDS:
            authorship = approved(authorship, ruling, self.proposals)
        batch.stage(
            "edit", authorship, self.recorder.now_us(), outcome, request=index,
            notes=_notes(outcome, request),
            staging=None if prepared is None else prepared.take_staging(),
        )  # fmt: skip
        return None

    def _stage_recorded(
        self, batch: Batch, index: int, request: Undo | Restore | Land | Arrive
    ) -> Result | None:
        """Stage changes that were planned before, from the history, a proposal, or another host."""
        try:
            if isinstance(request, Arrive):
                return self._stage_arrival(batch, index, request)
            if isinstance(request, Restore):
                return self._stage_restore(batch, index, request)
            if isinstance(request, Land):
                return self._stage_landing(batch, index, request)
            return self._stage_undo(batch, index, request)
        except NotAFile as refusal:
            raise NoRoom(refusal, self.history) from refusal

    def _stage_arrival(self, batch: Batch, index: int, request: Arrive) -> Result | None:
        """Stage what another host has landed. No rule of this host applies to it, because it has landed."""
        chain = request.chain
        if chain.stopped_by is not None and chain.stopped_by is not request:
            raise Stale(next((path.text for path in request.after), ""), None, None)
        chain.stopped_by = request  # until it is staged
        outcome = Outcome(arriving(request, self.history, batch.view.file_at))
        for change in outcome.changes:
            self.recorder.hidden.refuse(change.path)
        self.recorder.adopt_into(batch, request, changes=outcome.changes)
        is_recorded = bool(outcome.changes or (request.undoes and not request.after))
        if is_recorded:
            batch.stage(
                request.kind, request.authorship, self.recorder.now_us(), outcome, request=index,
                undoes=request.undoes, parts=request.parts,
            )  # fmt: skip
        chain.stopped_by = None
        return None if is_recorded else outcome

    def ignored_files(self) -> list[str]:
        """Return the files of the history that git ignores, and that no request has written."""
        is_ours = self.recorder.scope()
        return [path.text for path in self.history.index.found_files() if not is_ours(path)]

    def free_for_arrivals(self, texts: Iterable[str], lacking: Container[str]) -> list[str]:
        """Return the paths that are free on this host for the state of the log.

        The log has no file at the `lacking` paths, so there a file of this host is in the way.
        """
        return [
            text for text in texts if self._is_free(WorkspacePath.parse(text), is_lacking=text in lacking)
        ]

    def _is_free(self, path: WorkspacePath, *, is_lacking: bool) -> bool:
        try:
            self.recorder.hidden.refuse(path)
            now = self.recorder.look(path)
            self.files.check([Change(path, now, FileState(b""))])
        except (Refused, OSError):
            return False
        is_known = not is_lacking and self.history.entry(path) is not None
        return now is None or (is_known and self.recorder.scope()(path))

    def _proposals(self) -> Proposals:
        """Return the proposals. Raises Broken if this engine was opened without them."""
        if self.proposals is None:
            raise Broken("The proposals are not open.", hint="Restart the daemon.")
        return self.proposals

    def _propose(
        self, request: Apply | Undo | Restore, outcome: Outcome, ruling: Ruling, *more: Any
    ) -> Outcome:
        """Make a proposal of changes that could land, and return the outcome with its number."""
        self.files.check(outcome.changes)
        return propose(request, outcome, ruling, self._proposals(), self.guard, *more)

    def _stage_landing(self, batch: Batch, index: int, request: Land) -> Result | None:
        """Stage the landing of hunks, as a transaction of the proposal's author."""
        proposals = self._proposals()
        first = proposals.first_decision(
            request.proposal, request.by, "approve", request.authorship.request_id, request.fingerprint
        )
        if first is not None:
            return first_landing(first, self.history)
        landing = proposals.landing(request, batch.view.file_at, self.decoder)
        ruling = LANDS
        if request.passed is not None:
            landing, ruling = landing_by_rule(landing, request.passed, self.review, proposals)
        outcome = Outcome(landing.changes, reviewer_diff=landing.decision.reviewer_diff)
        proposal = landing.view.proposal
        author = replace(request, authorship=landing.authorship, fingerprint=proposal.fingerprint)
        self._permit(author, outcome)
        if self.hooks and not landing.is_as_proposed:
            outcome = hooked(outcome, self.hooks, request.hooked, batch.view.file_at)
        outcome = self._tried(request, outcome)
        if request.dry_run:
            self.files.check(outcome.changes)
            return outcome
        self.recorder.adopt_into(batch, request, changes=outcome.changes)
        if not outcome.changes:
            proposals.landed(landing, None)
            return outcome
        self.check_room()
        proposals.use(ruling)
        proposals.intend(landing)
        step = batch.stage(
            proposal.kind, landing.authorship, self.recorder.now_us(), outcome, request=index,
            undoes=proposal.undoes, parts=proposal.parts, notes=_notes(outcome, author),
        )  # fmt: skip
        self._landings[step.draft.transaction.seq] = landing
        return None

    def _permit(
        self,
        request: Write,
        outcome: Outcome,
        expected: Expected = MappingProxyType({}),
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

    def _permit_ruling(
        self, request: Undo | Restore, ruling: Ruling, check: Callable[[AccessControl], None]
    ) -> Ruling:
        """Return the ruling about work that is taken back, if the sender may take it back.

        `check` raises PermissionDenied if it may not. A proposal then waits for a reviewer: no check of the
        configuration lands it.
        """
        if self.guard is None or request.dry_run or request.sender.refusal is None:
            return ruling
        if ruling.action != "ask":
            check(self.guard)
        elif ruling.checks:
            try:
                check(self.guard)
            except PermissionDenied:
                return replace(ruling, checks=())
        return ruling

    def _tried(self, request: Write, outcome: Outcome) -> Outcome:
        """Try the changes on what editors hold unsaved. Raises Unsaved if they do not merge with it."""
        if not self.documents.by_path:
            return outcome
        trial = self.documents.try_changes(outcome.changes, request.unsaved, self.history.content)
        if trial is None:
            return outcome
        return replace(outcome, unsaved=trial.merged, warnings=outcome.warnings + trial.warnings)

    def _plan(self, view: DiskSnapshot, request: Apply, expected: Expected = MappingProxyType({})) -> Outcome:
        knowledge = _Knowledge(
            self.history, self.seen, request.reader, expected, self.documents, request.unsaved.owner
        )
        try:
            return plan(
                request.edits,
                view if self.guard is None else self.guard.within(view, request.authorship.session),
                knowledge,
                on_stale=request.on_stale,
                fallback_encoding=self.decoder.fallback,
                tools=self.tooling.answered(request.found) if request.found else self.tooling,
            )
        except Refused:
            for edit in request.edits:  # A hidden file has its own refusal, in place of a missing file's.
                if not isinstance(edit, messages.Patch | messages.Tool) and not is_url(edit.path):
                    self.recorder.hidden.refuse(WorkspacePath.parse(edit.path))
            raise

    def _stage_undo(self, batch: Batch, index: int, request: Undo) -> Result | None:
        scope, view = request.scope, batch.view
        past = HistoryWalker(self.history)
        prepared = None if self._prepared is None else self._take_prepared(request)
        known = None if prepared is None else prepared.undo
        planned = self._plan_undo(request, past, view) if known is None else known
        if request.dry_run and view.strangers:
            self.recorder.record_strangers(view)
            past = HistoryWalker(self.history)
            planned = self._plan_undo(request, past, view)
        if isinstance(planned, NothingToUndo):
            raise planned
        targets, inverted, warnings = planned
        self._refuse_hidden(targets)
        changes = inverted.changes
        answers = (f"The last edit of {scope.path} is undone.",) if isinstance(scope, LastEditOf) else ()
        outcome = Outcome(changes, warnings=warnings + rests(inverted.targets), answers=answers)
        self._permit(request, outcome, repaired=_repaired(request, targets))
        is_partial = request.on_conflict == "skip"
        ruling = self._judge(batch, request, outcome)
        ruling = self._permit_ruling(
            request, ruling, lambda guard: guard.check_taken_back(request, targets, past, view)
        )
        if ruling.action != "ask":
            outcome = self._tried(request, outcome)
        if request.dry_run:
            in_the_way = undo_conflicts(inverted.places, targets, scope, past, view.file_at)
            if is_partial or not in_the_way:  # otherwise the changes are incomplete and may clash
                in_the_way = self._conflicts_of(changes) or in_the_way
            return _would_propose(replace(outcome, conflicts=in_the_way, by_time=by_time(targets)), ruling)
        if inverted.places and not (is_partial and changes):
            raise UndoConflict(inverted.places, targets, scope)
        if is_partial:
            outcome = replace(
                outcome, conflicts=undo_conflicts(inverted.places, targets, scope, past, view.file_at)
            )
        self.recorder.adopt_into(batch, request, changes=changes)
        authorship = request.authorship
        if not authorship.message:
            authorship = replace(authorship, message=message_of(scope, authorship.session))
        undoes = [target.transaction.seq for target in inverted.targets]
        parts = [part for target in inverted.targets for part in target.parts]
        if ruling.action == "ask" or len(request.authorship.message) > FREE_MESSAGE_CHARACTERS:
            self.check_room()
        if ruling.action == "ask":
            return self._propose(request, outcome, ruling, authorship, undoes, parts)
        batch.stage(
            request.kind, approved(authorship, ruling, self.proposals), self.recorder.now_us(), outcome,
            request=index, undoes=undoes, parts=parts,
            notes=_notes(outcome, request),
            staging=None if prepared is None else prepared.take_staging(),
        )  # fmt: skip
        return None

    def _refuse_hidden(self, targets: Sequence[UndoTarget]) -> None:
        """Raise PermissionDenied if a target's file is hidden, although the undo might not change it now."""
        touches = (touch for target in targets for touch in target.touches)
        by_folder = {touch.path.raw.rpartition(b"/")[0]: touch.path for touch in touches}
        for path in by_folder.values():
            self.recorder.hidden.refuse(path)

    def _conflicts_of(self, changes: Sequence[Change[FileState]]) -> tuple[ConflictReport, ...]:
        """Return the files that have no room for an undo, which would be refused."""
        try:
            self.files.check(changes)
        except NotAFile as refusal:
            return NoRoom(refusal, self.history).files
        return ()

    def _plan_undo(
        self, request: Undo, past: HistoryWalker, view: DiskSnapshot
    ) -> PlannedUndo | NothingToUndo:
        try:
            return plan_undo(request, past, view, self.guard)
        except NothingToUndo as refusal:
            return refusal

    def _stage_restore(self, batch: Batch, index: int, request: Restore) -> Result | None:
        name, changes, warnings = restore(request, self.history, batch.view.file_at)
        outcome = Outcome(changes, warnings=warnings)
        self._permit(request, outcome)
        ruling = self._judge(batch, request, outcome)
        ruling = self._permit_ruling(
            request, ruling, lambda guard: guard.check_restored(request, changes, self.history)
        )
        if ruling.action != "ask":
            outcome = self._tried(request, outcome)
        if request.dry_run:
            self.files.check(changes)
            return _would_propose(outcome, ruling)
        self.recorder.adopt_into(batch, request, changes=changes)
        if not changes:
            return outcome
        self.check_room()
        authorship = request.authorship
        if not authorship.message:
            authorship = replace(authorship, message=f"Restore {name}")
        if ruling.action == "ask":
            return self._propose(request, outcome, ruling, authorship)
        batch.stage(
            "restore", approved(authorship, ruling, self.proposals), self.recorder.now_us(), outcome,
            request=index, notes=_notes(outcome, request),
        )  # fmt: skip
        return None

    def _commit(
        self, batch: Batch, results: list[Result | None], taken: Mapping[int, Write]
    ) -> list[tuple[int, Write]]:
        """Commit the batch and fill in its results. Return the requests that must be planned again."""
        try:
            stopped = batch.commit()
        except Broken as broken:
            self.recorder.mark_broken(broken, batch, results)
            return []
        aborted = {id(step) for step in stopped.steps} if stopped is not None else set[int]()
        for step in batch.steps:
            if id(step) not in aborted:
                self._conclude(step, results, taken)
        if stopped is None:
            return []
        for path, state in stopped.orphans:
            self.recorder.adopt({path: state})  # another program's content that could not be put back
        batch.discard(stopped.steps)
        again: list[tuple[int, Write]] = []
        for position, step in enumerate(stopped.steps):
            if step.request is None:
                continue
            if position < stopped.refused:
                results[step.request] = stopped.refusal
                request = taken[step.request]
                if isinstance(request, Arrive):
                    request.chain.stopped_by = request
            else:
                again.append((step.request, taken[step.request]))
        return again

    def _conclude(
        self, step: PendingTransaction, results: list[Result | None], taken: Mapping[int, Write]
    ) -> None:
        self.recorder.last_write = self.clock.monotonic()
        self.recorder.on_recorded(step.draft.transaction)
        if step.request is None:
            return
        self.recorder.unfinished.append(step.staging)
        landing = self._landings.pop(step.draft.transaction.seq, None) if self._landings else None
        if landing is not None:
            self._proposals().landed(landing, step.draft.transaction.seq)
        transaction, request = step.draft.transaction, taken[step.request]
        outcome = step.outcome
        if step.draft.excluded or self.unshared is not None:
            outcome = self._with_warnings(outcome, step.draft)
        results[step.request] = replace(outcome, transaction=transaction)
        self.seen.note_outcome(request.reader, step.outcome)
        if self.documents.by_path:
            self.documents.saved(step.outcome.changes, request.unsaved.owner)

    def _with_warnings(self, outcome: Outcome, draft: TransactionDraft) -> Outcome:
        """Add the warnings about excluded files and what other hosts do not get that the author lacks."""
        author = draft.transaction.authorship
        if author.arrival is not None:
            return outcome
        is_excluded, paths = self.history.excluded.rule.covers, [change.path for change in outcome.changes]
        warnings = excluded_warnings(filter(is_excluded, paths), author, self._warned_of_excluded)
        if self.unshared is not None:
            warnings += self.unshared.warnings(author, filterfalse(is_excluded, paths))
        return replace(outcome, warnings=(*outcome.warnings, *warnings)) if warnings else outcome

    # ── asking ──

    def read(
        self,
        path: WorkspacePath,
        reader: Reader,
        at: int | str | None = None,
        lines: tuple[int, int] | None = None,
        check: Callable[[FileState], None] | None = None,
    ) -> tuple[WorkspacePath, FileState]:
        """Return a file now, or right after transaction `at`, with its path. Note the read for `reader`.

        `lines` limits the note to a range, both ends included and counted from 1. `check` may refuse the
        content, which then does not count as read.
        Content that is not in the history is recorded first, unless git ignores the file, so that an edit
        based on it can be compared with it later.

        Raises FileMissing, or another refusal if the file or the transaction cannot be read.
        """
        if at is not None:
            seq = self.history.find(at).seq
            state = recorded_state(self.history.entry_at(path, seq), self.history)
            if state is None:
                raise FileMissing(f"{path} was not there after transaction {seq}.", data={"path": path.text})
            if check is not None:
                check(state)
            return path, state
        resolved = self.tree.resolve(path)
        self.recorder.hidden.refuse(resolved)
        state = self.recorder.look(resolved)
        if state is None:
            raise FileMissing(
                f"{path} does not exist.", hint="Use `write` to create it.", data={"path": path.text}
            )
        if check is not None:
            check(state)
        if lines is None:
            self.seen.note(reader, resolved, ReadMark(Base(state.version)))
        else:
            self.seen.note_lines(reader, resolved, Base(state.version), *lines)
        return resolved if is_same_form(resolved.text, path.text) else path, state

    def size_to_read(self, path: WorkspacePath, at: int | str | None) -> int:
        """Return the bytes of a file that `read` would return, or 0 if it would refuse."""
        try:
            if at is None:
                entry = self.tree.entry(self.tree.resolve(path))
                return 0 if entry is None else entry.size
            recorded = self.history.entry_at(path, self.history.find(at).seq)
        except Refused:
            return 0
        return 0 if recorded is None else self.history.size_of(recorded.version)

    def staged(
        self,
        edits: tuple[messages.AnyEdit, ...],
        reader: Reader,
        found: Mapping[Search, tuple[Match, ...] | Refused],
        session: str | None = None,
        on_stale: OnStale | None = None,
    ) -> tuple[Outcome, DiskSnapshot]:
        """Return the outcome of staged edits, and a view of the files with them. Nothing is changed.

        Raises NeedsSearch if a search has no result in `found`, and Refused as an edit does.
        """
        self.recorder.check_in_place()
        view = DiskSnapshot(self.tree, self.history, quiet=False)
        request = Apply(edits, Authorship("", session), reader, on_stale, dry_run=True, found=found)
        try:
            outcome = self._plan(view, request)
            self._permit(request, outcome)
        except Refused as refusal:
            with contextlib.suppress(Refused):
                explain(refusal, self.history, view.file_at, self.decoder)
                self.suggest(refusal, session)
            raise
        self.files.check(outcome.changes)
        view.drafted.update((change.path, change.after) for change in outcome.changes)
        return outcome, view


def _with_diffs_if_known(result: Result, decoder: Decoder, breathe: Callable[[], None]) -> Result:
    try:
        return _with_diffs(result, decoder, breathe)
    except NeedsComparison as need:
        return NeedsComparing(need.comparison)
    except Refused as refusal:  # the comparison exceeds its limits
        return refusal


def _with_diffs(result: Result, decoder: Decoder, breathe: Callable[[], None]) -> Result:
    """Add the diff of each file that stays at its path. Calls `breathe` before each."""
    if not isinstance(result, Outcome):
        return result
    diffs: dict[WorkspacePath, str] = {}
    for change in result.changes:
        breathe()
        if change.source is None:
            diffs[change.path] = unified(change.path, change.before, change.after, decoder=decoder)
    return replace(result, diffs=diffs)


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


def _not_recorded() -> Refused:
    return Refused("editd failed on this request. Nothing was changed.", hint="See the daemon's log.")


def _would_propose(outcome: Outcome, ruling: Ruling) -> Outcome:
    return replace(outcome, would_propose=ruling.rule) if ruling.action == "ask" else outcome


def _notes(outcome: Outcome, request: Write) -> bytes:
    has_notes = request.authorship.request_id is not None or outcome.formatted_by
    return encode_notes(outcome, request.fingerprint) if has_notes else b""
