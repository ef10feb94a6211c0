"""Packs in git's format: reading, also around damage, writing, and cleanup after a killed writer."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import struct
import zlib
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from editd.errors import HistoryDamaged
from editd.store.git_objects import KIND_NUMBERS, KINDS, ObjectKind, Oid, object_id
from editd.store.git_repository import COMPACTING, read_manifest
from editd.system.files import replace_file, sync_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet


# A writer of git packs, without a search for deltas, so that packing keeps up with eight busy clients.
#
# The caller names the earlier version of an object. Usually the two begin and end with the same bytes, and a
# delta of the rest is smaller and takes less time than compressing the whole.
# libgit2's PackBuilder, which searches for deltas, took three times as long in a prototype. It is used when
# packs are combined (`repack`). Format: git's gitformat-pack(5): the pack, and its index of version 2.

_HEADER = struct.Struct(">4sII")
_LARGE = 1 << 31  # larger offsets go into the index's table of 8-byte offsets
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
        header = _entry_header(_BY_OFFSET, len(delta)) + _back_by(self._offset - known[0])
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
    large = [o for o in (entries[oid][0] for oid in oids) if o >= _LARGE]
    places = {offset: _LARGE | number for number, offset in enumerate(large)}
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


# A reader of git packs without git: it finds damage and whole objects, and rebuilds indexes.
#
# It needs no index. It reads the entries one after another, and after a damaged one it searches for the
# next byte by byte. zlib's own checksum distinguishes an entry from noise. Format: git's gitformat-pack(5).
# dulwich 1.2 was measured in its place, with 64 MiB in 8 packs: checksums 120 ms (here 138), 2,000 random
# objects 755 ms (here 647, libgit2 441). It ends at the first damaged byte, and behind it were half of a
# pack's objects. So this reader stays.

_BY_OFFSET, _BY_NAME = 6, 7
_HEADER_BYTES, _TRAILER_BYTES = 12, 20
_CHUNK = 1 << 16
_OBJECT_BYTES_MAX = 1 << 40  # a larger one is noise, and its size may not fit a machine word
_KEPT_BYTES_MAX = 32 << 20  # of the bases of deltas, while a pack is read

FOREIGN = "it is the index of another pack"


class PackEntry(Struct, frozen=True):
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
    (count,) = struct.unpack_from(">I", content, 1028)
    places = 1032 + 24 * count  # after the ids and their checksums
    if len(content) < places + 4 * count + 40:
        raise ValueError("cut off")
    offsets = list(struct.unpack_from(f">{count}I", content, places))
    for number, offset in enumerate(offsets):
        if offset & _LARGE:
            at = places + 4 * count + 8 * (offset & ~_LARGE)
            offsets[number] = int.from_bytes(content[at : at + 8], "big")
    return {
        content[at : at + 20]: offset for at, offset in zip(range(1032, places, 20), offsets, strict=False)
    }


def find_offset(index: bytes | mmap.mmap, oid: Oid) -> int | None:
    """Return the offset of an object by the index of its pack, of version 2; None if it has none."""
    if len(index) < 1072 or index[:8] != b"\xfftOc\0\0\0\2":
        return None
    low = 0 if oid[0] == 0 else _number(index, 8 + 4 * (oid[0] - 1))
    high, count = _number(index, 8 + 4 * oid[0]), _number(index, 1028)
    while low < high:
        middle = (low + high) // 2
        known = index[1032 + 20 * middle : 1052 + 20 * middle]
        if known == oid:
            places = 1032 + 24 * count  # after the ids and their checksums
            offset = _number(index, places + 4 * middle)
            if not offset & _LARGE:
                return offset
            return _number(index, places + 4 * count + 8 * (offset & ~_LARGE), 8)
        low, high = (middle + 1, high) if known < oid else (low, middle)
    return None


def _number(index: bytes | mmap.mmap, at: int, size: int = 4) -> int:
    return int.from_bytes(index[at : at + size], "big")


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
        self._kept: dict[int, tuple[ObjectKind, bytes]] = {}
        self._kept_bytes = 0
        deltas: dict[int | Oid, list[int]] = {}  # by their bases
        for entry in self.entries():
            self._ends[entry.offset] = entry.end
            if entry.base is None:
                self._places.setdefault(object_id(KINDS[entry.kind], entry.content), entry.offset)
            else:
                deltas.setdefault(entry.base, []).append(entry.offset)
        self._resolve(deltas)

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

    def _resolve(self, deltas: dict[int | Oid, list[int]]) -> None:
        """Place the objects made of `deltas`, each after its base, so that each delta is read once.

        An object keeps its first place. Otherwise it could become a base of itself.
        """
        resolved: list[tuple[int, Oid]] = [(offset, oid) for oid, offset in self._places.items()]
        while resolved:
            base, name = resolved.pop()
            for offset in (*deltas.pop(base, ()), *deltas.pop(name, ())):
                content = self._object(offset)
                if content is not None:
                    oid = object_id(*content)
                    self._places.setdefault(oid, offset)
                    resolved.append((offset, oid))

    def _object(self, offset: int) -> tuple[ObjectKind, bytes] | None:
        """Return the object at `offset`; None if it or its base is damaged."""
        deltas: list[tuple[int, bytes]] = []  # from the object back to its last base
        base_offset: int | None = offset
        while base_offset is not None and base_offset not in self._kept:
            entry = read_entry(self._data, base_offset)
            if entry is None:
                return None
            if entry.base is None:
                return self._apply_deltas(KINDS[entry.kind], entry.content, deltas)
            deltas.append((base_offset, entry.content))
            base_offset = self._places.get(entry.base) if isinstance(entry.base, bytes) else entry.base
        return None if base_offset is None else self._apply_deltas(*self._kept[base_offset], deltas)

    def _apply_deltas(
        self, kind: ObjectKind, content: bytes, deltas: list[tuple[int, bytes]]
    ) -> tuple[ObjectKind, bytes] | None:
        """Apply the deltas to a base, the last one first; None if one does not fit."""
        for offset, delta in reversed(deltas):
            made = apply_delta(content, delta)
            if made is None:
                return None
            content = made
            self._keep(offset, kind, content)
        return kind, content

    def _keep(self, offset: int, kind: ObjectKind, content: bytes) -> None:
        """Keep an object that was made of a delta: others of its chain are made of it."""
        self._kept_bytes += len(content)
        if self._kept_bytes > _KEPT_BYTES_MAX:
            self._kept.clear()
            self._kept_bytes = len(content)
        self._kept[offset] = kind, content

    def entries(self) -> Iterator[PackEntry]:
        """Yield each readable entry in its order. Note the ranges between them in `holes`."""
        self.holes.clear()
        at, end = _HEADER_BYTES, len(self._data) - _TRAILER_BYTES
        hole: int | None = None
        while at < end:
            entry = read_entry(self._data, at)
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


def read_entry(pack: bytes | mmap.mmap, at: int) -> PackEntry | None:
    """Read the entry at an offset; None if it is damaged."""
    head = _head(pack, at)
    if head is None:
        return None
    kind, size, base, start = head
    decoder = zlib.decompressobj()
    parts: list[bytes] = []
    position, length = start, 0
    try:
        while not decoder.eof:
            chunk = pack[position : position + _CHUNK]
            if not chunk:
                return None
            position += len(chunk)
            part = decoder.decompress(chunk, size - length + 1)  # no more than was announced
            length += len(part)
            if length > size:
                return None
            parts.append(part)
    except zlib.error:
        return None
    if length != size:
        return None
    return PackEntry(at, position - len(decoder.unused_data), kind, base, b"".join(parts))


def _head(pack: bytes | mmap.mmap, at: int) -> tuple[int, int, int | Oid | None, int] | None:
    """Parse an entry's kind, size and base, and the offset of its content."""
    head = pack[at : at + 64]
    try:
        byte = head[0]
        kind, size, shift, here = byte >> 4 & 7, byte & 15, 4, 1
        while byte & 0x80:
            byte = head[here]
            size |= (byte & 0x7F) << shift
            shift, here = shift + 7, here + 1
        if size > _OBJECT_BYTES_MAX:
            return None
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
        elif kind not in KINDS:
            return None
    except IndexError:
        return None
    return kind, size, base, at + here


