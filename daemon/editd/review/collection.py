"""The collecting proposal of a session, `batch: "session"`: all its edits become one open proposal.

An edit of such a session is planned on the files as its proposal would leave them, and makes the next
revision of it. So the session goes on, consistently, while a person reviews.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.values.content import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from editd.review.fit import FittedProposal
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath


class CollectedFiles(Struct, frozen=True):
    """The files of a session's open proposal as it would leave them.

    `sources` are the old paths of the files that it moves, and `left_out` those with hunks that no longer
    fit.
    """

    states: Mapping[WorkspacePath, FileState | None] = {}
    sources: Mapping[WorkspacePath, WorkspacePath] = {}
    left_out: tuple[WorkspacePath, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning about each file whose conflicting hunks the next revision leaves out."""
        return tuple(
            f"{path}: others have changed it, and hunks that no longer fit are left out"
            for path in self.left_out
        )


def overlay_of(view: FittedProposal) -> CollectedFiles:
    """Return the files as the proposal would leave them: the present ones with all hunks that fit."""
    states: dict[WorkspacePath, FileState | None] = {}
    sources: dict[WorkspacePath, WorkspacePath] = {}
    left_out = []
    for fitted in view.files:
        if fitted.open_move is not None and fitted.file.source is not None:
            states[fitted.file.source] = None
            states[fitted.file.path] = fitted.after
            sources[fitted.file.path] = fitted.file.source
        elif fitted.fitting:
            states[fitted.path] = fitted.after
        if any(one.state == "conflict" for one in fitted.hunks):
            left_out.append(fitted.file.path)
    return CollectedFiles(states, sources, tuple(left_out))


def collected(
    overlay: CollectedFiles,
    planned: Iterable[Change[FileState]],
    current: Callable[[WorkspacePath], FileState | None],
) -> tuple[Change[FileState], ...]:
    """Return the changes of the present files that the overlay and the `planned` ones on top of it make."""
    states, sources = dict(overlay.states), dict(overlay.sources)
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
    return tuple(made)
