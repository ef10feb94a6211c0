"""The text of a file as a person or a model reads it: decoded from the file's own encoding.

The daemon sends a file's bytes, and names their encoding. Bytes that are not UTF-8 are surrogate escapes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from editd.wire.messages import ReadResult

UNKNOWN = (
    "This text is in no known encoding: a byte that is not UTF-8 is shown as \\xNN. "
    "The key `encoding` of the configuration names its encoding."
)
# Characters that hide or reorder text: a reviewer approves the text that is there.
INVISIBLE = "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
HIDDEN = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{INVISIBLE}]")  # in a text of several lines
_MARK = "\ufeff"


def text_of(result: ReadResult) -> str:
    """Return the content, decoded and without its byte-order mark; unchanged if no encoding fits it."""
    text = result.content
    if result.encoding not in (None, "utf-8"):
        text = text.encode("utf-8", "surrogateescape").decode(result.encoding)
    return text.removeprefix(_MARK) if result.bom else text


def readable(text: str) -> str:
    """Return a text with each byte that is not UTF-8 as `\\xff`."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
