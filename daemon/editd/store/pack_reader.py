"""A reader of git packs without git: it finds damage and whole objects, and rebuilds indexes.

It needs no index. It reads the entries one after another, and after a damaged one it searches for the next
byte by byte. zlib's own checksum distinguishes an entry from noise. Format: git's gitformat-pack(5).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import zlib
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.store.git_objects import ObjectKind, Oid, object_id
from editd.store.pack_writer import index_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KINDS: dict[int, ObjectKind] = {1: "commit", 2: "tree", 3: "blob"}
_BY_OFFSET, _BY_NAME = 6, 7
_HEADER_BYTES, _TRAILER_BYTES = 12, 20
_CHUNK = 1 << 16

FOREIGN = "it is the index of another pack"


class _Entry(Struct, frozen=True):
    """One entry of the pack: its content, or a delta to its base."""

    offset: int
    end: int
    kind: int
    base: int | Oid | None
    content: bytes


def verify_pack(path: str) -> str | None:
    """Read a pack whole; return its damage as a clause, or None."""
    size = os.path.getsize(path)
    if size < _HEADER_BYTES + _TRAILER_BYTES:
        return f"it is cut off after {size} bytes"
    digest = hashlib.sha1()
    with open(path, "rb") as file:
        head = file.read(8)
        file.seek(0)
        left = size - _TRAILER_BYTES
        while left and (chunk := file.read(min(left, 1 << 20))):
            digest.update(chunk)
            left -= len(chunk)
        trailer = file.read()
    if head != b"PACK\0\0\0\2":
        return "byte 0: its header is no pack's"
    return None if digest.digest() == trailer else "its checksum is wrong"


def verify_index(path: str, pack: str) -> str | None:
    """Read the index of a pack whole; return its damage as a clause, or None."""
    with open(path, "rb") as file:
        content = file.read()
    if len(content) < 1072 or content[:8] != b"\xfftOc\0\0\0\2":
        return "byte 0: its header is no index's, or it is cut off"
    if hashlib.sha1(content[:-20]).digest() != content[-20:]:
        return "its checksum is wrong"
    try:
        with open(pack, "rb") as file:
            file.seek(-_TRAILER_BYTES, os.SEEK_END)
            trailer = file.read()
    except OSError:
        return None  # a fault of the pack, not of the index
    return None if content[-40:-20] == trailer else FOREIGN


def offsets_in(path: str) -> dict[Oid, int]:
    """Return the objects in an index with their offsets. Raises ValueError if it cannot be read."""
    with open(path, "rb") as file:
        content = file.read()
    if len(content) < 1072:
        raise ValueError("cut off")
    count = int.from_bytes(content[1028:1032], "big")
    names, places = 1032, 1032 + 24 * count
    if len(content) < places + 4 * count + 40:
        raise ValueError("cut off")
    offsets: dict[Oid, int] = {}
    for number in range(count):
        place = int.from_bytes(content[places + 4 * number : places + 4 * number + 4], "big")
        if place & 1 << 31:
            large = places + 4 * count + 8 * (place & (1 << 31) - 1)
            place = int.from_bytes(content[large : large + 8], "big")
        offsets[content[names + 20 * number : names + 20 * number + 20]] = place
    return offsets


class Pack:
    """The whole objects of one pack, despite damage in it or in its index."""

    def __init__(self, path: str) -> None:
        """Read the whole pack. Raises OSError."""
        self.path = path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._data: bytes | mmap.mmap = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b""
        self.holes: list[tuple[int, int]] = []  # from, to: ranges without a readable entry
        self._places: dict[Oid, int] = {}
        self._ends: dict[int, int] = {}
        waiting: list[tuple[int, int | Oid]] = []
        for entry in self._entries():
            self._ends[entry.offset] = entry.end
            if entry.base is None:
                self._places[object_id(_KINDS[entry.kind], entry.content)] = entry.offset
            else:
                waiting.append((entry.offset, entry.base))
        while waiting:
            left = [(offset, base) for offset, base in waiting if not self._resolve(offset)]
            if len(left) == len(waiting):
                break  # their bases are gone
            waiting = left

    def close(self) -> None:
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def __iter__(self) -> Iterator[Oid]:
        return iter(tuple(self._places))

    def __contains__(self, oid: Oid) -> bool:
        return oid in self._places

    def read(self, oid: Oid) -> tuple[ObjectKind, bytes]:
        """Return an object's kind and content. KeyError if it is missing or damaged."""
        content = self._object(self._places[oid])
        if content is None:
            raise KeyError(oid)
        return content

    def index(self) -> bytes:
        """Rebuild the index, of version 2, from the pack."""
        entries = {
            oid: (offset, zlib.crc32(self._data[offset : self._ends[offset]]))
            for oid, offset in self._places.items()
        }
        return index_of(entries, bytes(self._data[-_TRAILER_BYTES:]))

    def _resolve(self, offset: int) -> bool:
        content = self._object(offset)
        if content is None:
            return False
        self._places[object_id(*content)] = offset
        return True

    def _object(self, offset: int, depth: int = 0) -> tuple[ObjectKind, bytes] | None:
        """Return the object at `offset`; None if it or its base is damaged."""
        entry = self._entry(offset)
        if entry is None or depth > 4096:
            return None
        if entry.base is None:
            return _KINDS[entry.kind], entry.content
        place = self._places.get(entry.base) if isinstance(entry.base, bytes) else entry.base
        base = None if place is None else self._object(place, depth + 1)
        content = None if base is None else _made_of(base[1], entry.content)
        return None if base is None or content is None else (base[0], content)

    def _entries(self) -> Iterator[_Entry]:
        at, end = _HEADER_BYTES, len(self._data) - _TRAILER_BYTES
        hole: int | None = None
        while at < end:
            entry = self._entry(at)
            if entry is None:
                hole = at if hole is None else hole
                at += 1
                continue
            if hole is not None:
                self.holes.append((hole, at))
                hole = None
            yield entry
            at = entry.end
        if hole is not None:
            self.holes.append((hole, end))

    def _entry(self, at: int) -> _Entry | None:
        head = self._head(at)
        if head is None:
            return None
        kind, size, base, start = head
        decoder = zlib.decompressobj()
        parts: list[bytes] = []
        place, length = start, 0
        try:
            while not decoder.eof:
                chunk = self._data[place : place + _CHUNK]
                if not chunk:
                    return None
                place += len(chunk)
                part = decoder.decompress(chunk)
                length += len(part)
                if length > size:
                    return None
                parts.append(part)
        except zlib.error:
            return None
        if length != size:
            return None
        return _Entry(at, place - len(decoder.unused_data), kind, base, b"".join(parts))

    def _head(self, at: int) -> tuple[int, int, int | Oid | None, int] | None:
        """Parse an entry's kind, size and base, and the offset of its content."""
        head = self._data[at : at + 64]
        try:
            byte = head[0]
            kind, size, shift, here = byte >> 4 & 7, byte & 15, 4, 1
            while byte & 0x80:
                byte = head[here]
                size |= (byte & 0x7F) << shift
                shift, here = shift + 7, here + 1
            base: int | Oid | None = None
            if kind == _BY_NAME:
                base, here = bytes(head[here : here + 20]), here + 20
            elif kind == _BY_OFFSET:
                byte = head[here]
                back, here = byte & 0x7F, here + 1
                while byte & 0x80:
                    byte = head[here]
                    back, here = (back + 1) << 7 | byte & 0x7F, here + 1
                base = at - back
                if not _HEADER_BYTES <= base < at:
                    return None
            elif kind not in _KINDS:
                return None
        except IndexError:
            return None
        return kind, size, base, at + here


def _made_of(base: bytes, delta: bytes) -> bytes | None:
    """Apply a delta to its base; None if they do not fit."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = delta[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not byte & 0x80:
                return value

    def field(flags: int, bits: range) -> int:
        nonlocal at
        value = 0
        for place, bit in enumerate(bits):
            if flags & 1 << bit:
                value |= delta[at] << 8 * place
                at += 1
        return value

    made: list[bytes] = []
    try:
        if number() != len(base):
            return None
        size = number()
        while at < len(delta):
            code = delta[at]
            at += 1
            if code & 0x80:
                start = field(code, range(4))
                length = field(code, range(4, 7)) or 0x10000
                made.append(base[start : start + length])
            elif code:
                made.append(delta[at : at + code])
                at += code
            else:
                return None
    except IndexError:
        return None
    content = b"".join(made)
    return content if len(content) == size else None


def whole_objects(paths: list[str], is_wanted: Callable[[Oid], bool]) -> Iterator[tuple[Oid, Pack]]:
    """Yield every wanted object that is whole in these packs, with its pack."""
    for path in paths:
        pack = Pack(path)
        for oid in pack:
            if is_wanted(oid):
                yield oid, pack
