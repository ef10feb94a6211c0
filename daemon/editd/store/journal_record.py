"""The journal's records: one for each transaction, sufficient to finish it.

The records are MessagePack by msgspec, as arrays, in the order of the fields. A new field is added at the end
with a default, and no field is ever moved. The frame's version refuses a record from a newer version.
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
    """One side of a change; `content` is absent if the store has these bytes already."""

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
    """A transaction, committed once its frame is synced (C1)."""

    seq: int
    commit: bytes  # 20 bytes: the id of the git commit that packing makes from this record
    kind: str
    actor: str
    session: str | None
    message: str
    request_id: str | None
    time_us: int
    undoes: tuple[int, ...]
    changes: tuple[ChangeRecord, ...]
    notes: bytes = b""  # the rest of the first reply, for a retry of the request (C7)
    token: str = ""  # in the names of its temporary files beside their targets; "" if it touches no file
    boot: bytes = b""  # the boot and mount of the commit: after another one, files may be torn (C5)
    published_through: int = 0  # all transactions up to this seq were in the files at that time
    parts: tuple[tuple[int, bytes], ...] = ()  # seq and path: only these paths of that one in `undoes`
    hunks: tuple[tuple[int, bytes, tuple[int, ...]], ...] = ()  # only these hunks of paths in `parts`


class Aborted(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The abort of all earlier records from `seq` on (C4, C6)."""

    seq: int


Record = Committed | Aborted

ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(tuple[Record, ...])


_EMPTY = version_of(b"")


def entry_record(state: FileState | None, *, with_content: bool) -> EntryRecord | None:
    """Convert one side of a change. Drop bytes that are not those of the version (`adopt.state_of`)."""
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
    """Convert `change` to a record: always with the new bytes, on request with the old ones."""
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
    """Return the `parts` and `hunks` of a record."""
    return (
        tuple((part.seq, part.path.raw) for part in parts),
        tuple((part.seq, part.path.raw, part.hunks) for part in parts if part.hunks),
    )


def parts_of(record: Committed) -> tuple[Part, ...]:
    """Read the `parts` and `hunks` of a record back."""
    hunks = {(seq, path): numbers for seq, path, numbers in record.hunks}
    return tuple(
        Part(Seq(seq), WorkspacePath(os.fsdecode(path)), hunks.get((seq, path), ()))
        for seq, path in record.parts
    )
