"""The file in which git keeps its index, read and nothing else: entries by path, and what must be understood.

Format: gitformat-index(5), versions 2 to 4. Paths are found at once; an entry is unpacked when it is
asked for. What the entries are worth is for `gitindex` to say.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from editd.system.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct(">4sII")
_ENTRY = struct.Struct(">10I20sH")
_EXTENSION = struct.Struct(">4sI")
_CHECKSUM_BYTES = 20
_FLAGS_AT = _ENTRY.size - 2
_IS_EXTENDED = 0x40  # in the first byte of the flags: two more bytes of them follow


class IndexEntry(NamedTuple):
    """An entry as it is stored: numbers are cut to 32 bits, and zero where a writer knew nothing."""

    ctime_s: int
    ctime_ns: int
    mtime_s: int
    mtime_ns: int
    device: int
    inode: int
    mode: int
    uid: int
    gid: int
    size: int
    oid: bytes
    flags: int


class IndexFile(Struct, frozen=True):
    """An index as it was at one moment."""

    raw: bytes
    written_ns: int  # its mtime
    places: dict[bytes, int]  # where each path's entry begins; of a conflict's stages the last
    required: dict[bytes, bytes]  # the extensions that a reader must understand, by their signatures

    def entry(self, place: int) -> IndexEntry:
        return IndexEntry._make(_ENTRY.unpack_from(self.raw, place))


def read_index_file(path: str) -> IndexFile:
    """Read the index at `path`; an empty one where nothing was ever added.

    Raises OSError, and ValueError where the file is damaged or of a version that is not known.
    """
    try:
        with open_regular(path) as file:
            raw, written_ns = file.read(), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return IndexFile(b"", 0, {}, {})
    try:
        places, required = _parse(raw)
    except (struct.error, IndexError) as error:
        raise ValueError("the index is cut short") from error
    return IndexFile(raw, written_ns, places, required)


def _parse(raw: bytes) -> tuple[dict[bytes, int], dict[bytes, bytes]]:
    signature, version, count = _HEADER.unpack_from(raw)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index of a known version")
    body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    if any(checksum) and hashlib.sha1(body).digest() != checksum:  # zeros: written with index.skipHash
        raise ValueError("the index is damaged")
    places: dict[bytes, int] = {}
    end = _HEADER.size
    for path, place, end in (_compressed if version == 4 else _padded)(body, count):  # noqa: B007  # the last end is wanted
        places[path] = place
    return places, dict(_required(body, end))


def _padded(body: bytes, count: int) -> Iterator[tuple[bytes, int, int]]:
    """Versions 2 and 3: path, place and end of each entry, which is filled with NULs to a multiple of 8."""
    place = _HEADER.size
    for _ in range(count):
        name = place + _ENTRY.size + (2 if body[place + _FLAGS_AT] & _IS_EXTENDED else 0)
        name_end = body.index(b"\0", name)
        end = place + (name_end - place + 8 & ~7)
        yield body[name:name_end], place, end
        place = end


def _compressed(body: bytes, count: int) -> Iterator[tuple[bytes, int, int]]:
    """Version 4: how much to take off the path before, as in a pack's offset delta, and what to put there."""
    place, path = _HEADER.size, b""
    for _ in range(count):
        name = place + _ENTRY.size + (2 if body[place + _FLAGS_AT] & _IS_EXTENDED else 0)
        dropped = body[name] & 0x7F
        while body[name] & 0x80:
            name += 1
            dropped = (dropped + 1 << 7) | body[name] & 0x7F
        name_end = body.index(b"\0", name + 1)
        path = path[: len(path) - dropped] + body[name + 1 : name_end]
        yield path, place, name_end + 1
        place = name_end + 1


def _required(body: bytes, place: int) -> Iterator[tuple[bytes, bytes]]:
    """The extensions from `place` on whose signatures do not begin with a capital letter."""
    while place < len(body):
        signature, size = _EXTENSION.unpack_from(body, place)
        place += _EXTENSION.size
        if not signature[:1].isupper():
            yield signature, body[place : place + size]
        place += size
    if place != len(body):
        raise ValueError("the index is cut short")
