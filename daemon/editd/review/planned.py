"""A planned edit or undo that is to become a proposal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from editd.system.process import Process
    from editd.values.content import Change, FileState
    from editd.values.glob import Glob
    from editd.values.proposal import ProposalKind
    from editd.values.transaction import Authorship, Part, Seq


class Planned(Struct, frozen=True):
    """A planned edit or undo that is to become a proposal."""

    changes: tuple[Change[FileState], ...]
    authorship: Authorship
    may_write: tuple[Glob, ...] | None
    rule: str
    fingerprint: str
    kind: ProposalKind = "edit"
    undoes: tuple[Seq, ...] = ()
    parts: tuple[Part, ...] = ()
    is_collecting: bool = False
    is_draft: bool = False
    lands_after: tuple[str, ...] = ()
    line: tuple[Process, ...] = ()  # of the author's process
