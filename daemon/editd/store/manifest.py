"""The manifest: the packs that the history rests on, so that one that is missing is missed at once.

Written, durably, before head names what is in a pack and before a pack that was put together with others
goes: a pack that is listed is there. What is there and not listed is left from a crash, and needs nothing.

One line a pack, its name and its bytes; the objects that were lost in damage, one line each; the commit with
which the history begins, once it was compacted; and the SHA-1 of all before.
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
    floor: bytes | None = (
        None  # the commit of `store.history_start`, or of the one before where that has just moved
    )


@contextmanager
def exclusive_lock(store: str) -> Iterator[None]:
    """Waits until nobody else is in here: of processes and of threads, one at a time adds or removes packs.

    Packing, the thread that puts packs together and compaction do so, and each lists all that are there. Not
    to be entered twice, and never for long: packing waits. Raises OSError.
    """
    with _taken(store, _LOCK):
        yield


@contextmanager
def shared_lock(store: str) -> Iterator[None]:
    """While this lasts each pack that is there stays; more may come.

    Who proves them all is in here, and who removes some: before `exclusive_lock`, never within. So a proof,
    however long, holds up nobody who packs. Raises OSError.
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
    """List every whole pack that is there but `without`. `lost` None: what was before.

    Raises OSError, HistoryDamaged.
    """
    if lost is None:
        found = read_manifest(store)
        lost = frozenset() if found is None else found.lost
    lines = [f"pack {name} {size}\n" for name, size in sorted(packs_in(store).items()) if name not in without]
    lines += [f"lost {oid.hex()}\n" for oid in sorted(lost)]
    floor = read_history_start(store).commit
    lines += [] if floor is None else [f"floor {floor.hex()}\n"]
    body = _HEAD + "".join(lines).encode()
    replace_file_durably(os.path.join(store, NAME), body + hashlib.sha1(body).hexdigest().encode() + b"\n")


def drop_packs(store: str, names: Collection[str]) -> None:
    """Remove these packs, the manifest first; within `staying`. Raises OSError, HistoryDamaged."""
    write_manifest(store, without=names)
    folder = os.path.join(store, "objects", "pack")
    for name in names:
        for suffix in (".idx", ".pack"):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name + suffix))
    sync_path(folder)


def read_manifest(store: str) -> Manifest | None:
    """The manifest; None where an earlier version wrote none. Raises HistoryDamaged."""
    path = os.path.join(store, NAME)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    body, said = content[:-41], content[-41:]
    if hashlib.sha1(body).hexdigest().encode() + b"\n" != said or not body.startswith(_HEAD):
        raise HistoryDamaged(
            f"The history is damaged: {path} does not check, so whether all packs are there is not known.",
            hint="No transaction is lost by this. `editctl check --repair` makes it anew.",
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
    """The packs that are there with their index, and their bytes."""
    folder = os.path.join(store, "objects", "pack")
    found: dict[str, int] = {}
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in entries}
    for name, entry in names.items():
        stem, _, suffix = name.rpartition(".")
        if suffix == "pack" and f"{stem}.idx" in names:
            found[stem] = entry.stat().st_size
    return found
