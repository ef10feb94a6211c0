"""Repacking: libgit2 combines many small packs into one, with deltas, so that the store stays fast and small.

Packing writes a pack for each burst of edits. When there are many packs, the small ones are combined. Large
packs are left alone, so that each byte is rewritten only a few times, however long the history is. The
search for deltas takes ten times as long as packing, so it runs in a thread of the packing process while
packing continues.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from typing import TYPE_CHECKING, BinaryIO

import pygit2

from editd.errors import Refused
from editd.store.git_repository import (
    drop_packs,
    exclusive_lock,
    open_store,
    shared_lock,
)
from editd.store.packfile import offsets_in
from editd.system.files import sync_path

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)

PACKS_MAX = 50  # small ones; git itself begins to repack at 50 packs (gc.autoPackLimit)
SMALL_BYTES = 32 * 1024 * 1024
SMALL_OBJECTS = 25_000  # of some 10 KB: ten seconds of a thread, and 100 MB of memory while it works
_NICE = 19
_COUNT_AT = 8 + 255 * 4


class Repacker:
    """The thread that combines small packs, one batch after another, while there are many."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._most = PACKS_MAX
        self._thread: threading.Thread | None = None

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self) -> None:
        """Start the thread, unless it runs already."""
        if not self.is_under_way:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)  # this thread's, on Linux
        try:
            while self._are_many():
                repack(open_store(self._store))
            self._most = PACKS_MAX
        except (Refused, OSError, KeyError, ValueError, pygit2.GitError) as error:
            log.warning("small packs could not be combined: %s", error)  # in the daemon's log
            self._most += PACKS_MAX  # they stay, which costs only space and time

    def _are_many(self) -> bool:
        with exclusive_lock(self._store):
            return len(_small_packs(_folder_of(self._store))) > self._most


def repack(repository: pygit2.Repository) -> None:
    """Combine the smallest packs of the store. Raises OSError, GitError, Refused.

    The new pack is durable before an old one is removed; a reader that has an old one open keeps it.
    """
    store = os.path.normpath(repository.path)
    folder = _folder_of(store)
    with exclusive_lock(store):
        small = _smallest(folder)
    with tempfile.TemporaryDirectory(prefix="tmp_", dir=folder) as made:
        repository.pack(made, lambda builder: _add_all(builder, folder, small), n_threads=1)
        names = sorted(os.listdir(made), key=lambda name: name.endswith(".idx"))  # the index last
        for name in names:
            sync_path(os.path.join(made, name))
            os.chmod(os.path.join(made, name), 0o600)
        with shared_lock(store), exclusive_lock(store):
            for name in names:
                os.rename(os.path.join(made, name), os.path.join(folder, name))
                small.discard(name.rpartition(".")[0])  # the same objects give the same name
            sync_path(folder)
            drop_packs(store, small)


def _folder_of(store: str) -> str:
    return os.path.join(store, "objects", "pack")


def _add_all(builder: pygit2.PackBuilder, folder: str, names: Iterable[str]) -> None:
    # Sorted: the same objects make the same pack.
    for oid in sorted({oid for name in names for oid in offsets_in(os.path.join(folder, f"{name}.idx"))}):
        builder.add(pygit2.Oid(raw=oid))


def _smallest(folder: str) -> set[str]:
    """Return the smallest packs, at least two, until their total is no longer small."""
    chosen: set[str] = set()
    objects = size = 0
    for stem, (count, bytes_) in sorted(_small_packs(folder).items(), key=lambda item: item[1]):
        if len(chosen) > 1 and (objects > SMALL_OBJECTS or size > SMALL_BYTES):
            break
        chosen.add(stem)
        objects += count
        size += bytes_
    return chosen


def _small_packs(folder: str) -> dict[str, tuple[int, int]]:
    """Return the small, complete packs with their objects and bytes, without those kept until head moves."""
    packs: dict[str, tuple[int, int]] = {}
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in entries}
    for name, entry in names.items():
        stem, _, suffix = name.rpartition(".")
        is_whole = suffix == "pack" and f"{stem}.idx" in names and f"{stem}.keep" not in names
        if is_whole and (size := entry.stat().st_size) < SMALL_BYTES:
            with open(os.path.join(folder, f"{stem}.idx"), "rb") as file:
                count = _count(file)
            if 0 < count < SMALL_OBJECTS:
                packs[stem] = (count, size)
    return packs


def _count(file: BinaryIO) -> int:
    """Read the number of objects from the end of an index's fan-out table; 0 if it is truncated."""
    file.seek(_COUNT_AT)
    return int.from_bytes(file.read(4))
