"""A changeset, from the bases of its author's edits to its outcome, and the transaction that it becomes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NewType

from msgspec import Struct, field

from editd.advice import Advice, step_term
from editd.errors import InvalidParams
from editd.values.content import FileState, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from editd.values.content import Change, Entry
    from editd.values.path import WorkspacePath
    from editd.wire.messages import Kind


class Base(Struct, frozen=True, gc=False):
    """The version that the author had read; `version` is None for "no such file".

    An edit without a base has `base` None instead.
    """

    version: Version | None

    @staticmethod
    def parse(version: str | None) -> Base:
        """Return the base that a client gives. Raises InvalidParams."""
        if version is None:
            return Base(None)
        if _VERSION.fullmatch(version) is None:
            raise InvalidParams(
                f"{version[:60]!r} is not a version.",
                hint=Advice("A version is 40 hex digits, ", step_term("versions"), "."),
            )
        return Base(Version(version))


_VERSION = re.compile(r"[0-9a-f]{40}")


class ReadMark(Struct, frozen=True, gc=False):
    """The part of a file that a reader has seen: the version, and the lines of it.

    `lines` are ranges from 1, both ends included; None is the whole file.
    """

    base: Base
    lines: tuple[tuple[int, int], ...] | None = None


def merged_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the same lines in as few ranges as possible, in order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return tuple(merged)


class FileReport(Struct, frozen=True, gc=False):
    """The planning's report on one path, beside its change."""

    replacements: int | None = None
    warnings: tuple[str, ...] = ()


class ConflictReport(Struct, frozen=True, gc=False):
    """A file where an undo does not merge.

    `blocking` has the later transactions at the conflict sites. `needs` has the transactions that must be
    undone as well.
    """

    path: WorkspacePath
    blocking: tuple[int, ...]
    needs: tuple[int, ...]
    reason: str = "path"
    lines: tuple[Mapping[str, int], ...] = ()  # conflicting line ranges in the file now
    hunks: tuple[str, ...] = ()  # diffs from the lines to undo to the present ones

    def as_data(self) -> dict[str, Any]:
        """Return the report as a refusal's data has it."""
        data: dict[str, Any] = {
            "path": self.path.text, "blocking": list(self.blocking), "needs": list(self.needs),
            "reason": self.reason,
        }  # fmt: skip
        if self.lines:
            data |= {"lines": list(self.lines), "hunks": list(self.hunks)}
        return data


class Outcome(Struct, frozen=True, gc=False):
    """The effect of a request: first as it is planned, then with its transaction.

    `changes` are sorted by path, one for each path whose bytes or mode change, with the contents before and
    after. `unchanged` are the other paths that the edits name. An edit gives a base for each path in `based`.
    Only an edit's searched text checks the paths in `guarded`.
    """

    changes: tuple[Change[FileState], ...]
    transaction: Transaction | None = None  # None for a dry run, and for a request without changes
    reports: Mapping[WorkspacePath, FileReport] = field(default_factory=dict)
    unchanged: tuple[Change[FileState], ...] = ()
    merged: tuple[WorkspacePath, ...] = ()
    based: frozenset[WorkspacePath] = frozenset()
    guarded: frozenset[WorkspacePath] = frozenset()
    warnings: tuple[str, ...] = ()  # of the whole
    proposal: int | None = None  # the number of the proposal that the edit became, without a transaction
    would_propose: str | None = None  # the rule that would make it a proposal, in a dry run
    reviewer_diff: str = ""  # of a landing: from the proposed text to the landed one
    answers: tuple[str | None, ...] = ()  # each tool's answer in its own words; None for other edits
    sights: tuple[tuple[str, WorkspacePath, ReadMark], ...] = ()  # reads, by readers that a tool names
    by_time: tuple[Part, ...] = ()  # changes that a dry run of an undo would take back, found during commands
    conflicts: tuple[ConflictReport, ...] = ()  # of an undo that is a dry run or skips conflicts
    carried: tuple[tuple[WorkspacePath, WorkspacePath], ...] = ()  # by moves and copies: from, to
    formatted_by: tuple[str, ...] = ()  # the hooks that changed content
    outdated: Mapping[WorkspacePath, Base] = field(default_factory=dict)  # the reader's bases, if not current
    changed_by: Mapping[WorkspacePath, Sequence[Transaction]] = field(default_factory=dict)
    """Transactions of others that changed a path after the reader read it."""
    unsaved: frozenset[WorkspacePath] = frozenset()  # held unsaved by other connections, and they merge
    diffs: Mapping[WorkspacePath, str] = field(default_factory=dict)  # the diffs that are worked out already


