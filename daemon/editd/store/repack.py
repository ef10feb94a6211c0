"""Consolidating: many small packs become one, with deltas, so that the store stays quick and small.

Packing writes a pack for each burst of edits. When there are many, small ones are put together by libgit2; a
pack that is large by then is left alone, so each byte is written anew only a few times, however long the
history. The search for deltas takes ten times as long as packing did, so it is made in a thread of the
packing process, and packing goes on meanwhile.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from typing import TYPE_CHECKING, BinaryIO

import pygit2

from editd.errors import Refused
from editd.store.git_repository import open_store
from editd.store.manifest import drop_packs, exclusive_lock, shared_lock
from editd.system.atomic_file import sync_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)

PACKS_MAX = 50  # small ones; git itself begins to repack at 50 packs (gc.autoPackLimit)
SMALL_BYTES = 32 * 1024 * 1024
SMALL_OBJECTS = 25_000  # of some 10 KB: ten seconds of a thread, and 100 MB of memory while it works
_NICE = 19
_COUNT_AT = 8 + 255 * 4


class Repacker:
    """Puts small packs together while there are many, in a thread, one lot after the other."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._most = PACKS_MAX
        self._thread: threading.Thread | None = None

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self) -> None:
        """Begin to look whether there are many, unless it is under way."""
        if not self.is_under_way:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # this thread's, on Linux
        try:
            while self._are_many():
                repack(open_store(self._store))
            self._most = PACKS_MAX
        except (Refused, OSError, KeyError, ValueError, pygit2.GitError) as error:
            log.warning("small packs could not be put together: %s", error)  # which goes to the daemon's log
            self._most += PACKS_MAX  # they stay as they are, which does no harm but takes room and time

    def _are_many(self) -> bool:
        with exclusive_lock(self._store):
            return len(_small_packs(_folder_of(self._store))) > self._most


def repack(repository: pygit2.Repository) -> None:
    """Put the smallest packs of the store together. Raises OSError, GitError, Refused.

    The new pack is durable before an old one goes; a reader that has an old one open keeps it.
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
    for name in names:
        for oid in _oids(folder, name):
            builder.add(oid)


def _smallest(folder: str) -> set[str]:
    """Of the small packs the smallest: so many that one that is not small comes of them, but two at least."""
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
    """The packs that are whole, small, and not kept for a head that has yet to move: objects and bytes."""
    found: dict[str, tuple[int, int]] = {}
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in entries}
    for name, entry in names.items():
        stem, _, suffix = name.rpartition(".")
        is_whole = suffix == "pack" and f"{stem}.idx" in names and f"{stem}.keep" not in names
        if is_whole and (size := entry.stat().st_size) < SMALL_BYTES:
            with open(os.path.join(folder, f"{stem}.idx"), "rb") as file:
                count = _count(file)
            if 0 < count < SMALL_OBJECTS:
                found[stem] = (count, size)
    return found


def _oids(folder: str, name: str) -> Iterator[pygit2.Oid]:
    """The ids of a pack's objects, from its index of version 2 (gitformat-pack(5))."""
    with open(os.path.join(folder, f"{name}.idx"), "rb") as file:
        oids = file.read(20 * _count(file))
    for at in range(0, len(oids), 20):
        yield pygit2.Oid(raw=oids[at : at + 20])


def _count(file: BinaryIO) -> int:
    """How many objects an index has, by the end of its fan-out, where its ids begin. 0 if it is cut off."""
    file.seek(_COUNT_AT)
    return int.from_bytes(file.read(4))
