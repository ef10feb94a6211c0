"""Line ends as `git add` makes them of a file in the work tree, by its attributes and core.autocrlf.

The rules are those of git's convert.c (`convert_attrs`, `crlf_to_git`). What else git may convert
(`filter`, `ident`, `working-tree-encoding`) is not done: `converted_by` names it.
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
    """The attribute by which git would convert more of the file than its line ends."""
    for name in ("filter", "working-tree-encoding", "ident"):
        value = _attribute(repository, path, name)
        if value not in (None, False):
            return name if value is True else f"{name}={value}"
    return None


def ends_of(repository: pygit2.Repository, path: str) -> Ends:
    """Which line ends git makes LF in what is added at `path`."""
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
    """What `git add` puts into the blob; `known` is the blob that the path has already."""
    if ends == "as they are" or b"\r\n" not in content:
        return content
    if ends == "auto" and (is_binary(content) or (known is not None and _has_crlf(known))):
        return content
    return content.replace(b"\r\n", b"\n")


def is_binary(content: bytes) -> bool:
    """Git's guess: a NUL, a CR alone, or too much that does not print."""
    if b"\0" in content or content.count(b"\r") != content.count(b"\r\n"):
        return True
    body = content[:-1] if content.endswith(b"\x1a") else content  # DOS's end of file does not count
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
