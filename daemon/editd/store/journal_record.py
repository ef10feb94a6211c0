"""The journal's records: one for each transaction, sufficient to finish it.

The records are MessagePack by msgspec, as arrays, in the order of the fields. A new field is added at the
end with a default, and no field is ever moved. The frame's version refuses a record from a newer version.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import astuple, replace

from editd.store.git_objects import oid_of
from editd.values.content import Change, Entry, FileState, GitMode, Version, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import (
    Approval,
    Arrival,
    Attribution,
    Authorship,
    CommitId,
    Part,
    Seq,
    Transaction,
    TurnMark,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.values.content import State
    from editd.wire.messages import Kind


class EntryRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One side of a change; `content` is absent if the store has these bytes already."""

    mode: int
    version: bytes  # 20 bytes
    permissions: int | None = None
    content: bytes | None = None


class ChangeRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    path: bytes
    before: EntryRecord | None
    after: EntryRecord | None
    source: bytes | None = None
    is_excluded: bool = False  # no record has its contents: `store.excluded` may have them


class ApprovalRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An `Approval`, with the same fields."""

    proposal: int | None
    revision: int | None
    hunks: tuple[int, ...]
    actor: str | None
    session: str | None
    rule: str | None
    is_modified: bool


class Committed(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
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
    boot: bytes = b""  # the boot and mount of the commit: after a new boot or mount, files may be torn (C5)
    published_through: int = 0  # all transactions up to this seq were in the files at that time
    parts: tuple[tuple[int, bytes], ...] = ()  # seq and path: only these paths of that one in `undoes`
    hunks: tuple[tuple[int, bytes, tuple[int, ...]], ...] = ()  # only these hunks of paths in `parts`
    approval: ApprovalRecord | None = None
    attribution: tuple[bool, tuple[str, ...]] | None = None  # an `Attribution`, with the same fields
    claims: tuple[int, ...] = ()
    arrival: Arrival | None = None
    turn: TurnMark | None = None


class Aborted(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The abort of all earlier records from `seq` on (C4, C6)."""

    seq: int


Record = Committed | Aborted


def is_excluding(record: Record) -> bool:
    """Return whether a record has a change whose contents are not in it (`store.excluded`)."""
    if isinstance(record, Committed):
        for change in record.changes:
            if change.is_excluded:
                return True
    return False


def excluded_versions(record: Committed) -> Iterator[tuple[Version, str]]:
    """Yield each version that is not in a record, with its path, for `store.excluded`."""
    for change in record.changes:
        for side in (change.before, change.after) if change.is_excluded else ():
            if side is not None and side.content is None:
                yield Version(side.version.hex()), os.fsdecode(change.path)


ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(tuple[Record, ...])

EMPTY = version_of(b"")


def content_of(state: FileState | None) -> bytes | None:
    """Return the bytes; None if they are not the version's (`external_changes.state_of`)."""
    if state is None or (not state.content and state.version != EMPTY):
        return None
    return state.content


def change_record(change: Change[State], before: bytes | None, after: bytes | None) -> ChangeRecord:
    """Convert `change` to a record with these bytes, None for bytes that the record leaves out."""
    old, new = change.before, change.after
    return ChangeRecord(
        change.path.raw,
        None if old is None else EntryRecord(old.mode, oid_of(old.version), old.permissions, before),
        None if new is None else EntryRecord(new.mode, oid_of(new.version), new.permissions, after),
        None if change.source is None else change.source.raw,
    )


def excluded_record(change: Change[FileState]) -> ChangeRecord:
    """Convert `change` to a record that names its contents, and has none but an empty one."""
    before, after = (
        b"" if state is not None and state.version == EMPTY else None
        for state in (change.before, change.after)
    )
    return replace(change_record(change, before, after), is_excluded=True)


def entry_of(record: EntryRecord | None) -> Entry | None:
    if record is None:
        return None
    return Entry(cast("GitMode", record.mode), Version(record.version.hex()), record.permissions)


def touch_of(record: ChangeRecord) -> Change[Entry]:
    source = None if record.source is None else WorkspacePath(os.fsdecode(record.source))
    return Change(
        WorkspacePath(os.fsdecode(record.path)), entry_of(record.before), entry_of(record.after), source
    )


def transaction_of(record: Committed) -> Transaction:
    return Transaction(
        Seq(record.seq),
        CommitId(record.commit.hex()),
        cast("Kind", record.kind),
        Authorship(
            record.actor,
            record.session,
            record.message,
            record.request_id,
            None if record.approval is None else Approval(*astuple(record.approval)),
            None if record.attribution is None else Attribution(*record.attribution),
            record.arrival,
            record.turn,
        ),
        record.time_us,
        tuple(touch_of(change) for change in record.changes),
        tuple(Seq(seq) for seq in record.undoes),
        parts=parts_of(record),
        claims=tuple(Seq(seq) for seq in record.claims),
    )


def approval_record(approval: Approval | None) -> ApprovalRecord | None:
    """Return the `approval` of a record."""
    return None if approval is None else ApprovalRecord(*astuple(approval))


def attribution_record(attribution: Attribution | None) -> tuple[bool, tuple[str, ...]] | None:
    """Return the `attribution` of a record."""
    return None if attribution is None else (attribution.is_by_path, attribution.candidates)


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
