"""The commit protocol: a batch of transactions is planned in order, made durable by one sync, and published.

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

C1  No target is touched before its transaction's record is durable.
C2  No reply goes out before its record is durable and its files are published.
C4  Each replaced file is verified after it has been replaced. If it is not `before`, another program wrote
    to it in between. Then its content is put back and adopted, and this transaction and all later ones of
    the batch are aborted and planned again.
C6  The number of an aborted transaction is never visible to a client.
"""

from __future__ import annotations

from enum import StrEnum, auto
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from editd.engine.commands import Outcome
from editd.errors import Broken, IoError, Refused
from editd.store.journal import JournalFailed
from editd.values.changeset import Base
from editd.values.content import SYMLINK
from editd.workspace.publish import ConcurrentWrite, PublishFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.engine.commands import Reader
    from editd.engine.snapshot import DiskSnapshot
    from editd.store.history import History, TransactionDraft
    from editd.values.changeset import Change
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, Kind, Part, Seq
    from editd.workspace.staged_change import StagedFiles
    from editd.workspace.writer import WorkspaceWriter

_DRAFT = attrgetter("draft")
BATCH_BYTES_MAX = 32 * 1024 * 1024  # one frame of the journal; a larger single transaction is its own batch


class CommitState(StrEnum):  # its members are hashed as fast as strings
    STAGED = auto()
    COMMITTED = auto()
    PUBLISHED = auto()
    ABORTED = auto()


# Any other transition is a bug.
TRANSITIONS = {
    CommitState.STAGED: {CommitState.COMMITTED, CommitState.ABORTED},
    CommitState.COMMITTED: {CommitState.PUBLISHED, CommitState.ABORTED},
    CommitState.PUBLISHED: set[CommitState](),
    CommitState.ABORTED: set[CommitState](),
}


class PendingTransaction(Struct):
    """A transaction of a batch. `request` is its position in the turn, or None for an adopted change."""

    draft: TransactionDraft
    changes: tuple[Change, ...]
    staging: StagedFiles | None
    request: int | None
    outcome: Outcome
    state: CommitState = CommitState.STAGED

    def enter(self, state: CommitState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} → {state}"
        self.state = state


class CommitAborted(Struct, frozen=True):
    """Publishing stopped: these steps are aborted. The first `refused` of them get `refusal` as their answer.

    The others are planned again.
    """

    steps: Sequence[PendingTransaction]
    refused: int = 0
    refusal: Refused | None = None
    orphans: Sequence[tuple[WorkspacePath, FileState]] = ()  # content that could not be put back


class Batch(Struct):
    """The transactions of one turn, and the view on which each is planned."""

    history: History
    files: WorkspaceWriter
    view: DiskSnapshot
    boot: bytes
    published_through: int
    steps: list[PendingTransaction] = field(default_factory=list)
    expected: dict[tuple[Reader, WorkspacePath], Base] = field(default_factory=dict)
    content_bytes: int = 0
    is_closed: bool = False  # the next request must be planned after the commit

    def stage(
        self,
        kind: Kind,
        authorship: Authorship,
        time_us: int,
        changes: Sequence[Change],
        *,
        request: int,
        outcome: Outcome,
        undoes: Sequence[Seq] = (),
        parts: Sequence[Part] = (),
        notes: bytes = b"",
    ) -> PendingTransaction:
        """Write the new contents to temporary files, and draft the transaction. Raises Refused."""
        earlier: list[Change] = []
        for step in self.steps:
            if step.staging is not None:
                earlier += step.changes
        self.files.check(changes, earlier, self.view.kept)
        token = self.files.token(changes)
        staging = self.files.stage(changes, token, self.view.kept)
        try:
            step = self._add(
                kind, authorship, time_us, changes, staging, request, outcome, undoes, parts, notes, token
            )
        except BaseException:
            self.files.discard(staging)
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
        self, kind: Kind, authorship: Authorship, time_us: int, changes: Sequence[Change]
    ) -> PendingTransaction:
        """Draft a transaction of changes that are in the files already."""
        return self._add(kind, authorship, time_us, changes, None, None, Outcome(None, tuple(changes)))

    def _add(
        self,
        kind: Kind,
        authorship: Authorship,
        time_us: int,
        changes: Sequence[Change],
        staging: StagedFiles | None,
        request: int | None,
        outcome: Outcome,
        undoes: Sequence[Seq] = (),
        parts: Sequence[Part] = (),
        notes: bytes = b"",
        token: str = "",
    ) -> PendingTransaction:
        draft = self.history.draft(
            kind, authorship, time_us, changes, undoes=undoes, parts=parts, notes=notes, token=token,
            boot=self.boot, published_through=self.published_through,
        )  # fmt: skip
        if staging is not None and staging.warnings:
            outcome = replace(outcome, warnings=outcome.warnings + staging.warnings)
        step = PendingTransaction(draft, tuple(changes), staging, request, outcome)
        self.steps.append(step)
        for change in changes:
            if change.after is not None:
                self.content_bytes += len(change.after.content)
        self.is_closed = self.is_closed or self.content_bytes > BATCH_BYTES_MAX
        return step

    def close(self) -> None:
        """Close the files that the view has kept open, so that other programs can write to them."""
        if self.view.kept is not None:
            self.view.kept.close()

    def expect(self, reader: Reader) -> None:
        """Note that `reader` will know the contents that the newest step makes."""
        for change in self.steps[-1].changes:
            version = None if change.after is None else change.after.version
            self.expected[reader, change.path] = Base(version)

    def commit(self) -> CommitAborted | None:
        """Make all steps durable, then publish them in order. Return the aborted steps, if any.

        An I/O error before the commit point refuses all of them, and nothing changes.
        Raises Broken if the state of the files or of the journal is in doubt.
        """
        if not self.steps:
            return None
        try:
            self.history.commit(list(map(_DRAFT, self.steps)))  # the commit point (C1)
        except JournalFailed as error:
            raise Broken(
                f"The journal failed, and the last edits may or may not be recorded: {error}.",
                hint="Restart the daemon: it recovers from the disk.",
            ) from error
        except OSError as error:
            self._drop(self.steps)
            refusal = IoError(error, "The journal cannot be written")
            return CommitAborted(tuple(self.steps), len(self.steps), refusal)
        for step in self.steps:
            step.enter(CommitState.COMMITTED)
        for position, step in enumerate(self.steps):
            if step.staging is not None:
                try:
                    self.files.publish(step.staging)
                except ConcurrentWrite as write:
                    return self._abort(self.steps[position:], orphans=write.orphans)
                except PublishFailed as error:
                    raise Broken(
                        f"Files could neither be published nor put back: {error}.",
                        hint="Restart the daemon: it recovers from its journal.",
                    ) from error
                except Refused as refusal:
                    return self._abort(self.steps[position:], refusal)
            step.enter(CommitState.PUBLISHED)
            self.history.conclude(step.draft)
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
            step.enter(CommitState.ABORTED)
        return CommitAborted(tuple(steps), 0 if refusal is None else 1, refusal, orphans)

    def _drop(self, steps: Sequence[PendingTransaction]) -> None:
        self.history.revert([step.draft for step in steps])
        for step in steps:
            step.enter(CommitState.ABORTED)
        self.discard(steps)

    def discard(self, steps: Sequence[PendingTransaction]) -> None:
        """Remove the temporary files of aborted steps, newest first. Orphans are in the history by then."""
        for step in reversed(steps):
            if step.staging is not None:
                self.files.discard(step.staging)
