"""What keeps the history true to the files: the batches, and the recording of what other programs change.

Everything here works without a request. An `Engine` has one, and adds the requests that change files.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.engine.answers import folder_missing
from editd.engine.commit import Batch, recover
from editd.engine.external_changes import (
    COMMAND_PORTION,
    OUTSIDE,
    OUTSIDE_PORTION,
    AttributedChanges,
    DiskSnapshot,
    ExternalChange,
    IsOurs,
    OutsideAuthorship,
    Portion,
    Reconciliation,
    external_changes,
    find_displaced,
)
from editd.errors import Broken, IoError, Refused
from editd.store import first_scan
from editd.system.proc import boot_id
from editd.values.transaction import Seq, Transaction
from editd.workspace.hidden_folders import HiddenFolders
from editd.workspace.reader import OpenFiles
from editd.workspace.staged_change import TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd.engine.commands import Result, Write
    from editd.store.git_objects import Oid
    from editd.store.history import History
    from editd.store.journal import JournalPosition
    from editd.system.clock import Clock
    from editd.values.content import Change, FileState, Version
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship
    from editd.workspace.reader import WorkspaceReader
    from editd.workspace.replaced_files import QuarantineCheck
    from editd.workspace.staged_change import StagedFiles
    from editd.workspace.writer import WorkspaceWriter

log = logging.getLogger(__name__)


class Recorder:
    """The history and the files of one workspace, used from one thread."""

    broken: Refused | None = None
    synced = Seq(0)  # the files are durable up to this transaction
    is_first_scan = False  # the history lacks the files that the first scan has not recorded yet
    has_sync_failed = False  # never retried: a second sync would falsely succeed
    last_write = 0.0
    yield_turn: Callable[[], None] | None = None  # while the files of a large request are to be removed

    def __init__(
        self,
        history: History,
        tree: WorkspaceReader,
        files: WorkspaceWriter,
        clock: Clock,
        scope: Callable[[], IsOurs],
        is_in_place: Callable[[], bool],
        *,
        mount: bytes = b"",
        root: str = "",
        outside_authorship: OutsideAuthorship | None = None,
        is_command_open: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open a workspace and recover from its journal. Raises HistoryDamaged or IoError.

        `scope` returns a predicate: whether the scan covers a new path, by the present ignore rules.
        `is_in_place` returns whether the workspace's folder is still at its path, or raises OSError.
        `mount` is the id of the disk's mount. `outside_authorship` divides the changes of other programs by
        their authors, but for those that the recovery finds. `is_command_open` returns whether a bracket is
        open, whose changes belong together.
        """
        self.history = history
        self.tree = tree
        self.files = files
        self.clock = clock
        self.on_recorded: list[Callable[[Transaction], None]] = []  # called after the files are published
        self.on_pressing: list[Callable[[], None]] = []  # called in any thread if much waits for packing
        self.scope = scope
        self._is_in_place = is_in_place
        self._root = root  # for messages only
        self.hidden = HiddenFolders(root, history.folder, self._has_files)
        boot = boot_id()
        # The page cache survives a killed daemon, but not a reboot or an unmount. The id of a mount can
        # occur again after a reboot, so both ids are needed.
        self._boot = boot and boot + mount
        self.unfinished: list[StagedFiles] = []
        self.last_batch: Batch | None = None  # the last batch, if its files are still open
        self.check_in_place()
        self.outside_authorship: OutsideAuthorship | None = None
        self.is_command_open = is_command_open
        self.adopt(recover(history, tree, files, self._boot))
        self.outside_authorship = outside_authorship

    # ── recording ──

    def adopt(self, found: Mapping[WorkspacePath, FileState | None]) -> list[Transaction]:
        """As `record`, but leave to a later scan what the journal cannot take now."""
        try:
            return self.record(found)
        except IoError as refusal:
            log.warning("outside changes could not be recorded: %s", refusal)
            return []

    def record(self, found: Mapping[WorkspacePath, FileState | None], message: str = "") -> list[Transaction]:
        """Record content found on disk, in a separate batch. Return the new transactions.

        Raises IoError if the journal cannot be written. Nothing is recorded then.
        """
        if not found or self.broken is not None or self.absence() is not None:
            return []  # the files of a moved workspace are not deleted
        with self.batch() as batch:
            batch.view.strangers.update(found)
            self.adopt_into(batch, None, message)
            return self._committed(batch)

    def claim(self, authorship: Authorship, seqs: Sequence[Seq]) -> None:
        """Record that these outside changes are the author's. Raises IoError or Broken."""
        if self.broken is None:
            with self.batch() as batch:
                batch.adopt("claim", authorship, self.now_us(), (), claims=seqs)
                self._committed(batch)
        if self.broken is not None:
            raise self.broken

    def tell(self, transaction: Transaction) -> None:
        """Tell those who asked for it about a new transaction."""
        for listener in self.on_recorded:
            listener(transaction)

    def _committed(self, batch: Batch) -> list[Transaction]:
        """Commit a batch that needs no request. Return its transactions. Raises IoError."""
        try:
            stopped = batch.commit()
        except Broken as broken:
            self.mark_broken(broken, batch, [])
            return []
        if stopped is not None and stopped.refusal is not None:
            raise stopped.refusal
        self.last_write = self.clock.monotonic()
        recorded = [
            step.draft.transaction for step in batch.steps if step.staging.state is TransactionState.PUBLISHED
        ]
        for transaction in recorded:
            self.tell(transaction)
        if self.history.is_pressing:
            self._press()
        return recorded

    def adopt_into(
        self,
        batch: Batch,
        request: Write | None,
        message: str = "",
        changes: Sequence[Change[FileState]] = (),
    ) -> None:
        """Draft the outside changes that the view found, ahead of the requested `changes`."""
        if request is not None and request.dry_run:
            batch.view.forget_strangers()
            return
        made: list[WorkspacePath] = []
        for change in changes:
            if change.before is None and change.after is not None:
                made.append(change.path)  # noqa: PERF401  # a comprehension costs more for one change
        if made or batch.view.strangers:
            find_displaced(batch.view, self.files, changes, made)
        if not batch.view.strangers:
            return
        # Skip folders whose file system folds names, folders hidden by a mount, and inner workspaces: their
        # recorded files may be present and invisible, or another workspace's.
        inner = self.hidden.inner.lookup()
        strangers = {
            path: state
            for path, state in batch.view.strangers.items()
            if not (
                self.files.is_kept_out(path)
                or self.hidden.folder_over(path)
                or inner(path.raw.rpartition(b"/")[0])
            )
        }
        batch.view.strangers.clear()
        for adoption in external_changes(strangers, self.history, self._known_scope()):
            for kind, authorship, attributed in self._attributed(adoption, message):
                batch.adopt(kind, authorship, self.now_us(), attributed)

    def record_strangers(self, view: DiskSnapshot) -> None:
        """Record outside changes of the files that an undo would change, so that a dry run can name them."""
        is_ours = self.scope()
        known = {
            path: state
            for path, state in view.strangers.items()
            if self.history.entry(path) is not None or is_ours(path)
        }
        self.adopt(known)
        view.forget_strangers()

    def _known_scope(self) -> IsOurs:
        """Return a predicate: whether a file that the history lacks must be new at its path."""
        is_ours = self.scope()
        if not self.is_first_scan:
            return is_ours
        return lambda path: self.history.index.is_touched(path) and is_ours(path)

    def complete_baseline(
        self, scanned: Oid, scope: Callable[[], IsOurs], excluded: Mapping[Version, str]
    ) -> None:
        """Record the files of the first scan, which end with the tree `scanned`. Raises OSError, Refused.

        From then on `scope` is in force. The history has no content of the `excluded` versions.
        """
        self.history.excluded.name(excluded.items())
        transaction = first_scan.complete(self.history, scanned, self.now_us())
        self.is_first_scan, self.scope = False, scope
        self.tell(transaction)

    def _attributed(self, adoption: ExternalChange, message: str) -> list[AttributedChanges]:
        """Divide the changes by their authors. Unattributed changes have the message."""
        author = replace(OUTSIDE, message=message)
        if adoption.kind == "outside" and self.outside_authorship is not None:
            divided = self.outside_authorship(adoption.changes)
            if divided is not None:
                return [
                    one._replace(authorship=author) if one.authorship is OUTSIDE else one for one in divided
                ]
        return [AttributedChanges(adoption.kind, author, adoption.changes)]

    def look_at(self, paths: Iterable[WorkspacePath]) -> DiskSnapshot:
        """Record the present content of these files, and return the view of them. Raises Refused."""
        self.check_in_place()
        view = DiskSnapshot(self.tree, self.history, quiet=False)
        for path in paths:
            view.file_at(path)
        if view.strangers:
            self.record_strangers(view)
        return view

    def inspect(self) -> Reconciliation:
        """Return a comparison of files with the history, for the paths that a notice or a scan names."""
        return Reconciliation(self.tree, self.history, self.record)

    @property
    def portion(self) -> Portion:
        """The most that one transaction records of changes that no git has made."""
        return COMMAND_PORTION if self.is_command_open() else OUTSIDE_PORTION

    def look(self, here: WorkspacePath) -> FileState | None:
        """Return the state of a resolved path. Record it first if it is not in the history.

        A file that git ignores is not recorded.
        """
        self.check_in_place()
        view = DiskSnapshot(self.tree, self.history, quiet=False)
        state = view.at(here)
        if view.strangers and (self.history.entry(here) is not None or self.scope()(here)):
            self.adopt(view.strangers)
        return state

    # ── replaced files ──

    def clean_up(self) -> None:
        """Close the files of the last batch, put the replaced ones aside, and write a full index."""
        if self.last_batch is not None:
            self.last_batch.close()
            self.last_batch = None
        self.remove_replaced()
        self.history.index.flush_if_full()
        if self.history.is_pressing:
            self._press()

    def _press(self) -> None:
        """Tell those who asked for it that much waits for packing."""
        for listener in self.on_pressing:
            listener()

    def remove_replaced(self) -> None:
        """Remove the replaced files, or put them into the quarantine. A large request's go in slices."""
        yield_turn, self.yield_turn = self.yield_turn, None  # others do this, too, while it yields
        unfinished, self.unfinished = self.unfinished, []
        for staging in unfinished:
            try:
                self.files.finish(staging, yield_turn)
            except OSError as error:
                log.warning("a replaced file could not be removed: %s", error)
        if unfinished:
            self.files.date_replaced(self.clock.monotonic())

    def check_quarantine(self, *, is_busy: bool) -> Callable[[], list[QuarantineCheck]] | None:
        """Return a check of the replaced files that are due, or None. Any thread may run it.

        Pass its result to `record_late_writes`. With `is_busy`, it checks only the files that cannot wait.
        """
        if self.broken is not None:
            return None
        return self.files.check_quarantine(self.clock.monotonic(), is_busy=is_busy)

    def record_late_writes(self, checks: Sequence[QuarantineCheck]) -> None:
        """Record content that another program wrote into a file after its replacement (C4)."""
        with contextlib.closing(self.files.late_writes(checks)) as written:
            for path, state in written:
                if path is None:  # from before a crash: unrecorded content goes to lost and found
                    if not self.history.is_safe(state.version):
                        self.history.quarantine(state.version, state.content)
                    continue
                log.info("%s was written while it was being replaced", path.text)
                if not self.adopt({path: state}) and not self.history.is_known(state.version):
                    return  # the file stays in quarantine and is reported again
                inspection = self.inspect()  # the present content is recorded after it
                inspection.look(path)
                with contextlib.suppress(IoError):  # A later scan finds it again.
                    inspection.record()

    # ── packing, syncing, closing ──

    def packing_due(self) -> tuple[JournalPosition, JournalPosition, int] | None:
        """Return the next job of the packing process: two positions in the journal, and the last seq."""
        if self.broken is not None or self.history.packed == self.history.head:
            return None
        return self.history.tail, self.history.journal.position, self.history.head

    def packed(self, seq: int, until: JournalPosition) -> None:
        """Note that all transactions up to `seq` are packed."""
        self.history.note_packed(seq, until)
        self._release()

    def sync_files(self, through: Seq) -> None:
        """Sync the files, which hold all transactions up to `through`. Runs in a thread. Raises OSError."""
        self.files.sync()
        self.history.note_synced(through)

    def files_synced(self, through: Seq) -> None:
        """Note that the files are durable up to transaction `through`."""
        self.synced = max(self.synced, through)
        self._release()

    def sync_failed(self, error: OSError) -> None:
        """Close for writes after a failed sync, because unsynced content may never reach the disk."""
        self.has_sync_failed = True
        self.history.mark_sync_failed()
        self.broken = Broken(
            f"The workspace's file system could not be synced: {error}.",
            hint="Repair the disk and restart the daemon: it writes the last edits again.",
        )

    def _release(self) -> None:
        self.history.journal.release(min(self.synced, self.history.packed))

    def close(self) -> None:
        """Check the replaced files a last time, and close the history."""
        self.clean_up()
        try:
            if self.broken is None:
                check = self.files.check_quarantine(None)
                if check is not None:
                    self.record_late_writes(check())
                self.files.end()
        except (Refused, OSError) as error:  # the next start moves the rest to lost and found
            log.error("replaced files could not be checked: %s", error)
        self.hidden.close()
        self.history.close()

    # ── helpers ──

    def absence(self) -> Refused | None:
        """Return the refusal if the workspace's folder is not at its path, or cannot be checked."""
        try:
            return None if self._is_in_place() else folder_missing(self._root)
        except OSError as error:
            return IoError(error, "The workspace's folder cannot be checked")

    def check_in_place(self) -> None:
        """Raise IoError if the workspace's folder is not at its path."""
        if (absence := self.absence()) is not None:
            raise absence

    def batch(self) -> Batch:
        view = DiskSnapshot(self.tree, self.history, kept=OpenFiles())
        return Batch(self.history, self.files, view, self._boot, int(self.history.head))

    def _has_files(self, path: WorkspacePath) -> bool:
        """Return whether the history has a file at or below a path."""
        return self.history.entry(path) is not None or self.history.has_folder(path)

    def now_us(self) -> int:
        """Return the time of the clock. The order of transactions follows their numbers."""
        return self.clock.now_us()

    def mark_broken(self, broken: Broken, batch: Batch, results: list[Result | None]) -> None:
        """Close for writes until the daemon is restarted and recovers."""
        log.critical("broken: %s", broken.text())
        self.broken = broken
        for step in batch.steps:
            if step.request is not None and results[step.request] is None:
                results[step.request] = broken
