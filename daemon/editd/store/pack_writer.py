"""A writer of git packs: every object whole (no deltas), so that packing keeps up with eight busy clients.

libgit2's PackBuilder, which searches for deltas, took three times as long in a prototype. It is used when
packs are combined (`repack`).
Format: git's gitformat-pack(5): the pack, and its index of version 2.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from typing import TYPE_CHECKING

from editd.store.git_objects import ObjectKind, Oid, object_id
from editd.system.atomic_file import replace_file, sync_path

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES: dict[ObjectKind, int] = {"commit": 1, "tree": 2, "blob": 3}
_HEADER = struct.Struct(">4sII")
_LARGE = 1 << 31  # larger offsets go into the index's table of 8-byte offsets
_CHUNK = 1 << 20
UNFINISHED = ".tmp"  # the suffix of an unfinished index or `.keep`


class PackWriter:
    """One unfinished pack, streamed to a temporary file; memory grows only with the number of objects."""

    def __init__(self, folder: str) -> None:
        """Begin a pack in `folder`, the store's objects/pack; create it if missing. Raises OSError."""
        os.makedirs(folder, 0o700, exist_ok=True)
        self._folder = folder
        self._temporary = os.path.join(folder, f"tmp_pack_{os.getpid()}_{id(self):x}")  # git gc removes tmp_*
        try:
            self._file = open(self._temporary, "w+b", opener=_opener)  # noqa: SIM115  # closed by finish or abandon
        except OSError:
            with contextlib.suppress(OSError):  # the open may fail after it has created the file
                os.unlink(self._temporary)
            raise
        self._file.write(_HEADER.pack(b"PACK", 2, 0))
        self._entries: dict[Oid, tuple[int, int]] = {}  # offset, CRC-32 of the packed bytes
        self._offset = _HEADER.size

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, oid: Oid) -> bool:
        return oid in self._entries

    def add(self, kind: ObjectKind, content: bytes, oid: Oid | None = None) -> Oid:
        """Add an object, once; return its id. A known `oid` saves the hashing."""
        name = object_id(kind, content) if oid is None else oid
        if name in self._entries:
            return name
        packed = _entry_header(_TYPES[kind], len(content)) + zlib.compress(content, 1)
        self._file.write(packed)
        self._entries[name] = (self._offset, zlib.crc32(packed))
        self._offset += len(packed)
        return name

    def finish(self, *, keep: bool = False) -> str | None:
        """Make pack and index durable under their names; return `pack-…`, or None for an empty pack.

        With `keep`, no gc touches the pack until `release`. Raises OSError.
        """
        if not self._entries:
            self.abandon()
            return None
        self._file.seek(0)
        self._file.write(_HEADER.pack(b"PACK", 2, len(self._entries)))
        checksum = self._checksum()
        self._file.seek(0, os.SEEK_END)
        self._file.write(checksum)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        name = f"pack-{checksum.hex()}"
        target = os.path.join(self._folder, name)
        if keep:
            replace_file(target + ".keep", b"editd\n", temporary=UNFINISHED)
        os.rename(self._temporary, target + ".pack")  # before its index, without which git ignores it
        replace_file(target + ".idx", index_of(self._entries, checksum), temporary=UNFINISHED)
        sync_path(self._folder)
        return name

    def abandon(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(OSError):  # on a full disk, the buffered bytes cannot be written either
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)

    def _checksum(self) -> bytes:
        self._file.flush()
        self._file.seek(0)
        digest = hashlib.sha1()
        while chunk := self._file.read(_CHUNK):
            digest.update(chunk)
        return digest.digest()


def index_of(entries: Mapping[Oid, tuple[int, int]], checksum: bytes) -> bytes:
    """Return the .idx of version 2: a table of first bytes, then ids, CRCs and offsets in the ids' order.

    `entries` has each object's offset and the CRC-32 of its packed bytes; `checksum` is the pack's.
    """
    oids = sorted(entries)
    counts = [0] * 256
    for oid in oids:
        counts[oid[0]] += 1
    total, fan_out = 0, list[int]()
    for count in counts:
        total += count
        fan_out.append(total)
    large = [o for o in (entries[oid][0] for oid in oids) if o >= _LARGE]
    places = {offset: _LARGE | place for place, offset in enumerate(large)}
    offsets = [places.get(entries[oid][0], entries[oid][0]) for oid in oids]
    body = b"".join(
        (
            b"\xfftOc",
            struct.pack(">I", 2),
            struct.pack(">256I", *fan_out),
            b"".join(oids),
            struct.pack(f">{len(oids)}I", *(entries[oid][1] for oid in oids)),
            struct.pack(f">{len(oids)}I", *offsets),
            struct.pack(f">{len(large)}Q", *large),
            checksum,
        )
    )
    return body + hashlib.sha1(body).digest()


def release(folder: str, name: str) -> None:
    """Remove the `.keep` of a pack that is reachable from head."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, name + ".keep"))


def _entry_header(kind: int, size: int) -> bytes:
    """Encode the type and the size: four bits and then seven at a time, lowest first."""
    byte, size = kind << 4 | size & 15, size >> 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    header.append(byte)
    return bytes(header)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
