"""The engine: one method for each verb, the only mutable root, entered from one thread.

`turn` takes all that has come in, plans each request on the result of the one before, makes them durable
with one sync and publishes them. What does not change anything is answered at once by the other methods.
Nothing here is async, and nothing on this path grows with the size of the workspace.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.edits.plan import plan
from editd.edits.regex import NeedsSearch
from editd.engine.commands import (
    Apply,
    NeedsDelay,
    NeedsHooks,
    NeedsRegex,
    Outcome,
    Reader,
    Restore,
    Result,
    Undo,
    Write,
    reader_of,
)
from editd.engine.commit import Batch, CommitState, PendingTransaction
from editd.engine.external_changes import (
    OUTSIDE,
    ExternalChange,
    IsOurs,
    OutsideAuthorship,
    blocked_by,
    external_changes,
    nested_paths,
    recorded_state,
)
from editd.engine.hooks import Hook, HooksNotRun, hooked
from editd.engine.policy import EditPolicy
from editd.engine.read_versions import ReadVersions
from editd.engine.reconcile import Reconciliation
from editd.engine.recovery import recover
from editd.engine.refusal_details import explain, suggest, with_changes_since
from editd.engine.replay import encode_notes, first_answer
from editd.engine.restore import restore
from editd.engine.snapshot import DiskSnapshot
from editd.engine.undo import HistoryWalker, UndoPlan, invert
from editd.engine.undo_conflicts import NoRoom, UndoConflict, undo_conflicts
from editd.engine.undo_selection import BySession, LastEditOf, UndoTarget, batches_of, without_effect
from editd.errors import (
    Broken,
    FileMissing,
    InUse,
    IoError,
    NotAFile,
    NothingToUndo,
    Refused,
    Stale,
    Unread,
)
from editd.system.clock import Clock, boot_id
from editd.tools.context import ToolSet
from editd.values import changeset
from editd.values.changeset import Base, Change, Edit, FileReport, OnStale, Plan, ReadMark
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, Kind, Seq, Transaction
from editd.workspace.hidden_folders import HiddenFolders

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from editd.edits.regex import Match, Search
    from editd.engine.access import AccessControl
    from editd.store.history import History
    from editd.store.journal import JournalPosition
    from editd.values.content import FileState, Version
    from editd.workspace.quarantine import QuarantineCheck
    from editd.workspace.reader import WorkspaceReader
    from editd.workspace.writer import WorkspaceWriter

    Expected = Mapping[tuple[Reader, WorkspacePath], Base]

log = logging.getLogger(__name__)


ROUNDS_MAX = 50  # of planning again because somebody wrote in between; then the edit is refused
WRITER_WAIT_SECONDS = 0.005  # until a file that is open for writing is looked at again
PACKING_WAIT_SECONDS = 0.05  # until packing has caught up a little
EDIT_BYTES = 4096  # what an edit weighs without its content: 100 edits take as long as some 400 KB
PATCH_BYTES = UNDO_BYTES = 1024 * 1024  # what they touch is only known when it is looked at
TOOL_BYTES = 1024 * 1024  # a tool may look for much in a long file


class Reading(Struct, frozen=True):
    path: WorkspacePath
    state: FileState


class _Knowledge(Struct, frozen=True):
    """What planning may ask of the history and the reader."""

    history: History
    seen_by: ReadVersions
    reader: Reader
    expected: Expected  # what those will have seen whose requests are in this turn

    def content(self, version: Version) -> bytes | None:
        return self.history.content(version)

    def seen(self, path: WorkspacePath) -> Base | None:
        return self.expected.get((self.reader, path)) or self.seen_by.by(self.reader, path)

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        return self.seen_by.sight(reader_of(reader), path) or self.seen_by.sight(self.reader, path)


class Engine:
    def __init__(
        self,
        history: History,
        tree: WorkspaceReader,
        files: WorkspaceWriter,
        clock: Clock,
        scope: Callable[[], IsOurs],
        is_in_place: Callable[[], bool],
        *,
        fallback_encoding: str | None = None,
        tooling: ToolSet | None = None,
        mount: bytes = b"",
        root: str = "",
    ) -> None:
        """Take over a workspace and finish what its journal tells. Raises HistoryDamaged or IoError.

        `scope` returns the judge of whether the scan looks after a path, by the ignore rules as they are
        now; it is asked only about paths that are new.
        `is_in_place` tells whether the workspace's folder is still where it was, or raises OSError. `tooling`
        has the dialects whose tools an edit may call. `mount` is the disk's.
        """
        self.history = history
        self.tree = tree
        self.files = files
        self.clock = clock
        self.seen = ReadVersions()
        self.broken: Refused | None = None
        self.on_recorded: Callable[[Transaction], None] = _tell_nobody  # its files are published by then
        self.guard: AccessControl | None = None  # what sessions may do, once there are any
        self.rules = EditPolicy()  # what the configuration lets nobody do
        self.hooks: tuple[Hook, ...] = ()  # what it has look at every edit
        self.outside_authorship: OutsideAuthorship | None = None  # who made what was found, if that is known
        self._scope = scope
        self._is_in_place = is_in_place
        self._root = root  # for people to read
        self.hidden = HiddenFolders(
            root,
            history.folder,
            lambda path: history.entry(path) is not None or history.has_folder(path),
        )
        self._fallback_encoding = fallback_encoding
        self.tooling = tooling or ToolSet()
        boot = boot_id()
        # What is in the page cache outlives a killed daemon, but not these. A mount alone says nothing, since
        # its id is used again after the next boot.
        self._boot = boot and boot + mount
        self._unfinished: list[PendingTransaction] = []
        self._last_us = 0
        self.synced = Seq(0)  # all up to here are in the files for good
        self.has_sync_failed = False  # and is not tried again: a second one would say that all is well
        self.last_write = 0.0
        self.check_in_place()
        strangers = recover(history, tree, files, self._boot)
        self.adopt(strangers)

    # ── changing ──

    def run_batch(self, requests: Sequence[Write]) -> list[Result]:
        """Carry out what came in, in its order; one result for each."""
        requests = [self._meant(request) for request in requests]
        absence = self.absence()
        results: list[Result | None] = [absence or self._not_now(request) for request in requests]
        waiting = deque((i, request) for i, request in enumerate(requests) if results[i] is None)
        rounds = 0
        is_alone = False  # what overtook each other in one batch does not in two
        while waiting:
            if rounds:
                self._tidy()  # a folder that was emptied is gone for who comes next
            batch = self._batch()
            taken: dict[int, Write] = {}
            while waiting and not (is_alone and taken) and self._fits(batch, waiting[0][1], taken.values()):
                index, request = waiting.popleft()
                taken[index] = request
                results[index] = self._take(batch, index, request)
                if results[index] is None:
                    batch.expect(request.reader)
            try:
                again = self._commit(batch, results, taken)
            except Broken as broken:
                self._break(broken, batch, results)
                again = []
            rounds += 1
            is_alone = bool(again)
            if rounds > ROUNDS_MAX:
                for index, request in again:
                    results[index] = _never_still(request)
                again = []
            waiting.extendleft(reversed(again))
        self._tidy()
        for index, (request, result) in enumerate(zip(requests, results, strict=True)):
            with contextlib.suppress(Refused):  # the index is full, the history damaged: then bare
                if isinstance(result, Refused):
                    explain(result, self.history, DiskSnapshot(self.tree, self.history, quiet=False).file_at)
                    self.suggest(result, request.authorship.session)
                elif isinstance(result, Outcome) and result.outdated:
                    results[index] = with_changes_since(result, self.history, request.authorship.session)
        return [_answered(result) for result in results]

    def suggest(self, refusal: Refused, session: str | None) -> None:
        """Add to the refusal of a missing file the path that the session probably meant."""
        if isinstance(refusal, FileMissing):
            may_read = self.guard.may_read if self.guard is not None else lambda _session, _path: True
            suggest(refusal, self.tree.names, lambda path: may_read(session, path))

    def _meant(self, request: Write) -> Write:
        """A tool's call that undoes its session's last edit of a file, as that undo."""
        call = request.edits[0] if isinstance(request, Apply) and len(request.edits) == 1 else None
        if not isinstance(call, changeset.Tool):
            return request
        try:
            given = self.tooling.tool(call).undoes(call.args)
            path = None if given is None else self.tree.resolve(self.tooling.path(given))
        except Refused:  # which planning says again
            return request
        if path is None:
            return request
        said = request.authorship
        return Undo(
            said, request.reader, LastEditOf(path, said.session), dry_run=request.dry_run,
            fingerprint=request.fingerprint if isinstance(request, Apply) else "",
        )  # fmt: skip

    def weight(self, request: Write) -> int:
        """About how many bytes a request is going to read, hash and write; a hint, for who plans the time."""
        if not isinstance(request, Apply):
            return UNDO_BYTES
        total = len(request.edits) * EDIT_BYTES
        for edit in request.edits:
            if isinstance(edit, changeset.Write):
                total += len(edit.content)
            elif isinstance(edit, changeset.Patch):
                total += len(edit.patch) + PATCH_BYTES
            elif isinstance(edit, changeset.Tool):
                total += TOOL_BYTES
            else:
                with contextlib.suppress(Refused, OSError):
                    look = self.tree.entry(edit.path)
                    total += 0 if look is None else look.size
        return total

    def _not_now(self, request: Write) -> Result | None:
        if request.dry_run:
            return None
        if self.broken is not None:
            return self.broken
        if self.history.is_backed_up:
            reason = Broken(
                "Packing has not kept up, and the journal is full.", hint="Try again in a moment."
            )
            return NeedsDelay(reason, PACKING_WAIT_SECONDS)
        if self.history.index.is_backed_up:
            return self.history.index.flaw
        return None

    def _fits(self, batch: Batch, request: Write, taken: Iterable[Write]) -> bool:
        """Can this request be planned in this batch, or must the batch be committed first?"""
        if not batch.steps:
            return True
        if batch.is_closed or not isinstance(request, Apply) or request.dry_run:
            return False
        said = request.authorship
        key = (said.session, said.request_id)
        return said.request_id is None or all(
            (other.authorship.session, other.authorship.request_id) != key for other in taken
        )

    def _take(self, batch: Batch, index: int, request: Write) -> Result | None:
        """Plan one request; None where its step waits for the commit."""
        steps = len(batch.steps)
        try:
            repeated = first_answer(request, self.history)
            if repeated is not None:
                self._note_seen(request.reader, repeated, is_news=False)
                return repeated
            if isinstance(request, Apply):
                return self._take_apply(batch, index, request)
            try:
                if isinstance(request, Restore):
                    return self._take_restore(batch, index, request)
                return self._take_undo(batch, index, request)
            except NotAFile as refusal:
                raise NoRoom(refusal, self.history) from refusal
        except InUse as refusal:
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return NeedsDelay(refusal, WRITER_WAIT_SECONDS)
        except NeedsSearch as need:
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return NeedsRegex(need.search)
        except HooksNotRun as need:
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return NeedsHooks(need.trial)
        except Refused as refusal:
            if isinstance(refusal, Unread):
                self._note_sights(refusal.sights, request.reader, {})
            with contextlib.suppress(Refused):
                self._adopt_into(batch, request)
            return refusal
        except Exception:  # a fault of ours: it is this request's alone, nothing of it is done yet
            log.exception("a request could not be planned")
            batch.roll_back(steps)
            batch.view.forget_strangers()
            return Refused("editd failed on this request; nothing was changed.", hint="Its log tells where.")

    def _take_apply(self, batch: Batch, index: int, request: Apply) -> Result | None:
        worked_out = self._plan(batch.view, request, batch.expected)
        self._permit(request, worked_out.changes, batch.expected, worked_out.based, worked_out.guarded)
        if self.hooks:
            worked_out = hooked(worked_out, self.hooks, request.hooked, batch.view.file_at)
        if request.dry_run:
            self.files.check(worked_out.changes)
            return self._outcome(worked_out, batch.view)
        self._adopt_into(batch, request, changes=worked_out.changes)
        outcome = replace(
            self._outcome(worked_out, batch.view),
            outdated=self._outdated(request.reader, worked_out.changes, batch.expected),
        )
        if not worked_out.changes:
            self._note_seen(request.reader, outcome)
            return outcome
        self.rules.check_room(self.history.disk_bytes)
        authorship = request.authorship
        batch.stage(
            "edit", authorship, self._now_us(), worked_out.changes, request=index, outcome=outcome,
            notes=_notes(outcome, request),
        )  # fmt: skip
        return None

    def _outdated(
        self, reader: Reader, changes: Iterable[Change], expected: Expected
    ) -> dict[WorkspacePath, Base]:
        """Return what the reader knew of each path that was changed before it was edited."""
        found: dict[WorkspacePath, Base] = {}
        for change in changes:
            known = expected.get((reader, change.path)) or self.seen.by(reader, change.path)
            if known is not None and change.before is not None and known.version != change.before.version:
                found[change.path] = known
        return found

    def _permit(
        self,
        request: Write,
        changes: Sequence[Change],
        expected: Expected = MappingProxyType({}),
        based: Container[WorkspacePath] = (),
        guarded: Container[WorkspacePath] = (),
    ) -> None:
        """Raise Refused where the request's session may not make these changes; also for dry runs."""
        self.rules.permit(changes)
        for change in changes:
            self.hidden.refuse(change.path)
        if self.guard is not None:
            self.guard.permit(request, changes, expected, based, guarded)

    def _plan(self, view: DiskSnapshot, request: Apply, expected: Expected = MappingProxyType({})) -> Plan:
        knowledge = _Knowledge(self.history, self.seen, request.reader, expected)
        try:
            return plan(
                request.edits,
                view if self.guard is None else self.guard.within(view, request.authorship.session),
                knowledge,
                on_stale=request.on_stale,
                fallback_encoding=self._fallback_encoding,
                tools=self.tooling.answered(request.found) if request.found else self.tooling,
            )
        except Refused:
            for edit in request.edits:  # It says that a hidden file is missing, or another.
                self.hidden.refuse(getattr(edit, "path", WorkspacePath("")))
            raise

    def _take_undo(self, batch: Batch, index: int, request: Undo) -> Result | None:
        if request.dry_run:
            self._record_strangers_of(request)
        scope, view = request.scope, batch.view
        past = HistoryWalker(self.history)
        targets, inverted, warnings = self._inverted(request, past, view)
        changes = inverted.changes
        self._permit(request, changes)
        answers = (f"The last edit of {scope.path} is undone.",) if isinstance(scope, LastEditOf) else ()
        outcome = Outcome(None, changes, warnings=warnings, answers=answers)
        is_fitting = request.on_conflict == "skip"
        if request.dry_run:
            in_the_way = undo_conflicts(inverted.places, targets, scope, past, view.file_at)
            if is_fitting or not in_the_way:  # else these are not all the changes, and may not fit together
                try:
                    self.files.check(changes)
                except NotAFile as refusal:
                    in_the_way = NoRoom(refusal, self.history).files
            return replace(outcome, conflicts=in_the_way)
        if inverted.places and not (is_fitting and changes):
            raise UndoConflict(inverted.places, targets, scope)
        if is_fitting:
            outcome = replace(
                outcome, conflicts=undo_conflicts(inverted.places, targets, scope, past, view.file_at)
            )
        self._adopt_into(batch, request, changes=changes)
        said = request.authorship
        if isinstance(scope, BySession) and not said.message:
            said = replace(said, message=f"Roll back session {scope.session}")
        batch.stage(
            request.kind, said, self._now_us(), changes, request=index, outcome=outcome,
            undoes=[target.transaction.seq for target in inverted.targets],
            parts=[part for target in inverted.targets for part in target.parts],
            notes=_notes(outcome, request),
        )  # fmt: skip
        return None

    def _inverted(
        self, request: Undo, past: HistoryWalker, view: DiskSnapshot
    ) -> tuple[list[UndoTarget], UndoPlan, tuple[str, ...]]:
        """What is to be undone, what that comes to, and warnings. Raises NothingToUndo where it is nothing.

        Of the newest, what has no effect any more is taken along with the first that has.
        """
        targets: list[UndoTarget] = []
        warnings: tuple[str, ...] = ()
        for named in batches_of(request.scope, self.history):
            more = named
            if self.guard is not None:
                more, told = self.guard.spare_published(request.scope, named)
                warnings += told
                if request.is_own_only:
                    self.guard.check_own(request, more, past, view)
            inverted = invert(more, past, view.file_at, request.on_conflict)
            is_first = not targets
            targets += more
            if inverted.changes or inverted.places:
                if not is_first:
                    inverted = invert(targets, past, view.file_at, request.on_conflict)
                return targets, inverted, warnings
        raise without_effect(targets)

    def _record_strangers_of(self, request: Undo) -> None:
        """Record what others wrote in the files that an undo would change, for a dry run to name them."""
        view = DiskSnapshot(self.tree, self.history)
        with contextlib.suppress(NothingToUndo):
            self._inverted(request, HistoryWalker(self.history), view)
        is_ours = self._scope()
        known = {
            path: state
            for path, state in view.strangers.items()
            if self.history.entry(path) is not None or is_ours(path)
        }
        self.adopt(known)

    def _take_restore(self, batch: Batch, index: int, request: Restore) -> Result | None:
        seq, changes = restore(request, self.history, batch.view.file_at)
        self._permit(request, changes)
        outcome = Outcome(None, changes)
        if request.dry_run:
            self.files.check(changes)
            return outcome
        self._adopt_into(batch, request, changes=changes)
        if not changes:
            return outcome
        self.rules.check_room(self.history.disk_bytes)
        said = request.authorship
        if not said.message:
            said = replace(said, message=f"Restore transaction {seq}")
        batch.stage(
            "restore", said, self._now_us(), changes, request=index, outcome=outcome,
            notes=_notes(outcome, request),
        )  # fmt: skip
        return None

    def _adopt_into(
        self, batch: Batch, request: Write | None, message: str = "", changes: Sequence[Change] = ()
    ) -> None:
        """Draft what the view found to be somebody else's, ahead of what was asked for: `changes`."""
        if request is not None and request.dry_run:
            batch.view.forget_strangers()
            return
        self._find_displaced(batch.view, changes)
        if not batch.view.strangers:
            return
        # What lies where names fold is out of scope, and says nothing of what it may hide.
        found = {
            path: state
            for path, state in batch.view.strangers.items()
            if not (self.files.is_kept_out(path) or self.hidden.folder_over(path))
        }
        batch.view.strangers.clear()
        for adoption in external_changes(found, self.history, self._scope()):
            kind, by = self._made_by(adoption, message)
            batch.adopt(kind, by, self._now_us(), adoption.changes)

    def _find_displaced(self, view: DiskSnapshot, changes: Sequence[Change]) -> None:
        """Note what is gone since something else stands there now, or can be put there: a file for a folder.

        Raises NotAFile where there is no room for `changes`, InUse where the disk was seen now so, now so.
        """
        made = [change.path for change in changes if change.before is None and change.after is not None]
        if not (made or view.strangers):
            return
        in_the_way = blocked_by(made, self.history) - {change.path for change in changes}
        for path in in_the_way:
            with contextlib.suppress(Refused):  # what is in the way indeed, `Files.check` tells
                view.file_at(path)
        if in_the_way - view.strangers.keys():
            self.files.check(changes)
            raise InUse(changes[0].path.text)
        found = {path for path, state in view.strangers.items() if state is not None}
        if clash := next(nested_paths(found | {c.path for c in changes if c.after is not None}), None):
            if changes:
                self.files.check(changes)
                raise InUse(clash.text)
            for path in set(nested_paths(found)):  # Whoever made it so while we looked is noticed once more.
                del view.strangers[path]
                found.discard(path)
        new = [path for path in found if self.history.entry(path) is None]
        view.strangers.update(dict.fromkeys(blocked_by(new, self.history)))

    def _made_by(self, adoption: ExternalChange, message: str) -> tuple[Kind, Authorship]:
        if adoption.kind == "outside" and self.outside_authorship is not None:
            known = self.outside_authorship([change.path for change in adoption.changes])
            if known is not None:
                return known
        return adoption.kind, replace(OUTSIDE, message=message)

    def _commit(
        self, batch: Batch, results: list[Result | None], taken: Mapping[int, Write]
    ) -> list[tuple[int, Write]]:
        """Commit the batch and fill in its results; return the requests that are to be planned again."""
        stopped = batch.commit()
        aborted = {id(step) for step in stopped.steps} if stopped is not None else set[int]()
        for step in batch.steps:
            if id(step) not in aborted:
                self._conclude(step, results, taken)
        if stopped is None:
            return []
        for path, state in stopped.orphans:
            self.adopt({path: state})  # what somebody wrote and what could not be put back into its place
        batch.discard(stopped.steps)
        again: list[tuple[int, Write]] = []
        for place, step in enumerate(stopped.steps):
            if step.request is None:
                continue
            if place < stopped.refused:
                results[step.request] = stopped.refusal
            else:
                again.append((step.request, taken[step.request]))
        return again

    def _conclude(
        self, step: PendingTransaction, results: list[Result | None], taken: Mapping[int, Write]
    ) -> None:
        self.last_write = self.clock.monotonic()
        if step.staging is not None:
            self._unfinished.append(step)
        self.on_recorded(step.draft.transaction)
        if step.request is None:
            return
        outcome = step.outcome
        results[step.request] = outcome.of(step.draft.transaction)
        self._note_seen(taken[step.request].reader, outcome)

    def adopt(self, found: Mapping[WorkspacePath, FileState | None], message: str = "") -> list[Transaction]:
        """Commit what was found on disk, in a batch of its own. Returns what was recorded."""
        if not found or self.broken is not None or self.absence() is not None:
            return []  # a workspace that was moved away is not one in which all was deleted
        batch = self._batch()
        batch.view.strangers.update(found)
        self._adopt_into(batch, None, message)
        try:
            batch.commit()
        except Broken as broken:
            self._break(broken, batch, [])
            return []
        self.last_write = self.clock.monotonic()
        recorded = [step.draft.transaction for step in batch.steps if step.state is CommitState.PUBLISHED]
        for transaction in recorded:
            self.on_recorded(transaction)
        return recorded

    def inspect(self) -> Reconciliation:
        """Begin to look at files that a notice or a scan names."""
        return Reconciliation(self.tree, self.history, self.adopt)

    def check_quarantine(self, *, is_busy: bool) -> Callable[[], list[QuarantineCheck]] | None:
        """Return a check of the replaced files whose time has come, for any thread; None if there are none.

        Pass its result to `record_late_writes`. With `is_busy`, edits come without a pause, so it checks only
        the files that cannot wait.
        """
        if self.broken is not None:
            return None
        return self.files.check_quarantine(self.clock.monotonic(), is_busy=is_busy)

    def record_late_writes(self, looks: Sequence[QuarantineCheck]) -> None:
        """Record what somebody wrote into a file that had just been replaced (C4)."""
        with contextlib.closing(self.files.written(looks)) as written:
            for path, state in written:
                if path is None:  # from before a kill: what no transaction has is put aside
                    if self.history.content(state.version) is None:
                        self.history.quarantine(state.version, state.content)
                    continue
                log.info("%s was written while it was being replaced", path.text)
                if not self.adopt({path: state}) and self.history.content(state.version) is None:
                    return  # it stays where it is, and is told again
                inspection = self.inspect()  # and what stands there comes after it
                inspection.look(path)
                inspection.record()

    def flush_index(self) -> None:
        """Do what nobody waits for. Called when the replies are out."""
        self.history.index.flush_if_full()

    def _tidy(self) -> None:
        """Remove what was replaced: who has a reply finds nothing of ours beside the files."""
        for step in self._unfinished:
            assert step.staging is not None
            try:
                self.files.finish(step.staging)
            except OSError as error:
                log.warning("a replaced file could not be removed: %s", error)
        self._unfinished.clear()

    # ── asking ──

    def read(
        self,
        path: WorkspacePath,
        reader: Reader,
        at: int | str | None = None,
        lines: tuple[int, int] | None = None,
    ) -> Reading:
        """A file's content now, or right after transaction `at`. Notes what the reader has seen.

        Where it is shown only `lines`, from 1 and both included, that is what is noted.

        What is read and not in the history yet is recorded first, so that an edit based on it can always
        be compared with it, unless git ignores the file.
        """
        if at is not None:
            seq = self.history.find(at).seq
            state = recorded_state(self.history.entry_at(path, seq), self.history)
            if state is None:
                raise FileMissing(f"{path} was not there after transaction {seq}.", data={"path": path.text})
            return Reading(path, state)
        here = self.tree.resolve(path)
        self.hidden.refuse(here)
        state = self.look(here)
        if state is None:
            raise FileMissing(f"{path} does not exist.", hint="`write` makes it.", data={"path": path.text})
        if lines is None:
            self.seen.note(reader, here, ReadMark(Base(state.version)))
        else:
            self.seen.note_lines(reader, here, Base(state.version), *lines)
        return Reading(path, state)

    def look(self, here: WorkspacePath) -> FileState | None:
        """What a resolved path holds now; recorded first where the history differs, unless git ignores it."""
        self.check_in_place()
        view = DiskSnapshot(self.tree, self.history, quiet=False)
        state = view.at(here)
        if view.strangers and (self.history.entry(here) is not None or self._scope()(here)):
            self.adopt(view.strangers)
        return state

    def staged(
        self,
        edits: tuple[Edit, ...],
        reader: Reader,
        found: Mapping[Search, tuple[Match, ...] | Refused],
        session: str | None = None,
        on_stale: OnStale | None = None,
    ) -> tuple[Outcome, DiskSnapshot]:
        """What these edits of a session would make of the files, and the view in which they have.

        Raises Unanswered where a search is not in `found`.
        """
        self.check_in_place()
        view = DiskSnapshot(self.tree, self.history, quiet=False)
        request = Apply(edits, Authorship("", session), reader, on_stale, dry_run=True, found=found)
        try:
            worked_out = self._plan(view, request)
            self._permit(request, worked_out.changes, based=worked_out.based, guarded=worked_out.guarded)
        except Refused as refusal:
            with contextlib.suppress(Refused):
                explain(refusal, self.history, view.file_at)
                self.suggest(refusal, session)
            raise
        self.files.check(worked_out.changes)
        outcome = self._outcome(worked_out, view)
        view.drafted.update((change.path, change.after) for change in worked_out.changes)
        return outcome, view

    def absence(self) -> Refused | None:
        """Why the workspace cannot be taken to be where it was; None where it is."""
        try:
            return None if self._is_in_place() else _gone(self._root)
        except OSError as error:
            return IoError(error, "The workspace's folder could not be looked at")

    def check_in_place(self) -> None:
        """Raises IoError where what is read now would not be the workspace's."""
        if (absence := self.absence()) is not None:
            raise absence

    # ── the background: packing, syncing, scanning ──

    def packing_due(self) -> tuple[JournalPosition, JournalPosition, int] | None:
        """What the packing process is to do next: read between two positions, pack up to a seq."""
        if self.broken is not None or self.history.packed == self.history.head:
            return None
        return self.history.tail, self.history.journal.position, self.history.head

    def packed(self, seq: int, until: JournalPosition) -> None:
        self.history.packed_through(seq, until)
        self._release()

    def sync_files(self, through: Seq) -> None:
        """Make what is in the files durable, all up to `through` among it; in a thread. Raises OSError."""
        self.files.sync()
        self.history.note_synced(through)

    def files_synced(self, through: Seq) -> None:
        """The workspace's file system was synced when all up to `through` was in the files."""
        self.synced = max(self.synced, through)
        self._release()

    def sync_failed(self, error: OSError) -> None:
        """The workspace's file system could not be synced: what is not synced may never reach the disk."""
        self.has_sync_failed = True
        self.history.mark_sync_failed()
        self.broken = Broken(
            f"The workspace's file system could not be synced: {error}.",
            hint="Put the disk right and restart the daemon: it writes the last edits anew.",
        )

    def _release(self) -> None:
        self.history.journal.release(min(self.synced, self.history.packed))

    def close(self) -> None:
        self._tidy()
        try:
            if self.broken is None:
                look = self.files.check_quarantine(None)
                if look is not None:
                    self.record_late_writes(look())
                self.files.end()
        except (Refused, OSError) as error:  # what is left there is put aside at the next start
            log.error("what was replaced could not be looked at: %s", error)
        self.hidden.close()
        self.history.close()

    # ── what those need ──

    def _batch(self) -> Batch:
        view = DiskSnapshot(self.tree, self.history)
        return Batch(self.history, self.files, view, self._boot, int(self.history.head))

    def _now_us(self) -> int:
        """The time, which never goes back within the history."""
        if not self._last_us:
            newest = self.history.index.transaction(self.history.head)
            self._last_us = newest.time_us if newest is not None else 0
        self._last_us = max(self._last_us + 1, self.clock.now_us())
        return self._last_us

    def _outcome(self, worked_out: Plan, view: DiskSnapshot) -> Outcome:
        changed = {change.path for change in worked_out.changes}
        unchanged = tuple(
            Change(path, view.drafted.get(path), view.drafted.get(path))
            for path in worked_out.touched
            if path not in changed
        )
        reports: dict[WorkspacePath, FileReport] = dict(worked_out.reports)
        return Outcome(
            None, worked_out.changes, reports, unchanged, worked_out.merged,
            answers=worked_out.answers, sights=worked_out.sights, warnings=worked_out.warnings,
            formatted_by=worked_out.formatted_by,
        )  # fmt: skip

    def _note_seen(self, reader: Reader, outcome: Outcome, *, is_news: bool = True) -> None:
        """The reader knows what the answer holds; one that is a repetition tells nothing newer than known.

        What a reader itself has told of (`methods.recalled_reads`) is older than that.
        """
        for change in (*outcome.changes, *outcome.unchanged):
            known = self.seen.sight(reader, change.path)
            if is_news or known is None or known.lines == ():
                self.seen.note(reader, change.path, ReadMark(_base_after(change)))
        if outcome.sights:
            self._note_sights(outcome.sights, reader, {change.path: change for change in outcome.changes})

    def _note_sights(
        self,
        sights: Iterable[tuple[str, WorkspacePath, ReadMark]],
        reader: Reader,
        changes: Mapping[WorkspacePath, Change],
    ) -> None:
        """What those have seen that a tool's call names, or whose request it is where it names nobody.

        Of a file that was changed they have seen what it holds now.
        """
        for name, path, sight in sights:
            change = changes.get(path)
            now = sight if change is None else replace(sight, base=_base_after(change))
            self.seen.note(reader_of(name) if name else reader, path, now)

    def _break(self, broken: Broken, batch: Batch, results: list[Result | None]) -> None:
        """Close for writes: from here on only a restart, which recovers, helps."""
        log.critical("broken: %s", broken.text())
        self.broken = broken
        for step in batch.steps:
            if step.request is not None and results[step.request] is None:
                results[step.request] = broken


