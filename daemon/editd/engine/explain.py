"""Explaining: what only the history can add to a refusal, so that the retry is right the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.diff import unified
from editd.engine.blame import Blame
from editd.engine.obstructions import UndoConflict
from editd.errors import NoMatch, Refused, Stale
from editd.values.content import FileState, Version
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from editd.store.history import History
    from editd.values.transaction import Transaction

DIFF_BYTES_MAX = 4 * 1024 * 1024  # of one file in a `stale` answer; libgit2 takes some 100 ms for that
CHANGED_BY_MAX = 20  # transactions in a `stale` answer, the newest
BLAME_BYTES_MAX = 1024 * 1024  # of a file in a `no_match` answer
BLAME_SECONDS_MAX = 0.05  # everybody waits meanwhile


def explain(refusal: Refused, history: History) -> None:
    """Add to a refusal what only the history knows, now that all of the turn is in it."""
    if isinstance(refusal, UndoConflict):
        refusal.explain(history)
    elif isinstance(refusal, Stale):
        _explain_stale(refusal, history)
    elif isinstance(refusal, NoMatch) and refusal.applied is not None:
        _explain_applied(refusal, *refusal.applied, history)


def _explain_stale(stale: Stale, history: History) -> None:
    path = WorkspacePath(stale.data["path"])
    base, current = stale.data["base"], stale.data["current"]
    index = history.index
    made_by = index.version_made_by(path, Version(base)) if base is not None else None
    since = index.touches_after(path, made_by or 0)
    stale.data["changed_by"] = [history.find(seq) for seq in since[-CHANGED_BY_MAX:]]
    stale.data["diff"] = _diff(history, path, base, current)


def _explain_applied(refusal: NoMatch, first: int, lines: tuple[str, ...], history: History) -> None:
    """Say which transaction the new text came with, unless that takes long or the file is another by now."""
    entry = None if refusal.path is None else history.entry(refusal.path)
    content = None if entry is None else history.content(entry.version)
    if entry is None or content is None or len(content) > BLAME_BYTES_MAX:
        return
    numbers = range(first - 1, first - 1 + len(lines))
    recorded = [line.rstrip(b"\r") for line in content.split(b"\n")]
    if recorded[numbers.start : numbers.stop] != [line.encode("utf-8", "surrogateescape") for line in lines]:
        return
    blame = Blame(history, refusal.path, entry.version, numbers)
    if blame.go_on(BLAME_SECONDS_MAX):
        transaction = history.find(max(blame.seqs[number] for number in numbers))
        refusal.data["applied_by"] = transaction
        refusal.hint += f" {_origin(transaction)}"


def _origin(transaction: Transaction) -> str:
    if transaction.kind == "baseline":
        return "It is in the baseline."
    author = transaction.authorship
    session = f" in {author.session}" if author.session else ""
    return f"It came with transaction {int(transaction.seq)}, {transaction.kind} by {author.actor}{session}."


def _diff(history: History, path: WorkspacePath, base: str | None, current: str | None) -> str | None:
    """The difference of two versions of a path; None where one is not known or they are too large."""
    states: list[FileState | None] = []
    for version in (base, current):
        content = None if version is None else history.content(Version(version))
        if version is not None and (content is None or len(content) > DIFF_BYTES_MAX):
            return None
        states.append(None if content is None else FileState(content))
    return unified(path, states[0], states[1], path)
