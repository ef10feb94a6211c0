"""A writer of git packs, without a search for deltas, so that packing keeps up with eight busy clients.

The caller names the earlier version of an object. Usually the two begin and end with the same bytes, and a
delta of the rest is smaller and takes less time than compressing the whole.
libgit2's PackBuilder, which searches for deltas, took three times as long in a prototype. It is used when
packs are combined (`repack`). Format: git's gitformat-pack(5): the pack, and its index of version 2.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from typing import TYPE_CHECKING, Self

from editd.store.git_objects import KIND_NUMBERS, ObjectKind, Oid, object_id
from editd.system.files import replace_file, sync_path

if TYPE_CHECKING:
    from collections.abc import Mapping

BY_OFFSET = 6  # the kind of an entry that is a delta to an earlier one
_HEADER = struct.Struct(">4sII")
LARGE = 1 << 31  # larger offsets go into the index's table of 8-byte offsets
_COPY_BYTES = 1 << 20
_DELTAS_MAX = 10  # one upon the other: reading such an object takes as many steps
_COPIED_BYTES_MAX = 0xFFFF  # by one instruction of a delta
_INSERTED_BYTES_MAX = 0x7F
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
        self._deltas: dict[Oid, int] = {}  # how many lead from a whole object to this one
        self._offset = _HEADER.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Abandon the pack if an error has kept it from its end."""
        if kind is not None:
            self.abandon()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, oid: Oid) -> bool:
        return oid in self._entries

    def add(
        self,
        kind: ObjectKind,
        content: bytes,
        oid: Oid | None = None,
        before: tuple[Oid, bytes] | None = None,
    ) -> Oid:
        """Add an object, once; return its id. A known `oid` saves the hashing.

        `before` is an earlier version of it, of the same kind. If it is in this pack, a delta to it may be
        written.
        """
        name = object_id(kind, content) if oid is None else oid
        if name in self._entries:
            return name
        delta = None if before is None else self._delta_of(name, content, *before)
        if delta is None:
            packed = _entry_header(KIND_NUMBERS[kind], len(content)) + zlib.compress(content, 1)
        else:
            packed = delta
        self._file.write(packed)
        self._entries[name] = (self._offset, zlib.crc32(packed))
        self._offset += len(packed)
        return name

    def _delta_of(self, name: Oid, content: bytes, base: Oid, base_content: bytes) -> bytes | None:
        """Return the entry of an object as a delta; None if it has to be whole."""
        known, deltas = self._entries.get(base), self._deltas.get(base, 0)
        if known is None or deltas >= _DELTAS_MAX:
            return None
        delta = delta_between(base_content, content)
        if len(delta) > len(content) // 2:
            return None
        self._deltas[name] = deltas + 1
        header = _entry_header(BY_OFFSET, len(delta)) + _back_by(self._offset - known[0])
        return header + zlib.compress(delta, 1)

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
        while chunk := self._file.read(_COPY_BYTES):
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
    large = [o for o in (entries[oid][0] for oid in oids) if o >= LARGE]
    places = {offset: LARGE | number for number, offset in enumerate(large)}
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


def _back_by(distance: int) -> bytes:
    """Encode the distance to the base of a delta, seven bits a byte, the highest first."""
    encoded = [distance & 0x7F]
    while distance := distance >> 7:
        distance -= 1
        encoded.append(distance & 0x7F | 0x80)
    return bytes(reversed(encoded))


def delta_between(base: bytes, content: bytes) -> bytes:
    """Return the delta that makes `content` of `base`, in the form of gitformat-pack(5).

    It copies the common start and end, and inserts the bytes in between.
    """
    start = _common(base, content, min(len(base), len(content)))
    most = min(len(base), len(content)) - start
    end = _common(base[::-1], content[::-1], most) if most else 0
    delta = bytearray(_encoded_size(len(base)) + _encoded_size(len(content)))
    _copy(delta, 0, start)
    for at in range(start, len(content) - end, _INSERTED_BYTES_MAX):
        inserted = content[at : min(at + _INSERTED_BYTES_MAX, len(content) - end)]
        delta.append(len(inserted))
        delta += inserted
    _copy(delta, len(base) - end, end)
    return bytes(delta)


def _common(one: bytes, other: bytes, most: int) -> int:
    """Return with how many equal bytes the two begin, at most `most`."""
    low, high = 0, most  # equal up to `low`
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _copy(delta: bytearray, start: int, length: int) -> None:
    """Add the instructions that copy a range of the base."""
    while length:
        size = min(length, _COPIED_BYTES_MAX)
        flags, arguments = 0x80, bytearray()
        for number, byte in enumerate(
            (start & 0xFFFFFFFF).to_bytes(4, "little") + size.to_bytes(2, "little")
        ):
            if byte:
                flags |= 1 << number
                arguments.append(byte)
        delta.append(flags)
        delta += arguments
        start, length = start + size, length - size


def _encoded_size(size: int) -> bytes:
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
