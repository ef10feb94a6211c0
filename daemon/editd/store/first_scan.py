"""The first scan: a history that begins before its baseline is whole, and gets the rest at the end.

A large workspace takes many seconds to scan. If an edit comes meanwhile, the history begins with an empty
baseline. Each file that an edit touches is recorded first, as a transaction of kind `baseline`. When the scan
is done, one more `baseline` transaction records all other files, as the scan found them. Its commit names no
changes, so that its files count as there from the beginning.

The file `scanning` in the state folder exists from before the beginning of such a history until it is whole.
At its end it names the commit of that last transaction. So the next start after a crash knows whether to scan
again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from editd.store.git_objects import EMPTY_TREE, Oid, Trees, commit_content
from editd.store.git_repository import FIRST_SCAN, exclusive_lock, move_head, read_head, write_manifest
from editd.store.history import StoredObjects, store_of
from editd.store.pack_writer import PackWriter, release
from editd.store.transaction_record import EDITD, compose, compose_first_scan, ident
from editd.system.files import replace_file_durably, sync_path
from editd.system.flock import take
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId, Seq, Transaction

if TYPE_CHECKING:
    from editd.store.history import History

_MARK = "scanning"
_BEGUN = Authorship("outside", None, "the workspace is being scanned")
_REST = Authorship("outside", None, "the rest of the workspace as first seen")


def is_pending(folder: str) -> bool:
    """Return whether the history in the state folder `folder` still lacks a part of its baseline.

    Removes the mark if it was left behind. Raises OSError, HistoryDamaged.
    """
    try:
        with open(os.path.join(folder, _MARK), "rb") as file:
            named = file.read().strip()
    except FileNotFoundError:
        return False
    head = read_head(store_of(folder))
    if named and head is not None and named == head.hex().encode():
        end(folder)  # the daemon was killed right after the end of its first scan
        return False
    return True


def end(folder: str) -> None:
    """Remove the mark, durably. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, _MARK))
        sync_path(folder)


def remove_leftovers(folder: str) -> None:
    """Remove what an unfinished scan has left. Only after the first scan. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(os.path.join(folder, FIRST_SCAN))


def begin(folder: str, time_us: int) -> None:
    """Begin the history with an empty baseline. The store exists. Raises OSError."""
    store = store_of(folder)
    replace_file_durably(os.path.join(folder, _MARK), b"")  # before there is a head
    writer = PackWriter(_packs_of(store))
    writer.add("tree", b"", EMPTY_TREE)
    message = compose(0, "baseline", _BEGUN, time_us, [], [])
    commit = writer.add("commit", commit_content(EMPTY_TREE, [], ident("editd"), EDITD, time_us, message))
    with exclusive_lock(store):
        writer.finish()
        write_manifest(store)
    move_head(store, commit)


def complete(history: History, scanned: Oid, time_us: int) -> Transaction:
    """Record all files of the tree `scanned` that no transaction has touched; return the transaction.

    A touched path stays as the history has it, also if that is absent. Durable on return. Only while no
    packing process runs. Raises OSError, Refused.
    """
    store = history.store
    alone = take(os.path.join(history.folder, "packing"), wait=True)  # a killed daemon's may still run
    assert alone is not None
    try:
        with exclusive_lock(store):
            _pack_rest(history)
            transaction = _record(history, scanned, time_us)
    finally:
        alone.release()
    history.take_over(transaction)
    end(history.folder)
    return transaction


def _pack_rest(history: History) -> None:
    """Pack what the journal has, because the transaction that follows is not in it."""
    from editd.store.pack_worker import Packer  # late, because a start does not need it

    head, position = int(history.head), history.journal.position
    if history.packed < head:
        Packer(history.folder).pack(history.tail, position, head)
        history.note_packed(head, position)


def _record(history: History, scanned: Oid, time_us: int) -> Transaction:
    store, parent = history.store, history.head_commit
    objects = StoredObjects(store)  # opened now, so that they include the pack of the scan
    try:
        trees = Trees(scanned, lambda oid: bytes(objects.read(oid)[1]))
        touched = [WorkspacePath(os.fsdecode(raw)) for raw in history.index.touched_paths()]
        splice = trees.update((path.raw, history.entry(path)) for path in touched)
    finally:
        objects.close()
    seq = Seq(history.head + 1)
    message = compose_first_scan(seq, _REST, time_us)
    writer = PackWriter(_packs_of(store))
    for oid, raw in splice.trees.items():
        writer.add("tree", raw, oid)
    if splice.root == EMPTY_TREE:
        writer.add("tree", b"", EMPTY_TREE)
    content = commit_content(splice.root, [parent], ident(_REST.actor), EDITD, time_us, message)
    commit = writer.add("commit", content)
    name = writer.finish(keep=True)
    replace_file_durably(os.path.join(history.folder, _MARK), commit.hex().encode() + b"\n")
    write_manifest(store)
    move_head(store, commit)
    if name is not None:
        release(_packs_of(store), name)
    return Transaction(seq, CommitId(commit.hex()), "baseline", _REST, time_us, (), ())


def _packs_of(store: str) -> str:
    return os.path.join(store, "objects", "pack")
