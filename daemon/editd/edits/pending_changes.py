"""Pending changes: the work of one owner that has not landed, over the present files.

The owner is a staged changeset, a proposal or a draft, or a session whose edits become one proposal.
Its readers see the present files with these changes, and its next edit is planned on them. A file among the
changes is not resolved, so no link among them leads a reader to a file that the reader may not see.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from editd.edits.overlay import Overlay
from editd.values.content import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from editd.edits.overlay import Snapshot
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath


class Owner(Struct, frozen=True):
    """The owner of pending changes, by its kind and its name."""

    kind: Literal["changeset", "proposal", "session"]
    name: str

    @property
    def work(self) -> str:
        """The words for its pending changes."""
        return "the session's proposal" if self.kind == "session" else f"this {self.kind}"


class PendingChanges(Struct, frozen=True, dict=True):
    """Changes of the present files that have not landed.

    `left_out` are files with changes that no longer fit the present files.
    """

    owner: Owner
    changes: tuple[Change[FileState], ...] = ()
    left_out: tuple[WorkspacePath, ...] = ()

    @cached_property
    def states(self) -> Mapping[WorkspacePath, FileState | None]:
        """The changed paths, with their states."""
        return {change.path: change.after for change in self.changes}

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning about each file whose conflicting hunks the next revision leaves out."""
        return tuple(
            f"{path}: others have changed it, and hunks that no longer fit are left out"
            for path in self.left_out
        )

    def over(self, snapshot: Snapshot) -> Overlay:
        """Return these changes over the present files, without a look at them."""
        overlay = Overlay(snapshot)
        overlay.after.update(self.states)
        return overlay

    def then(
        self, planned: Iterable[Change[FileState]], current: Callable[[WorkspacePath], FileState | None]
    ) -> PendingChanges:
        """Return the changes of the present files that these make, with the `planned` ones on top."""
        states = dict(self.states)
        sources = {change.path: change.source for change in self.changes if change.source is not None}
        for change in planned:
            states[change.path] = change.after
            if change.source is not None:
                sources[change.path] = sources.pop(change.source, change.source)
        made = []
        for path in sorted(states):
            before, after = current(path), states[path]
            if before != after:
                source = sources.get(path)
                is_moved = (
                    source is not None and states.get(source, after) is None and current(source) is not None
                )
                made.append(Change(path, before, after, source if is_moved else None))
        return PendingChanges(self.owner, tuple(made), self.left_out)
