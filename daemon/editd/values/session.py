"""An open session: its name, the paths that it may touch, and the defaults of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.values.glob import Meter, could_both_match, is_among, path_outside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath
    from editd.wire.messages import OnStale, Unread


class Bounds(Struct, frozen=True):
    """The paths that a session may write and read; None is all of them."""

    write: tuple[Glob, ...] | None = None
    read: tuple[Glob, ...] | None = None

    def may_write(self, path: WorkspacePath) -> bool:
        return self.write is None or is_among(path, self.write)

    def unwritable(self, glob: Glob) -> str | None:
        """Return a path that `glob` matches and the session may not write. Raises Exhausted."""
        return None if self.write is None else path_outside(glob, self.write, Meter())

    def may_read(self, path: WorkspacePath) -> bool:
        return self.read is None or is_among(path, self.read)


class Session(Struct, frozen=True):
    name: str
    token_hash: str  # SHA-256 of its token, in hex; only its owner has the token itself
    actor: str | None
    bounds: Bounds
    on_stale: OnStale | None
    unread: Unread
    ttl: float  # seconds without a connection or a request, after which it ends
    created_us: int
    is_in_doubt: bool = False  # the daemon was killed since then, and may have lost some of its reads


# A lease: a session's claim on paths, which ends by itself at a stated time.


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
