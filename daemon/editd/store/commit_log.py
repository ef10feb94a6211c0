"""The log of packed transactions, read back from their commits and the differences of their trees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.store.git_objects import CommitObject, Oid, TreeChange, tree_changes
from editd.store.transaction_record import ParsedMessage, parse
from editd.values.content import Change, Entry
from editd.values.path import WorkspacePath
from editd.values.transaction import CommitId, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def transaction_of_commit(read: Callable[[Oid], bytes], oid: Oid) -> tuple[Transaction, bytes]:
    """Return the transaction of a commit, and its notes. `read` returns an object's bytes, or raises.

    Raises ValueError if the commit is not one of editd's.
    """
    commit = CommitObject.decode(read(oid))
    message = parse(commit.message)
    changes: Iterable[TreeChange] = ()
    if commit.parent is not None and not message.is_first_scan:
        changes = tree_changes(read, CommitObject.decode(read(commit.parent)).tree, commit.tree)
    return transaction_of_changes(oid, message, changes), message.notes.encode()


def transaction_of_changes(oid: Oid, message: ParsedMessage, changes: Iterable[TreeChange]) -> Transaction:
    """Return the transaction of the commit `oid` with this message, and these changes of its tree."""
    sources = {target: source for source, target in message.moves}
    bits = dict(message.permissions)
    touches: list[Change[Entry]] = []
    for path, old, new in changes:
        text = os.fsdecode(path)
        source = sources.get(text)
        touches.append(
            Change(
                WorkspacePath(text),
                old,
                new and replace(new, permissions=bits.get(text)),
                None if source is None else WorkspacePath(source),
            )
        )
    return Transaction(
        message.seq, CommitId(oid.hex()), message.kind, message.authorship, message.time_us,
        tuple(sorted(touches, key=lambda touch: touch.path.raw)), message.undoes,
        parts=message.parts, claims=message.claims,
    )  # fmt: skip
