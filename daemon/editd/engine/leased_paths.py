"""The paths of leases or of waiting requests, ordered so that a path is compared with few of them.

A literal glob is found by its text, in a sorted list: a path's folders and what is below the path are looked
up. Only globs with wildcards are compared one by one, and `check_room` limits their number and size. So the
work for a request grows with the request, not with the leases that are held.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from editd.errors import Overloaded
from editd.values.glob import could_both_match, folders_of_key
from editd.values.name_key import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from editd.values.glob import Glob, Meter
    from editd.values.path import WorkspacePath

GLOBS_MAX = 20_000  # of all leases, and of all waiting requests: 20 ms to look through them
CHARACTERS_MAX = 2_000_000  # of them together: 4 MiB of memory, and 0.3 s of a daemon's start
WILDCARDS_MAX = 500  # globs with wildcards among them: each is compared with each changed path, in 3 µs
WILDCARD_CHARACTERS_MAX = 32_000  # of these together: compiling them takes 0.3 s


class PathHolder(Protocol):
    """A lease, or a request that waits for one."""

    @property
    def session(self) -> str: ...

    @property
    def paths(self) -> tuple[Glob, ...]: ...


Held = TypeVar("Held", bound=PathHolder)


class LeasedPaths(Generic[Held]):
    """Holders of globs. The methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: list[str] = []  # of literal globs, each with a `/` at its end, sorted
        self._literal: dict[str, list[tuple[Glob, Held]]] = {}
        self._wild: list[tuple[Glob, Held]] = []
        self._sizes = _Sizes()

    def add(self, holder: Held) -> None:
        with self._lock:
            self._sizes.count(holder.paths, 1)
            for glob in holder.paths:
                if glob.literal is None:
                    self._wild.append((glob, holder))
                    continue
                text = f"{glob.literal}/"
                if text not in self._literal:
                    insort(self._texts, text)
                self._literal.setdefault(text, []).append((glob, holder))

    def drop(self, holder: Held) -> None:
        """Remove a holder that was added."""
        with self._lock:
            self._sizes.count(holder.paths, -1)
            if any(glob.literal is None for glob in holder.paths):
                self._wild = [pair for pair in self._wild if pair[1] is not holder]
            for text in {f"{glob.literal}/" for glob in holder.paths if glob.literal is not None}:
                left = [pair for pair in self._literal[text] if pair[1] is not holder]
                if left:
                    self._literal[text] = left
                else:
                    del self._literal[text]
                    del self._texts[bisect_left(self._texts, text)]

    def check_room(self, paths: tuple[Glob, ...], what: str) -> None:
        """Raise Overloaded if `what` of all sessions would have too many paths, or too long ones."""
        with self._lock:
            self._sizes.check(paths, what)

    def excluding(self, session: str, paths: tuple[Glob, ...], meter: Meter) -> Iterator[Held]:
        """Yield other sessions' holders of a glob that can match a path that one of `paths` can.

        If the meter runs out, a glob with wildcards counts as one that can: the request is then refused or
        waits, and no lease is violated.
        """
        with self._lock:
            for glob in paths:
                for other, holder in self._near(glob):
                    if holder.session != session and could_both_match(glob, other, meter):
                        yield holder

    def _near(self, glob: Glob) -> Iterator[tuple[Glob, Held]]:
        """Yield the globs that may match a path that `glob` can."""
        if glob.literal is None:
            yield from self._at_or_above(glob.stem.rpartition("/")[0])
            yield from self._beginning(glob.stem)
        else:
            yield from self._at_or_above(glob.literal)
            yield from self._beginning(f"{glob.literal}/", is_strict=True)
        yield from self._wild

    def near(self, path: WorkspacePath) -> list[Held]:
        """Return the holders that may cover `path`."""
        key = key_of(path.text)
        with self._lock:
            wild = [pair for pair in self._wild if pair[0].matches_key(key)]
            return _holders((*self._at_or_above(key), *wild))

    def below(self, path: WorkspacePath) -> list[Held]:
        """Return the holders that may cover paths below `path`."""
        with self._lock:
            wild = [pair for pair in self._wild if pair[0].is_barred_by(path)]
            return _holders((*self._beginning(f"{key_of(path.text)}/"), *wild))

    def _at_or_above(self, key: str) -> Iterator[tuple[Glob, Held]]:
        if self._literal:
            yield from self._literal.get(f"{key}/", ())
            for folder in folders_of_key(key):
                yield from self._literal.get(f"{folder}/", ())

    def _beginning(self, prefix: str, *, is_strict: bool = False) -> Iterator[tuple[Glob, Held]]:
        """Yield the literal globs whose text begins with `prefix`; with `is_strict`, only longer ones."""
        for place in range(bisect_left(self._texts, prefix), len(self._texts)):
            text = self._texts[place]
            if not text.startswith(prefix):
                return
            if not is_strict or text != prefix:
                yield from self._literal[text]


def _holders(pairs: Iterable[tuple[Glob, Held]]) -> list[Held]:
    """Return each of the holders once, in their order."""
    return list({id(holder): holder for _, holder in pairs}.values())


class _Sizes:
    """The number and the characters of globs: all of them, and those with wildcards."""

    MOST = (GLOBS_MAX, CHARACTERS_MAX, WILDCARDS_MAX, WILDCARD_CHARACTERS_MAX)

    def __init__(self) -> None:
        self._now = (0, 0, 0, 0)

    def count(self, paths: tuple[Glob, ...], sign: int) -> None:
        self._now = self._with(paths, sign)

    def check(self, paths: tuple[Glob, ...], what: str) -> None:
        if any(size > most for size, most in zip(self._with(paths, 1), self.MOST, strict=True)):
            raise Overloaded(
                f"{what} of all sessions have at most {GLOBS_MAX} globs of {CHARACTERS_MAX} characters, "
                f"{WILDCARDS_MAX} globs of {WILDCARD_CHARACTERS_MAX} characters with wildcards among them.",
                hint="Lease a folder, such as `src/`, in place of its files, or wait until others end.",
                data={"globs": self._now[0], "characters": self._now[1]},
            )

    def _with(self, paths: tuple[Glob, ...], sign: int) -> tuple[int, int, int, int]:
        wild = [glob.text for glob in paths if glob.literal is None]
        added = (len(paths), sum(len(glob.text) for glob in paths), len(wild), sum(map(len, wild)))
        sizes = zip(self._now, added, strict=True)
        number, characters, wilds, of_wilds = (now + sign * more for now, more in sizes)
        return number, characters, wilds, of_wilds
