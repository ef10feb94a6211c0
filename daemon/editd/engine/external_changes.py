"""Adopting: what somebody else wrote becomes a transaction of its own, before anything is done to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.engine.reconcile import known_below
from editd.engine.snapshot import is_same
from editd.errors import HistoryDamaged
from editd.values.changeset import Change
from editd.values.content import FileState, GitMode, Version
from editd.values.path import WorkspacePath, inner, ways_down
from editd.values.transaction import Authorship, Entry, Kind

if TYPE_CHECKING:
    from editd.store.history import History

OUTSIDE = Authorship(actor="outside")

OutsideAuthorship = Callable[[Sequence[WorkspacePath]], tuple[Kind, Authorship] | None]
"""Tells who changed these paths beside the daemon, and of which kind that is; None where nobody is known."""

IsOurs = Callable[[WorkspacePath], bool]
"""Whether the scan looks after a path, without an edit having touched it."""


class ExternalChange(Struct, frozen=True):
    """Changes found on disk, by the kind of transaction that records them."""

    kind: Kind
    changes: tuple[Change, ...]


def external_changes(
    strangers: Mapping[WorkspacePath, FileState | None],
    history: History,
    is_ours: IsOurs,
) -> list[ExternalChange]:
    """Sort what was found: first what is only now seen for the first time, then what has changed.

    A path that the history does not know and that was not looked after until now (`is_ours` says no:
    git ignores it, or the baseline's budget ended before it) was there before us: that is the baseline's
    kind, and undoing never deletes it.
    """
    first_seen: list[Change] = []
    changed: list[Change] = []
    for path, state in sorted(strangers.items()):
        known = history.entry(path)
        if is_same(known, state):
            continue  # Recorded already. To delete what the history does not have could delete a folder.
        change = Change(path, state_of(known, history), state)
        new_to_us = known is None and not is_ours(path)
        (first_seen if new_to_us else changed).append(change)
    found = [ExternalChange("baseline", tuple(first_seen)), ExternalChange("outside", _with_moves(changed))]
    if any(change.after is None for change in changed):
        found.reverse()  # What is gone has made room for what is seen for the first time.
    return [adoption for adoption in found if adoption.changes]


def _with_moves(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The same; a file that is gone was moved to where its bytes are new, if both are the only such files."""
    gone: dict[tuple[Version, GitMode], list[WorkspacePath]] = {}
    come: dict[tuple[Version, GitMode], list[WorkspacePath]] = {}
    for change in changes:
        if change.after is not None and change.kind != "mode":
            come.setdefault((change.after.version, change.after.mode), []).append(change.path)
        elif change.before is not None and change.after is None:
            gone.setdefault((change.before.version, change.before.mode), []).append(change.path)
    moved = {
        to[0]: gone[what][0] for what, to in come.items() if len(to) == 1 and len(gone.get(what, ())) == 1
    }
    return tuple(Change(c.path, c.before, c.after, moved.get(c.path)) for c in changes)


def nested_paths(files: AbstractSet[WorkspacePath]) -> Iterator[WorkspacePath]:
    """Those of the files that would lie in another of them."""
    found = inner({path.raw for path in files})
    yield from (path for path in files if path.raw in found)


def blocked_by(files: Iterable[WorkspacePath], history: History) -> set[WorkspacePath]:
    """The files of the history for which there is no room where there are these: above and below them."""
    found: set[WorkspacePath] = set()
    above: dict[bytes, bool] = {b"": True}  # whether the history has something there
    for path in files:
        found.update(known_below(history, path.text))
        for way in ways_down(path.raw.rpartition(b"/")[0], above):
            folder = WorkspacePath(os.fsdecode(way))
            is_known = above[way.rpartition(b"/")[0]]
            if is_known and history.entry(folder) is not None:
                found.add(folder)
            above[way] = is_known and history.has_folder(folder)
    return found


def recorded_state(entry: Entry | None, history: History) -> FileState | None:
    """What the history says a path held, with its bytes. Raises HistoryDamaged where they are gone."""
    if entry is None:
        return None
    content = history.content(entry.version)
    if content is None:
        raise HistoryDamaged(
            f"The history no longer has the content {entry.version[:12]}.",
            hint="It was lost in damage, or was only in the repository's own git objects and removed there.",
            data={"version": entry.version},
        )
    return FileState(content, entry.mode, entry.permissions, entry.version)


def state_of(entry: Entry | None, history: History) -> FileState | None:
    """What the history says a path held, with its bytes.

    Where the bytes are gone (they were only borrowed from the user's own repository, and that was
    pruned), the state still has its version; the bytes are empty.
    """
    if entry is None:
        return None
    content = history.content(entry.version)
    return FileState(content if content is not None else b"", entry.mode, entry.permissions, entry.version)
