"""The log of packed transactions, read back from their commits and the differences of their trees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from editd.store import commit_message
from editd.store.git_objects import CommitObject, Oid, TreeEntry, tree_changes
from editd.values.content import GitMode, Version
from editd.values.path import WorkspacePath
from editd.values.transaction import CommitId, Entry, Touch, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def transaction_of_commit(read: Callable[[Oid], bytes], oid: Oid) -> tuple[Transaction, bytes]:
    """Return the transaction of a commit, and its notes. `read` returns an object's bytes, or raises.

    Raises ValueError if the commit is not one of editd's.
    """
    commit = CommitObject.decode(read(oid))
    written = commit_message.parse(commit.message)
    touches: list[Touch] = []
    if commit.parent is not None:
        sources = {target: source for source, target in written.moves}
        bits = dict(written.permissions)
        before = CommitObject.decode(read(commit.parent)).tree
        for path, old, new in tree_changes(read, before, commit.tree):
            text = os.fsdecode(path)
            source = sources.get(text)
            touches.append(
                Touch(
                    WorkspacePath(text),
                    named(old, None),
                    named(new, bits.get(text)),
                    None if source is None else WorkspacePath(source),
                )
            )
    transaction = Transaction(
        written.seq, CommitId(oid.hex()), written.kind, written.authorship, written.time_us,
        tuple(sorted(touches, key=lambda touch: touch.path.raw)), written.undoes,
        parts=written.parts,
    )  # fmt: skip
    return transaction, written.notes.encode()


def transactions_of(read: Callable[[Oid], bytes], head: Oid | None) -> Iterator[tuple[Transaction, bytes]]:
    """Yield all transactions up to `head`, the oldest first. Raises the errors of `read`, and ValueError."""
    oids: list[Oid] = []
    while head is not None:
        oids.append(head)
        head = CommitObject.decode(read(head)).parent
    for oid in reversed(oids):
        yield transaction_of_commit(read, oid)


def named(entry: TreeEntry | None, permissions: int | None) -> Entry | None:
    """Convert a tree entry to the form that a transaction has."""
    if entry is None:
        return None
    return Entry(cast("GitMode", entry.mode), Version(entry.oid.hex()), permissions)
