"""The contents that the history reads from the user's repository, taken over if they are gone there.

The baseline borrows the content of committed files (`git_repository.borrow`). A transaction stores the
content of each file that it touches. So what is still borrowed belongs to files that no transaction has
touched, and the workspace still has it. Runs in the scanning process.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pygit2

from editd.store.excluded import absent_contents
from editd.store.git_objects import EMPTY_TREE, CommitObject, GitTree, object_id, oid_of
from editd.store.git_repository import add_pack, borrowed_folders, open_store, own_objects
from editd.store.pack_writer import PackWriter
from editd.system.regular_files import open_regular
from editd.values.content import SYMLINK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.store.git_objects import Oid
    from editd.values.content import Entry

TAKEN = "borrowed"  # folder beside the store, for the unfinished pack
LOST_MAX = 1_000  # paths in one answer


def lenders(store: str) -> tuple[tuple[str, tuple[str, ...] | None], ...]:
    """Return the folders that the store borrows from, each with its packs, or None if it is gone."""
    return tuple((folder, _packs(folder)) for folder in borrowed_folders(store))


def _packs(folder: str) -> tuple[str, ...] | None:
    try:
        os.stat(folder)
        return tuple(sorted(os.listdir(os.path.join(folder, "pack"))))
    except OSError:
        return None


def take_over(root: str, state: str, commits: Sequence[str]) -> dict[str, Any]:
    """Take missing contents of the baseline from the workspace into the store, durably.

    `commits` are the baseline's. Returns the number of contents that were taken, and the paths and the number
    of lost contents. Raises OSError.
    """
    store, made = os.path.join(state, "store.git"), os.path.join(state, TAKEN)
    shutil.rmtree(made, ignore_errors=True)  # left by an interrupted run
    writer = PackWriter(made)
    taken: set[Oid] = set()
    lost: set[str] = set()
    try:
        for path, entry in _missing(store, commits):
            oid = oid_of(entry.version)
            content = _read(os.path.join(os.fsencode(root), path), entry)
            if content is None or object_id("blob", content) != oid:
                lost.add(os.fsdecode(path))
            elif oid not in taken:
                writer.add("blob", content, oid)
                taken.add(oid)
        name = writer.finish() if taken else None
    except BaseException:
        writer.abandon()
        raise
    if name is None:
        writer.abandon()
    else:
        add_pack(store, made, name)
    shutil.rmtree(made, ignore_errors=True)
    return {"taken": len(taken), "lost": sorted(lost)[:LOST_MAX], "lost_count": len(lost)}


def _missing(store: str, commits: Sequence[str]) -> Iterator[tuple[bytes, Entry]]:
    """Yield the files of these commits whose content cannot be read any more, though it should be kept."""
    repository, own, absent = open_store(store), own_objects(store), absent_contents(store)

    def read(oid: Oid) -> bytes:
        return bytes(own.read(pygit2.Oid(raw=oid))[1])

    waiting = [(b"", CommitObject.decode(read(oid_of(commit))).tree) for commit in commits]
    while waiting:
        prefix, oid = waiting.pop()
        folder = GitTree.decode(read(oid) if oid != EMPTY_TREE else b"")
        for name, entry in folder.files().items():
            content = oid_of(entry.version)
            if content not in absent and pygit2.Oid(raw=content) not in repository.odb:
                yield prefix + name, entry
        waiting.extend((prefix + name + b"/", below) for name, below in folder.folders().items())


def _read(path: bytes, entry: Entry) -> bytes | None:
    """Return the content of a file or the target of a symlink; None if it is another kind, or unreadable."""
    try:
        if entry.mode == SYMLINK:
            return os.readlink(path)
        if os.path.islink(path):
            return None
        with open_regular(path) as file:
            return file.read()
    except OSError:
        return None
