"""Git's binary patches: a file's content as base85 lines of zlib, whole or as a delta.

The form is from git's apply.c (`parse_binary_hunk`) and its pack deltas (gitformat-pack, "Deltified
representation"). Only the forward half is used; the reverse half is for `git apply -R`.
"""

from __future__ import annotations

import base64
import re
import zlib
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import MalformedEdit, TooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

# zlib expands one byte to at most 1,032, so a message within its size limit could still exhaust memory.
BINARY_BYTES_MAX = 256 << 20

_KIND = re.compile(rb"(literal|delta) (\d{1,12})\r?\n")


class Binary(Struct, frozen=True):
    """A binary hunk: the new content (`literal`), or instructions that build it from the old (`delta`)."""

    content: bytes
    is_delta: bool
    line: int  # in the patch, from 1


def parse_binary(lines: Sequence[bytes], line: int) -> tuple[Binary, int]:
    """Parse the hunk after `GIT binary patch`; return it and its number of lines.

    `line` is the line number of `lines[0]`. Raises MalformedEdit, and TooLarge for content of more
    than BINARY_BYTES_MAX.
    """
    forward, count = _one(lines, line)
    if count < len(lines) and _KIND.fullmatch(lines[count]):
        count += _one(lines[count:], line + count)[1]
    return forward, count


def apply_delta(content: bytes, delta: Binary) -> bytes:
    """Return `content` with `delta` applied; MalformedEdit if the delta does not fit."""
    source_size, position = _size(delta, 0)
    target_size, position = _size(delta, position)
    if source_size != len(content):
        raise _refuse_line(delta.line, f"The binary delta is for {source_size} bytes, not {len(content)}")
    if target_size > BINARY_BYTES_MAX:
        raise _too_large(target_size)
    pieces: list[bytes] = []
    size = 0
    while position < len(delta.content) and size <= target_size:
        piece, position = _instruction(content, delta, position)
        pieces.append(piece)
        size += len(piece)
    if size != target_size:
        raise _refuse_line(delta.line, f"The binary delta makes {size} bytes, not {target_size}")
    return b"".join(pieces)


def _one(lines: Sequence[bytes], line: int) -> tuple[Binary, int]:
    head = _KIND.fullmatch(lines[0]) if lines else None
    if head is None:
        raise _refuse_line(line, "A binary patch begins with `literal` or `delta` and a size")
    size = int(head[2])
    if size > BINARY_BYTES_MAX:
        raise _too_large(size)
    packed: list[bytes] = []
    count = 1
    while count < len(lines) and (row := lines[count].rstrip(b"\r\n")):
        packed.append(_row(row, line + count))
        count += 1
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(b"".join(packed), size + 1)
    except zlib.error as error:
        raise _refuse_line(line, f"The binary patch does not unpack ({error})") from None
    if len(content) != size:
        raise _refuse_line(line, f"The binary patch does not unpack to {size} bytes")
    return Binary(content, head[1] == b"delta", line), min(count + 1, len(lines))


def _row(row: bytes, line: int) -> bytes:
    """Decode one base85 line; its first letter encodes the byte count, A-Z for 1 to 26, a-z for 27 to 52."""
    letter = row[0]
    length = letter - 64 if 65 <= letter <= 90 else letter - 70
    try:
        content = base64.b85decode(row[1:])
    except ValueError:
        content = b""
    if not (chr(letter).isascii() and chr(letter).isalpha() and 0 <= len(content) - length < 4):
        raise _refuse_line(line, "A line of the binary patch is not base85")
    return content[:length]


def _size(delta: Binary, position: int) -> tuple[int, int]:
    """Read a little-endian number in groups of seven bits; return it and the position after it."""
    value = shift = 0
    while position < len(delta.content) and shift < 64:
        byte = delta.content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, position
    raise _refuse_line(delta.line, "The binary delta ends early")


def _instruction(content: bytes, delta: Binary, position: int) -> tuple[bytes, int]:
    """Return the bytes of one instruction (copied from `content`, or literal) and the position after it."""
    code = delta.content[position]
    position += 1
    if not code & 0x80:
        piece = delta.content[position : position + code]
        if not code or len(piece) < code:
            raise _refuse_line(delta.line, "The binary delta ends early")
        return piece, position + code
    numbers = [0] * 7  # four bytes of the offset, then three of the size; zero bytes are omitted
    for bit in range(7):
        if code & 1 << bit:
            if position == len(delta.content):
                raise _refuse_line(delta.line, "The binary delta ends early")
            numbers[bit] = delta.content[position]
            position += 1
    offset, size = int.from_bytes(numbers[:4], "little"), int.from_bytes(numbers[4:], "little") or 0x10000
    if offset + size > len(content):
        raise _refuse_line(delta.line, "The binary delta copies from beyond the end of the file")
    return content[offset : offset + size], position


def _refuse_line(line: int, message: str) -> MalformedEdit:
    return MalformedEdit(
        f"{message} (line {line} of the patch).",
        hint="Make the patch with `git diff --binary` and send it unchanged.",
        data={"line": line},
    )


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"The binary patch makes a file of {size} bytes.",
        hint=f"Write the whole file instead: a binary patch may make at most {BINARY_BYTES_MAX} bytes.",
        data={"size": size, "limit": BINARY_BYTES_MAX},
    )
