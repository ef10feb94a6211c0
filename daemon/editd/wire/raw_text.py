"""Texts that hold any bytes: a byte that is not UTF-8 is a surrogate escape (PEP 383).

Python keeps its lock while it converts, and escapes are slow. So a long text is converted in parts, and other
threads run in between.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PART = 16 * 1024  # characters or bytes: a millisecond or two if all of them are escapes


def text_of(raw: bytes) -> str:
    """Return the bytes as text."""
    if len(raw) <= PART or raw.isascii():
        return raw.decode("utf-8", "surrogateescape")
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    parts = [decoder.decode(raw[start : start + PART]) for start in range(0, len(raw), PART)]
    return "".join((*parts, decoder.decode(b"", final=True)))


def has_bytes(text: str) -> bool:
    """Return whether a text of `text_of` has bytes that are not UTF-8."""
    return not text.isascii() and _ESCAPE.search(text) is not None


_ESCAPE = re.compile("[\udc80-\udcff]")


def raw_of(text: str) -> bytes:
    """Return the bytes that `text_of` made a text of. Raises UnicodeEncodeError for half a character."""
    if len(text) <= PART:
        return text.encode("utf-8", "surrogateescape")
    return b"".join(part.encode("utf-8", "surrogateescape") for part in parts_of(text))


def parts_of(text: str) -> Iterator[str]:
    """Divide a text."""
    return (text[start : start + PART] for start in range(0, len(text), PART))
