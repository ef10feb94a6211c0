"""Publishing: put each change in place by one reversible step, and revert the steps after a failure.

Each step is recorded together with its inverse as soon as it has happened, before the replaced content is
checked (C4). Reverting uses the same operations and the same check: if another program has meanwhile written
onto our version, its content is the newest, and stays. Content that then has no path is an orphan, and is
returned.

The folders stay open until the end. So a step is reverted in the folder where it was done, even if another
program has moved that folder or has put a symlink in its place.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from editd.errors import join_names
from editd.system.filesystem import NO_SUCH_VERB
from editd.values.path import split_path
from editd.workspace.in_place import OtherContent, overwrite, restore
from editd.workspace.staged_change import UNREACHABLE, folders_below, is_folder, make_folders, remove_folder
from editd.workspace.temp_files import (
    OpenTarget,
    holds,
    identity_of,
    open_regular,
    permissions_for,
    refresh_metadata,
    remove_temporary,
    write_temporary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.system.filesystem import Disk
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.workspace.replaced_files import TempFilePool
    from editd.workspace.staged_change import StagedChange

TARGETS_OPEN_MAX = 64  # the newest; older steps are reverted by path

_CHANGED_MEANWHILE = UNREACHABLE | {errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENXIO}
"""Errors that mean that another program has replaced or removed something since the plan was made."""


class UnexpectedContent(Exception):
    """A path does not have the content that the plan expects."""


class ConcurrentWrite(Exception):
    """Another program wrote first. Its content is in place; the caller discards the staging.

    `paths` are the paths with such content. `orphans` are contents that other programs wrote at a path that
    now has newer content: put them into the history first, then discard.
    """

    def __init__(
        self, paths: Sequence[WorkspacePath], orphans: Sequence[tuple[WorkspacePath, FileState]]
    ) -> None:
        super().__init__(join_names([path.text for path in paths]))
        self.paths = list(paths)
        self.orphans = list(orphans)


class PublishFailed(Exception):
    """A step could not be reverted: files are in doubt, and temporaries are left.

    `path` is the path of that step; `orphans` as in `ConcurrentWrite`. The cause is the error of the revert.
    """

    def __init__(self, path: WorkspacePath, orphans: Sequence[tuple[WorkspacePath, FileState]]) -> None:
        super().__init__(path.text)
        self.path = path
        self.orphans = list(orphans)


class Publisher:
    """The steps of one transaction, in the order of their execution."""

    def __init__(
        self, disk: Disk, pool: TempFilePool | None, *, is_exchanging: bool, clear: Callable[[], None]
    ) -> None:
        """`clear` removes the temporaries of earlier transactions, which may be in a folder to be removed."""
        self._disk = disk
        self._pool = pool
        self._is_exchanging = is_exchanging
        self._clear = clear
        self._targets: dict[StagedChange, OpenTarget] = {}
        self.done: list[tuple[WorkspacePath, Callable[[], FileState | None]]] = []
        """Each step's path, and its inverse, which returns the orphan if it leaves one."""

    def close(self) -> None:
        """Close the folders and drop the steps: nothing can be reverted any more."""
        self.done.clear()  # a cycle of references: otherwise contents stay in memory until garbage collection
        for item in list(self._targets):
            self._close(item)

    def put(self, item: StagedChange) -> None:
        """Put one change in place.

        Raises UnexpectedContent if the path does not have `before`; OSError, Refused. On an error, `done` has
        the steps to revert, including this item's.
        """
        change = item.change
        try:
            if change.after is not None and item.temp_dir != item.folder:
                make_folders(self._disk, item.folder, partial(self._note_folder, item))
            target = self._target(item)
            if change.after is None:
                self._delete(target)
            elif change.before is None:
                self._create(target)
            elif item.is_mode_only:
                self._change_mode(target)
            elif item.is_in_place:
                self._overwrite(target)
            elif self._is_exchanging:
                self._exchange(target)
            else:
                self._rename(target)
        except OSError as error:
            if error.errno in _CHANGED_MEANWHILE:
                raise UnexpectedContent from error
            raise

    def _exchange(self, target: OpenTarget) -> None:
        before = target.item.change.before
        status = target.folder.stat(target.item.name)
        if status is None or identity_of(status) != target.item.cloned_from:  # Changed since it was staged.
            if not target.target_holds(before):  # A check first saves a revert that readers would see.
                raise UnexpectedContent
            refresh_metadata(target)
        item = target.item
        try:
            target.folder.exchange(item.name, target.temp_dir, item.temporary)
        except OSError as error:
            if error.errno == errno.EXDEV and target.item.is_pooled:
                self._exchange(self._move_beside(target))
                return
            if error.errno not in NO_SUCH_VERB:
                raise
            self._rename(target)
            return
        self._note(item, self._undo_exchange)
        # C4: the replaced file is `before`. It is without a read if it is the file that was read.
        file = item.open_file
        is_read = file is not None and file.is_now(target.temp_dir.stat(item.temporary))
        if not is_read and not holds(target.temp_dir, item.temporary, item.change.path, before):
            raise UnexpectedContent

    def _move_beside(self, target: OpenTarget) -> OpenTarget:
        """Use a temporary beside the target: the folder is on another mount than the pool."""
        item, pool = target.item, self._pool
        assert pool is not None
        assert item.change.after is not None
        pool.refuse(item.folder)
        remove_temporary(self._disk, item, pool)
        item.is_pooled = False
        write_temporary(self._disk, target.folder, item, item.change.after)
        self._targets[item] = OpenTarget(item, target.folder, target.folder)
        return self._targets[item]

    def _rename(self, target: OpenTarget) -> None:
        item, before = target.item, target.item.change.before
        if not target.target_holds(before):
            raise UnexpectedContent
        refresh_metadata(target)
        self._link_replaced(target)
        try:
            target.replace()
        except OSError:
            self._remove_link(item)
            raise
        self._note(item, self._undo_rename)
        if item.is_linked and not self._link_holds(item, before):  # C4
            raise UnexpectedContent

    def _link_replaced(self, target: OpenTarget) -> None:
        """Link the file that is about to be replaced into the quarantine, to be checked afterwards.

        A write into the open file is found there. A save by a rename is not: see `Disk.weaker`.
        """
        item = target.item
        before = item.change.before
        if self._pool is None or item.is_pooled or before is None or before.is_symlink:
            return
        with suppress(OSError):  # on another mount, or without hard links in the file system
            target.folder.link(item.name, self._pool.folder, item.temporary)
            item.is_linked = True

    def _remove_link(self, item: StagedChange) -> None:
        if item.is_linked:
            assert self._pool is not None
            self._pool.folder.remove(item.temporary)
            item.is_linked = False

    def _link_holds(self, item: StagedChange, state: FileState | None) -> bool:
        assert self._pool is not None
        return holds(self._pool.folder, item.temporary, item.change.path, state)

    def _delete(self, target: OpenTarget) -> None:
        before = target.item.change.before
        if not target.target_holds(before):
            raise UnexpectedContent
        target.extract()
        self._note(target.item, self._undo_delete)
        if not target.temporary_holds(before):  # C4
            raise UnexpectedContent

    def _create(self, target: OpenTarget) -> None:
        try:
            target.insert()
        except FileExistsError:
            status = target.folder.stat(target.item.name)
            if status is None or not stat.S_ISDIR(status.st_mode):
                raise
            self._remove_empty_folders(target.item)
            target.insert()
        except OSError as error:
            if error.errno != errno.EXDEV or not target.item.is_pooled:
                raise
            self._create(self._move_beside(target))
            return
        self._note(target.item, self._undo_create)

    def _change_mode(self, target: OpenTarget) -> None:
        item, after = target.item, target.item.change.after
        assert after is not None
        descriptor = open_regular(target.folder, item.name)
        if descriptor is None:
            raise UnexpectedContent
        try:
            status = os.fstat(descriptor)
            if not target.target_holds(item.change.before):
                raise UnexpectedContent
            os.fchmod(descriptor, permissions_for(status.st_mode, executable=after.is_executable))
            self.done.append((item.change.path, partial(self._undo_mode_change, item, status)))
            if not _is_same_file(target.folder.stat(item.name), status):
                raise UnexpectedContent
        finally:
            os.close(descriptor)

    def _overwrite(self, target: OpenTarget) -> None:
        item, before, after = target.item, target.item.change.before, target.item.change.after
        assert before is not None
        assert after is not None
        try:
            overwrite(target, before, after, lambda: self._note(item, self._undo_overwrite))
        except OtherContent:
            raise UnexpectedContent from None

    def _remove_empty_folders(self, item: StagedChange) -> None:
        """Remove the folder that the file replaces, and the empty folders in it, or raise ENOTEMPTY."""
        self._clear()
        top = item.change.path.raw
        if not is_folder(self._disk, top):
            return  # `clear` has removed it.
        for path in reversed(folders_below(self._disk, top)):
            status = remove_folder(self._disk, path)
            self.done.append((item.change.path, partial(self._undo_folder_removal, path, status)))
        for other in [other for other in self._targets if (other.folder + b"/").startswith(top + b"/")]:
            self._close(other)  # If its folder is created again, it is a different one.

    def _note(self, item: StagedChange, undo: Callable[[StagedChange], FileState | None]) -> None:
        self.done.append((item.change.path, partial(undo, item)))

    def _note_folder(self, item: StagedChange, path: bytes) -> None:
        self.done.append((item.change.path, partial(self._undo_folder_creation, path)))

    # Reverting

    def _undo_exchange(self, item: StagedChange) -> FileState | None:
        """Undo an exchange. If the content that comes out is not ours, it is newer, and goes back."""
        target = self._target(item)
        try:
            target.exchange()
            if target.temporary_holds(item.change.after):
                return None
            target.exchange()
        except FileNotFoundError:
            pass  # Another program has deleted it meanwhile, and it stays deleted.
        return target.quarantine()

    def _undo_rename(self, item: StagedChange) -> None:
        """Undo a rename over the target, unless another program has written newer content.

        The replaced file comes back from its link, or is written again without one. The quarantine's check
        handles newer content.
        """
        before = item.change.before
        assert before is not None
        target = self._target(item)
        if not target.target_holds(item.change.after):
            return
        if item.is_linked:
            self._restore_link(target)
            return
        write_temporary(self._disk, target.temp_dir, item, before)
        target.replace()

    def _restore_link(self, target: OpenTarget) -> None:
        """Rename the link over the target, and keep our version under the link's name.

        A program that has opened our version may still write to it, so the quarantine checks that, too.
        """
        item = target.item
        assert self._pool is not None
        quarantine = self._pool.folder
        ours = item.temporary + b"-ours"
        item.is_linked = False
        with suppress(OSError):
            target.folder.link(item.name, quarantine, ours)
            item.is_linked = item.is_taken_back = True
        quarantine.replace(item.temporary, target.folder, item.name)
        if item.is_taken_back:
            quarantine.replace(ours, quarantine, item.temporary)

    def _undo_delete(self, item: StagedChange) -> FileState | None:
        """Undo a deletion."""
        target = self._target(item)
        try:
            target.insert()
        except FileNotFoundError:
            return None  # Another program has removed the temporary.
        except FileExistsError:
            return target.quarantine()
        return None

    def _undo_create(self, item: StagedChange) -> FileState | None:
        """Undo a creation."""
        target = self._target(item)
        try:
            target.extract()
        except FileNotFoundError:
            return None  # Another program has deleted it.
        if target.temporary_holds(item.change.after):
            return None
        try:
            target.insert()
        except FileExistsError:
            return target.quarantine()
        return None

    def _undo_overwrite(self, item: StagedChange) -> None:
        before, after = item.change.before, item.change.after
        assert before is not None
        assert after is not None
        restore(self._target(item), before, after)

    def _undo_mode_change(self, item: StagedChange, status: os.stat_result) -> None:
        descriptor = open_regular(self._target(item).folder, item.name)
        if descriptor is None:
            return
        try:
            if _is_same_file(os.fstat(descriptor), status):
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        finally:
            os.close(descriptor)

    def _undo_folder_removal(self, path: bytes, status: os.stat_result) -> None:
        parent, name = split_path(path)
        try:
            with self._disk.folder(parent) as folder:
                folder.make_folder(name)
            with self._disk.folder(path) as restored:
                restored.set_permissions(stat.S_IMODE(status.st_mode))
        except OSError as error:
            # Another program has created it again, or has removed the folder above it.
            if error.errno != errno.EEXIST and error.errno not in UNREACHABLE:
                raise

    def _undo_folder_creation(self, path: bytes) -> None:
        try:
            remove_folder(self._disk, path)
        except OSError as error:
            # Another program has put something into it, or removed it.
            if error.errno != errno.ENOTEMPTY and error.errno not in UNREACHABLE:
                raise

    def _target(self, item: StagedChange) -> OpenTarget:
        """Return the item's open folders, the same as when it was put in place.

        A file that is still open since it was read is replaced in that folder, by a pooled file:
        a temporary beside it would be left behind if another program moves the folder.
        """
        target = self._targets.get(item)
        if target is None:
            file = item.open_file if item.is_pooled else None
            folder = self._disk.folder(item.folder) if file is None else file.folder
            temp_dir = folder
            if item.is_pooled:
                assert self._pool is not None
                temp_dir = self._pool.folder
            elif item.temp_dir != item.folder:
                try:
                    temp_dir = self._disk.folder(item.temp_dir)
                except OSError:
                    with folder:
                        raise
            target = self._targets[item] = OpenTarget(item, folder, temp_dir)
            if len(self._targets) > TARGETS_OPEN_MAX:
                self._close(next(iter(self._targets)))
        return target

    def _close(self, item: StagedChange) -> None:
        target = self._targets.pop(item)
        if item.open_file is None or target.folder is not item.open_file.folder:
            target.folder.close()
        if target.temp_dir is not target.folder and not item.is_pooled:
            target.temp_dir.close()


def _is_same_file(status: os.stat_result | None, other: os.stat_result) -> bool:
    return status is not None and (status.st_dev, status.st_ino) == (other.st_dev, other.st_ino)
