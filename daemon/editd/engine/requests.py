"""What can be asked of the engine that changes something, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.values.changeset import Change, Edit, FileReport, OnStale
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, Transaction

Reader = str
"""Who reads and edits: a session's name, or a connection's number where it has no session."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Ask for a changeset to become a transaction."""

    edits: tuple[Edit, ...]
    authorship: Authorship
    reader: Reader
    on_stale: OnStale = "reject"
    dry_run: bool = False
    fingerprint: str = ""  # of the whole request, so that its id is not used for another one


@dataclass(frozen=True, slots=True)
class Undo:
    """Commit the inverse of `tx`, else of the newest `last` (None: all), of `session` where it is given."""

    authorship: Authorship
    reader: Reader
    tx: int | str | None = None
    last: int | None = None
    session: str | None = None
    force: bool = False
    dry_run: bool = False
    redo: bool = False
    fingerprint: str = ""


Write = Apply | Undo


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished request reports. `changes` hold the bytes before and after of each path."""

    transaction: Transaction | None
    changes: tuple[Change, ...]
    reports: Mapping[WorkspacePath, FileReport] = field(default_factory=dict)
    unchanged: tuple[Change, ...] = ()  # paths that were named and stay as they are
    merged: tuple[WorkspacePath, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Postponed:
    """Not now: ask again in `seconds`; who cannot wait answers `reason`."""

    reason: Refused
    seconds: float


Result = Outcome | Refused | Postponed
