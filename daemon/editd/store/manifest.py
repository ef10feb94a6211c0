"""The manifest: the list of the packs of the history, so that a missing pack is detected at once.

Written, durably, before head names a commit in a new pack, and before a combined pack is removed. So every
listed pack exists. An unlisted pack is left from a crash, and harmless.

One line for each pack, with its name and size; one line for each object lost in damage; the commit with which
a compacted history begins; and the SHA-1 of all before.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import HistoryDamaged
from editd.store.history_start import read_history_start
from editd.system.atomic_file import replace_file_durably, sync_path
from editd.system.flock import take

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

NAME = "manifest"
_LOCK = "packs.lock"  # beside the store
_STAYING = "packs.staying"
_HEAD = b"editd manifest 1\n"


class Manifest(Struct, frozen=True):
    packs: dict[str, int]  # name without suffix, and the bytes of the pack
    lost: frozenset[bytes]  # ids of objects that a repair could not bring back
    floor: bytes | None = None  # the commit of `store.history_start`, possibly the previous one


@contextmanager
def exclusive_lock(store: str) -> Iterator[None]:
    """Hold the lock for adding or removing packs, one thread of one process at a time. Raises OSError.

    Packing, repacking and compaction take it, and each lists all packs. Never enter it twice, nor for long:
    packing waits.
    """
    with _taken(store, _LOCK):
        yield


@contextmanager
def shared_lock(store: str) -> Iterator[None]:
    """Hold while verifying or removing packs: no existing pack is removed meanwhile. Raises OSError.

    Acquire before `exclusive_lock`, never inside it. So a verification never delays packing, however long it
    takes.
    """
    with _taken(store, _STAYING):
        yield


@contextmanager
def _taken(store: str, name: str) -> Iterator[None]:
    flock = take(os.path.join(os.path.dirname(store), name), wait=True)
    assert flock is not None
    try:
        yield
    finally:
        flock.release()


def write_manifest(
    store: str, *, without: Collection[str] = (), lost: frozenset[bytes] | None = None
) -> None:
    """List every complete pack except `without`. `lost` None keeps the list of lost objects.

    Raises OSError, HistoryDamaged.
    """
    if lost is None:
        manifest = read_manifest(store)
        lost = frozenset() if manifest is None else manifest.lost
    lines = [f"pack {name} {size}\n" for name, size in sorted(packs_in(store).items()) if name not in without]
    lines += [f"lost {oid.hex()}\n" for oid in sorted(lost)]
    floor = read_history_start(store).commit
    lines += [] if floor is None else [f"floor {floor.hex()}\n"]
    body = _HEAD + "".join(lines).encode()
    replace_file_durably(os.path.join(store, NAME), body + hashlib.sha1(body).hexdigest().encode() + b"\n")


def drop_packs(store: str, names: Collection[str]) -> None:
    """Remove these packs, after updating the manifest; inside both locks. Raises OSError, HistoryDamaged."""
    write_manifest(store, without=names)
    folder = os.path.join(store, "objects", "pack")
    for name in names:
        for suffix in (".idx", ".pack"):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name + suffix))
    sync_path(folder)


def read_manifest(store: str) -> Manifest | None:
    """Return the manifest; None if an earlier version wrote none. Raises HistoryDamaged."""
    path = os.path.join(store, NAME)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    body, checksum = content[:-41], content[-41:]
    if hashlib.sha1(body).hexdigest().encode() + b"\n" != checksum or not body.startswith(_HEAD):
        raise HistoryDamaged(
            f"The history is damaged: {path} has a wrong checksum, so a pack may be missing.",
            hint="No transaction is lost by this. `editctl check --repair` rebuilds it.",
            data={"file": path},
        )
    lines = [line.split(" ") for line in body[len(_HEAD) :].decode().splitlines()]
    floors = [bytes.fromhex(line[1]) for line in lines if line[0] == "floor"]
    return Manifest(
        {line[1]: int(line[2]) for line in lines if line[0] == "pack"},
        frozenset(bytes.fromhex(line[1]) for line in lines if line[0] == "lost"),
        floors[0] if floors else None,
    )


def packs_in(store: str) -> dict[str, int]:
    """Return the packs that have an index, with their sizes."""
    folder = os.path.join(store, "objects", "pack")
    packs: dict[str, int] = {}
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in entries}
    for name, entry in names.items():
        stem, _, suffix = name.rpartition(".")
        if suffix == "pack" and f"{stem}.idx" in names:
            packs[stem] = entry.stat().st_size
    return packs
