"""The commit protocol: a batch of transactions is planned in order, made durable by one sync, and published.

After a crash, `recover` finishes what the journal has.

    state      entered when                              what holds            a crash here
    PLANNED    `plan` returned                           nothing is written    nothing to do
    STAGED     new contents are in temporary files       targets are `before`  temporaries are removed
    COMMITTED  the record is in the journal and synced   the record is enough  redo
    PUBLISHED  each target has its new content, and the  files are `after`,    redo each file that is
               replaced files were `before`; reply sent  unsynced              not `after`
    PACKED     the packing process has moved head        the history is in git the record is skipped
    CLOSED     the workspace's file system is synced     the segment is free   –
    BROKEN     an I/O error leaves files or journal in   reads only            recovery at the next start
               doubt

From PACKED on, the state is the whole history's. `workspace.staged_change` has the table of the others.

C1  No target is touched before its transaction's record is durable.
C2  No reply goes out before its record is durable and its files are published.
C4  Each replaced file is verified after it has been replaced. If it is not `before`, another program wrote
    to it in between. Then its content is put back and adopted, and this transaction and all later ones of
    the batch are aborted and planned again.
C5  Recovery changes only a file that is in its `before` state (possibly absent) or visibly torn by a power
    cut. A torn file is empty, NUL-filled, or a prefix of one of its contents, after a new boot or mount. Any
    other content belongs to another program: it is adopted as an outside transaction after the redone one.
C6  The number of an aborted transaction is never visible to a client.
"""

from __future__ import annotations

import logging
import secrets
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from editd.errors import Broken, InUse, IoError, NotAFile, PathOutside, Refused, TooLarge
from editd.store.journal import JournalFailed
from editd.store.journal_record import Committed, content_of, touch_of
from editd.store.recorded_state import state_of
from editd.values.content import SYMLINK, Change, FileState
from editd.values.transaction import Base, Outcome
from editd.workspace.publish import ConcurrentWrite, PublishFailed
from editd.workspace.staged_change import StagedFiles, TransactionState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from editd.engine.commands import Reader
    from editd.engine.external_changes import DiskSnapshot
    from editd.store.excluded import LeftOut
    from editd.store.history import History, TransactionDraft
    from editd.values.content import Version
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, Part, Seq
    from editd.wire.messages import Kind
    from editd.workspace.reader import WorkspaceReader
    from editd.workspace.writer import WorkspaceWriter


log = logging.getLogger(__name__)


_DRAFT = attrgetter("draft")
BATCH_BYTES_MAX = 32 * 1024 * 1024  # one frame of the journal; a larger single transaction is its own batch


class PendingTransaction(Struct):
    """A transaction of a batch. `staging` has its state.

    `request` is its position in the turn, or None for a change that is adopted: the files have it already.
    """

    draft: TransactionDraft
    outcome: Outcome
    staging: StagedFiles
    request: int | None


class CommitAborted(Struct, frozen=True):
    """Publishing stopped: these steps are aborted. The first `refused` of them get `refusal` as their answer.

    The others are planned again.
    """

    steps: Sequence[PendingTransaction]
    refused: int = 0
    refusal: Refused | None = None
    orphans: Sequence[tuple[WorkspacePath, FileState]] = ()  # content that could not be put back


