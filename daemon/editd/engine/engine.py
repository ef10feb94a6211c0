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
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.advice import Advice, operation_term
from editd.edits.comparison import NeedsComparison
from editd.edits.diff import unified_diff
from editd.edits.search import NeedsSearch
from editd.engine.answers import (
    explained,
    first_answer,
    first_landing,
    kept_changing,
    with_changes_since,
    with_similar,
)
from editd.engine.commands import (
    Apply,
    Arrive,
    Land,
    NeedsComparing,
    NeedsDelay,
    NeedsHooks,
    NeedsRegex,
    Reader,
    Result,
    Sender,
    Undo,
    Write,
)
from editd.engine.external_changes import DiskSnapshot
from editd.engine.hooks import HooksNotRun
from editd.engine.landing_kinds import (
    collected_changes,
    is_asked_for,
    landing_request,
    planned_edits,
    planned_undo,
)
from editd.engine.landing_pipeline import LandingPipeline
from editd.engine.preparation import Preparation, files_of
from editd.engine.undo_conflicts import NoRoom
from editd.engine.undo_selection import LastEditOf
from editd.engine.unshared import FirstWarnings, excluded_warnings
from editd.engine.weight import weight_of
from editd.errors import (
    Broken,
    FileMissing,
    InUse,
    NotAFile,
    Refused,
    Unread,
)
from editd.review.submission import NeedsCommit
from editd.store.path_history import HistoryWalker
from editd.tool_api.tool_set import ToolSet
from editd.values.content import Change, Decoder, FileState
from editd.values.name_key import is_same_form
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, Base, Outcome, ReadMark, Transaction
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from editd.edits.pending_changes import PendingChanges
    from editd.edits.search import Match, Search
    from editd.engine.access import AccessControl
    from editd.engine.commit import Batch, PendingTransaction
    from editd.engine.recorder import Recorder
    from editd.engine.unshared import Unshared
    from editd.review.proposals import Proposals
    from editd.store.history import TransactionDraft
    from editd.wire.messages import OnStale

log = logging.getLogger(__name__)


ROUNDS_MAX = 50  # attempts to plan an edit of a file that other programs keep changing
WRITER_WAIT_SECONDS = 0.005  # until a file that is open for writing is read again
PACKING_WAIT_SECONDS = 0.05  # until packing may have caught up


