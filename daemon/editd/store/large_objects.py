"""Large objects, read without libgit2, which keeps Python's lock for the length of a read.

zlib and hashlib release the lock, so that other clients are served while a file of 60 MB is read. An object
that is missing or damaged here is left to libgit2, which knows every form of storage and names the damage.

Never returns bytes whose SHA-1 is not the id of the object.
"""

from __future__ import annotations

import mmap
import os
import zlib
from typing import TYPE_CHECKING

from editd.store.git_objects import KIND_NUMBERS, KINDS, ObjectKind, Oid, object_id
from editd.store.git_repository import borrowed_folders
from editd.store.packfile import apply_delta, find_offset, read_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.store.packfile import PackEntry

LARGE_BYTES = 1024 * 1024  # libgit2 reads smaller objects within 10 ms
_DELTAS_MAX = 4096  # one upon the other: more are a cycle
_LOOSE_HEAD_BYTES = 64  # of a loose object: its kind and its size


def read_large(store: str, oid: Oid) -> tuple[int, bytes] | None:
    """Return an object's type (gitformat-pack(5)) and its bytes; None if libgit2 must read it."""
    for folder in (os.path.join(store, "objects"), *borrowed_folders(store)):
        try:
            parts = _loose(folder, oid) or _read_packed(folder, oid)
        except (OSError, ValueError, zlib.error):  # an empty file cannot be mapped
            continue
        if parts is not None and object_id(*parts) == oid:
            return KIND_NUMBERS[parts[0]], parts[1]
    return None


def _loose(folder: str, oid: Oid) -> tuple[ObjectKind, bytes] | None:
    name = oid.hex()
    try:
        with open(os.path.join(folder, name[:2], name[2:]), "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return None
    decoder = zlib.decompressobj()
    head, end, begin = decoder.decompress(raw, _LOOSE_HEAD_BYTES).partition(b"\0")
    kind, _, size = head.decode("latin-1").partition(" ")
    kinds: dict[str, ObjectKind] = {known: known for known in KINDS.values()}
    if not end or kind not in kinds:
        return None
    content = begin + decoder.decompress(decoder.unconsumed_tail, int(size) + 1)
    return kinds[kind], content


def _read_packed(folder: str, oid: Oid) -> tuple[ObjectKind, bytes] | None:
    packs = os.path.join(folder, "pack")
    for name in sorted(os.listdir(packs)):
        if not name.endswith(".idx"):
            continue
        with _map(os.path.join(packs, name)) as index:
            offset = find_offset(index, oid)
            if offset is not None:
                with _map(os.path.join(packs, name.removesuffix("idx") + "pack")) as pack:
                    return _build(list(_chain(pack, index, offset)))
    return None


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def _chain(pack: mmap.mmap, index: mmap.mmap, offset: int) -> Iterator[PackEntry | None]:
    """Yield the entry at an offset, and the bases of its deltas; None for an entry that is damaged."""
    position: int | None = offset
    for _ in range(_DELTAS_MAX):
        entry = None if position is None else read_entry(pack, position)
        yield entry
        if entry is None or entry.base is None:
            return
        position = find_offset(index, entry.base) if isinstance(entry.base, bytes) else entry.base
    yield None


def _build(chain: list[PackEntry | None]) -> tuple[ObjectKind, bytes] | None:
    """Return the object at the begin of a chain; None if an entry is damaged, or does not fit its base."""
    last = chain.pop()
    if last is None:
        return None
    content: bytes | None = last.content
    while chain and content is not None:
        delta = chain.pop()
        content = None if delta is None else apply_delta(content, delta.content)
    return None if content is None else (KINDS[last.kind], content)
