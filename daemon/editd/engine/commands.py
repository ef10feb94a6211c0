"""The commands that change the workspace, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from editd.engine.unsaved import MERGE, UnsavedRule
from editd.errors import Refused
from editd.review.choice import Choice
from editd.values.transaction import Authorship, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.edits.comparison import Comparison
    from editd.edits.search import Match, Search
    from editd.engine.hooks import Hooked, HookJob
    from editd.engine.undo_selection import Scope
    from editd.errors import PermissionDenied
    from editd.review.submission import Wish
    from editd.values.content import Entry, FileState
    from editd.values.path import WorkspacePath
    from editd.values.proposal import ProposalNumber
    from editd.values.transaction import Part, Seq
    from editd.wire.messages import AnyEdit, Kind, OnConflict, OnStale

Reader = str
"""The holder of read versions: a session, or a connection without a session."""


def reader_of(session: str) -> Reader:
    """Return the reader of a session."""
    return f"session {session}"


class Sender(Struct, frozen=True):
    """The connection that a request came from, for a review of it and for its permission."""

    pid: int | None = None  # of the process at its other end
    is_reviewer: bool = False  # the owner's, on the reviewers' own socket, so no rule asks for a review
    refusal: PermissionDenied | None = None  # why it may not take back the work of others


class Apply(Struct, frozen=True):
    """Ask for a changeset to become a transaction."""

    edits: tuple[AnyEdit, ...]
    authorship: Authorship
    reader: Reader
    on_stale: OnStale | None = None
    dry_run: bool = False
    fingerprint: str = ""  # of the whole request, to detect that its id is used for a different one
    found: Mapping[Search, tuple[Match, ...] | Refused] = field(default_factory=dict)
    hooked: Hooked | None = None  # the results of the hooks for the last plan
    propose: Wish | None = None  # ask for a review, also if no rule does
    proposal: ProposalNumber | None = None  # the open proposal whose next revision this is
    is_collected: bool = False  # the session collects all its edits in one proposal
    is_draft: bool = False  # and no reviewer decides about it before the session submits it
    sender: Sender = Sender()
    unsaved: UnsavedRule = MERGE


UndoKind = Literal["undo", "redo", "rollback"]


class Undo(Struct, frozen=True):
    """Commit the inverse of the transactions that `scope` selects, as a transaction of `kind`."""

    authorship: Authorship
    reader: Reader
    scope: Scope
    kind: UndoKind = "undo"
    on_conflict: OnConflict = "fail"
    is_own_only: bool = False  # refuse to undo another session's transactions
    dry_run: bool = False
    fingerprint: str = ""
    propose: Wish | None = None
    sender: Sender = Sender()
    unsaved: UnsavedRule = MERGE


class Restore(Struct, frozen=True):
    """Restore the workspace, or `paths` and everything below them, to its content right after `to`.

    `to` is a transaction or a time. If it is an entry of the log, `files` are its files that differ
    from this host's.
    """

    authorship: Authorship
    reader: Reader
    to: int | str
    paths: tuple[WorkspacePath, ...] | None = None
    dry_run: bool = False
    fingerprint: str = ""
    propose: Wish | None = None
    sender: Sender = Sender()
    unsaved: UnsavedRule = MERGE
    files: Mapping[WorkspacePath, FileState | None] | None = None


class Land(Choice, frozen=True):
    """Land hunks of a proposal as a transaction of its author."""

    hooked: Hooked | None = None  # as in `Apply`, for bytes that are not as proposed
    unsaved: UnsavedRule = MERGE


class ArrivalChain(Struct):
    """Arrivals that were planned one on top of the other. If one is not recorded, no later one is."""

    stopped_by: Arrive | None = None


class Arrive(Struct, frozen=True):
    """Record what another host has landed, if the files are still as they were when it was planned.

    `expected` are the states of the paths that change. No transaction after `through` may have touched
    them, but for earlier arrivals. An undo is recorded without changes, too, because it may be redone.
    """

    authorship: Authorship
    kind: Kind
    expected: Mapping[WorkspacePath, Entry | None]
    after: Mapping[WorkspacePath, FileState | None]
    through: int
    sources: Mapping[WorkspacePath, WorkspacePath] = field(default_factory=dict)  # of moved files
    undoes: tuple[Seq, ...] = ()
    parts: tuple[Part, ...] = ()
    chain: ArrivalChain = field(default_factory=ArrivalChain)
    reader: Reader = "remote"
    dry_run: bool = False
    fingerprint: str = ""
    unsaved: UnsavedRule = MERGE


Write = Apply | Undo | Restore | Land | Arrive


class NeedsRegex(Struct, frozen=True):
    """Planning needs this search. Send the request again with the result in `Apply.found`."""

    search: Search


class NeedsComparing(Struct, frozen=True):
    """Planning needs this comparison. Send the request again with its result in the turn."""

    comparison: Comparison


class NeedsHooks(Struct, frozen=True):
    """Planning needs this hook job. Send the request again with the result in its `hooked`."""

    job: HookJob


class NeedsDelay(Struct, frozen=True):
    """The request must wait. Send it again in `seconds`, or answer it with `reason`."""

    reason: Refused
    seconds: float


Result = Outcome | Refused | NeedsDelay | NeedsRegex | NeedsComparing | NeedsHooks
