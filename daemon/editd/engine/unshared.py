"""The files and transactions of this host that other hosts do not get, and the warnings about them.

A file stays here because a key of the configuration names it, or did so since this host joined, or because
its path is held. A transaction is kept back
because the server of the log refuses it, or because other hosts could not read it. The author of each gets
a warning, once in each session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from editd.store.index import Index
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship

WARNED_MAX = 10_000  # sessions and subjects that are remembered; after that, warnings come again


class FirstWarnings:
    """The warnings that each session has had, or each author without a session, so that none comes twice."""

    def __init__(self) -> None:
        self._given: set[tuple[str | None, str, str | int]] = set()

    def is_new(self, author: Authorship, subject: str | int) -> bool:
        """Note that an author gets a warning, and return whether it is the first one about this subject."""
        if len(self._given) >= WARNED_MAX:
            self._given.clear()
        key = (author.session, author.actor if author.session is None else "", subject)
        is_new = key not in self._given
        self._given.add(key)
        return is_new


def excluded_warnings(paths: Iterable[WorkspacePath], author: Authorship, first: FirstWarnings) -> list[str]:
    """Return the warning about these excluded paths, without the paths that the author knows already."""
    named = sorted(path.text for path in paths if first.is_new(author, path.text))
    if not named:
        return []
    warning = (
        f"Excluded from the history: {', '.join(named)}. An undo brings the contents back for a while only "
        "(`history.exclude_keep`), and they reach no other host."
    )
    return [warning]


class KeptBack(Struct, frozen=True):
    """A transaction that is not sent. Later ones of its files wait behind it."""

    reason: str
    actor: str
    session: str | None
    paths: frozenset[WorkspacePath]


class UndoneInPart:
    """The transactions of this host that others have undone, but for the files that stay here."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._possible = set(index.undone_elsewhere())

    def note(self, seqs: Iterable[int]) -> None:
        """Note that another host has undone these transactions at least in part."""
        self._possible.update(seqs)

    def now(self, stays_here: Callable[[WorkspacePath], bool]) -> list[int]:
        """Return the transactions whose files here are not undone, in order."""
        return [seq for seq in sorted(self._possible) if self._has_rest(seq, stays_here)]

    def _has_rest(self, seq: int, stays_here: Callable[[WorkspacePath], bool]) -> bool:
        transaction = self._index.transaction(seq)
        if transaction is None or transaction.undone_by is not None:
            return False
        states = [(touch.undone_by is None, stays_here(touch.path)) for touch in transaction.touches]
        return (True, True) in states and (False, False) in states


class Unshared:
    """The rules for files that stay on this host, and the transactions that are kept back now."""

    def __init__(self) -> None:
        self.rules: Mapping[str, Callable[[WorkspacePath], bool]] = {}  # by the words of the warning
        self.kept_back: Mapping[int, KeptBack] = {}
        self._first = FirstWarnings()

    def stays(self, path: WorkspacePath) -> bool:
        """Return whether a path stays on this host."""
        return any(stays_here(path) for stays_here in self.rules.values())

    def staying(self, paths: Iterable[WorkspacePath]) -> list[str]:
        """Return the paths that stay here, as text and in order."""
        return sorted(path.text for path in paths if self.stays(path))

    def warnings(self, author: Authorship, paths: Iterable[WorkspacePath]) -> Iterator[str]:
        """Yield the warnings for the author of an edit of these paths that the author does not have yet."""
        touched = set(paths)
        is_new = self._first.is_new
        named: set[WorkspacePath] = set()
        for reason, stays_here in self.rules.items():
            staying = sorted(path for path in filter(stays_here, touched - named))
            named.update(staying)
            if new := [path.text for path in staying if is_new(author, path.text)]:
                yield f"Stays on this host, because {reason}: {', '.join(new)}."
        for seq, one in self.kept_back.items():
            is_own = (one.actor, one.session) == (author.actor, author.session)
            if not touched.isdisjoint(one.paths):
                yield f"Waits behind transaction {seq}, which does not reach other hosts: {one.reason}"
                is_new(author, seq)
            elif is_own and is_new(author, seq):
                yield f"Transaction {seq} does not reach other hosts: {one.reason}"
