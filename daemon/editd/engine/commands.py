"""The commands that change the workspace, their results, and the unfinished work of connections."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from msgspec import Struct, field

from editd.advice import Advice, step_term
from editd.engine.unsaved import MERGE, UnsavedRule
from editd.errors import InvalidParams, Overloaded, Refused, TooLarge
from editd.review.choice import Choice
from editd.values.transaction import Authorship, Outcome

if TYPE_CHECKING:
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


# Work that a connection has begun and not ended: changesets, and the brackets of running commands.
#
# A changeset is staged in memory, and visible to its connection only. It all ends with the connection.

EDITS_MAX = 100_000  # in one changeset
OPEN_MAX = 1000  # changesets, or brackets, at once, of all connections
OPEN_OF_ONE_MAX = 100  # of one connection, so that it leaves some for the others
BYTES_MAX = 512 * 1024 * 1024  # staged by all connections together, in memory
BYTES_OF_ONE_MAX = 128 * 1024 * 1024  # of one connection: two messages of full length
EDIT_BYTES = 500  # the memory of an edit without its text


class OpenItem(Struct):
    """Something that one connection has begun. It ends at the latest with the connection."""

    owner: int  # the connection
    reader: Reader


Item = TypeVar("Item", bound=OpenItem)


class OpenItems(Generic[Item]):
    """The open items of one kind, of all connections, by name."""

    noun: str
    field: str  # in the data of a refusal
    hint: Advice

    def __init__(self) -> None:
        self.open: dict[str, Item] = {}

    def get(self, name: str, owner: int) -> Item:
        """Return the item. Raises InvalidParams if this connection has none of that name."""
        item = self.open.get(name)
        if item is None or item.owner != owner:
            raise InvalidParams(
                f"There is no {self.noun} {name!r} on this connection.",
                hint=self.hint,
                data={self.field: name},
            )
        return item

    def end(self, name: str) -> bool:
        """Forget an item. Return whether it was open."""
        return self.open.pop(name, None) is not None

    def of(self, owner: int) -> list[Item]:
        """Return the items of a connection."""
        return [item for item in self.open.values() if item.owner == owner]


class OpenChangeset(OpenItem):
    """The staged edits of one connection."""

    authorship: Authorship
    on_stale: OnStale | None = None
    must_propose: bool = False  # its commit makes a proposal
    edits: list[AnyEdit] = field(default_factory=list)
    bytes: int = 0
    found: dict[Search, tuple[Match, ...] | Refused] = field(default_factory=dict)  # matches for its tools


class Changesets(OpenItems[OpenChangeset]):
    """All open changesets, with limits for each connection and for all together."""

    noun = field = "changeset"
    hint = Advice(step_term("open_changeset"))

    def begin(
        self,
        owner: int,
        reader: Reader,
        authorship: Authorship,
        on_stale: OnStale | None = None,
        *,
        must_propose: bool = False,
    ) -> str:
        """Open a changeset and return its id. Raises TooLarge or Overloaded if too many are open."""
        if len(self.of(owner)) >= OPEN_OF_ONE_MAX:
            raise Overloaded(
                f"{OPEN_OF_ONE_MAX} changesets are open on this connection.",
                hint="Commit or abort some of them first.",
            )
        if len(self.open) >= OPEN_MAX:
            raise TooLarge(f"{OPEN_MAX} changesets are open.", hint="Commit or abort some of them first.")
        name = secrets.token_hex(8)
        self.open[name] = OpenChangeset(owner, reader, authorship, on_stale, must_propose)
        return name

    def add(self, name: str, owner: int, edits: tuple[AnyEdit, ...]) -> None:
        """Append edits to a changeset. Raises InvalidParams or TooLarge."""
        changeset = self.get(name, owner)
        if len(changeset.edits) + len(edits) > EDITS_MAX:
            raise TooLarge(f"A changeset holds at most {EDITS_MAX} edits.")
        changeset.edits.extend(edits)
        changeset.bytes += bytes_of(edits)

    def check_room(self, owner: int, edits: tuple[AnyEdit, ...]) -> None:
        """Raise Overloaded if these edits would exceed a limit on staged bytes."""
        more = bytes_of(edits)
        own = sum(changeset.bytes for changeset in self.of(owner)) + more
        together = sum(changeset.bytes for changeset in self.open.values()) + more
        if own > BYTES_OF_ONE_MAX or together > BYTES_MAX:
            raise Overloaded(
                f"A connection may stage {BYTES_OF_ONE_MAX} bytes, all connections together {BYTES_MAX}.",
                hint="Commit or abort changesets first.",
            )

    def end_all(self, owner: int) -> None:
        """Discard all changesets of a closed connection."""
        for name in [name for name, changeset in self.open.items() if changeset.owner == owner]:
            del self.open[name]


def bytes_of(value: object) -> int:
    """Estimate the memory that edits, or parts of edits, take."""
    match value:
        case str() | bytes():
            return len(value)
        case tuple() | list():
            return sum(map(bytes_of, value))
        case Mapping():
            return EDIT_BYTES + sum(bytes_of(key) + bytes_of(held) for key, held in value.items())
        case Struct():
            return EDIT_BYTES + sum(bytes_of(getattr(value, name)) for name in value.__struct_fields__)
        case _:
            return 0
