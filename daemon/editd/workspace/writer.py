"""The files: publishing the changes of one transaction so that nothing anyone wrote is lost.

A staging is one transaction's changes on their way into the files:

    STAGED ──publish──▶ PUBLISHED ──finish──▶ FINISHED
      │  ╲──publish──▶ HALF     what was put in place could not all be taken back: the engine is broken
      └──discard──▶ DISCARDED

New contents are written beside their targets first (`temporaries`). Publishing then lets each change
places with what it replaces (RENAME_EXCHANGE), and looks at what came out, under a read lease: only then
can nobody still be writing it (C4). If it is not `before`, all that was done is taken back
(`publishing`), and `ConcurrentWrite` says so.

Promises: no content but `before` and `after` of a change is ever removed without being handed out, on a
file system that can exchange and lease; elsewhere `Disk.weaker` says what is missing. Never follows a
symlink, never syncs but in `sync`, and knows nothing of the journal, which makes it durable.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.errors import Refused
from editd.values.changeset import Change
from editd.values.path import WorkspacePath
from editd.workspace import preflight
from editd.workspace.directories import (
    NO_WAY,
    is_folder,
    nearest_folder,
    prune,
    remove_folder,
    stat_directory,
)
from editd.workspace.open_target import holds
from editd.workspace.publish import Publisher, UnexpectedContent
from editd.workspace.reader import read_name, refusal_of
from editd.workspace.staged_change import (
    StagedChange,
    folder_that_stays,
    is_temporary,
    item_of,
    split,
    temporary_name,
    token_of,
)
from editd.workspace.temp_files import (
    note_unpreserved,
    open_temp_dir,
    remove_temporary,
    write_temporary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from typing import Literal

    from editd.system.filesystem import Disk
    from editd.values.content import FileState
    from editd.workspace.created_dirs import CreatedDirs
    from editd.workspace.quarantine import Quarantine, QuarantineCheck, ReplacedFile


class StagingState(StrEnum):
    """Where a staging is."""

    STAGED = "staged"
    PUBLISHED = "published"
    FINISHED = "finished"
    DISCARDED = "discarded"
    HALF = "half"


TRANSITIONS: dict[StagingState, frozenset[StagingState]] = {
    StagingState.STAGED: frozenset({StagingState.PUBLISHED, StagingState.DISCARDED, StagingState.HALF}),
    StagingState.PUBLISHED: frozenset({StagingState.FINISHED}),
    StagingState.FINISHED: frozenset({StagingState.FINISHED}),
    StagingState.DISCARDED: frozenset({StagingState.DISCARDED}),
    StagingState.HALF: frozenset(),
}


class ConcurrentWrite(Exception):
    """Somebody wrote before we did. All is as they left it; the staging is STAGED and is to be discarded.

    `paths` are where it was found out. `orphans` are what somebody wrote at a path at which something
    newer stands now: put them into the history first, then discard.
    """

    def __init__(
        self, paths: Sequence[WorkspacePath], orphans: Sequence[tuple[WorkspacePath, FileState]]
    ) -> None:
        super().__init__(", ".join(path.text for path in paths))
        self.paths = list(paths)
        self.orphans = list(orphans)


class PublishFailed(Exception):
    """What was put in place could not be taken back: files are in doubt, the temporaries are left.

    `path` is where; `orphans` as in `ConcurrentWrite`. The cause is the error that stood in the way.
    """

    def __init__(self, path: WorkspacePath, orphans: Sequence[tuple[WorkspacePath, FileState]]) -> None:
        super().__init__(path.text)
        self.path = path
        self.orphans = list(orphans)


class StagedFiles(Struct, eq=False):
    """One transaction's changes on their way into the files."""

    token: str
    items: list[StagedChange] = field(default_factory=list)
    folders_made: list[bytes] = field(default_factory=list)
    state: StagingState = StagingState.STAGED

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the files have beside their bytes and will not keep, or not get back by an undo: sentences."""
        return tuple(item.warning for item in self.items if item.lost)

    def become(self, state: StagingState) -> None:
        """Take the next state; a fault of ours if the table does not have it."""
        assert state in TRANSITIONS[self.state], f"{self.state} → {state}"
        self.state = state


class WorkspaceWriter:
    """The workspace's files, written one transaction at a time."""

    def __init__(
        self,
        disk: Disk,
        *,
        publish: Literal["exchange", "rename"] = "exchange",
        replaced: Quarantine | None = None,
        made_folders: CreatedDirs | None = None,
    ) -> None:
        """`replaced` keeps what was replaced for a moment; without it, that is removed at once.

        `made_folders` notes the folders that are made; without it, a crash may leave empty ones.

        `publish="rename"` checks, then renames over: other programs' watchers see one change, and what
        is saved from outside between the check and the rename is lost.
        """
        self._disk = disk
        self._replaced = replaced
        self._made_folders = made_folders
        self._spares = None if replaced is None else replaced.spares
        self._is_exchanging = publish == "exchange" and disk.can_exchange
        if self._spares is not None and not self._is_exchanging:
            self._spares.refuse_all()
        self._unfinished: list[StagedFiles] = []
        self._live: set[str] = set()  # tokens whose temporaries `sweep` leaves alone
        self._left: list[bytes] = []  # temporaries that could not be removed when it was time to
        self._emptied: set[bytes] = set()  # folders of which the same is true
        with disk.folder(b"") as root:
            self._device = stat_directory(root, b".").st_dev
        self._mounts: dict[int, bytes] = {}  # other file systems that we have written to, by device
        # What was published and is not synced, where each file must be. A thread takes it out again.
        self._unsynced: deque[bytes] = deque()

    def check(self, changes: Sequence[Change], pending: Iterable[Change] = ()) -> None:
        """Refuse what cannot be published, before anything is done.

        `pending` are the changes of transactions that will be published before these. Raises
        PermissionDenied for a file that is hard-linked (unless it is deleted) or read-only, NotAFile
        where a folder is in the way, or a file where a folder is needed, and as the file system says.
        """
        preflight.check(self._disk, changes, pending)

    def is_kept_out(self, path: WorkspacePath) -> bool:
        """Whether `check` refuses every change at `path`, since its file system folds names."""
        return preflight.is_kept_out(self._disk, path)

    def make_ahead(self) -> Callable[[], list[bytes]] | None:
        """What makes some spares, for any thread, and is to be given to `made_ahead`; None: there are enough.

        Removes what could not be removed before.
        """
        self._remove_left()
        if self._spares is None or not self._is_exchanging:
            return None
        lacking = self._spares.needed()
        return partial(self._spares.make, lacking) if lacking else None

    def made_ahead(self, spares: Iterable[bytes]) -> None:
        """Have these ready for the edits to come."""
        for spare in spares:
            assert self._spares is not None, "who has made them?"
            self._spares.add(spare)

    def token(self, changes: Sequence[Change]) -> str:
        """A name for a transaction in those of its temporaries, never used before."""
        first = changes[0] if changes else None  # an undo of what others have undone changes nothing
        if self._spares is None or first is None or first.before is None or first.after is None:
            return secrets.token_hex(8)
        return self._spares.token()

    def stage(self, changes: Sequence[Change], token: str) -> StagedFiles:
        """Make folders, and write what is new into temporaries beside their targets, or into spares.

        Nothing is synced. `token` is what `token` says; the temporary of `changes[i]` is
        `.editd-{token}-{i}`. On an error all is removed again: PermissionDenied where the owner cannot be
        kept or the file system does not allow it, IoError else, a full disk for one.
        """
        staging = StagedFiles(token)
        self._live.add(token)
        about_to = None if self._made_folders is None else self._made_folders.note
        created = {change.path.text for change in changes if change.after is not None}
        moved = {change.source for change in changes}
        for index, change in enumerate(changes):
            item = item_of(change, temporary_name(token, index))
            staging.items.append(item)
            try:
                if change.after is None:
                    item.aside = folder_that_stays(item.folder, created)
                    if change.path not in moved:
                        note_unpreserved(self._disk, item)
                elif not item.is_mode_only:
                    with open_temp_dir(self._disk, item, staging.folders_made.append, about_to) as aside:
                        device = write_temporary(self._disk, aside, item, change.after, self._spares)
                    self._note_device(device, item.aside)
            except OSError as error:
                self.discard(staging)
                raise refusal_of(error, change.path, "could not be written") from error
            except Refused:
                self.discard(staging)
                raise
        if self._spares is not None:
            self._spares.keep(token)
        return staging

    def publish(self, staging: StagedFiles) -> None:
        """Put everything in place, deletions first; or raise, with everything as it was found.

        Raises Overtaken where a path does not hold `before`, IoError or PermissionDenied where the disk
        says no; the staging is then still STAGED. Raises HalfPublished where putting back failed too.
        Stagings are published in the order in which they were staged; where a folder becomes a file
        and one staged later has a temporary in it, that counts as Overtaken too.
        """
        assert StagingState.PUBLISHED in TRANSITIONS[staging.state], staging.state
        publishing = Publisher(
            self._disk, self._spares, is_exchanging=self._is_exchanging, clear=self._finish_all
        )
        try:
            self._publish(staging, publishing)
        finally:
            publishing.close()
        staging.become(StagingState.PUBLISHED)
        self._unfinished.append(staging)
        self.note_unsynced(item.change.path for item in staging.items)

    def _publish(self, staging: StagedFiles, publishing: Publisher) -> None:
        for item in sorted(staging.items, key=lambda item: item.change.after is not None):
            try:
                publishing.put(item)
            except UnexpectedContent:
                raise ConcurrentWrite([item.change.path], self._put_back(staging, publishing)) from None
            except (OSError, Refused) as error:
                orphans = self._put_back(staging, publishing)
                if orphans:
                    raise ConcurrentWrite([path for path, _ in orphans], orphans) from error
                if isinstance(error, Refused):
                    raise
                raise refusal_of(error, item.change.path, "could not be put in place") from error

    def finish(self, staging: StagedFiles) -> None:
        """Remove what was replaced, which was looked at when it was, and folders that deletions emptied.

        To be called once it is certain that the transaction stands; again is no harm.
        """
        staging.become(StagingState.FINISHED)
        if staging not in self._unfinished:
            return  # A later one of its batch needed a folder that this one had emptied.
        self._unfinished.remove(staging)
        emptied: set[bytes] = set()
        for item in staging.items:
            if item.change.before is None or item.is_mode_only:
                continue
            if self._replaced is None or not self._replaced.keep(self._disk, item):
                self._remove(item)
            if item.change.after is None:
                emptied.add(item.folder)
        self._emptied |= prune(self._disk, emptied)
        self._let_go(staging.token)
        self._remove_left()

    @property
    def has_replaced(self) -> bool:
        """Whether replaced files are kept, which are to be looked at soon."""
        return self._replaced is not None and len(self._replaced) > 0

    def check_quarantine(
        self, now: float | None, *, is_busy: bool = False
    ) -> Callable[[], list[QuarantineCheck]] | None:
        """A look at what was replaced long enough ago, for any thread; None where there is nothing to see.

        The parameters are those of `Replaced.due`.
        """
        if self._replaced is None:
            return None
        due = self._replaced.due(now, is_busy=is_busy)
        return partial(self._replaced.look, due, at_the_end=now is None) if due else None

    def unlooked(self) -> Sequence[ReplacedFile]:
        """What was replaced and may have been written since; nothing where leases show that at once."""
        if self._replaced is None or self._disk.has_leases:
            return ()
        return self._replaced.unlooked()

    def written(self, looks: Sequence[QuarantineCheck]) -> Generator[tuple[WorkspacePath | None, FileState]]:
        """See `Replaced.written`."""
        if self._replaced is not None:
            yield from self._replaced.written(looks)

    def end(self) -> None:
        """Leave nothing ready for edits that do not come."""
        if self._spares is not None:
            self._spares.clear()

    def discard(self, staging: StagedFiles) -> None:
        """Remove the temporaries and the folders that were made for them. May be called twice.

        Of several stagings of one batch, the newest is discarded first: it may use an older one's folders.
        """
        staging.become(StagingState.DISCARDED)
        for item in staging.items:
            if item.is_linked and self._replaced is not None:
                self._replaced.keep(self._disk, item)
            self._remove(item)
        for path in reversed(staging.folders_made):
            with suppress(OSError):  # Somebody has put something into it, or removed it.
                remove_folder(self._disk, path)
        self._let_go(staging.token)
        self._remove_left()

    def sync(self) -> None:
        """Make all that was published durable, on every file system that has some of it. Raises OSError."""
        if not self._disk.can_sync_whole:
            self._sync_each()
            return
        self._disk.sync()
        for path in list(self._mounts.values()):  # a thread may sync while another publishes
            self._disk.sync(path)

    def note_unsynced(self, paths: Iterable[WorkspacePath]) -> None:
        """Have `sync` make these durable too, which an earlier daemon may have published."""
        if not self._disk.can_sync_whole:
            self._unsynced.extend(path.raw for path in paths)

    def _sync_each(self) -> None:
        taken: set[bytes] = set()
        while self._unsynced:
            taken.add(self._unsynced.popleft())
        try:
            self._disk.sync_each(sorted(taken))
        except OSError:
            self._unsynced.extend(taken)
            raise

    # For recovery: to look at what a crash has left, and to make a path hold what it should.

    def leftovers(self, change: Change, token: str, index: int) -> list[FileState]:
        """Return what lies under the temporary name of `changes[index]`, wherever that may be.

        It may be what was staged (`after`), what was replaced (`before`), either of them torn by a
        power cut, or what somebody wrote: then it belongs into the history. Raises InUse, and OSError.
        """
        name = temporary_name(token, index)
        found: list[FileState | None] = []
        if self._replaced is not None and self._replaced.stat(name) is not None:
            found.append(self._replaced.read(name, change.path))
        path = self._find_leftover(change, name)
        if path is not None:
            found.append(self.stray(path))
        return [state for state in found if state is not None]

    def remove_leftover(self, change: Change, token: str, index: int, *, is_recorded: bool) -> None:
        """Remove it, and the folder of a deleted file if it was all that lay there.

        The caller has looked at it, and keeps what is not known otherwise. What `is_recorded` and was
        replaced goes in its time, with all that lies there: a start does not wait for that.
        """
        name = temporary_name(token, index)
        if self._replaced is not None and not is_recorded:
            self._replaced.remove(name)
        path = self._find_leftover(change, name)
        if path is not None:
            self.sweep(path)
        if change.after is None:
            self._prune_above(change.path)

    def is_folder(self, path: WorkspacePath) -> bool:
        """Whether a folder stands at `path`, reached through no symlink."""
        with suppress(OSError):  # Something else is there, or above it.
            return is_folder(self._disk, path.raw)
        return False

    def put(
        self, path: WorkspacePath, after: FileState | None, expected: Sequence[FileState | None], token: str
    ) -> bool:
        """Make `path` hold `after` where it holds one of `expected`, by the same exchange and look.

        True: it does now, or did already. False: it holds something else, and nothing is changed.
        A folder with nothing but empty folders in it counts as no file, and makes way for one.
        Put a file that replaces a folder after the deletions in that folder.
        Raises Overtaken only with orphans, which the caller puts into the history.
        Raises IoError, PermissionDenied and HalfPublished as `stage` and `publish`.
        """
        if self._holds(path, after):
            if after is None:
                self._prune_above(path)  # Finishing would have done it.
            return True
        if self.is_folder(path):
            if after is None:
                return True  # The file has made way already.
            return None in expected and self._put([Change(path, None, after)], token)
        for before in expected:
            if self._holds(path, before):
                return self._put([Change(path, before, after)], token)
        return False

    def rewrite(self, path: WorkspacePath, state: FileState, token: str) -> bool:
        """Let a new file take the place of `path`, with the same in it; False where it is not `state`.

        False also while somebody is writing it. Raises as `put`.
        """
        return self._put([Change(path, state, state, path)], token)  # as though moved onto itself

    def stray(self, path: bytes) -> FileState | None:
        """Return what a temporary of a dead daemon holds; None if it is gone. Raises InUse, and OSError."""
        above, name = split(path)
        with self._disk.folder(above) as folder:
            found = read_name(folder, name, WorkspacePath(os.fsdecode(path)), quiet=True)
        return None if found is None else found.state()

    def sweep(self, path: bytes) -> bool:
        """Remove a temporary that no staging of ours has, given by its path; True if it is gone.

        The caller has looked at it with `stray`: after a crash it may be all that is left of what
        somebody wrote.
        """
        above, name = split(path)
        assert is_temporary(name), path
        if token_of(name) in self._live:
            return False
        try:
            with self._disk.folder(above) as folder:
                folder.remove(name)
        except OSError as error:
            return error.errno in NO_WAY
        return True

    def remove_left_folders(self) -> None:
        """Remove the empty folders that a dead daemon has made, once its temporaries are gone."""
        if self._made_folders is not None:
            self._made_folders.remove_left(self._disk)

    def _prune_above(self, path: WorkspacePath) -> None:
        """Remove the folder of a deleted file and those above it, where they are empty or gone already."""
        prune(self._disk, [nearest_folder(self._disk, split(path.raw)[0])])

    def _let_go(self, token: str) -> None:
        self._live.discard(token)
        if self._made_folders is not None and not self._live:
            self._made_folders.forget()

    def _put(self, changes: Sequence[Change], token: str) -> bool:
        staging = self.stage(changes, token)
        try:
            self.publish(staging)
        except ConcurrentWrite as overtaken:
            if overtaken.orphans:
                self._live.discard(token)  # The temporary stays, for `sweep`, until the orphan is kept.
                raise
            self.discard(staging)
            return False
        except Refused:
            self.discard(staging)
            raise
        self.finish(staging)
        return True

    def _put_back(self, staging: StagedFiles, publishing: Publisher) -> list[tuple[WorkspacePath, FileState]]:
        orphans: list[tuple[WorkspacePath, FileState]] = []
        for step in reversed(publishing.done):
            try:
                orphan = step.undo()
            except (OSError, Refused) as error:
                staging.become(StagingState.HALF)
                raise PublishFailed(step.path, orphans) from error
            if orphan is not None:
                orphans.append((step.path, orphan))
        return orphans

    def _remove(self, item: StagedChange) -> None:
        is_gone = remove_temporary(self._disk, item, self._spares)
        if not is_gone and not item.is_spare:
            self._left.append(item.aside + b"/" + item.temporary if item.aside else item.temporary)

    def _remove_left(self) -> None:
        """Try once more; what is still there at the end, a scan sweeps."""
        if self._left:
            self._left = [path for path in self._left if not self.sweep(path)]
        if self._emptied:
            self._emptied = prune(self._disk, self._emptied)

    def _finish_all(self) -> None:
        for staging in tuple(self._unfinished):
            self.finish(staging)

    def _holds(self, path: WorkspacePath, state: FileState | None) -> bool:
        above, name = split(path.raw)
        try:
            with self._disk.folder(above) as folder:
                return holds(folder, name, path, state)
        except OSError as error:
            if error.errno not in NO_WAY:
                raise refusal_of(error, path, "could not be looked at") from error
            return state is None

    def _find_leftover(self, change: Change, temporary: bytes) -> bytes | None:
        path = change.path.raw
        while path:
            path, _ = split(path)
            with suppress(OSError), self._disk.folder(path) as folder:
                if folder.stat(temporary) is not None:
                    return path + b"/" + temporary if path else temporary
        return None

    def _note_device(self, device: int | None, path: bytes) -> None:
        """Remember the top of another file system that is mounted in the workspace, for `sync`."""
        if device in (None, self._device) or device in self._mounts:
            return
        while path:
            above, _ = split(path)
            with self._disk.folder(above) as folder:
                if stat_directory(folder, b".").st_dev != device:
                    break
            path = above
        self._mounts[device] = path
