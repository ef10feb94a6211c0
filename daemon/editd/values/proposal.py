"""A proposal: an edit that was planned like any other, and waits for a reviewer before it lands.

    draft ── submit ──▶ open ─┬─ all hunks landed ───────────▶ landed
                              ├─ all rejected ───────────────▶ rejected
                              ├─ some landed, some rejected ─▶ partly
                              ├─ by its author ──────────────▶ withdrawn
                              ├─ its time is over ───────────▶ expired
                              └─ others made all of it ──────▶ moot

A settled proposal never changes its state. To reopen one makes a new proposal.

A proposed file is decided hunk by hunk. Its base, its proposed state and the places of its hunks never
change: a hunk that has landed is only marked so. The base plus the landed hunks, plus the rest,
is therefore always the proposed state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NewType

from msgspec import Struct

from editd.values.content import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from editd.values.content import FileState
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, Part, Seq

ProposalNumber = NewType("ProposalNumber", int)
"""A proposal's number in its workspace: 1, 2, 3 …, never used again."""

ProposalState = Literal["draft", "open", "landed", "partly", "rejected", "withdrawn", "expired", "moot"]
ProposalKind = Literal["edit", "undo", "redo", "rollback", "restore"]
DecisionKind = Literal["approve", "reject", "submit", "withdraw", "expire", "moot", "reopen"]
Via = Literal["socket", "review socket", "elicitation", "rule", "log"]  # `log`: on another host

TRANSITIONS: Mapping[ProposalState, frozenset[ProposalState]] = {
    "draft": frozenset({"draft", "open", "withdrawn", "expired"}),
    "open": frozenset({"open", "landed", "partly", "rejected", "withdrawn", "expired", "moot"}),
    "landed": frozenset(),
    "partly": frozenset(),
    "rejected": frozenset(),
    "withdrawn": frozenset(),
    "expired": frozenset(),
    "moot": frozenset(),
}
UNSETTLED = frozenset({"draft", "open"})

HunkId = NewType("HunkId", str)
"""16 hex digits, made of the path and the old and new lines, without line numbers."""

HunkKind = Literal["lines", "file", "mode", "move"]
Verdict = Literal["landed", "rejected"]
HunkState = Literal["fits", "there", "conflict", "landed", "rejected"]


class Proposal(Struct, frozen=True):
    """A proposal without its files, which the store has."""

    number: ProposalNumber
    state: ProposalState
    kind: ProposalKind
    authorship: Authorship  # of the transaction, once it lands
    may_write: tuple[Glob, ...] | None  # the scope of the author's session, which may end first; None is all
    rule: str  # the rule that asked for a review, or `request`, or `session`
    at: Seq  # the newest transaction when the current revision was made
    created_us: int  # microseconds since the epoch, UTC
    changed_us: int
    expires_us: int | None = None
    revision: int = 1
    landed: tuple[Seq, ...] = ()
    fingerprint: str = ""  # of the author's request, to detect that its id is used for a different one
    undoes: tuple[Seq, ...] = ()  # the transactions that an undo takes back, once it lands
    parts: tuple[Part, ...] = ()  # of `undoes`, the ones taken back in part
    is_collecting: bool = False  # it takes all edits of its session, `batch: "session"`
    lands_after: tuple[str, ...] = ()  # the checks after which its rule lets it land; none is a reviewer's

    @property
    def is_decided_whole(self) -> bool:
        """Whether all hunks land or none: half of an undo would undo nothing."""
        return self.kind != "edit"

    @property
    def is_settled(self) -> bool:
        return self.state not in UNSETTLED

    def may_become(self, state: ProposalState) -> bool:
        """Return whether `state` may follow its state."""
        return state in TRANSITIONS[self.state]


class Reviewer(Struct, frozen=True):
    """The person or the rule that decides or comments, and the way the request came."""

    actor: str
    session: str | None = None
    via: Via = "socket"
    pid: int | None = None  # of the process that sent the request, if it could be seen, and its name
    program: str | None = None


class Decision(Struct, frozen=True):
    """One decision on a proposal. `hunks` are the decided hunks."""

    time_us: int
    by: Reviewer
    what: DecisionKind
    hunks: tuple[HunkId, ...] = ()
    comment: str = ""
    seq: int | None = None  # of the transaction that landed
    is_modified: bool = False  # the reviewer changed the text
    request_id: str | None = None
    fingerprint: str = ""  # of the reviewer's request
    reviewer_diff: str = ""  # from the proposed text to the landed one


class TrialResult(Struct, frozen=True):
    """The result of a command that was run on the files as a view of the proposal would leave them."""

    time_us: int
    by: Reviewer
    name: str
    view: str  # the token
    exit: int
    seconds: float
    output: str
    command: tuple[str, ...] = ()  # as it was configured, of a check that the daemon has run itself
    hunks: tuple[HunkId, ...] = ()  # that the files had; none: all that fit


class Comment(Struct, frozen=True):
    """A reviewer's words on a revision, or on one hunk, or on a line of a file."""

    time_us: int
    by: Reviewer
    revision: int
    text: str
    hunk: HunkId | None = None
    path: str | None = None
    line: int | None = None


class ProposedHunk(Struct, frozen=True):
    """One part of a proposed file that is decided on its own.

    The numbers are lines, half open, from 0: `start` and `end` of the base, `new_start` and `new_end` of
    the proposed content. They are 0 unless the kind is `lines`.
    """

    id: HunkId
    number: int  # from 1 in the proposal
    kind: HunkKind
    start: int = 0
    end: int = 0
    new_start: int = 0
    new_end: int = 0
    verdict: Verdict | None = None  # None is undecided


class ProposedFile(Struct, frozen=True):
    """The proposed change of one path, as its hunks.

    A file that is added, deleted, or becomes another kind of file has one hunk, of kind `file`. Any other
    has a hunk for its move from `source`, one for its mode, and one of kind `lines` for each run of
    changed lines. Binary content is one hunk of kind `file`, as are too many runs of lines.
    """

    path: WorkspacePath
    source: WorkspacePath | None
    base: FileState | None  # None is "no such file"
    proposed: FileState | None
    hunks: tuple[ProposedHunk, ...]

    @property
    def change(self) -> Change[FileState]:
        return Change(self.path, self.base, self.proposed, self.source)

    @property
    def is_whole(self) -> bool:
        """Whether its only hunk is the whole state of the file, with the mode."""
        return is_whole(self.base, self.proposed)

    @property
    def undecided_hunks(self) -> tuple[ProposedHunk, ...]:
        return tuple(hunk for hunk in self.hunks if hunk.verdict is None)

    @property
    def move(self) -> ProposedHunk | None:
        """The hunk of its move, which all its other hunks need."""
        return next((hunk for hunk in self.hunks if hunk.kind == "move"), None)


def is_whole(base: FileState | None, proposed: FileState | None) -> bool:
    """Return whether a change adds or deletes a file, or changes a symlink: nothing that has lines."""
    return base is None or proposed is None or base.is_symlink or proposed.is_symlink


def state_after(hunks: Iterable[ProposedHunk]) -> ProposalState:
    """Return the state of an open proposal with these hunks, by their verdicts."""
    verdicts = {hunk.verdict for hunk in hunks}
    if None in verdicts:
        return "open"
    if verdicts == {"landed"}:
        return "landed"
    return "rejected" if verdicts == {"rejected"} else "partly"
