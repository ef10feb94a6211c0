"""The form of a text file: its encoding, byte-order mark, line ends and executable bit.

A whole new text from a model keeps the form of the file that it replaces. The bytes of any other writer are
taken as they are, and a warning names each part of the form that they change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.search import with_plain_line_ends
from editd.values.content import ANEW, Text, line_end_of, not_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from editd.values.content import FileState

_MARK = "\ufeff"
_LINE_ENDS: Mapping[str, str] = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
_NAMES: Mapping[str, str] = {"lf": "LF", "crlf": "CR LF", "cr": "CR", "mixed": "mixed"}


def in_form_of(old: Text, new: str, *, path: str = "") -> bytes:
    """Return the bytes of a whole new text in the form of the old one.

    A file with mixed line ends, or with none, takes the new text's. Raises NotText if the encoding
    lacks a character.
    """
    end = _LINE_ENDS.get(line_end_of(old.text))
    text = new.removeprefix(_MARK)
    if end is not None:
        plain = with_plain_line_ends(text) if end != "\n" else text.replace("\r\n", "\n")
        text = plain.replace("\n", end)
    return old.encode(text, path=path)


def check_form(old: FileState | None, fallback: str | None, *, path: str) -> None:
    """Raise NotText if a new text cannot keep the form of the file, because no known encoding fits it."""
    if old is None or old.is_symlink or Text.decode_if_text(old.content, fallback) is not None:
        return
    raise not_text(old.content, fallback, path=path, also=ANEW)


def form_changes(before: FileState | None, after: FileState | None, fallback: str | None) -> Iterator[str]:
    """Yield a phrase for each part of a file's form that a write of the whole file changes."""
    if before is None or after is None or before.is_symlink or after.is_symlink:
        return
    if before.is_executable != after.is_executable:
        yield "it is executable now" if after.is_executable else "it is no longer executable"
    if before.content == after.content:
        return
    old, new = (Text.decode_if_text(state.content, fallback) for state in (before, after))
    if old is None or new is None:
        if old is not None:
            yield f"its encoding was {old.encoding}, and no known encoding fits it now"
        elif new is not None and not new.text.isascii():
            yield f"no known encoding fitted it before, and it is {new.encoding} now"
        return
    if not before.content:
        return  # an empty file has no form
    if not _fits_encoding(old, new):
        yield f"its encoding was {old.encoding} and is {new.encoding}"
    if bool(old.bom) != bool(new.bom):
        yield "its byte-order mark is gone" if old.bom else "it has a byte-order mark now"
    ends = line_end_of(old.text), line_end_of(new.text)
    if "none" not in ends and ends[0] != ends[1]:
        yield f"its line ends were {_NAMES[ends[0]]} and are {_NAMES[ends[1]]}"


def _fits_encoding(old: Text, new: Text) -> bool:
    """Return whether the bytes of both texts, without their marks, may be of one encoding.

    ASCII alone looks the same in many encodings. A mark decides on the encoding of its file.
    """
    if old.encoding == new.encoding:
        return True
    pairs = [(new, old.encoding)] if old.bom else [(new, old.encoding), (old, new.encoding)]
    return any(_is_same_in(text, encoding) for text, encoding in pairs)


def _is_same_in(text: Text, encoding: str) -> bool:
    try:
        return text.text.encode(encoding) == text.text.encode(text.encoding)
    except UnicodeError:
        return False