class Batch(Struct):
    """The transactions of one turn, and the view for planning each."""

    history: History
    files: WorkspaceWriter
    view: DiskSnapshot
    boot: bytes
    published_through: int
    steps: list[PendingTransaction] = field(default_factory=list)
    expected: dict[tuple[Reader, WorkspacePath], Base] = field(default_factory=dict)
    content_bytes: int = 0
    is_closed: bool = False  # the next request must be planned after the commit
    is_committed: bool = False  # or may be: an exception does not take the steps back any more

    def __enter__(self) -> Self:
        return self

    def __exit__(self, cause: type[BaseException] | None, *_: object) -> None:
        """Close the files; after an exception before the commit point, drop all steps."""
        try:
            if cause is not None and not self.is_committed:
                self.roll_back(0)
        finally:
            self.close()

    def stage(
        self,
        kind: Kind,
        authorship: Authorship,
        time_us: int,
        outcome: Outcome,
        *,
        request: int,
        undoes: Sequence[Seq] = (),
        parts: Sequence[Part] = (),
        notes: bytes = b"",
        staging: StagedFiles | None = None,
    ) -> PendingTransaction:
        """Write the new contents to temporary files, and draft the transaction. Raises Refused.

        `staging` has the contents if they are written already. It is discarded if the draft fails.
        """
        changes = outcome.changes
        if staging is None:
            earlier: list[Change[FileState]] = []
            for step in self.steps:
                if step.request is not None:
                    earlier += step.outcome.changes
            self.files.check(changes, earlier, self.view.kept)
        excluded, made = self.history.keep_excluded(changes, time_us)
        try:
            if staging is None:
                staging = self.files.stage(changes, self.files.token(changes), self.view.kept)
            step = self._add(
                kind, authorship, time_us, outcome, staging, request, undoes, parts, notes, staging.token,
                excluded=excluded, made=made,
            )  # fmt: skip
        except BaseException:
            if staging is not None:
                self.files.discard(staging)
            self.history.excluded.take_back(made)
            raise
        for change in changes:
            self.view.drafted[change.path] = change.after
            if (
                change.after is None
                or change.after.mode == SYMLINK
                or (change.before is not None and change.before.mode == SYMLINK)
            ):
                self.is_closed = True  # the view cannot show the effect on paths through links and folders
        return step

    def adopt(
        self,
        kind: Kind,
        authorship: Authorship,
        time_us: int,
        changes: Sequence[Change[FileState]],
        *,
        claims: Sequence[Seq] = (),
    ) -> PendingTransaction:
        """Draft a transaction of changes that are in the files already, or a claim of earlier ones."""
        outcome = Outcome(tuple(changes))
        return self._add(kind, authorship, time_us, outcome, StagedFiles(), None, claims=claims)

    def _add(
        self,
        kind: Kind,
        authorship: Authorship,
        time_us: int,
        outcome: Outcome,
        staging: StagedFiles,
        request: int | None,
        undoes: Sequence[Seq] = (),
        parts: Sequence[Part] = (),
        notes: bytes = b"",
        token: str = "",
        claims: Sequence[Seq] = (),
        excluded: LeftOut | None = None,
        made: Sequence[Version] = (),
    ) -> PendingTransaction:
        draft = self.history.draft(
            kind, authorship, time_us, outcome.changes, undoes=undoes, parts=parts, claims=claims,
            notes=notes, token=token, boot=self.boot, published_through=self.published_through,
            excluded=excluded, made=made,
        )  # fmt: skip
        try:
            if staging.warnings:
                outcome = replace(outcome, warnings=outcome.warnings + staging.warnings)
            step = PendingTransaction(draft, outcome, staging, request)
            for change in outcome.changes:
                if change.after is not None:
                    self.content_bytes += len(change.after.content)
            self.is_closed = self.is_closed or self.content_bytes > BATCH_BYTES_MAX
            self.steps.append(step)
        except BaseException:
            self.history.revert([draft])
            raise
        return step

    @property
    def is_published(self) -> bool:
        """Whether all steps are published, and all files that are still open have been replaced."""
        if self.view.kept is not None and not self.view.kept.is_all_taken:
            return False
        for step in self.steps:  # noqa: SIM110  # an expression costs two more calls an edit
            if step.staging.state is not TransactionState.PUBLISHED:
                return False
        return True

    def close(self) -> None:
        """Close the files that the view has kept open, so that other programs can write to them."""
        if self.view.kept is not None:
            self.view.kept.close()

    def expect(self, reader: Reader) -> None:
        """Note that `reader` will know the contents that the newest step makes."""
        for change in self.steps[-1].outcome.changes:
            version = None if change.after is None else change.after.version
            self.expected[reader, change.path] = Base(version)

    def commit(self) -> CommitAborted | None:
        """Make all steps durable, then publish them in order. Return the aborted steps, if any.

        On return, the steps that are not aborted may be answered (C2).

        An I/O error before the commit point refuses all of them, and nothing changes.
        Raises Broken if the state of the files or of the journal is in doubt. Any other exception has left
        all as before; the end of the batch drops the steps.
        """
        if not self.steps:
            return None
        try:
            self.history.commit(list(map(_DRAFT, self.steps)))  # the commit point (C1)
        except JournalFailed as error:
            self.is_committed = True
            raise Broken(
                f"The journal failed, and the last edits may or may not be recorded: {error}.",
                hint="Restart the daemon: it recovers from the disk.",
            ) from error
        except OSError as error:
            self._drop(self.steps)
            refusal = IoError(error, "The journal cannot be written")
            return CommitAborted(tuple(self.steps), len(self.steps), refusal)
        self.is_committed = True
        try:
            return self._publish()
        except Broken:
            raise
        except Exception as error:
            log.exception("the files of recorded transactions could not be published")
            raise Broken(
                f"The last edits are recorded, and their files may not be written: {error!r}.",
                hint="Restart the daemon: it recovers from its journal.",
            ) from error

    def _publish(self) -> CommitAborted | None:
        """Publish all steps, which are durable, in their order. Return the aborted steps. Raises Broken."""
        for step in self.steps:
            step.staging.enter(TransactionState.COMMITTED)
        published: PendingTransaction | None = None
        try:
            for position, step in enumerate(self.steps):
                if step.request is None:
                    step.staging.enter(TransactionState.PUBLISHED)
                else:
                    try:
                        self.files.publish(step.staging)
                    except ConcurrentWrite as write:  # C4: the replaced content was not `before`, and is back
                        return self._abort(self.steps[position:], orphans=write.orphans)
                    except PublishFailed as error:
                        raise Broken(
                            f"Files could neither be published nor put back: {error}.",
                            hint="Restart the daemon: it recovers from its journal.",
                        ) from error
                    except Refused as refusal:
                        return self._abort(self.steps[position:], refusal)
                self.history.conclude(step.draft)
                published = step
        finally:
            if published is not None:
                self.history.note_published(published.draft)
        return None

    def roll_back(self, steps: int) -> None:
        """Drop all but the first `steps` steps. None of them is visible yet."""
        self._drop(self.steps[steps:])
        del self.steps[steps:]

    def _abort(
        self,
        steps: Sequence[PendingTransaction],
        refusal: Refused | None = None,
        orphans: Sequence[tuple[WorkspacePath, FileState]] = (),
    ) -> CommitAborted:
        try:
            self.history.abort([step.draft for step in steps])
        except OSError as error:
            raise Broken(
                f"The journal failed while transactions were aborted: {error}.",
                hint="Restart the daemon: it recovers from the disk.",
            ) from error
        for step in steps:
            step.staging.enter(TransactionState.ABORTED)
        return CommitAborted(tuple(steps), 0 if refusal is None else 1, refusal, orphans)

    def _drop(self, steps: Sequence[PendingTransaction]) -> None:
        self.history.revert([step.draft for step in steps])
        self.discard(steps)
        for step in steps:
            self.history.excluded.take_back(step.draft.made)

    def discard(self, steps: Sequence[PendingTransaction]) -> None:
        """Remove the temporary files of aborted steps, newest first. Orphans are in the history by then."""
        for step in reversed(steps):
            self.files.discard(step.staging)


