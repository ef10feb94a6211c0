"""What can be asked of the engine that changes something, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from editd.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.edits.regex import Match, Search
    from editd.engine.hooks import Hooked, HookJob
    from editd.engine.undo_selection import Scope
    from editd.values.changeset import Base, Change, Edit, FileReport, OnStale, ReadMark
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, Transaction

Reader = str
"""Who reads and edits: a session, or a connection where it has no session."""


def reader_of(session: str) -> Reader:
    return f"session {session}"


class Apply(Struct, frozen=True):
    """Ask for a changeset to become a transaction."""

    edits: tuple[Edit, ...]
    authorship: Authorship
    reader: Reader
    on_stale: OnStale | None = None
    dry_run: bool = False
    fingerprint: str = ""  # of the whole request, so that its id is not used for another one
    found: Mapping[Search, tuple[Match, ...] | Refused] = field(default_factory=dict)
    hooked: Hooked | None = None  # what the hooks said when it was last planned


OnConflict = Literal["fail", "force", "skip"]
"""What an undo does where it does not merge: nothing at all, prevail, or leave what does not merge."""


class Undo(Struct, frozen=True):
    """Commit the inverse of what `scope` names, as a transaction of `kind`."""

    authorship: Authorship
    reader: Reader
    scope: Scope
    kind: Literal["undo", "redo", "rollback"] = "undo"
    on_conflict: OnConflict = "fail"
    is_own_only: bool = False  # refuse to take back what another session did
    dry_run: bool = False
    fingerprint: str = ""


class Restore(Struct, frozen=True):
    """Put the workspace, or `paths` and what lies below them, to what it held right after `to`.

    `to` is a transaction, or a time.
    """

    authorship: Authorship
    reader: Reader
    to: int | str
    paths: tuple[WorkspacePath, ...] | None = None
    dry_run: bool = False
    fingerprint: str = ""


Write = Apply | Undo | Restore


class ConflictReport(Struct, frozen=True):
    """Where an undo would not merge: the later transactions there, and those that must go with it."""

    path: WorkspacePath
    blocking: tuple[int, ...]
    needs: tuple[int, ...]
    reason: str = "path"
    lines: tuple[Mapping[str, int], ...] = ()  # that collide, of the file now
    hunks: tuple[str, ...] = ()  # what became of the lines that were to be undone

    def told(self) -> dict[str, Any]:
        """The same, as a refusal's data has it."""
        told: dict[str, Any] = {
            "path": self.path.text, "blocking": list(self.blocking), "needs": list(self.needs),
            "reason": self.reason,
        }  # fmt: skip
        if self.lines:
            told |= {"lines": list(self.lines), "hunks": list(self.hunks)}
        return told


class Outcome(Struct, frozen=True):
    """What a finished request reports. `changes` hold the bytes before and after of each path."""

    transaction: Transaction | None
    changes: tuple[Change, ...]
    reports: Mapping[WorkspacePath, FileReport] = field(default_factory=dict)
    unchanged: tuple[Change, ...] = ()  # paths that were named and stay as they are
    merged: tuple[WorkspacePath, ...] = ()
    warnings: tuple[str, ...] = ()
    answers: tuple[str | None, ...] = ()  # what each edit's tool says in its own words
    sights: tuple[tuple[str, WorkspacePath, ReadMark], ...] = ()  # what sessions that a tool names have seen
    conflicts: tuple[ConflictReport, ...] = ()  # of an undo that is a dry run, or does only what fits
    formatted_by: tuple[str, ...] = ()  # the hooks that have changed it
    outdated: Mapping[WorkspacePath, Base] = field(default_factory=dict)  # what the reader knew of a path
    changed_by: Mapping[WorkspacePath, Sequence[Transaction]] = field(default_factory=dict)
    """Transactions of others that changed a path after the reader had seen it."""

    def of(self, transaction: Transaction) -> Outcome:
        """The same, now that `transaction` has made it come about."""
        return Outcome(
            transaction, self.changes, self.reports, self.unchanged, self.merged, self.warnings,
            self.answers, self.sights, self.conflicts, self.formatted_by, self.outdated,
        )  # fmt: skip


class NeedsRegex(Struct, frozen=True):
    """Not before this search has been made: ask again with its answer among `Apply.found`."""

    search: Search


class NeedsHooks(Struct, frozen=True):
    """Not before the hooks have seen this: ask again with what they say as `Apply.hooked`."""

    trial: HookJob


class NeedsDelay(Struct, frozen=True):
    """Not now: ask again in `seconds`; who cannot wait answers `reason`."""

    reason: Refused
    seconds: float


Result = Outcome | Refused | NeedsDelay | NeedsRegex | NeedsHooks
