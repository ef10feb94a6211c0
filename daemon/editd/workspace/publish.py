"""Publishing: each change put in place by one step that can be taken back, and the taking back.

A step is noted with what takes it back as soon as it has happened, before what came out is looked at (C4).
Taking back is done by the same means with a look of its own: what somebody wrote onto our version
meanwhile is newer than all, and stays. What then has no place is an orphan, and is returned.

The folders stay open until it is over: what was done in one is taken back in that one, also where somebody
has moved it away or put a symlink in its place.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.system.filesystem import NO_SUCH_VERB
from editd.workspace.directories import NO_WAY, folders_below, is_folder, make_folders, remove_folder
from editd.workspace.metadata import permissions_for
from editd.workspace.open_target import OpenTarget, holds, identity_of, open_regular
from editd.workspace.staged_change import split
from editd.workspace.temp_files import refresh_metadata, remove_temporary, write_temporary

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.system.filesystem import Disk, OpenFolder
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.workspace.staged_change import StagedChange
    from editd.workspace.temp_file_pool import TempFilePool

SITES_OPEN_MAX = 64  # the newest; what was done before those is taken back by its path

_CHANGED_PLACES = NO_WAY | {errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENXIO}
"""What the disk says where somebody has put something else, or taken it away, since the plan was made."""


class UnexpectedContent(Exception):
    """A path does not hold what the plan says that it held."""


class PublishStep(Struct, frozen=True):
    """Something that was done for a path, and what takes it back and returns an orphan, if it leaves one."""

    path: WorkspacePath
    undo: Callable[[], FileState | None]


class Publisher:
    """One transaction's steps, in the order in which they were done."""

    def __init__(
        self, disk: Disk, spares: TempFilePool | None, *, is_exchanging: bool, clear: Callable[[], None]
    ) -> None:
        """`clear` removes the temporaries of earlier transactions, some perhaps in a folder that is to go."""
        self._disk = disk
        self._spares = spares
        self._is_exchanging = is_exchanging
        self._clear = clear
        self._sites: dict[StagedChange, OpenTarget] = {}
        self.done: list[PublishStep] = []

    def close(self) -> None:
        """Let go of the folders, and of what the steps hold: nothing is to be taken back any more."""
        self.done.clear()  # each knows us: else both contents of a file stay until garbage is collected
        for item in list(self._sites):
            self._close(item)

    def put(self, item: StagedChange) -> None:
        """Put one change in place. Raises Differs where the path does not hold `before`; OSError, Refused.

        In each case `done` has what is to be taken back, this item's steps among it.
        """
        change = item.change
        try:
            if change.after is not None and item.aside != item.folder:
                make_folders(self._disk, item.folder, partial(self._note_folder, item))
            site = self._site(item)
            if change.after is None:
                self._delete(site)
            elif change.before is None:
                self._create(site)
            elif item.is_mode_only:
                self._change_mode(site)
            elif self._is_exchanging:
                self._exchange(site)
            else:
                self._rename(site)
        except OSError as error:
            if error.errno in _CHANGED_PLACES:
                raise UnexpectedContent from error
            raise

    def _exchange(self, site: OpenTarget) -> None:
        before = site.item.change.before
        there = site.folder.stat(site.item.name)
        if there is None or identity_of(there) != site.item.cloned:  # Touched since it was staged.
            if not site.target_holds(before):  # Seen now, it need not be taken back; readers see no flicker.
                raise UnexpectedContent
            refresh_metadata(site)
        try:
            site.exchange()
        except OSError as error:
            if error.errno == errno.EXDEV and site.item.is_spare:
                self._exchange_beside(site)
                return
            if error.errno not in NO_SUCH_VERB:
                raise
            self._rename(site)
            return
        self._note(site.item, self._take_back)
        if not site.temporary_holds(before):  # C4: the look at what came out.
            raise UnexpectedContent

    def _exchange_beside(self, site: OpenTarget) -> None:
        """The spare cannot get there, since the folder is another mount: do it with a temporary beside."""
        item, spares = site.item, self._spares
        assert spares is not None
        assert item.change.after is not None
        spares.refuse(item.folder)
        remove_temporary(self._disk, item, spares)
        item.is_spare = False
        write_temporary(self._disk, site.folder, item, item.change.after)
        self._sites[item] = OpenTarget(item, site.folder, site.folder)
        self._exchange(self._sites[item])

    def _rename(self, site: OpenTarget) -> None:
        item, before = site.item, site.item.change.before
        if not site.target_holds(before):
            raise UnexpectedContent
        refresh_metadata(site)
        self._keep_by_link(site)
        try:
            site.replace()
        except OSError:
            self._remove_link(item)
            raise
        self._note(item, self._write_back)
        if item.is_linked and not self._link_holds(item, before):  # C4
            raise UnexpectedContent

    def _keep_by_link(self, site: OpenTarget) -> None:
        """Let what is about to be replaced keep a name, so that it can be looked at afterwards.

        What is written in place meanwhile is found there. A save by a rename is not: see `Disk.weaker`.
        """
        item = site.item
        before = item.change.before
        if self._spares is None or item.is_spare or before is None or before.is_symlink:
            return
        with suppress(OSError):  # on another mount, or where a file has one name only
            site.folder.link(item.name, self._spares.folder, item.temporary)
            item.is_linked = True

    def _remove_link(self, item: StagedChange) -> None:
        if item.is_linked:
            assert self._spares is not None
            self._spares.folder.remove(item.temporary)
            item.is_linked = False

    def _link_holds(self, item: StagedChange, state: FileState | None) -> bool:
        assert self._spares is not None
        return holds(self._spares.folder, item.temporary, item.change.path, state)

    def _delete(self, site: OpenTarget) -> None:
        before = site.item.change.before
        if not site.target_holds(before):
            raise UnexpectedContent
        site.extract()
        self._note(site.item, self._put_in_again)
        if not site.temporary_holds(before):  # C4
            raise UnexpectedContent

    def _create(self, site: OpenTarget) -> None:
        try:
            site.insert()
        except FileExistsError:
            found = site.folder.stat(site.item.name)
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise
            self._remove_emptied(site.item)
            site.insert()
        self._note(site.item, self._take_out_again)

    def _change_mode(self, site: OpenTarget) -> None:
        item, after = site.item, site.item.change.after
        assert after is not None
        descriptor = open_regular(site.folder, item.name)
        if descriptor is None:
            raise UnexpectedContent
        try:
            there = os.fstat(descriptor)
            if not site.target_holds(item.change.before):
                raise UnexpectedContent
            os.fchmod(descriptor, permissions_for(there.st_mode, executable=after.is_executable))
            self.done.append(PublishStep(item.change.path, partial(self._change_mode_back, item, there)))
            if not _is_same_file(site.folder.stat(item.name), there):
                raise UnexpectedContent
        finally:
            os.close(descriptor)

    def _remove_emptied(self, item: StagedChange) -> None:
        """Remove the folder in whose place a file comes, with the empty ones in it, or raise ENOTEMPTY."""
        self._clear()
        top = item.change.path.raw
        if not is_folder(self._disk, top):
            return  # Clearing has removed it.
        for path in reversed(folders_below(self._disk, top)):
            there = remove_folder(self._disk, path)
            self.done.append(PublishStep(item.change.path, partial(self._make_folder_again, path, there)))
        for other in [other for other in self._sites if (other.folder + b"/").startswith(top + b"/")]:
            self._close(other)  # If its folder is made again, that is another one.

    def _note(self, item: StagedChange, undo: Callable[[StagedChange], FileState | None]) -> None:
        self.done.append(PublishStep(item.change.path, partial(undo, item)))

    def _note_folder(self, item: StagedChange, path: bytes) -> None:
        self.done.append(PublishStep(item.change.path, partial(self._remove_folder_again, path)))

    # Taking back

    def _take_back(self, item: StagedChange) -> FileState | None:
        """Undo an exchange. If what comes out is not ours, it is newer than what went in: it goes back."""
        site = self._site(item)
        try:
            site.exchange()
            if site.temporary_holds(item.change.after):
                return None
            site.exchange()
        except FileNotFoundError:
            pass  # Somebody has deleted it meanwhile, and so it stays.
        return site.quarantine()

    def _write_back(self, item: StagedChange) -> None:
        """Undo a rename over, unless somebody has written something newer.

        What was replaced comes back where it has kept a name, otherwise it is written anew. Where something
        newer stands, it is left to the second look.
        """
        before = item.change.before
        assert before is not None
        site = self._site(item)
        if not site.target_holds(item.change.after):
            return
        if item.is_linked:
            self._put_link_back(site)
            return
        write_temporary(self._disk, site.aside, item, before)
        site.replace()

    def _put_link_back(self, site: OpenTarget) -> None:
        """Let the link take the target's place, and our version the link's.

        A program that opened our version may write to it yet, so it is kept for the second look, too.
        """
        item = site.item
        assert self._spares is not None
        kept = self._spares.folder
        ours = item.temporary + b"-ours"
        item.is_linked = False
        with suppress(OSError):
            site.folder.link(item.name, kept, ours)
            item.is_linked = item.is_taken_back = True
        kept.replace(item.temporary, site.folder, item.name)
        if item.is_taken_back:
            kept.replace(ours, kept, item.temporary)

    def _put_in_again(self, item: StagedChange) -> FileState | None:
        """Undo a deletion."""
        site = self._site(item)
        try:
            site.insert()
        except FileNotFoundError:
            return None  # Somebody has removed the temporary.
        except FileExistsError:
            return site.quarantine()
        return None

    def _take_out_again(self, item: StagedChange) -> FileState | None:
        """Undo a creation."""
        site = self._site(item)
        try:
            site.extract()
        except FileNotFoundError:
            return None  # Somebody has deleted it.
        if site.temporary_holds(item.change.after):
            return None
        try:
            site.insert()
        except FileExistsError:
            return site.quarantine()
        return None

    def _change_mode_back(self, item: StagedChange, there: os.stat_result) -> None:
        descriptor = open_regular(self._site(item).folder, item.name)
        if descriptor is None:
            return
        try:
            if _is_same_file(os.fstat(descriptor), there):
                os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
        finally:
            os.close(descriptor)

    def _make_folder_again(self, path: bytes, there: os.stat_result) -> None:
        above, name = split(path)
        try:
            with self._disk.folder(above) as folder:
                folder.make_folder(name)
            with self._disk.folder(path) as made:
                made.set_permissions(stat.S_IMODE(there.st_mode))
        except OSError as error:
            # Somebody has made it again, or has taken away what it lay in.
            if error.errno != errno.EEXIST and error.errno not in NO_WAY:
                raise

    def _remove_folder_again(self, path: bytes) -> None:
        try:
            remove_folder(self._disk, path)
        except OSError as error:
            # Somebody has put something into it, or removed it.
            if error.errno != errno.ENOTEMPTY and error.errno not in NO_WAY:
                raise

    def _site(self, item: StagedChange) -> OpenTarget:
        """The item's folders, as they were when it was put."""
        site = self._sites.get(item)
        if site is None:
            folder: OpenFolder = self._disk.folder(item.folder)
            aside = folder
            if item.is_spare:
                assert self._spares is not None
                aside = self._spares.folder
            elif item.aside != item.folder:
                try:
                    aside = self._disk.folder(item.aside)
                except OSError:
                    with folder:
                        raise
            site = self._sites[item] = OpenTarget(item, folder, aside)
            if len(self._sites) > SITES_OPEN_MAX:
                self._close(next(iter(self._sites)))
        return site

    def _close(self, item: StagedChange) -> None:
        site = self._sites.pop(item)
        with site.folder:
            if site.aside is not site.folder and not item.is_spare:
                with site.aside:
                    return


def _is_same_file(found: os.stat_result | None, other: os.stat_result) -> bool:
    return found is not None and (found.st_dev, found.st_ino) == (other.st_dev, other.st_ino)
