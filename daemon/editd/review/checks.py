"""The configured checks of proposals: which of them a proposal has, and which have passed on its view. Pure.

A result counts only if the daemon itself has run the check, with the command that is configured now, on
exactly the present view. A result that a client reports is a claim, and counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.runs.reach import CommandReach
from editd.values.glob import Glob, is_among

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.config.schema import Config
    from editd.values.path import WorkspacePath
    from editd.values.proposal import Proposal, TrialResult


class ReviewCheck(Struct, frozen=True):
    """A configured command for open proposals."""

    name: str
    globs: tuple[Glob, ...]
    command: tuple[str, ...]
    seconds: float
    reach: CommandReach | None = None  # None for an old entry, which may write and connect as the user can

    def is_for(self, proposal: Proposal, paths: Iterable[WorkspacePath]) -> bool:
        """Return whether it runs on a proposal that changes these paths, or that waits for it."""
        return self.name in proposal.lands_after or any(is_among(path, self.globs) for path in paths)

    def has_made(self, result: TrialResult, view: str) -> bool:
        """Return whether a result is of this check, as it is configured now, on this view."""
        return (result.name, result.command, result.view) == (self.name, self.command, view)


def checks_of(config: Config) -> tuple[ReviewCheck, ...]:
    """Return the checks of the configuration."""
    return tuple(
        ReviewCheck(
            check.name,
            tuple(map(Glob.parse, check.paths)),
            check.command,
            check.seconds,
            CommandReach.of(check.writable, check.network, check.unix_sockets),
        )
        for check in config.review.check
    )


def passed(
    checks: Iterable[ReviewCheck], results: Iterable[TrialResult], view: str
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the checks that have a result on this view, and of the passed checks."""
    current = [result for result in results for check in checks if check.has_made(result, view)]
    return (
        frozenset(result.name for result in current),
        frozenset(result.name for result in current if result.exit == 0),
    )