class Engine:
    """What carries out the requests to a workspace, with the recorder of its history and files."""

    unshared: Unshared | None = None
    """What other hosts do not get from this one; None if it has joined no log of several hosts."""
    _is_between_slices = False  # of a large request

    def __init__(
        self,
        recorder: Recorder,
        guard: AccessControl | None = None,
        proposals: Proposals | None = None,
        *,
        fallback_encoding: str | None = None,
        tooling: ToolSet | None = None,
    ) -> None:
        """`recorder` has recovered. `tooling` has the dialects whose tools an edit may call."""
        self.recorder = recorder
        self.history, self.tree, self.files = recorder.history, recorder.tree, recorder.files
        self.clock = recorder.clock
        self.decoder = Decoder(fallback_encoding)
        self.tooling = tooling or ToolSet()
        self.landing = LandingPipeline(recorder, self.decoder, self.tooling, guard, proposals)
        self.seen = self.landing.seen
        self._warned_of_excluded = FirstWarnings()

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
                is_call = isinstance(request, Apply) and messages.Tool in map(type, request.edits)
                waiting.append((index, self._as_undo(request) if is_call else request))
        rounds, is_alone = 0, False  # after a conflict within a batch, each request gets its own batch
        while waiting:
            if rounds:
                self.recorder.remove_replaced()  # so that emptied folders are gone for the next batch
            self.landing.landings.clear()
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
            if waiting and results[index] is None:
                batch.expect(request.reader)
        return taken

    def run_large(self, request: Write, yield_turn: Callable[[], None]) -> list[Result]:
        """Carry out one large request. Others use the engine meanwhile, in each call of `yield_turn`.

        Planning, staging and the removal of the replaced files are done in slices, and so are the diffs of a
        dry run. The commit, with the publishing of all files, is one.
        """

        def let_others_in() -> None:
            self._is_between_slices = True
            try:
                yield_turn()
            finally:
                self._is_between_slices = False

        self.recorder.clean_up()
        prepared = self._prepare(request, let_others_in)
        self.landing.prepared, self.recorder.yield_turn = prepared, let_others_in
        try:
            results = self.carry_out([request])
            self.recorder.clean_up()
            if request.dry_run:
                results = [_with_diffs_if_known(result, self.decoder, let_others_in) for result in results]
            return results
        finally:
            self.landing.prepared = self.recorder.yield_turn = None
            if prepared is not None and prepared.staging is not None:
                self.files.discard(prepared.staging)

    def _prepare(self, request: Write, yield_turn: Callable[[], None]) -> Preparation | None:
        """Plan and stage a request. Return None if it must be done in one go, or is to be refused."""
        is_plain = isinstance(request, Undo) or (
            isinstance(request, Apply) and not any(isinstance(edit, messages.Tool) for edit in request.edits)
        )
        if not is_plain or self.landing.hooks or self.recorder.absence() or self._check_writable(request):
            return None
        self.history.concluded = meanwhile = list[Transaction]()
        try:
            view = DiskSnapshot(self.tree, self.history, yield_turn=yield_turn)
            prepared = Preparation(request, set(), meanwhile)
            if isinstance(request, Apply):
                prepared.outcome = planned_edits(self.landing, view, request)
                changes = prepared.outcome.changes
            else:
                assert isinstance(request, Undo)
                prepared.undo = planned_undo(self.landing, request, HistoryWalker(self.history), view)
                changes = files_of(prepared.undo)
            prepared.looked_at = {*view.drafted, *view.strangers}
            if view.strangers:
                return None  # they are recorded first, and may change the plan
            self.files.check(changes, yield_turn=yield_turn)
            if any(self.history.excluded.rule.covers(change.path) for change in changes):
                return None  # their contents are kept before they are staged, and that is the turn's
            may_land = self.landing.review.never_asks and not is_asked_for(request)
            if may_land and not request.dry_run and changes:
                prepared.staging = self.files.stage(changes, secrets.token_hex(8), yield_turn=yield_turn)
            return prepared
        except Exception:  # noqa: BLE001  # the turn meets it again, and answers it
            return None
        finally:
            self.history.concluded = None

    def _with_details(self, result: Result, session: str | None) -> Result:
        """Add the facts of the history to a refusal or to an outcome whose reader was not up to date."""
        try:
            with contextlib.suppress(Refused):  # without details if the index or the history fails
                if isinstance(result, Refused):
                    view = DiskSnapshot(self.tree, self.history, quiet=False)
                    result = explained(result, self.history, view.file_at, self.decoder)
                    result = self.with_similar(result, session)
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

    def with_similar(self, refusal: Refused, session: str | None) -> Refused:
        """Return the refusal of a missing file with the paths that the session probably meant."""
        if not isinstance(refusal, FileMissing):
            return refusal
        guard = self.landing.guard
        return with_similar(
            refusal, self.tree.names, lambda path: guard is None or guard.may_read(session, path)
        )

    def _as_undo(self, request: Write) -> Write:
        """Return an undo if the request is a tool's call that undoes an edit. Return others unchanged."""
        call = request.edits[0] if isinstance(request, Apply) and len(request.edits) == 1 else None
        if not isinstance(call, messages.Tool):
            return request
        try:
            tool = self.tooling.tool(call)
            tool.refuse_unknown(call.args)
            name = tool.undoes(call.args)
            path = None if name is None else self.tree.resolve(self.tooling.paths.parse(name))
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
            has_id = request.authorship.request_id is not None
            if has_id and (repeated := self._first_answer(request)) is not None:
                return repeated
            return self.landing.land(landing_request(self.landing, batch, request), index)
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
            return self._refused(batch, steps, request, refusal)
        except Exception:  # a bug: only this request fails, because nothing of it is committed yet
            log.exception("a request could not be planned")
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return _not_recorded()

    def _refused(self, batch: Batch, steps: int, request: Write, refusal: Refused) -> Result:
        """Return the refusal of a request, with what it means for later ones."""
        if isinstance(refusal, NotAFile) and not isinstance(request, Apply):
            refusal = NoRoom(refusal, self.history)
        if isinstance(refusal, NotAFile) and self._is_between_slices:
            batch.roll_back(steps)  # the temporaries of a request in slices may be in that folder
            batch.view.forget_strangers()
            return NeedsDelay(refusal, WRITER_WAIT_SECONDS)
        if isinstance(refusal, Unread):
            self.seen.note_sights(request.reader, refusal.sights)
        with contextlib.suppress(Refused):
            self.recorder.adopt_into(batch, request)
        return refusal

    def _first_answer(self, request: Write) -> Outcome | None:
        """Return the first answer to a repeated request: its transaction, or the proposal that it became."""
        if isinstance(request, Land):
            id_, decided = request.authorship.request_id, self.landing.opened_proposals()
            decision = decided.first_decision(
                request.proposal, request.by, "approve", id_, request.fingerprint
            )
            return None if decision is None else first_landing(decision, self.history)
        repeated = first_answer(request, self.history)
        if repeated is not None:
            self.seen.note_outcome(request.reader, repeated, is_news=False)
        elif self.landing.proposals is not None and not request.dry_run:
            author = request.authorship
            if (author.session, author.request_id) not in self.landing.proposals.store.requests:
                return None
            first = self.landing.proposals.first_proposal(author, request.fingerprint)
            if first is not None:
                return Outcome((), proposal=first.number)
        return repeated

    def collected(self, session: str | None) -> PendingChanges:
        """Return the changes of the proposal that collects a session's edits."""
        return collected_changes(self.landing, session)

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
        self.recorder.tell(step.draft.transaction)
        if step.request is None:
            return
        self.recorder.unfinished.append(step.staging)
        landings = self.landing.landings
        landing = landings.pop(step.draft.transaction.seq, None) if landings else None
        if landing is not None:
            self.landing.opened_proposals().landed(landing, step.draft.transaction.seq)
        transaction, request = step.draft.transaction, taken[step.request]
        outcome = step.outcome
        if step.draft.excluded or self.unshared is not None:
            outcome = self._with_warnings(outcome, step.draft)
        results[step.request] = replace(outcome, transaction=transaction)
        self.seen.note_outcome(request.reader, step.outcome)
        if self.landing.documents.by_path:
            self.landing.documents.saved(step.outcome.changes, request.unsaved.owner)

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
        lines: tuple[int, int] | None = None,
        check: Callable[[FileState], None] | None = None,
    ) -> tuple[WorkspacePath, FileState]:
        """Return a present file, with its path. Note the read for `reader`.

        `lines` limits the note to a range, both ends included and counted from 1. `check` may refuse the
        content, which then does not count as read.
        Content that is not in the history is recorded first, unless git ignores the file, so that an edit
        based on it can be compared with it later.

        Raises FileMissing, or another refusal if the file cannot be read.
        """
        resolved = self.tree.resolve(path)
        self.recorder.hidden.refuse(resolved)
        state = self.recorder.look(resolved)
        if state is None:
            raise FileMissing(
                f"{path} does not exist.",
                hint=Advice("Use ", operation_term("write"), " to create it."),
                data={"path": path.text},
            )
        if check is not None:
            check(state)
        if lines is None:
            self.seen.note(reader, resolved, ReadMark(Base(state.version)))
        else:
            self.seen.note_lines(reader, resolved, Base(state.version), *lines)
        return resolved if is_same_form(resolved.text, path.text) else path, state

    def size_to_read(self, path: WorkspacePath) -> int:
        """Return the bytes of a file that `read` would return, or 0 if it would refuse."""
        try:
            entry = self.tree.entry(self.tree.resolve(path))
        except Refused:
            return 0
        return 0 if entry is None else entry.size

    def staged(
        self,
        edits: tuple[messages.AnyEdit, ...],
        reader: Reader,
        found: Mapping[Search, tuple[Match, ...] | Refused],
        session: str | None = None,
        on_stale: OnStale | None = None,
    ) -> Outcome:
        """Return the outcome of staged edits. Nothing is changed.

        Raises NeedsSearch if a search has no result in `found`, and Refused as an edit does.
        """
        self.recorder.check_in_place()
        view = DiskSnapshot(self.tree, self.history, quiet=False)
        request = Apply(edits, Authorship("", session), reader, on_stale, dry_run=True, found=found)
        try:
            outcome = planned_edits(self.landing, view, request)
            self.landing.permit(request, outcome, {})
        except Refused as refusal:
            with contextlib.suppress(Refused):
                refusal = explained(refusal, self.history, view.file_at, self.decoder)
                refusal = self.with_similar(refusal, session)
            raise refusal from None
        self.files.check(outcome.changes)
        return outcome


def _with_diffs_if_known(result: Result, decoder: Decoder, yield_turn: Callable[[], None]) -> Result:
    try:
        return _with_diffs(result, decoder, yield_turn)
    except NeedsComparison as need:
        return NeedsComparing(need.comparison)
    except Refused as refusal:  # the comparison exceeds its limits
        return refusal


def _with_diffs(result: Result, decoder: Decoder, yield_turn: Callable[[], None]) -> Result:
    """Add the diff of each file that stays at its path. Calls `yield_turn` before each."""
    if not isinstance(result, Outcome):
        return result
    diffs: dict[WorkspacePath, str] = {}
    for change in result.changes:
        yield_turn()
        if change.source is None:
            diffs[change.path] = unified_diff(change.path, change.before, change.after, decoder=decoder)
    return replace(result, diffs=diffs)


def _not_recorded() -> Refused:
    return Refused("editd failed on this request. Nothing was changed.", hint="See the daemon's log.")
