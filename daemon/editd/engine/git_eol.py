"""Line ends as `git add` converts them, by a file's attributes and core.autocrlf.

The rules are those of git's convert.c (`convert_attrs`, `crlf_to_git`). Other conversions (`filter`, `ident`,
`working-tree-encoding`) are not done: `converted_by` detects them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pygit2

Ends = Literal["as they are", "text", "auto"]

_HARMLESS = frozenset(b"\b\t\n\x0c\r\x1b")
_ODD = bytes({*range(32), 127} - _HARMLESS)


def converted_by(repository: pygit2.Repository, path: str) -> str | None:
    """Return the attribute that makes git convert more than line ends, or None."""
    for name in ("filter", "working-tree-encoding", "ident"):
        value = _attribute(repository, path, name)
        if value not in (None, False):
            return name if value is True else f"{name}={value}"
    return None


def ends_of(repository: pygit2.Repository, path: str) -> Ends:
    """Return how `git add` converts the line ends of the file at `path`."""
    text, eol = _attribute(repository, path, "text"), _attribute(repository, path, "eol")
    if text is None:
        older = _attribute(repository, path, "crlf")
        text = older if older in (True, False, "input") else None
    if text is False:
        return "as they are"
    if text == "auto":
        return "auto"
    if text in (True, "input") or eol in ("lf", "crlf"):
        return "text"
    return "auto" if _autocrlf(repository) else "as they are"


def as_added(content: bytes, ends: Ends, known: bytes | None) -> bytes:
    """Return the blob that `git add` makes of `content`. `known` is the present blob of the path."""
    if ends == "as they are" or b"\r\n" not in content:
        return content
    if ends == "auto" and (is_binary(content) or (known is not None and _has_crlf(known))):
        return content
    return content.replace(b"\r\n", b"\n")


def is_binary(content: bytes) -> bool:
    """Return git's guess: a NUL, a CR without LF, or too many unprintable bytes."""
    if b"\0" in content or content.count(b"\r") != content.count(b"\r\n"):
        return True
    body = content[:-1] if content.endswith(b"\x1a") else content  # an end-of-file mark of DOS is ignored
    odd = len(body) - len(body.translate(None, _ODD))
    printable = len(body) - odd - body.count(b"\r") - body.count(b"\n")
    return printable >> 7 < odd


def _attribute(repository: pygit2.Repository, path: str, name: str) -> str | bool | None:
    value: str | bool | None = repository.get_attr(os.fsencode(path), name)
    return value


def _has_crlf(blob: bytes) -> bool:
    return b"\r\n" in blob and not is_binary(blob)


def _autocrlf(repository: pygit2.Repository) -> bool:
    if "core.autocrlf" not in repository.config:
        return False
    value = str(repository.config["core.autocrlf"]).lower()
    return value == "input" or bool(repository.config.get_bool("core.autocrlf"))
