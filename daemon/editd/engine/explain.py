"""Explaining: what only the history can add to a refusal, so that the retry is right the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.diff import unified
from editd.engine.obstructions import UndoConflict
from editd.errors import Refused, Stale
from editd.values.content import FileState, Version
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from editd.store.history import History

DIFF_BYTES_MAX = 4 * 1024 * 1024  # of one file in a `stale` answer; libgit2 takes some 100 ms for that
CHANGED_BY_MAX = 20  # transactions in a `stale` answer, the newest


def explain(refusal: Refused, history: History) -> None:
    """Add to a refusal what only the history knows, now that all of the turn is in it."""
    if isinstance(refusal, UndoConflict):
        refusal.explain(history)
    elif isinstance(refusal, Stale):
        _explain_stale(refusal, history)


def _explain_stale(stale: Stale, history: History) -> None:
    path = WorkspacePath(stale.data["path"])
    base, current = stale.data["base"], stale.data["current"]
    index = history.index
    made_by = index.version_made_by(path, Version(base)) if base is not None else None
    since = index.touches_after(path, made_by or 0)
    stale.data["changed_by"] = [history.find(seq) for seq in since[-CHANGED_BY_MAX:]]
    stale.data["diff"] = _diff(history, path, base, current)


def _diff(history: History, path: WorkspacePath, base: str | None, current: str | None) -> str | None:
    """The difference of two versions of a path; None where one is not known or they are too large."""
    states: list[FileState | None] = []
    for version in (base, current):
        content = None if version is None else history.content(Version(version))
        if version is not None and (content is None or len(content) > DIFF_BYTES_MAX):
            return None
        states.append(None if content is None else FileState(content))
    return unified(path, states[0], states[1], path)
