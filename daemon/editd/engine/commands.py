"""The commands that change the workspace, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from editd.errors import Refused
from editd.values.changeset import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.edits.search import Match, Search
    from editd.engine.hooks import Hooked, HookJob
    from editd.engine.undo_selection import Scope
    from editd.values.changeset import OnStale
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship
    from editd.wire.messages import AnyEdit

Reader = str
"""The identity under which read versions are kept: a session, or a connection without a session."""


def reader_of(session: str) -> Reader:
    """Return the reader of a session."""
    return f"session {session}"


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


OnConflict = Literal["fail", "force", "skip"]
"""The reaction of an undo to a conflict: refuse, override the later change, or skip the conflict site."""


class Undo(Struct, frozen=True):
    """Commit the inverse of the transactions that `scope` selects, as a transaction of `kind`."""

    authorship: Authorship
    reader: Reader
    scope: Scope
    kind: Literal["undo", "redo", "rollback"] = "undo"
    on_conflict: OnConflict = "fail"
    is_own_only: bool = False  # refuse to undo another session's transactions
    dry_run: bool = False
    fingerprint: str = ""


class Restore(Struct, frozen=True):
    """Restore the workspace, or `paths` and everything below them, to its content right after `to`.

    `to` is a transaction or a time.
    """

    authorship: Authorship
    reader: Reader
    to: int | str
    paths: tuple[WorkspacePath, ...] | None = None
    dry_run: bool = False
    fingerprint: str = ""


Write = Apply | Undo | Restore


class NeedsRegex(Struct, frozen=True):
    """Planning needs this search. Send the request again with the result in `Apply.found`."""

    search: Search


class NeedsHooks(Struct, frozen=True):
    """Planning needs this hook job. Send the request again with the result in `Apply.hooked`."""

    job: HookJob


class NeedsDelay(Struct, frozen=True):
    """The request must wait. Send it again in `seconds`, or answer it with `reason`."""

    reason: Refused
    seconds: float


Result = Outcome | Refused | NeedsDelay | NeedsRegex | NeedsHooks
