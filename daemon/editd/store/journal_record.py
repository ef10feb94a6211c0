"""What the journal holds: one record for each transaction, enough to finish it alone.

The records are MessagePack by msgspec, as arrays, in the order of the fields: a field may be added at
the end with a default, never moved. A record from a newer version is refused by the frame's version.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import msgspec

from editd.values.content import FileState, GitMode, Version, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import (
    Authorship,
    CommitId,
    Entry,
    Kind,
    Part,
    Seq,
    Touch,
    Transaction,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.values.changeset import Change


class EntryRecord(msgspec.Struct, frozen=True, array_like=True):
    """One side of a change; `content` is absent where the store has these bytes already."""

    mode: int
    version: bytes  # 20 bytes
    permissions: int | None = None
    content: bytes | None = None


class ChangeRecord(msgspec.Struct, frozen=True, array_like=True):
    path: bytes
    before: EntryRecord | None
    after: EntryRecord | None
    source: bytes | None = None


class Committed(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A transaction. From the moment that its frame is synced, it stands (C1)."""

    seq: int
    commit: bytes  # 20 bytes: the id of the git commit that packing will make of this record
    kind: str
    actor: str
    session: str | None
    message: str
    request_id: str | None
    time_us: int
    undoes: tuple[int, ...]
    changes: tuple[ChangeRecord, ...]
    notes: bytes = b""  # what else the first answer said, for a retry of the request (C7)
    token: str = ""  # names its temporary files beside their targets; "" where it touches no file
    boot: bytes = b""  # and the mount it was made under: after another one, files may be torn (C5)
    published_through: int = 0  # when this was written, all up to this seq were in the files
    parts: tuple[tuple[int, bytes], ...] = ()  # seq and path: of that one in `undoes` only these paths
    hunks: tuple[tuple[int, bytes, tuple[int, ...]], ...] = ()  # and of those of `parts` only these hunks


class Aborted(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """All records from `seq` on that stand before this one are void (C4, C6)."""

    seq: int


Record = Committed | Aborted

ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(tuple[Record, ...])


_EMPTY = version_of(b"")


def entry_record(state: FileState | None, *, with_content: bool) -> EntryRecord | None:
    """One side of a change. No bytes under another file's version: those are gone (`adopt.state_of`)."""
    if state is None:
        return None
    is_gone = not state.content and state.version != _EMPTY
    return EntryRecord(
        state.mode,
        bytes.fromhex(state.version),
        state.permissions,
        state.content if with_content and not is_gone else None,
    )


def change_record(change: Change, *, with_before: bool) -> ChangeRecord:
    """The record of `change`: the new bytes always, the old ones where the store has them not."""
    return ChangeRecord(
        change.path.raw,
        entry_record(change.before, with_content=with_before),
        entry_record(change.after, with_content=True),
        change.source.raw if change.source is not None else None,
    )


def entry_of(record: EntryRecord | None) -> Entry | None:
    if record is None:
        return None
    return Entry(cast("GitMode", record.mode), Version(record.version.hex()), record.permissions)


def touch_of(record: ChangeRecord) -> Touch:
    source = None if record.source is None else WorkspacePath(os.fsdecode(record.source))
    return Touch(
        WorkspacePath(os.fsdecode(record.path)), entry_of(record.before), entry_of(record.after), source
    )


def transaction_of(record: Committed) -> Transaction:
    return Transaction(
        Seq(record.seq),
        CommitId(record.commit.hex()),
        cast("Kind", record.kind),
        Authorship(record.actor, record.session, record.message, record.request_id),
        record.time_us,
        tuple(touch_of(change) for change in record.changes),
        tuple(Seq(seq) for seq in record.undoes),
        parts=parts_of(record),
    )


def part_records(
    parts: Sequence[Part],
) -> tuple[tuple[tuple[int, bytes], ...], tuple[tuple[int, bytes, tuple[int, ...]], ...]]:
    """A record's `parts` and `hunks`."""
    return (
        tuple((part.seq, part.path.raw) for part in parts),
        tuple((part.seq, part.path.raw, part.hunks) for part in parts if part.hunks),
    )


def parts_of(record: Committed) -> tuple[Part, ...]:
    """The same, read back."""
    hunks = {(seq, path): numbers for seq, path, numbers in record.hunks}
    return tuple(
        Part(Seq(seq), WorkspacePath(os.fsdecode(path)), hunks.get((seq, path), ()))
        for seq, path in record.parts
    )
