"""Temporaries: new contents beside their targets, with the metadata of what they will replace.

What is written here has no name that anyone else looks at. Nothing is synced.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.system.filesystem import write_whole
from editd.workspace.directories import NO_WAY, make_folders, nearest_folder
from editd.workspace.metadata import (
    Metadata,
    attributes_of,
    clone_metadata,
    permissions_for,
    unpreserved_metadata,
)
from editd.workspace.open_target import identity_of, open_regular
from editd.workspace.staged_change import split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.system.filesystem import Disk, OpenFolder
    from editd.values.changeset import Change
    from editd.values.content import FileState
    from editd.workspace.open_target import OpenTarget
    from editd.workspace.staged_change import StagedChange
    from editd.workspace.temp_file_pool import TempFilePool


def open_temp_dir(
    disk: Disk,
    item: StagedChange,
    made: Callable[[bytes], None],
    about_to: Callable[[Sequence[bytes]], None] | None = None,
) -> OpenFolder:
    """Open the folder that the item's temporary goes to, and note it in the item.

    It is the target's own, so that default ACLs and setgid bits apply; what is missing is made, and
    told to `made`, and before that to `about_to`. Where something stands in its place, which this
    transaction or one before it will delete, it is the nearest folder above. Raises OSError.
    """
    try:
        return disk.folder(item.folder)
    except OSError as error:
        if error.errno not in NO_WAY:
            raise
    try:
        make_folders(disk, item.folder, made, about_to)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        item.aside = nearest_folder(disk, item.folder)
    return disk.folder(item.aside)


def write_temporary(
    disk: Disk, aside: OpenFolder, item: StagedChange, state: FileState, spares: TempFilePool | None = None
) -> int | None:
    """Write `state` into the item's temporary; return the device that it is on, None for a symlink.

    A file has the metadata of the one that it stands for (for a move, of the one that is moved), noted
    in `item.cloned`. A new one has the permissions of its state, else what the umask and the folder
    give. A symlink has nothing worth keeping. What takes the place of a plain file is written into a spare
    where there is one. Raises PermissionDenied, and OSError.
    """
    if state.is_symlink:
        aside.make_link(item.temporary, state.content)
        return None
    opened = _open_model(disk, item, aside)
    try:
        model = None if opened is None else Metadata.of(opened)
        descriptor = None if spares is None or model is None else _spare_for(item, model, spares)
        if descriptor is None:
            # Until it has its owner and permissions, nobody else may read it.
            fresh = 0o777 if state.is_executable else 0o666
            descriptor = aside.create(item.temporary, fresh if model is None else 0o600)
        try:
            write_whole(descriptor, state.content)
            if model is not None:
                here, item.lost = clone_metadata(
                    model, descriptor, item.change.path, executable=state.is_executable,
                    have_attributes=not item.is_spare,
                )  # fmt: skip
                item.cloned = identity_of(model.there)
                return here.st_dev
            if (known := _known_permissions(item.change, state)) is not None:
                os.fchmod(descriptor, permissions_for(known, executable=state.is_executable))
            return os.fstat(descriptor).st_dev
        finally:
            os.close(descriptor)
    finally:
        if opened is not None:
            os.close(opened)


def _spare_for(item: StagedChange, model: Metadata, spares: TempFilePool) -> int | None:
    """Take a spare for the item, if the file that it replaces has nothing that a folder may have given it.

    That has no attributes then, nor has the spare.
    """
    if item.change.source is not None or item.aside != item.folder or attributes_of(model.descriptor):
        return None
    descriptor = spares.take(item.temporary, model.there.st_dev, item.folder)
    item.is_spare = descriptor is not None
    return descriptor


def refresh_metadata(site: OpenTarget) -> None:
    """Clone the metadata once more if the file to be replaced is not the one, or not as, it was then."""
    change, item = site.item.change, site.item
    found = site.folder.stat(item.name)
    if found is None or not stat.S_ISREG(found.st_mode) or identity_of(found) == item.cloned:
        return
    if change.after is None or change.after.is_symlink or change.source is not None:
        return
    opened = site.folder.open(item.name)
    try:
        ours = site.aside.open(item.temporary)
        try:
            clone_metadata(Metadata.of(opened), ours, change.path, executable=change.after.is_executable)
        finally:
            os.close(ours)
    finally:
        os.close(opened)


def note_unpreserved(disk: Disk, item: StagedChange) -> None:
    """Note in the item of a file that is to go what no undo brings back."""
    with suppress(OSError), disk.folder(item.folder) as folder:  # Publishing finds out why.
        descriptor = open_regular(folder, item.name)
        if descriptor is None:
            return
        try:
            item.lost = unpreserved_metadata(folder, descriptor)
        finally:
            os.close(descriptor)


def remove_temporary(disk: Disk, item: StagedChange, spares: TempFilePool | None = None) -> bool:
    """Remove the item's temporary; True if it is gone. What cannot be removed stays as a stray."""
    try:
        if item.is_spare:
            assert spares is not None
            spares.folder.remove(item.temporary)
            return True
        with disk.folder(item.aside) as aside:
            aside.remove(item.temporary)
    except OSError as error:
        return error.errno in NO_WAY
    return True


def _open_model(disk: Disk, item: StagedChange, aside: OpenFolder) -> int | None:
    """Open the regular file whose metadata are to be kept; None where there is none (yet)."""
    change = item.change
    if change.source is None and change.before is None:
        return None
    if change.source is None and item.aside == item.folder:
        return open_regular(aside, item.name)
    above, name = split((change.source or change.path).raw)
    try:
        with disk.folder(above) as folder:
            return open_regular(folder, name)
    except OSError as error:
        if error.errno not in NO_WAY:
            raise
        return None


def _known_permissions(change: Change, state: FileState) -> int | None:
    if state.permissions is not None or change.before is None:
        return state.permissions
    return change.before.permissions
