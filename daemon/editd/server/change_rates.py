"""Outside changes by their paths: the rest of a path that changes without pause, and the sources of growth.

A database or a log can change with each second, and each version that is recorded takes room for ever. So a
path that was recorded several times without a pause rests between two records. Its versions in between are
not recorded, as if they had come and gone between two notices. `settle`, an edit of the path and a scan do
not wait for the rest, and an edit through the daemon begins the count anew: the change behind it is a
formatter's.

`notices` has sentences for a person: the path that makes most of the growth, and folders with thousands of
new files that git does not ignore. All numbers begin with the daemon.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

log = logging.getLogger(__name__)

AT_ONCE = 3  # records of a path without a pause, before it rests: a person may save several times
PATHS_MAX = 20_000  # whose numbers are kept
GROWTH_BYTES_MIN = 64 * 1024 * 1024  # recorded of one path, before a notice names it
GROWTH_VERSIONS_MIN = 10
NEW_FILES_MIN = 2000  # below one folder, before a notice names it
MOST = 0.9  # of the new files of a folder: then its subfolder is named


class PathRate(Struct):
    """The records of one path. The times are the clock's."""

    last: float
    times: int = 0  # without a pause
    versions: int = 0
    content_bytes: int = 0


class ChangeRates:
    """The outside changes since the start of the daemon. Used by the loop's thread, but for `edited`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_seconds = 10.0  # `history.record_interval`; 0 is no rest
        self._clock = clock
        self.by_path: dict[bytes, PathRate] = {}  # the longest unchanged first
        self._content_bytes = 0
        self._new_files: dict[bytes, int] = {}  # by folder
        self._resting: dict[bytes, float] = {}  # noticed paths, with the end of their rest

    # ── rest ──

    def rest(self, paths: Collection[bytes]) -> set[bytes]:
        """Note the paths if all of them have to rest now, and return them.

        A busy path beside another is recorded with it, because both may be one save.
        """
        now = self._clock()
        ends: dict[bytes, float] = {}
        for path in paths:
            rate = self.by_path.get(path)
            if rate is None or rate.times < AT_ONCE or now >= rate.last + self.interval_seconds:
                return set()
            ends[path] = rate.last + self.interval_seconds
        self._resting |= ends
        return set(ends)

    def seconds_left(self) -> float | None:
        """Return the seconds until the first rest ends; None if no path rests."""
        return max(0.0, min(self._resting.values()) - self._clock()) if self._resting else None

    def take_rested(self, *, is_settling: bool = False) -> frozenset[bytes]:
        """Return the paths whose rest has ended, once; all of them for a `settle`."""
        now = self._clock()
        rested = frozenset(path for path, until in self._resting.items() if is_settling or until <= now)
        for path in rested:
            del self._resting[path]
        return rested

    def edited(self, path: bytes) -> None:
        """Begin the count of a path anew, because the daemon wrote it. May be called from any thread."""
        if (rate := self.by_path.get(path)) is not None:
            rate.times = 0

    # ── numbers ──

    def note(self, path: bytes, content_bytes: int, *, is_new: bool) -> None:
        """Note that a version of a path was recorded."""
        now = self._clock()
        rate = self.by_path.pop(path, None)
        if rate is None:
            rate = PathRate(now)
        is_without_pause = now - rate.last <= 2 * self.interval_seconds
        rate.times = rate.times + 1 if is_without_pause else 1
        rate.last = now
        rate.versions += 1
        rate.content_bytes += content_bytes
        self._content_bytes += content_bytes
        self.by_path[path] = rate
        if len(self.by_path) > PATHS_MAX:
            del self.by_path[next(iter(self.by_path))]
        if is_new:
            self._note_new(path)

    def _note_new(self, path: bytes) -> None:
        folder = os.path.dirname(path)
        while folder:
            if folder in self._new_files or len(self._new_files) < PATHS_MAX:
                self._new_files[folder] = self._new_files.get(folder, 0) + 1
                if self._new_files[folder] == NEW_FILES_MIN:
                    log.warning("%s", _of_new_files(folder, NEW_FILES_MIN))
            folder = os.path.dirname(folder)

    def notices(self) -> list[str]:
        """Return a sentence for each thing that a person should know."""
        tops = [folder for folder, count in self._new_files.items() if count >= NEW_FILES_MIN]
        tops = [folder for folder in tops if os.path.dirname(folder) not in tops]
        named = sorted(map(self._fullest, tops))
        return [*self._growth(), *(_of_new_files(folder, self._new_files[folder]) for folder in named)]

    def _growth(self) -> list[str]:
        path = max(self.by_path, key=lambda path: self.by_path[path].content_bytes, default=b"")
        rate = self.by_path.get(path)
        if rate is None or rate.versions < GROWTH_VERSIONS_MIN or rate.content_bytes < GROWTH_BYTES_MIN:
            return []
        if rate.content_bytes * 2 < self._content_bytes:
            return []
        sentence = (
            f"{os.fsdecode(path)} makes most of the growth of the history: {rate.versions} versions with "
            f"{rate.content_bytes >> 20} MiB since the daemon started. Let git ignore it, or name it in "
            "`history.exclude`."
        )
        return [sentence]

    def _fullest(self, folder: bytes) -> bytes:
        """Return the folder, or the one below it that has most of its new files."""
        prefix = folder + b"/"
        for other, count in self._new_files.items():
            is_child = other.startswith(prefix) and b"/" not in other[len(prefix) :]
            if is_child and count >= MOST * self._new_files[folder]:
                return self._fullest(other)
        return folder


def _of_new_files(folder: bytes, count: int) -> str:
    return (
        f"{os.fsdecode(folder)} has {count} new files that git does not ignore, so each version is "
        "recorded. Name the folder in .gitignore if another program makes them."
    )