# Recovery: at the start, redo the transactions of a hot journal in the files.
#
# If several transactions of the journal changed one path, each of its states counts as `before`, and only the
# last state is written. After a power cut, all unsynced transactions are redone, even packed ones, because
# head is durable earlier than the files. After a failed sync, files in their last state are written again as
# well, because they may exist only in the page cache. A temporary file with unknown content was written by
# another program during publishing: its content is moved back to the file's path.


class PathStates(Struct):
    """The states of one path through the hot journal. The first is the state before all of it."""

    states: list[FileState | None] = field(default_factory=list)
    is_torn_possible: bool = False

    @property
    def last(self) -> FileState | None:
        return self.states[-1]


def recover(
    history: History, tree: WorkspaceReader, files: WorkspaceWriter, boot: bytes
) -> dict[WorkspacePath, FileState | None]:
    """Bring the files to their last state in the journal. Return other programs' content, to be adopted.

    Raises IoError or Broken if a file cannot be written.
    """
    strangers: dict[WorkspacePath, FileState | None] = {}
    same_boot = bool(boot) and all(record.boot == boot for record in history.unsynced)
    same_boot = same_boot and not history.is_in_doubt
    records = history.hot if same_boot else history.unsynced
    chains = _chains(records, history, is_torn_possible=not same_boot)
    blocked: list[WorkspacePath] = []  # A folder that becomes a file may still have a temporary file in it.
    for path, chain in sorted(chains.items()):
        if chain.last is not None and files.is_folder(path):
            blocked.append(path)
        else:
            strangers.update(_redo(path, chain, tree, files, is_rewritten=history.is_in_doubt))
    for record in records:
        for index, change in enumerate(_changes(record, history)):
            leftovers = _leftovers(files, change, record.token, index)
            path_states = chains.get(change.path)
            states = [change.before, change.after]  # not in a chain that begins with a later record
            if path_states is not None:
                states += path_states.states
            for leftover in leftovers:
                if not (leftover in states or (not same_boot and _is_torn(leftover, states))):
                    log.warning("%s: another program wrote to it during publishing", change.path.text)
                    strangers[change.path] = leftover
                    if not _is_put_back(files, path_states, change, leftover):
                        _set_aside(history, change.path, leftover)
            # The folder of a deleted file may still exist.
            if leftovers or (change.after is None and change.path in chains):
                is_recorded = all(leftover in states for leftover in leftovers)
                files.remove_leftover(change, record.token, index, is_recorded=is_recorded)
    for path in blocked:
        strangers.update(_redo(path, chains[path], tree, files, is_rewritten=False))
    files.note_unsynced(touch_of(change).path for record in history.unsynced for change in record.changes)
    history.published.note(int(history.head))
    if records:
        log.info("recovered %d transactions from the journal", len(records))
    return strangers


