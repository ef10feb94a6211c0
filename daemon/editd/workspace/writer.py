"""The writer: publishes the changes of one transaction without losing content of other programs.

A staging is one transaction's changes on their way into the files. The caller makes the record durable:

    STAGED ──record──▶ COMMITTED ──publish──▶ PUBLISHED ──finish──▶ FINISHED
      │                    │   ╲──publish──▶ BROKEN     not every step could be reverted
      ╰─────discard────────┴──────discard──▶ ABORTED

New content is first written beside its target (`temp_files`). Publishing then exchanges each file with its
replacement (RENAME_EXCHANGE), and checks the replaced content under a read lease: only that proves that no
program is still writing it (C4). If it is not `before`, all steps are reverted (`publish`), and
ConcurrentWrite is raised.

Promises: it never removes content other than `before` and `after` of a change without returning it, on a file
system with exchange and leases; for others, `Disk.weaker` names the gap. It never follows a symlink, and
syncs only in `sync`. It does not depend on the journal, which makes the changes durable.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

from editd.errors import Broken, Refused
from editd.system.mounts import mounts, mounts_below
from editd.values.content import Change
from editd.values.glob import Glob, is_among
from editd.values.path import WorkspacePath, split_path
from editd.workspace.in_place import is_partly_written, is_written_in_place
from editd.workspace.protection import denial
from editd.workspace.publish import ConcurrentWrite, Publisher, PublishFailed, UnexpectedContent
from editd.workspace.reader import read_name
from editd.workspace.staged_change import (
    TRANSITIONS,
    UNREACHABLE,
    StagedChange,
    StagedFiles,
    TransactionState,
    check_publishable,
    folder_that_stays,
    in_slices,
    is_folder,
    is_kept_out,
    is_temporary,
    item_of,
    mount_refusal,
    nearest_folder,
    prune,
    remove_folder,
    stat_directory,
    temporary_name,
    token_of,
)
from editd.workspace.temp_files import (
    find_temporary,
    has_state,
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
    from editd.workspace.reader import OpenFiles
    from editd.workspace.replaced_files import Quarantine, QuarantineCheck, ReplacedFile
    from editd.workspace.staged_change import CreatedDirs

log = logging.getLogger(__name__)

NEVER_IN_QUARANTINE = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS}
"""Errors of a move into the quarantine that a second try would meet again."""


class WorkspaceWriter:
    """Writes the workspace's files, one transaction at a time."""

    def __init__(
        self,
        disk: Disk,
        *,
        publish: Literal["exchange", "rename"] = "exchange",
        replaced: Quarantine | None = None,
        made_folders: CreatedDirs | None = None,
        in_place: Sequence[str] = (),
    ) -> None:
        """`replaced` keeps replaced files for a moment; without it, they are removed at once.

        `made_folders` records the folders that staging creates; without it, a crash may leave empty ones.

        `publish="rename"` checks, then renames over the file: watchers of other programs see one change, but
        a save between the check and the rename is lost. `in_place` has globs of files written in place.
        """
        self._in_place = tuple(map(Glob.parse, in_place))
        self._disk = disk
        self._replaced = replaced
        self._made_folders = made_folders
        self._pool = None if replaced is None else replaced.pool
        self._is_exchanging = publish == "exchange" and disk.can_exchange
        if self._pool is not None and not self._is_exchanging:
            self._pool.refuse_all()
        self._unfinished: list[StagedFiles] = []
        self._live: set[str] = set()  # tokens whose temporaries `sweep` leaves alone
        self._unremoved: list[bytes] = []  # temporaries whose removal failed
        self._unkept: dict[str, list[StagedChange]] = {}  # replaced files whose move failed, by their tokens
        self._emptied: set[bytes] = set()  # emptied folders whose removal failed
        with disk.folder(b"") as root:
            self._device = stat_directory(root, b".").st_dev
        self._mounts: dict[int, bytes] = {}  # tops of other file systems written to, by device
        self._unsynced: deque[bytes] = deque()  # published, if each needs its own sync; a thread removes them

    def check(
        self,
        changes: Sequence[Change[FileState]],
        pending: Iterable[Change[FileState]] = (),
        kept: OpenFiles | None = None,
        yield_turn: Callable[[], None] | None = None,
    ) -> None:
        """Refuse changes that cannot be published, before anything is done.

        `pending` are changes of transactions that will be published first. `kept` has files that are still
        open since they were read. Calls `yield_turn` before each file. Raises IoError, PermissionDenied for a
        file that is hard-linked, unless it is deleted, or read-only, and NotAFile if a folder is in the way,
        or a file in the place of a folder.
        """
        check_publishable(self._disk, changes, pending, kept, yield_turn, self._keeps_inode)

    def _keeps_inode(self, change: Change[FileState]) -> bool:
        """Return whether the configuration wants this change to be written in place."""
        if not self._in_place or not is_written_in_place(change):
            return False
        return is_among(change.path, self._in_place)

    def is_kept_out(self, path: WorkspacePath) -> bool:
        """Return whether `check` refuses every change at `path`, because its mount ignores case or form."""
        return is_kept_out(self._disk, path)

    def make_ahead(self) -> Callable[[], list[bytes]] | None:
        """Return a function that creates files for the pool in any thread, or None if it has enough.

        Pass its result to `made_ahead`. Retries failed removals, too.
        """
        self._retry_removals()
        if self._pool is None or not self._is_exchanging:
            return None
        lacking = self._pool.count_to_make()
        return partial(self._pool.make, lacking) if lacking else None

    def made_ahead(self, names: Iterable[bytes]) -> None:
        """Add these files to the pool."""
        for name in names:
            assert self._pool is not None, "only a pool requests files"
            self._pool.add(name)

    def token(self, changes: Sequence[Change[FileState]]) -> str:
        """Return an unused token for a transaction, which is part of the names of its temporaries."""
        first = changes[0] if changes else None  # an undo of changes that others have undone has none
        if self._pool is None or first is None or first.after is None:
            return secrets.token_hex(8)
        return self._pool.token(first.path)

    def stage(
        self,
        changes: Sequence[Change[FileState]],
        token: str,
        kept: OpenFiles | None = None,
        yield_turn: Callable[[], None] | None = None,
    ) -> StagedFiles:
        """Create folders, and write new content into temporaries beside their targets or into pooled files.

        Nothing is synced. `token` is from the method `token`; the temporary of `changes[i]` is
        `.editd-{token}-{i}`. A file in `kept` stays open until the caller closes `kept`, after `publish`.
        Calls `yield_turn` before each file. Others may stage meanwhile, so the token is then a random one.
        On an error all of it is removed: PermissionDenied if the owner cannot be kept or the file system does
        not allow it, otherwise IoError, as on a full disk.
        """
        staging = StagedFiles(token)
        self._live.add(token)
        created: set[str] = set()
        moved: set[WorkspacePath | None] = set()
        for change in changes:
            moved.add(change.source)
            if change.after is not None:
                created.add(change.path.text)
        for index, change in enumerate(changes if yield_turn is None else in_slices(changes, yield_turn)):
            item = item_of(change, temporary_name(token, index))
            item.is_in_place = self._keeps_inode(change)
            staging.items.append(item)
            try:
                if change.after is None:
                    item.temp_dir = folder_that_stays(item.folder, created)
                    if change.path not in moved:
                        note_unpreserved(self._disk, item)
                elif item.is_in_place:
                    if kept is not None:
                        kept.drop(change.path)  # its lease would keep us from writing, too
                elif not item.is_mode_only:
                    self._write_temporary(staging, item, change.after, kept)
                if item.lost_metadata:
                    staging.warnings += (item.warning,)
            except OSError as error:
                self.discard(staging)
                raise denial(self._disk, change.path, error, "could not be written") from error
            except BaseException:
                self.discard(staging)
                raise
        if self._pool is not None and staging.items and not staging.items[0].is_pooled:
            self._pool.keep(token, staging.items[0].change.path)
        return staging

    def _write_temporary(
        self, staging: StagedFiles, item: StagedChange, after: FileState, kept: OpenFiles | None
    ) -> None:
        about_to = None if self._made_folders is None else self._made_folders.note
        if kept is not None and item.change.source is None:
            item.open_file = kept.take(item.change.path)
        if item.open_file is not None:
            device = write_temporary(self._disk, item.open_file.folder, item, after, self._pool)
        else:
            with open_temp_dir(self._disk, item, staging.folders_made.append, about_to) as temp_dir:
                device = write_temporary(self._disk, temp_dir, item, after, self._pool)
        if device != self._device:
            self._note_device(device, item.temp_dir)

    def publish(self, staging: StagedFiles) -> None:
        """Put everything in place, deletions first; on an error, revert it and raise.

        Raises ConcurrentWrite if a path does not have `before`, IoError or PermissionDenied if the file
        system fails; the staging is then still COMMITTED. Raises PublishFailed if the revert failed, too.
        Publish stagings in the order of their staging. ConcurrentWrite is also raised if a folder
        becomes a file while a later staging has a temporary in it.
        """
        assert TransactionState.PUBLISHED in TRANSITIONS[staging.state], staging.state
        publisher = Publisher(
            self._disk, self._pool, is_exchanging=self._is_exchanging, clear=self._finish_all
        )
        try:
            self._publish(staging, publisher)
        finally:
            publisher.close()
        staging.enter(TransactionState.PUBLISHED)
        self._unfinished.append(staging)
        if not self._disk.can_sync_whole:
            self.note_unsynced(item.change.path for item in staging.items)

    def _publish(self, staging: StagedFiles, publisher: Publisher) -> None:
        items = staging.items
        if len(items) > 1:
            items = sorted(items, key=lambda item: item.change.after is not None)
        for item in items:
            try:
                publisher.put(item)
            except UnexpectedContent:
                raise ConcurrentWrite([item.change.path], self._revert(staging, publisher)) from None
            except (OSError, Refused) as error:
                orphans = self._revert(staging, publisher)
                if orphans:
                    raise ConcurrentWrite([path for path, _ in orphans], orphans) from error
                if isinstance(error, Refused):
                    raise
                if error.errno == errno.EBUSY and self._is_mount(item.change.path):
                    raise mount_refusal(item.change.path) from error
                raise denial(self._disk, item.change.path, error, "could not be put in place") from error

    def _is_mount(self, path: WorkspacePath) -> bool:
        return path.raw in mounts_below(self._disk.root, mounts())

    def finish(self, staging: StagedFiles, yield_turn: Callable[[], None] | None = None) -> None:
        """Remove or quarantine the replaced files, and remove the folders that deletions emptied.

        Call it once the transaction is certain to be committed; a second call does nothing.
        Calls `yield_turn` before each file if no file was deleted. Otherwise others might need the room of an
        emptied folder.
        """
        staging.enter(TransactionState.FINISHED)
        if staging not in self._unfinished:
            return  # A later staging of the batch needed a folder that this one had emptied.
        self._unfinished.remove(staging)
        emptied: set[bytes] = set()
        if yield_turn is None or any(item.change.after is None for item in staging.items):
            yield_turn = _go_on
        for item in staging.items:
            yield_turn()
            if item.change.before is None or item.is_mode_only or item.is_in_place:
                continue
            self._put_away(staging.token, item)
            if item.change.after is None:
                emptied.add(item.folder)
        if emptied:
            self._emptied |= prune(self._disk, emptied)
        if staging.token not in self._unkept:
            self._release(staging.token)
        if self._unremoved or self._emptied or self._unkept:
            self._retry_removals()

    def date_replaced(self, now: float) -> None:
        """Note the time of the files that were replaced since the last call: see `Quarantine.date`."""
        if self._replaced is not None:
            self._replaced.date(now)

    def quarantine_due(self, now: float) -> float | None:
        """Return the seconds until the quarantine has files to check, or None if it has no files."""
        return None if self._replaced is None else self._replaced.seconds_left(now)

    def replaced_names(self) -> set[bytes]:
        """Return the names of the replaced files in the quarantine."""
        return set() if self._replaced is None else self._replaced.names()

    def check_quarantine(
        self, now: float | None, *, is_busy: bool = False
    ) -> Callable[[], list[QuarantineCheck]] | None:
        """Return a function that checks the older replaced files, for any thread; None if there are none.

        The parameters are as for `Quarantine.due`.
        """
        if self._replaced is None:
            return None
        due = self._replaced.due(now, is_busy=is_busy)
        if not due:
            return None
        # Asked after the replacement of these files: an overlay that is opened later does not show them.
        is_overlaid = self._disk.is_overlaid()
        return partial(self._replaced.check, due, at_the_end=now is None, is_overlaid=is_overlaid)

    def unchecked_files(self) -> Sequence[ReplacedFile]:
        """Return the replaced files not yet checked for late writes; none if leases show those at once."""
        if self._replaced is None or self._disk.has_leases:
            return ()
        return self._replaced.unchecked_files()

    def late_writes(
        self, checks: Sequence[QuarantineCheck]
    ) -> Generator[tuple[WorkspacePath | None, FileState]]:
        """See `Quarantine.late_writes`."""
        if self._replaced is not None:
            yield from self._replaced.late_writes(checks)

    def end(self) -> None:
        """Empty the pool, because no more edits will come."""
        if self._pool is not None:
            self._pool.clear()

    def discard(self, staging: StagedFiles) -> None:
        """Remove the temporaries, and the folders created for them. A second call does nothing.

        Of several stagings in a batch, discard the newest first: it may use an older one's folders.
        """
        staging.enter(TransactionState.ABORTED)
        for item in staging.items:
            if item.is_linked and self._replaced is not None:
                self._replaced.keep(self._disk, item)
            self._remove(item)
        for path in reversed(staging.folders_made):
            with suppress(OSError):  # Another program has put something into it, or removed it.
                remove_folder(self._disk, path)
        self._release(staging.token)
        self._retry_removals()

    def sync(self) -> None:
        """Make all published files durable, on every file system that has some. Raises OSError."""
        if not self._disk.can_sync_whole:
            self._sync_each()
            return
        self._disk.sync()
        for path in list(self._mounts.values()):  # a thread may sync while another publishes
            self._disk.sync(path)

    def note_unsynced(self, paths: Iterable[WorkspacePath]) -> None:
        """Have `sync` include these paths, which an earlier daemon may have published."""
        if not self._disk.can_sync_whole:
            self._unsynced.extend(path.raw for path in paths)

    def _sync_each(self) -> None:
        paths: set[bytes] = set()
        while self._unsynced:
            paths.add(self._unsynced.popleft())
        try:
            self._disk.sync_each(sorted(paths))
        except OSError:
            self._unsynced.extend(paths)
            raise

    # For recovery: read the leftovers of a crash, and give a path its recorded content.

    def leftovers(self, change: Change[FileState], token: str, index: int) -> list[FileState]:
        """Return the content of all files under the temporary name of `changes[index]`.

        It may be the staged content (`after`), the replaced content (`before`), either of them torn by a
        power cut, or content of another program, which belongs into the history. Raises InUse, and OSError.
        """
        name = temporary_name(token, index)
        states: list[FileState | None] = []
        if self._replaced is not None and self._replaced.stat(name) is not None:
            states.append(self._replaced.read(name, change.path))
        path = find_temporary(self._disk, change.path.raw, name)
        if path is not None:
            states.append(self.stray(path))
        return [state for state in states if state is not None]

    def remove_leftover(
        self, change: Change[FileState], token: str, index: int, *, is_recorded: bool
    ) -> None:
        """Remove the temporary, and the folder of a deleted file if it is empty then.

        The caller has read it with `leftovers`, and recorded unknown content. With `is_recorded`, a replaced
        file stays in the quarantine for its time, so that a start does not wait for the removal.
        """
        name = temporary_name(token, index)
        if self._replaced is not None and not is_recorded:
            self._replaced.remove(name)
        path = find_temporary(self._disk, change.path.raw, name)
        if path is not None:
            self.sweep(path)
        if change.after is None:
            self._prune_above(change.path)

    def is_folder(self, path: WorkspacePath) -> bool:
        """Return whether `path` is a folder, reached without a symlink."""
        with suppress(OSError):  # Another kind of file is at the path, or above it.
            return is_folder(self._disk, path.raw)
        return False

    def put(
        self, path: WorkspacePath, after: FileState | None, expected: Sequence[FileState | None], token: str
    ) -> bool:
        """Give `path` the content `after` if it has one of `expected`, with the checks of `publish`.

        Returns False, with nothing changed, if `path` has other content. A folder with only empty folders in
        it counts as no file, and is replaced by one. Put a file that replaces a folder after the deletions in
        that folder. Raises ConcurrentWrite only with orphans, for the history. Raises IoError and
        PermissionDenied as `stage` and `publish` do, and Broken if the file could not be put back.
        """
        if has_state(self._disk, path, after):
            if after is None:
                self._prune_above(path)  # As `finish` would have done.
            return True
        if self.is_folder(path):
            if after is None:
                return True  # The file is gone already.
            return None in expected and self._put([Change(path, None, after)], token)
        for before in expected:
            if has_state(self._disk, path, before):
                return self._put([Change(path, before, after)], token)
        partial_state = self._partial_content(path, [*expected, after])
        return partial_state is not None and self._put([Change(path, partial_state, after)], token)

    def _partial_content(self, path: WorkspacePath, states: Sequence[FileState | None]) -> FileState | None:
        """Return the content of a file that is written in place, if a killed daemon left it half written."""
        if not is_among(path, self._in_place):
            return None
        parent, name = split_path(path.raw)
        with self._disk.folder(parent) as folder:
            read = read_name(folder, name, path, quiet=True)
        current = None if read is None else read.state()
        files = [state.content for state in states if state is not None and not state.is_symlink]
        if current is None or current.is_symlink:
            return None
        pairs = permutations(files, 2)
        return current if any(is_partly_written(current.content, *pair) for pair in pairs) else None

    def rewrite(self, path: WorkspacePath, state: FileState, token: str) -> bool:
        """Replace `path` by a new file with the same content; return False if it is not `state`.

        Also False while a program is writing it. Raises as `put` does.
        """
        return self._put([Change(path, state, state, path)], token)  # as a move onto itself

    def stray(self, path: bytes) -> FileState | None:
        """Return the content of an earlier daemon's temporary; None if it is gone.

        Raises InUse, and OSError.
        """
        parent, name = split_path(path)
        with self._disk.folder(parent) as folder:
            content = read_name(folder, name, WorkspacePath(os.fsdecode(path)), quiet=True)
        return None if content is None else content.state()

    def sweep(self, path: bytes) -> bool:
        """Remove a temporary that no current staging uses, given by its path; return whether it is gone.

        The caller has read it with `stray`: after a crash it may have the only copy of another program's
        content.
        """
        parent, name = split_path(path)
        assert is_temporary(name), path
        if token_of(name) in self._live:
            return False
        try:
            with self._disk.folder(parent) as folder:
                folder.remove(name)
        except OSError as error:
            return error.errno in UNREACHABLE
        return True

    def remove_left_folders(self) -> None:
        """Remove the empty folders of an earlier daemon; call it once its temporaries are gone."""
        if self._made_folders is not None:
            self._made_folders.remove_left(self._disk)

    def _prune_above(self, path: WorkspacePath) -> None:
        """Remove the folder of a deleted file and those above it, as far as they are empty."""
        prune(self._disk, [nearest_folder(self._disk, split_path(path.raw)[0])])

    def _release(self, token: str) -> None:
        self._live.discard(token)
        if self._made_folders is not None and self._made_folders.is_noted and not self._live:
            self._made_folders.forget()

    def _put(self, changes: Sequence[Change[FileState]], token: str) -> bool:
        staging = self.stage(changes, token)
        staging.enter(TransactionState.COMMITTED)  # the journal has the change
        try:
            self.publish(staging)
        except ConcurrentWrite as error:
            if error.orphans:
                self._live.discard(token)  # The temporary stays, for `sweep`, until the orphan is kept.
                raise
            self.discard(staging)
            return False
        except PublishFailed as error:
            raise Broken(
                f"A file could neither be recovered nor put back: {error}.",
                hint="Start the daemon again: it recovers from its journal.",
            ) from error
        except Refused:
            self.discard(staging)
            raise
        self.finish(staging)
        return True

    def _revert(self, staging: StagedFiles, publisher: Publisher) -> list[tuple[WorkspacePath, FileState]]:
        orphans: list[tuple[WorkspacePath, FileState]] = []
        for path, undo in reversed(publisher.done):
            try:
                orphan = undo()
            except (OSError, Refused) as error:
                staging.enter(TransactionState.BROKEN)
                raise PublishFailed(path, orphans) from error
            if orphan is not None:
                orphans.append((path, orphan))
        return orphans

    def _put_away(self, token: str, item: StagedChange) -> None:
        """Move a replaced file to the quarantine, or remove it if it needs none.

        Another program may still write into such a file. So after an error of the disk it stays where it is,
        and the next `finish` tries again; a later start finds it as a temporary.
        """
        try:
            if self._replaced is not None and self._replaced.keep(self._disk, item):
                return
        except OSError as error:
            if error.errno not in NEVER_IN_QUARANTINE:
                log.warning("%s: the replaced file could not be moved: %s", item.change.path.text, error)
                self._unkept.setdefault(token, []).append(item)
                return
        self._remove(item)

    def _remove(self, item: StagedChange) -> None:
        is_gone = remove_temporary(self._disk, item, self._pool)
        if not is_gone and not item.is_pooled:
            self._unremoved.append(item.temp_dir + b"/" + item.temporary if item.temp_dir else item.temporary)

    def _retry_removals(self) -> None:
        """Retry failed removals, and moves to the quarantine; a scan finds temporaries that stay."""
        unkept, self._unkept = self._unkept, {}
        for token, items in unkept.items():
            for item in items:
                self._put_away(token, item)
            if token not in self._unkept:
                self._release(token)
        if self._unremoved:
            self._unremoved = [path for path in self._unremoved if not self.sweep(path)]
        if self._emptied:
            self._emptied = prune(self._disk, self._emptied)

    def _finish_all(self) -> None:
        for staging in tuple(self._unfinished):
            self.finish(staging)

    def _note_device(self, device: int | None, path: bytes) -> None:
        """Store the mount point of another file system in the workspace, for `sync`."""
        if device in (None, self._device) or device in self._mounts:
            return
        while path:
            parent, _ = split_path(path)
            with self._disk.folder(parent) as folder:
                if stat_directory(folder, b".").st_dev != device:
                    break
            path = parent
        self._mounts[device] = path


def _go_on() -> None:
    """Let no other work in between two files."""
