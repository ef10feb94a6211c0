"""A lease: a session's claim on paths, which ends by itself at a stated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.values.glob import could_both_match, is_among

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.values.glob import Glob, Meter
    from editd.values.path import WorkspacePath


class Lease(Struct, frozen=True):
    id: str
    session: str
    token: int  # fencing token: higher than that of every lease granted before
    paths: tuple[Glob, ...]
    expires_us: int  # microseconds since the epoch

    def covers(self, path: WorkspacePath) -> bool:
        return is_among(path, self.paths)

    def is_barred_by(self, path: WorkspacePath) -> bool:
        """Return whether a file at `path`, itself not leased, takes the place of a leased folder."""
        return any(glob.is_barred_by(path) for glob in self.paths)


def exclude_each_other(first: Iterable[Glob], second: Iterable[Glob], meter: Meter) -> bool:
    """Return whether a glob of `first` and one of `second` can match the same path.

    If the meter runs out, the answer is yes: a request is then refused or waits, and no lease is violated.
    """
    others = tuple(second)
    return any(could_both_match(one, other, meter) for one in first for other in others)