def _chains(
    records: Sequence[Committed], history: History, *, is_torn_possible: bool
) -> dict[WorkspacePath, PathStates]:
    """Return the states of each path whose file may not be in its last state.

    The page cache keeps a published file when the daemon is killed, but not after a power cut or a new mount.
    If such a file has an older state after a kill, another program wrote that state.
    """
    noted = [record.published_through for record in records]
    published = 0 if is_torn_possible else max([history.published.through, *noted])
    chains: dict[WorkspacePath, PathStates] = {}
    for record in records:
        is_ours = bool(record.token) and record.seq > published
        for change in _changes(record, history):
            chain = chains.get(change.path)
            if chain is None and is_ours:
                chain = chains[change.path] = PathStates([change.before], is_torn_possible=is_torn_possible)
            if chain is not None:  # also for an adopted change, because the file had that state
                chain.states.append(change.after)
    return chains


def _redo(
    path: WorkspacePath,
    chain: PathStates,
    tree: WorkspaceReader,
    files: WorkspaceWriter,
    *,
    is_rewritten: bool,
) -> dict[WorkspacePath, FileState | None]:
    try:
        current = tree.read(path)
    except TooLarge as refusal:  # another program's content: the scan reports it
        log.warning("%s", refusal.text())
        return {}
    except (NotAFile, PathOutside) as obstacle:
        if chain.last is None:
            return {}  # The file is gone, as intended. The scan records any successor.
        is_folder = files.is_folder(path)  # `put` replaces a folder without files
        is_known = content_of(chain.last) is not None
        if is_folder and is_known and files.put(path, chain.last, chain.states, secrets.token_hex(8)):
            return {}
        log.warning("%s could not be written: %s", path.text, obstacle.message)
        return {path: None}
    if current == chain.last:
        if is_rewritten and current is not None:
            _rewrite(path, current, files)
        return {}
    if chain.last is not None and content_of(chain.last) is None:
        log.error("%s: the history does not have its last content, so the file stays as it is", path.text)
        return {path: current}
    expected = list(chain.states)
    if chain.is_torn_possible and _is_torn(current, chain.states):
        expected.append(current)
    try:
        if files.put(path, chain.last, expected, secrets.token_hex(8)):
            return {}
    except ConcurrentWrite as write:
        return dict(write.orphans)
    return {path: tree.read(path)}


def _rewrite(path: WorkspacePath, state: FileState, files: WorkspaceWriter) -> None:
    if not files.rewrite(path, state, secrets.token_hex(8)):
        log.warning("%s: another program is writing to it, so it was not written again", path.text)


def _is_torn(current: FileState | None, states: Sequence[FileState | None]) -> bool:
    """Return whether a power cut can have left the file: empty, all NUL, or a prefix of one of `states`."""
    if current is None or current.is_symlink:
        return False
    contents = [state.content for state in states if state is not None and not state.is_symlink]
    if not current.content.strip(b"\0"):
        return bool(contents)
    return any(content.startswith(current.content) for content in contents)


def _leftovers(files: WorkspaceWriter, change: Change[FileState], token: str, index: int) -> list[FileState]:
    if not token:
        return []
    try:
        return files.leftovers(change, token, index)
    except (InUse, NotAFile, OSError) as error:
        log.warning("a temporary file of %s could not be read: %s", change.path.text, error)
        return []


def _is_put_back(
    files: WorkspaceWriter, chain: PathStates | None, change: Change[FileState], leftover: FileState
) -> bool:
    """Write another program's content back to its path, unless the file changed again or the write fails."""
    expected: Sequence[FileState | None] = (
        chain.states if chain is not None else [change.before, change.after]
    )
    try:
        return files.put(change.path, leftover, expected, secrets.token_hex(8))
    except Refused as refusal:
        log.warning("%s: could not be put back: %s", change.path.text, refusal.text())
    return False


def _set_aside(history: History, path: WorkspacePath, state: FileState) -> None:
    """Keep content whose only copy is about to be removed, because the journal may fail to take it.

    Raises IoError: then the start is refused, and the copy stays.
    """
    try:
        history.quarantine(state.version, state.content)
    except OSError as error:
        raise IoError(error, f"What another program wrote into {path.text} could not be kept") from error


def _changes(record: Committed, history: History) -> Iterator[Change[FileState]]:
    """Yield the changes of a record. A content that the history lacks is empty (`content_of`)."""
    for change in record.changes:
        touch, content = touch_of(change), None if change.after is None else change.after.content
        after = state_of(touch.after, history) if content is None else None
        if touch.after is not None and content is not None:
            after = FileState(content, touch.after.mode, touch.after.permissions, touch.after.version)
        yield Change(touch.path, state_of(touch.before, history), after, touch.source)
