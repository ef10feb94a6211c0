"""The commit protocol: a batch of transactions, planned in turn, made durable by one sync, published.

    state      entered when                              what holds            a crash here
    PLANNED    `plan` returned                           nothing is written    nothing to do
    STAGED     new contents lie beside their targets     targets are `before`  temporaries are removed
    COMMITTED  the record is in the journal and synced   the record is enough  redo
    PUBLISHED  each target is its new content, and what  files are `after`,    redo where a file is
               was replaced was `before`; reply goes out unsynced              not `after`
    PACKED     the packing process has moved head        the history is in git the record is skipped
    CLOSED     the workspace's file system is synced     the segment is free   –
    BROKEN     an I/O error leaves files or journal in   reads only            recovery at the next start
               doubt

C1  No target is touched before its transaction's record is durable.
C2  No reply goes out before its record is durable and its files are published.
C4  What publishing replaces is looked at after it has been replaced. If it is not `before`, somebody
    wrote in between: theirs is put back, this transaction and those behind it are aborted, what they
    wrote is adopted, and all of them are planned again.
C6  Aborted numbers are not seen by anyone.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from editd.engine.commands import Outcome
from editd.errors import Broken, IoError, Refused
from editd.store.journal import JournalFailed
from editd.values.changeset import Base
from editd.workspace.writer import ConcurrentWrite, PublishFailed, StagedFiles, WorkspaceWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.engine.commands import Reader
    from editd.engine.snapshot import DiskSnapshot
    from editd.store.history import History, TransactionDraft
    from editd.values.changeset import Change
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, Kind, Part, Seq

BATCH_BYTES_MAX = 32 * 1024 * 1024  # one frame of the journal; a larger single transaction is its own batch


class CommitState(StrEnum):  # whose members are hashed as fast as texts
    STAGED = auto()
    COMMITTED = auto()
    PUBLISHED = auto()
    ABORTED = auto()


# What may follow what; anything else is a fault of ours.
TRANSITIONS = {
    CommitState.STAGED: {CommitState.COMMITTED, CommitState.ABORTED},
    CommitState.COMMITTED: {CommitState.PUBLISHED, CommitState.ABORTED},
    CommitState.PUBLISHED: set[CommitState](),
    CommitState.ABORTED: set[CommitState](),
}


class PendingTransaction(Struct):
    """One transaction of a batch; `request` is its place in the turn, None for what is adopted."""

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
    """Publishing stopped at a step: all steps from it on are aborted and can be planned again."""

    steps: Sequence[PendingTransaction]
    refused: int = (
        0  # so many of them, from the first, are answered with `refusal`; the rest are planned again
    )
    refusal: Refused | None = None
    orphans: Sequence[tuple[WorkspacePath, FileState]] = ()  # what could not be put back into its place


class Batch(Struct):
    """The transactions of one turn, and the view that each is planned on."""

    history: History
    files: WorkspaceWriter
    view: DiskSnapshot
    boot: bytes
    published_through: int
    steps: list[PendingTransaction] = field(default_factory=list)
    expected: dict[tuple[Reader, WorkspacePath], Base] = field(default_factory=dict)
    content_bytes: int = 0
    is_closed: bool = False  # the next request is planned on the files themselves

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
        """Put the new contents beside their targets, and draft the transaction. Raises Refused."""
        staged = (
            step for step in self.steps if step.staging is not None
        )  # what is adopted stands there already
        self.files.check(changes, [change for step in staged for change in step.changes])
        token = self.files.token(changes)
        staging = self.files.stage(changes, token)
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
                or change.after.is_symlink
                or (change.before and change.before.is_symlink)
            ):
                self.is_closed = True  # what lies beyond links and in folders is only seen when it is done
        return step

    def adopt(
        self, kind: Kind, authorship: Authorship, time_us: int, changes: Sequence[Change]
    ) -> PendingTransaction:
        """Draft a transaction of what is in the files already."""
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
        self.content_bytes += sum(len(change.after.content) for change in changes if change.after is not None)
        self.is_closed = self.is_closed or self.content_bytes > BATCH_BYTES_MAX
        return step

    def expect(self, reader: Reader) -> None:
        """The newest step is this reader's: it will have seen what that makes, so nothing makes it stale."""
        for change in self.steps[-1].changes:
            version = None if change.after is None else change.after.version
            self.expected[reader, change.path] = Base(version)

    def commit(self) -> CommitAborted | None:
        """Make all steps durable, then publish them in turn. Raises Broken where files are in doubt.

        An I/O error before the commit point refuses them all, with nothing changed.
        """
        if not self.steps:
            return None
        try:
            self.history.commit([step.draft for step in self.steps])  # the commit point (C1)
        except JournalFailed as error:
            raise Broken(
                f"The journal failed, and whether the last edits stand is in doubt: {error}.",
                hint="Restart the daemon: it recovers from what the disk holds.",
            ) from error
        except OSError as error:
            self._drop(self.steps)
            refusal = IoError(error, "The journal cannot be written")
            return CommitAborted(tuple(self.steps), len(self.steps), refusal)
        for step in self.steps:
            step.enter(CommitState.COMMITTED)
        for place, step in enumerate(self.steps):
            if step.staging is not None:
                try:
                    self.files.publish(step.staging)
                except ConcurrentWrite as overtaken:
                    return self._abort(self.steps[place:], orphans=overtaken.orphans)
                except PublishFailed as error:
                    raise Broken(
                        f"Files could neither be published nor put back: {error}.",
                        hint="Restart the daemon: it recovers from its journal.",
                    ) from error
                except Refused as refusal:
                    return self._abort(self.steps[place:], refusal)
            step.enter(CommitState.PUBLISHED)
            self.history.conclude(step.draft)
        return None

    def roll_back(self, steps: int) -> None:
        """Forget all but the first `steps` steps, which nobody has been told of."""
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
                f"The journal failed while transactions were taken back: {error}.",
                hint="Restart the daemon: it recovers from what the disk holds.",
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
        """Remove the temporaries of aborted steps, the newest first. Orphans are in the history by then."""
        for step in reversed(steps):
            if step.staging is not None:
                self.files.discard(step.staging)
