"""A grant: a reviewer's advance approval of edits of some paths, with an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.values.glob import GlobSet
from editd.values.path_rules import RuleOnPaths, fits

if TYPE_CHECKING:
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath


class Grant(Struct, frozen=True):
    """A grant in force. None means any session, or no limit."""

    number: int
    session: str | None
    paths: tuple[Glob, ...]
    expires_us: int  # microseconds since the epoch
    uses: int | None  # edits that are left
    lines: int | None  # lines, added and deleted, that are left
    actor: str  # of the reviewer
    by_session: str | None
    via: str = "socket"  # the way the reviewer's request came

    @property
    def name(self) -> str:
        return f"grant {self.number}"

    @property
    def rule(self) -> RuleOnPaths:
        sessions = None if self.session is None else (self.session,)
        return RuleOnPaths(
            "grant", "land", GlobSet.of(self.paths), sessions=sessions, until_us=self.expires_us
        )

    def fits(self, path: WorkspacePath, session: str | None) -> bool:
        """Return whether an edit of the path by the session is granted, while the grant is in force."""
        return fits(self.rule, path, session)

    def after(self, lines: int) -> Grant | None:
        """Return what is left after one more edit of so many lines, or None if nothing is."""
        uses = None if self.uses is None else self.uses - 1
        left = None if self.lines is None else self.lines - lines
        return None if uses == 0 or left == 0 else replace(self, uses=uses, lines=left)
