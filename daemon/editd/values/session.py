"""An open session: its name, the paths that it may touch, and the defaults of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from editd.values.glob import Meter, is_among, path_outside

if TYPE_CHECKING:
    from editd.values.changeset import OnStale
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath

Unread = Literal["allow", "reject"]


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
