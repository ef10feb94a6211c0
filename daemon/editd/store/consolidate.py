"""Consolidating: many small packs become one, with deltas, so that the store stays quick and small.

Packing writes a pack for each burst of edits. When there are many, the small ones are put together by
libgit2, in the packing process; a pack that is large by then is left alone, so each byte is written anew
only a few times, however long the history.
"""

from __future__ import annotations

import os
import struct
import tempfile
from typing import TYPE_CHECKING

import pygit2

from editd.store.manifest import write_manifest
from editd.system.durable import sync_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKS_MAX = 50  # small ones; git itself begins to repack at 50 packs (gc.autoPackLimit)
SMALL_BYTES = 32 * 1024 * 1024
_FAN_OUT = struct.Struct(">256I")


def consolidate(repository: pygit2.Repository, folder: str) -> None:
    """Put the small packs in `folder`, the store's objects/pack, together if there are many. Raises OSError.

    The new pack is durable before an old one goes; a reader that has an old one open keeps it.
    """
    small = _small_packs(folder)
    if len(small) <= PACKS_MAX:
        return
    with tempfile.TemporaryDirectory(prefix="tmp_", dir=folder) as made:
        repository.pack(made, lambda builder: _add_all(builder, folder, small), n_threads=1)
        for name in sorted(os.listdir(made), key=lambda name: name.endswith(".idx")):  # the index last
            sync_path(os.path.join(made, name))
            os.chmod(os.path.join(made, name), 0o600)
            os.rename(os.path.join(made, name), os.path.join(folder, name))
            small.discard(name.rpartition(".")[0])  # the same objects give the same name
    sync_path(folder)
    write_manifest(os.path.dirname(os.path.dirname(folder)), without=small)
    for name in small:
        for suffix in (".idx", ".pack"):
            os.unlink(os.path.join(folder, name + suffix))


def _add_all(builder: pygit2.PackBuilder, folder: str, names: Iterable[str]) -> None:
    for name in names:
        for oid in _oids(folder, name):
            builder.add(oid)


def _small_packs(folder: str) -> set[str]:
    """The packs that are whole, small, and not kept for a head that has yet to move."""
    found: set[str] = set()
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in entries}
    for name, entry in names.items():
        stem, _, suffix = name.rpartition(".")
        is_whole = suffix == "pack" and f"{stem}.idx" in names and f"{stem}.keep" not in names
        if is_whole and entry.stat().st_size < SMALL_BYTES:
            found.add(stem)
    return found


def _oids(folder: str, name: str) -> Iterator[pygit2.Oid]:
    """The ids of a pack's objects, from its index of version 2 (gitformat-pack(5))."""
    with open(os.path.join(folder, f"{name}.idx"), "rb") as file:
        file.seek(8)
        count = _FAN_OUT.unpack(file.read(_FAN_OUT.size))[-1]
        oids = file.read(20 * count)
    for at in range(0, len(oids), 20):
        yield pygit2.Oid(raw=oids[at : at + 20])