def _tell_nobody(_transaction: Transaction) -> None:
    """What `on_recorded` does until somebody wants to know."""


def _base_after(change: Change) -> Base:
    return Base(None if change.after is None else change.after.version)


def _gone(root: str) -> Refused:
    cause = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    refusal = IoError(
        cause,
        "The workspace's folder was moved or removed",
        hint="Put it back, or stop the daemon. The history has everything that was recorded.",
    )
    if os.path.isdir(root):
        refusal.message = f"The workspace's folder was moved or removed, and {root} is another folder now."
        refusal.hint = (
            "Run `editctl stop`, then `editctl status`: a new daemon takes this folder in, "
            "as one outside change that can be undone. Or put the old folder back."
        )
    return refusal


def _never_still(request: Write) -> Refused:
    paths = sorted(getattr(edit, "path", WorkspacePath("")).text for edit in getattr(request, "edits", ()))
    refusal = Stale(paths[0] if paths else "", None, None)
    refusal.message = f"{', '.join(paths) or 'A file'} kept changing while the edit was being made."
    refusal.hint = "Somebody writes to it all the time; try again when they are done."
    return refusal


def _notes(outcome: Outcome, request: Write) -> bytes:
    is_told = request.authorship.request_id is not None or outcome.formatted_by
    return encode_notes(outcome, request.fingerprint) if is_told else b""


def _answered(result: Result | None) -> Result:
    assert result is not None, "a request was left without an answer"
    refusal = result.reason if isinstance(result, NeedsDelay) else result
    if isinstance(refusal, Refused):
        refusal.forget_stack()
    return result