# A transaction: one changeset carried out, all of it or none, and then in the history for good.

Seq = NewType("Seq", int)
"""A transaction's number in its workspace: 1, 2, 3 …, without gaps. 0 is the baseline."""

CommitId = NewType("CommitId", str)
"""The git commit's id, 40 hex digits."""


class Approval(Struct, frozen=True, gc=False):
    """The decision that let a transaction land: of a reviewer, or of a rule.

    `hunks` are the numbers of the landed hunks in this revision of the proposal.
    """

    proposal: int | None = None  # None if a rule let the edit land at once
    revision: int | None = None
    hunks: tuple[int, ...] = ()
    actor: str | None = None  # of the reviewer, as is the session
    session: str | None = None
    rule: str | None = None
    is_modified: bool = False  # the reviewer changed the text


class Attribution(Struct, frozen=True, gc=False):
    """The evidence for the author of a change that did not go through the daemon.

    It is by path if a bracket named the path, and by time if a command ran when the change was found.
    `candidates` are the possible authors of an `outside` transaction: sessions, or actors without one. An
    `exec` with a candidate is in doubt: the agent had asked its user, who may have changed files meanwhile.
    """

    is_by_path: bool
    candidates: tuple[str, ...] = ()


class Arrival(Struct, frozen=True, array_like=True, gc=False):
    """The place of a transaction in the log that several hosts share.

    `origin` is the id of the transaction on the host that made it. It is None for the transaction that takes
    back work of this host, because that does not merge with entry `number`. `time_us` is by the clock of
    that host, so it may be earlier than the previous transaction's. `shared` has the paths that the log has
    of it if further files of it stay on that host. Their names stay there, too.
    """

    number: int
    host: str
    origin: CommitId | None
    time_us: int
    shared: tuple[str, ...] = ()


class TurnMark(Struct, frozen=True, array_like=True, gc=False):
    """The turn of an agent's session, from 1, in which a transaction was made, and the model of that turn.

    A turn begins with a prompt, which is never a part of the history.
    """

    number: int
    model: str | None = None


class Authorship(Struct, frozen=True, gc=False):
    """The author of a transaction, and the reason."""

    actor: str
    session: str | None = None
    message: str = ""
    request_id: str | None = None
    approval: Approval | None = None
    attribution: Attribution | None = None
    arrival: Arrival | None = None  # only of what came from another host
    turn: TurnMark | None = None

    @property
    def is_by_time(self) -> bool:
        """Whether the only evidence is a command that ran when the change was found."""
        return self.attribution is not None and not self.attribution.is_by_path


class Published(Struct, frozen=True, gc=False):
    """The commit in the user's git that contains a transaction."""

    commit: str
    branch: str

    def __str__(self) -> str:
        return f"{self.commit[:7]} on {self.branch}"


class Part(Struct, frozen=True, order=True, gc=False):
    """One path of a transaction; with `hunks`, only these hunks from 1, and the path stays in force."""

    seq: Seq
    path: WorkspacePath
    hunks: tuple[int, ...] = ()


def entry_number(reference: str) -> int | None:
    """Return 17 of `@17`, an entry of the log that several hosts share; None if it names no entry."""
    digits = reference.removeprefix("@")
    is_number = digits != reference and digits.isascii() and digits.isdigit() and len(digits) < 16
    return int(digits) if is_number else None


class Transaction(Struct, frozen=True, gc=False):
    seq: Seq
    id: CommitId
    kind: Kind
    authorship: Authorship
    time_us: int  # microseconds since the epoch, UTC
    touches: tuple[Change[Entry], ...]
    undoes: tuple[Seq, ...] = ()
    undone_by: Seq | None = None  # the last undo, only if all of its paths are undone
    parts: tuple[Part, ...] = ()  # the undone paths of transactions in `undoes` that are undone in part
    claims: tuple[Seq, ...] = ()  # of a `claim`: the outside changes that are its author's from then on
    claimed_by: Seq | None = None  # of an outside change, which is that author's `exec` in all queries
