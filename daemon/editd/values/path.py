"""A path inside the workspace, by its text alone.

Names are bytes to the kernel and text to people: a `WorkspacePath` is text with the bytes that
are not UTF-8 as surrogate escapes (PEP 383), so that it goes there and back without loss.
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import InvalidParams, PathOutside, PathProtected

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from collections.abc import Set as AbstractSet

NAME_BYTES_MAX = 255  # NAME_MAX of every Linux file system
PATH_BYTES_MAX = 4095  # PATH_MAX less its NUL
TEMPORARY_PREFIX = ".editd-"  # our own files beside their targets; skipped by scan, watcher and users

# Characters that a file system ignores in a comparison of names, so that ".g\u200cit" is ".git" to it. HFS+
# ignores some (git's utf8.c, next_hfs_char), a casefolded ext4 or f2fs all default ignorables of Unicode.
# They are refused everywhere, because a workspace may be copied.
IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_NAME_ENDS = re.compile(
    "[:\udc80-\udcff]"
)  # NTFS ends a name at its stream's name, and git at a byte that is not UTF-8


def _parse(text: str) -> WorkspacePath:
    if not text or "\0" in text:
        raise InvalidParams(
            "A path must not be empty or hold a NUL." if not text else "A path cannot hold a NUL.",
            hint="Give the path relative to the workspace's root.",
        )
    try:
        is_long = len(text) > PATH_BYTES_MAX or len(os.fsencode(text)) > PATH_BYTES_MAX
    except UnicodeEncodeError:
        raise InvalidParams(
            "A path holds a surrogate that encodes no byte.",
            hint="Send names that are not UTF-8 as bytes.",
        ) from None
    if is_long:
        told = {"path": _shorten(text)}
        raise InvalidParams(f"A path is at most {PATH_BYTES_MAX} bytes long.", data=told)
    if text.startswith("/"):
        raise PathOutside(
            f"{_shorten(text)} is absolute.",
            hint="Give the path relative to the workspace's root.",
            data={"path": text},
        )
    for name in text.split("/"):
        _check_name(name, text)
    return WorkspacePath(text)


@functools.lru_cache(maxsize=4096)
def _raw_of(path: WorkspacePath) -> bytes:
    return path.text.encode("utf-8", "surrogateescape")


def forget_bytes_of_paths() -> None:
    """Drop the cache of `WorkspacePath.raw`, after work with many paths."""
    _raw_of.cache_clear()


class WorkspacePath(
    Struct,
    frozen=True,
    order=True,
    cache_hash=True,  # an edit needs some forty hashes
    gc=False,
):
    """A relative path that stays inside the workspace, `/` between names, no `.` or `..`.

    Only `parse` makes one from a client's text, so no holder checks it again. Symbolic links are resolved
    by the workspace, which opens every folder on the way itself.
    """

    text: str

    if TYPE_CHECKING:

        @staticmethod
        def parse(text: str) -> WorkspacePath:
            """Return the path, or refuse it: InvalidParams, PathOutside or PathProtected."""
            ...

        @property
        def raw(self) -> bytes:
            """The path in bytes, for the kernel."""
            ...

    else:
        # The same files are edited again and again, and an edit needs the bytes of its path some ten times.
        parse = staticmethod(functools.lru_cache(maxsize=1024)(_parse))
        raw = property(_raw_of)

    @property
    def folder(self) -> str:
        """The folder's path, or "" for the root."""
        return self.text.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The last of its names."""
        return self.text.rpartition("/")[2]

    def sibling(self, name: str) -> WorkspacePath:
        """Return the path of another name in the same folder. Raises as `parse` does."""
        return WorkspacePath.parse(f"{self.folder}/{name}" if self.folder else name)

    def __str__(self) -> str:
        return self.text


def is_url(text: str) -> bool:
    """Return whether a text is a URL, such as `file:///x`, which names no file in the workspace."""
    return _URL.match(text) is not None


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_link_target(target: bytes) -> bool:
    """Return whether a file system can have a symlink with this target."""
    return b"\0" not in target and 0 < len(target) <= PATH_BYTES_MAX


def folders_of(path: WorkspacePath) -> Iterator[WorkspacePath]:
    """Yield the folders above `path`, the nearest first."""
    folder = path.folder
    while folder:
        yield WorkspacePath(folder)
        folder = folder.rpartition("/")[0]


def ways_down(path: bytes, known: Container[bytes]) -> list[bytes]:
    """Return `path` and its folders below the nearest known one, topmost first.

    The root, b"", is always known.
    """
    ways: list[bytes] = []
    while path and path not in known:
        ways.append(path)
        path = path.rpartition(b"/")[0]
    ways.reverse()
    return ways


def inner(paths: AbstractSet[bytes]) -> set[bytes]:
    """Return the paths that are inside another of them; b"" is the root, which contains all others."""
    inside = {b"": b"" in paths}  # whether a folder is one of the paths, or inside one
    inner_paths: set[bytes] = set()
    for path in paths - {b""}:
        folder = path.rpartition(b"/")[0]
        for way in ways_down(folder, inside):
            inside[way] = inside[way.rpartition(b"/")[0]] or way in paths
        if inside[folder]:
            inner_paths.add(path)
    return inner_paths


def is_among(path: WorkspacePath, places: AbstractSet[WorkspacePath]) -> bool:
    """Whether `path` is one of these, or inside one."""
    return path in places or any(folder in places for folder in folders_of(path))


def is_protected_name(name: str) -> bool:
    """Return whether a file system may take the name for `.git`, in any case and form.

    The forms are all that git itself refuses (its path.c, `is_ntfs_dotgit` and `is_hfs_dotgit`): trailing
    dots and spaces, an alternate stream, the 8.3 name, ignorable code points, and a part of a name that
    Windows would take for a path. Those of a casefolded file system are added.
    """
    if name.isascii() and "git" not in name.lower():
        return False
    folded = IGNORED.sub("", name).casefold()
    return any(_NAME_ENDS.split(part, 1)[0].rstrip(". ") in (".git", "git~1") for part in folded.split("\\"))


def split_path(path: bytes) -> tuple[bytes, bytes]:
    """Split a path into its folder (b"" for the root) and its name."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


def _check_name(name: str, text: str) -> None:
    if name == "..":
        raise PathOutside(
            f"{_shorten(text)} has a `..` in it.",
            hint="Give the path relative to the workspace's root, without `..`.",
            data={"path": text},
        )
    if not name and is_url(text):
        raise InvalidParams(
            f"{_shorten(text)} is a URL.",
            hint="Give the path relative to the workspace's root.",
            data={"path": text},
        )
    if name in ("", "."):
        raise InvalidParams(
            f"{_shorten(text)} has an empty name or a `.` in it.",
            hint="Write it without them, such as `src/main.c`.",
            data={"path": text},
        )
    if is_protected_name(name):
        raise PathProtected(
            f"{_shorten(text)} is in git's own folder.",
            hint="Use git to change `.git`; editd never writes to it.",
            data={"path": text},
        )
    if name.startswith(TEMPORARY_PREFIX):
        raise PathProtected(
            f"{_shorten(text)} is a name that editd keeps for its own temporary files.",
            hint=f"Choose a name that does not begin with `{TEMPORARY_PREFIX}`.",
            data={"path": text},
        )
    if len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise InvalidParams(f"A name is at most {NAME_BYTES_MAX} bytes long.", data={"path": text})


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"
