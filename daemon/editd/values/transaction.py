"""A transaction: one changeset carried out, all of it or none, and then in the history for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, NewType

from msgspec import Struct

if TYPE_CHECKING:
    from editd.values.content import Change, Entry
    from editd.values.path import WorkspacePath
    from editd.wire.messages import Kind

Seq = NewType("Seq", int)
"""A transaction's number in its workspace: 1, 2, 3 …, without gaps. 0 is the baseline."""

CommitId = NewType("CommitId", str)
"""The git commit's id, 40 hex digits."""


class Authorship(Struct, frozen=True):
    """The author of a transaction, and the reason."""

    actor: str
    session: str | None = None
    message: str = ""
    request_id: str | None = None


class Published(Struct, frozen=True):
    """The commit in the user's git that contains a transaction."""

    commit: str
    branch: str

    def __str__(self) -> str:
        return f"{self.commit[:7]} on {self.branch}"


class Part(Struct, frozen=True, order=True):
    """One path of a transaction; with `hunks`, only these hunks from 1, and the path stays in force."""

    seq: Seq
    path: WorkspacePath
    hunks: tuple[int, ...] = ()


class Transaction(Struct, frozen=True):
    seq: Seq
    id: CommitId
    kind: Kind
    authorship: Authorship
    time_us: int  # microseconds since the epoch, UTC
    touches: tuple[Change[Entry], ...]
    undoes: tuple[Seq, ...] = ()
    undone_by: Seq | None = None  # the last undo, only if all of its paths are undone
    parts: tuple[Part, ...] = ()  # the undone paths of transactions in `undoes` that are undone in part
