"""Binary patches in a diff, and their words for a reader: the sizes of the file before and after."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DELTA_HEAD_BYTES = 20  # two sizes of 64 bits, 7 bits a byte


def binary_change(sizes: Sequence[int]) -> str:
    """Return the change of a binary file in words. `sizes` are its new and its old size, if known."""
    if len(sizes) != 2:
        return "binary"
    return f"binary, {sizes[1]:,} → {sizes[0]:,} bytes"


def delta_target(line: str) -> int:
    """Return the size of the file that a binary delta makes, by the first line of its data.

    The delta is compressed, and begins with the sizes of its source and of its target.
    """
    head = zlib.decompressobj().decompress(base64.b85decode(line[1:]), DELTA_HEAD_BYTES)
    sizes, shift = [0], 0
    for byte in head:
        sizes[-1] |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            sizes.append(0)
            shift = 0
    return sizes[1]


def without_binary_patches(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a diff with one line in place of each binary patch.

    A line of content begins with a space, a sign or `@@`, so no content looks like a patch of git.
    """
    sizes: list[int] | None = None
    is_delta = False
    for line in lines:
        if sizes is None:
            if line == "GIT binary patch":
                sizes = []
            else:
                yield line
        elif line.startswith("diff --git "):
            yield binary_change(sizes)
            yield line
            sizes = None
        elif is_delta:
            sizes.append(delta_target(line))
            is_delta = False
        elif line.startswith("literal "):
            sizes.append(int(line.removeprefix("literal ")))
        else:
            is_delta = line.startswith("delta ")
    if sizes is not None:
        yield binary_change(sizes)
