"""The files and transactions of this host that other hosts do not get, and the warnings about them.

A file stays here because a glob names it. A transaction is kept back because the server of the log refuses
it, or because other hosts could not read it. The author of either gets a warning, once in each session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from editd.values.path import WorkspacePath

WARNED_MAX = 10_000  # sessions and paths that are remembered; after that, warnings come again


class KeptBack(Struct, frozen=True):
    """A transaction that is not sent. Later ones of its files wait behind it."""

    reason: str
    actor: str
    session: str | None
    paths: frozenset[WorkspacePath]


class Unshared:
    """The rule for files that stay on this host, and the transactions that are kept back now."""

    def __init__(self, stays_here: Callable[[WorkspacePath], bool]) -> None:
        self.stays_here = stays_here
        self.kept_back: Mapping[int, KeptBack] = {}
        self._warned: set[tuple[str | None, WorkspacePath | int]] = set()

    def staying(self, paths: Iterable[WorkspacePath]) -> list[str]:
        """Return the paths that stay here, as text and in order."""
        return sorted(path.text for path in filter(self.stays_here, paths))

    def warnings(self, actor: str, session: str | None, paths: Iterable[WorkspacePath]) -> Iterator[str]:
        """Yield the warnings for the author of an edit of these paths that the author does not have yet."""
        touched = set(paths)
        staying = sorted(path for path in filter(self.stays_here, touched) if self._is_new(session, path))
        if staying:
            yield f"Stays on this host, because `remote.exclude` names it: {', '.join(map(str, staying))}."
        for seq, one in self.kept_back.items():
            is_own = (one.actor, one.session) == (actor, session)
            if not touched.isdisjoint(one.paths):
                yield f"Waits behind transaction {seq}, which does not reach other hosts: {one.reason}"
                self._is_new(session, seq)
            elif is_own and self._is_new(session, seq):
                yield f"Transaction {seq} does not reach other hosts: {one.reason}"

    def _is_new(self, session: str | None, subject: WorkspacePath | int) -> bool:
        """Note that a session gets a warning, and return whether it is the first one."""
        if len(self._warned) >= WARNED_MAX:
            self._warned.clear()
        is_new = (session, subject) not in self._warned
        self._warned.add((session, subject))
        return is_new
