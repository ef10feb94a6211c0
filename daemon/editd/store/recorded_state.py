"""The states of recorded files: each with its content, or with the reason if that is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.values.content import FileState

if TYPE_CHECKING:
    from editd.store.history import History
    from editd.values.content import Entry


def recorded_state(entry: Entry | None, history: History) -> FileState | None:
    """Return the state of an entry, with its content.

    Raises ContentForgotten or ContentExcluded if the history leaves it out, and HistoryDamaged if it is lost.
    """
    if entry is None:
        return None
    content = history.content(entry.version)
    if content is None:
        raise history.missing(entry.version)
    return FileState(content, entry.mode, entry.permissions, entry.version)


def shown_state(entry: Entry | None, history: History) -> FileState | None:
    """Return the state of an entry for a person to read, with the reason if its content is left out.

    Raises HistoryDamaged if the content is missing otherwise.
    """
    if entry is None or not history.is_dropped(entry.version):
        return recorded_state(entry, history)
    return _without_content(entry, history)


def _without_content(entry: Entry, history: History) -> FileState:
    reason = history.missing(entry.version).message
    return FileState(b"", entry.mode, entry.permissions, entry.version, reason)


def state_of(entry: Entry | None, history: History) -> FileState | None:
    """Return the state of an entry, with its content, or with the reason if that is missing.

    Content can be missing if it was only in the user's own repository and was pruned there.
    """
    if entry is None:
        return None
    content = history.content(entry.version)
    if content is None:
        return _without_content(entry, history)
    return FileState(content, entry.mode, entry.permissions, entry.version)