def apply_delta(base: bytes, delta: bytes) -> bytes | None:
    """Apply a delta to its base; None if they do not fit."""
    made: list[bytes] = []
    length = 0
    try:
        base_size, at = _size(delta, 0)
        size, at = _size(delta, at)
        if base_size != len(base):
            return None
        while at < len(delta):
            code = delta[at]
            at += 1
            if code & 0x80:
                start, at = _field(delta, at, code, range(4))
                copied, at = _field(delta, at, code, range(4, 7))
                made.append(base[start : start + (copied or 0x10000)])
            elif code:
                made.append(delta[at : at + code])
                at += code
            else:
                return None
            length += len(made[-1])
            if length > size:
                return None  # before it fills the memory: an instruction of one byte copies 64 KiB
    except IndexError:
        return None
    return b"".join(made) if length == size else None


def _size(delta: bytes, at: int) -> tuple[int, int]:
    """Read a size of seven bits a byte; return it and the offset after it."""
    value = shift = 0
    while True:
        byte = delta[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _field(delta: bytes, at: int, flags: int, bits: range) -> tuple[int, int]:
    """Read a number with a byte for each flag that is set; return it and the offset after it."""
    value = 0
    for number, bit in enumerate(bits):
        if flags & 1 << bit:
            value |= delta[at] << 8 * number
            at += 1
    return value, at


def whole_objects(paths: list[str], is_wanted: Callable[[Oid], bool]) -> Iterator[tuple[Oid, Pack]]:
    """Yield every wanted object that is whole in these packs, with its pack."""
    for path in paths:
        pack = Pack(path)
        for oid in pack:
            if is_wanted(oid):
                yield oid, pack


# Cleanup of the files that a killed packing process has left among the packs, when the next one begins.
#
# A leftover `.keep` would exclude its pack from repacking forever. A pack without an index would use disk
# space forever. The unfinished transactions are still in the journal.

OTHERS = "tmp_gc_"  # files that a compaction may be writing now


def tidy(packs: str) -> None:
    """Remove unfinished files in `packs`, the store's objects/pack. Only for the one packing process.

    A complete pack stays: its objects are in the history, or are packed again. A listed pack without an index
    stays too: that is damage, not a leftover.
    """
    for name in _leavings(packs):
        _remove(packs, name)


def is_tidy(packs: str) -> bool:
    """Return whether `tidy` has nothing to remove. Raises OSError."""
    return next(_leavings(packs), None) is None


def _leavings(packs: str) -> Iterator[str]:
    names = set(os.listdir(packs))
    for stem in _without_index(names):
        if _is_left(packs, stem):
            yield stem + ".pack"
            if stem + ".idx" + UNFINISHED in names:
                yield stem + ".idx" + UNFINISHED
    for name in names:
        is_temporary = name.startswith("tmp_") and not name.startswith(OTHERS)
        if is_temporary or name.endswith((".keep", ".keep" + UNFINISHED)):
            yield name


def _without_index(names: AbstractSet[str]) -> set[str]:
    """Return the packs without an index, which git ignores."""
    stems = {name.removesuffix(".pack") for name in names if name.endswith(".pack")}
    return {stem for stem in stems if f"{stem}.idx" not in names}


def remove_orphans(packs: str) -> None:
    """Remove unlisted packs without an index, which a killed `drop_packs` has left.

    Inside the exclusive lock, where no process is between the two files of a new pack.
    """
    for stem in _without_index(set(os.listdir(packs))):
        if _is_unlisted(packs, stem):
            _remove(packs, stem + ".pack")


def _is_unlisted(packs: str, stem: str) -> bool:
    """Return whether the manifest is sound, and lacks the pack."""
    try:
        manifest = read_manifest(os.path.dirname(os.path.dirname(packs)))
    except HistoryDamaged:
        return False
    return manifest is not None and stem not in manifest.packs


def _is_left(packs: str, stem: str) -> bool:
    """Return whether the pack is certainly unlisted, and no process is writing it."""
    if not _is_unlisted(packs, stem):
        return False
    store = os.path.dirname(os.path.dirname(packs))
    is_being_made = os.path.exists(os.path.join(os.path.dirname(store), COMPACTING))
    return not is_being_made and not os.path.exists(os.path.join(packs, stem + ".idx"))


def _remove(packs: str, name: str) -> None:
    path = os.path.join(packs, name)
    with contextlib.suppress(OSError):  # A file that cannot be removed stays, and is harmless.
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
