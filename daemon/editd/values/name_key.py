"""The key of a name: the same for all its spellings on a file system that folds names.

A daemon has one workspace, so its folding is set once, before the first glob is parsed. If nothing is folded,
the key of a text is the text. Some file systems distinguish a few of the texts with one key (`ß`, `ss`), and
none has one name for texts with two keys.
"""

from __future__ import annotations

import os
import unicodedata

from editd.values.path import IGNORED

_folding = ""


def set_folding(folding: str) -> None:
    """Set what the workspace's file system ignores in names: `case`, `form`, `case and form`, or nothing."""
    global _folding  # noqa: PLW0603  # one workspace in each process
    _folding = folding


def key_of(text: str) -> str:
    """Return the key of a path or a glob."""
    if not _folding:
        return text
    if _folding == "case":
        return text.casefold()
    if _folding == "case and form":
        return fold(text)
    return unicodedata.normalize("NFC", _decompose(text))  # one character again, for a `?`


def fold(text: str) -> str:
    """Return a text without its letter case and Unicode form, on every file system."""
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", _decompose(text).casefold()))


def _decompose(text: str) -> str:
    """Return a text in NFD, without the characters that a casefolded ext4 ignores."""
    return unicodedata.normalize("NFD", IGNORED.sub("", text))


def is_same_form(name: str, other: str) -> bool:
    """Return whether two texts differ at most in their Unicode form, composed or decomposed."""
    return name == other or unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)


def other_forms(name: str) -> list[str]:
    """Return a name in the Unicode forms that it does not have, composed and decomposed."""
    forms = {unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)}
    return sorted(forms - {name})


def raw_key_of(name: bytes) -> bytes:
    """Return the key of a name in bytes."""
    return key_of(os.fsdecode(name)).encode("utf-8", "surrogateescape")
