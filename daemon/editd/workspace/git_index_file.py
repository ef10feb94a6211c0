"""Git's index file, parsed and never written: entries by path, and required extensions.

Format: gitformat-index(5), versions 2 to 4. All paths are parsed at once, an entry when it is requested.
`GitIndex` decides which entries can be trusted.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from editd.system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct(">4sII")
_ENTRY = struct.Struct(">10I20sH")
_EXTENSION = struct.Struct(">4sI")
_CHECKSUM_BYTES = 20
_FLAGS_AT = _ENTRY.size - 2
_IS_EXTENDED = 0x40  # in the first byte of the flags: two more bytes of them follow


class IndexEntry(NamedTuple):
    """An entry as stored: numbers are cut to 32 bits, and zero if the writer did not know them."""

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
    """An index file at one moment."""

    raw: bytes
    written_ns: int  # its mtime
    offsets: dict[bytes, int]  # by path, the offset of its entry; in a conflict, of the last stage
    required: dict[bytes, bytes]  # by signature, the extensions that a reader must support

    def entry(self, offset: int) -> IndexEntry:
        return IndexEntry._make(_ENTRY.unpack_from(self.raw, offset))


def read_index_file(path: str) -> IndexFile:
    """Read the index at `path`; empty if there is no such file.

    Raises OSError, and ValueError if the file is damaged or has an unknown version.
    """
    try:
        with open_regular(path) as file:
            raw, written_ns = file.read(), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return IndexFile(b"", 0, {}, {})
    try:
        offsets, required = _parse(raw)
    except (struct.error, IndexError) as error:
        raise ValueError("the index is cut short") from error
    return IndexFile(raw, written_ns, offsets, required)


def _parse(raw: bytes) -> tuple[dict[bytes, int], dict[bytes, bytes]]:
    signature, version, count = _HEADER.unpack_from(raw)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index of a known version")
    body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    if any(checksum) and hashlib.sha1(body).digest() != checksum:  # zeros with index.skipHash
        raise ValueError("the index is damaged")
    offsets: dict[bytes, int] = {}
    end = _HEADER.size
    for path, offset, end in (_compressed_entries if version == 4 else _padded_entries)(body, count):  # noqa: B007  # the last `end` is used below
        offsets[path] = offset
    return offsets, dict(_required_extensions(body, end))


def _padded_entries(body: bytes, count: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield path, offset and end of each entry (versions 2 and 3), padded with NULs to a multiple of 8."""
    offset = _HEADER.size
    for _ in range(count):
        name = offset + _ENTRY.size + (2 if body[offset + _FLAGS_AT] & _IS_EXTENDED else 0)
        name_end = body.index(b"\0", name)
        end = offset + (name_end - offset + 8 & ~7)
        yield body[name:name_end], offset, end
        offset = end


def _compressed_entries(body: bytes, count: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield path, offset and end of each entry (version 4).

    An entry has the number of bytes to cut off the previous path, encoded as a pack's offset delta, and the
    bytes to append.
    """
    offset, path = _HEADER.size, b""
    for _ in range(count):
        name = offset + _ENTRY.size + (2 if body[offset + _FLAGS_AT] & _IS_EXTENDED else 0)
        dropped = body[name] & 0x7F
        while body[name] & 0x80:
            name += 1
            dropped = (dropped + 1 << 7) | body[name] & 0x7F
        name_end = body.index(b"\0", name + 1)
        path = path[: len(path) - dropped] + body[name + 1 : name_end]
        yield path, offset, name_end + 1
        offset = name_end + 1


def _required_extensions(body: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the extensions from `offset` on that a reader must support: the first letter is lower case."""
    while offset < len(body):
        signature, size = _EXTENSION.unpack_from(body, offset)
        offset += _EXTENSION.size
        if not signature[:1].isupper():
            yield signature, body[offset : offset + size]
        offset += size
    if offset != len(body):
        raise ValueError("the index is cut short")
