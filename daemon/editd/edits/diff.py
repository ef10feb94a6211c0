"""The change of one path as a git diff, which `git apply` and `edits.patch` accept.

libgit2 computes the hunks (xdiff). The headers are written here, because libgit2 writes no mode or
rename headers for contents outside a repository. Content with a NUL becomes a git binary patch, or on
request the line `Binary files a and b differ`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pygit2
from pygit2.enums import DiffOption

if TYPE_CHECKING:
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath

_NOTHING = "0" * 40
_ID_DIGITS = 10  # of a version in an index line: for people, no program reads it back


def unified(
    path: WorkspacePath,
    before: FileState | None,
    after: FileState | None,
    path_after: WorkspacePath | None = None,
    *,
    with_binary: bool = True,
) -> str:
    """Return the diff from `before` to `after`; "" if nothing changed.

    Another `path_after` makes it a rename. Bytes that are not UTF-8 become surrogate escapes in the
    text, and C-style escapes in a quoted path, as git writes them.
    """
    moved_to = path_after or path
    if before is not None and after is not None and before.is_symlink != after.is_symlink:
        # Like git: a change between file and symlink is a deletion and a creation.
        gone = unified(path, before, None, with_binary=with_binary)
        return gone + unified(moved_to, None, after, with_binary=with_binary)
    if before == after and moved_to == path:
        return ""
    old, new = quoted(f"a/{path.text}"), quoted(f"b/{moved_to.text}")
    return "".join(f"{line}\n" for line in _headers(path, before, after, moved_to)) + _hunks(
        before.content if before else b"",
        after.content if after else b"",
        _name(old) if before else "/dev/null",
        _name(new) if after else "/dev/null",
        with_binary=with_binary,
    )


def line_counts(before: FileState | None, after: FileState | None) -> tuple[int, int]:
    """Return the numbers of lines added and removed; zeros for content that is not text."""
    old, new = (state.content if state else b"" for state in (before, after))
    if old == new or b"\0" in old or b"\0" in new:
        return 0, 0
    _, added, removed = pygit2.Patch.create_from(old, new).line_stats
    return added, removed


def quoted(path: str) -> str:
    """Return `path` as git writes it: in C-style quotes if it holds control characters, `"` or `\\`.

    Unlike git's default, text beyond ASCII stays readable (`core.quotePath=false`).
    """
    if not _ODD.search(path):
        return path
    return '"' + _ODD.sub(lambda match: _ESCAPES.get(match.group()) or _octal(match.group()), path) + '"'


_ODD = re.compile('[\x00-\x1f\x7f"\\\\\udc80-\udcff]')
_ESCAPES = {
    character: f"\\{letter}" for character, letter in zip('"\\\a\b\t\n\v\f\r', '"\\abtnvfr', strict=True)
}


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def _name(path: str) -> str:
    """Return a path for a `---` line; a final tab keeps patch(1) from cutting a name at its first space."""
    return f"{path}\t" if " " in path and not path.startswith('"') else path


def _headers(
    path: WorkspacePath, before: FileState | None, after: FileState | None, moved_to: WorkspacePath
) -> list[str]:
    lines = [f"diff --git {quoted(f'a/{path.text}')} {quoted(f'b/{moved_to.text}')}"]
    kept_mode = ""
    if before is None and after is not None:
        lines.append(f"new file mode {after.mode:o}")
    elif before is not None and after is None:
        lines.append(f"deleted file mode {before.mode:o}")
    elif before is not None and after is not None:
        if before.mode != after.mode:
            lines += [f"old mode {before.mode:o}", f"new mode {after.mode:o}"]
        else:
            kept_mode = f" {after.mode:o}"
        if moved_to != path:
            lines += [f"rename from {quoted(path.text)}", f"rename to {quoted(moved_to.text)}"]
    old, new = (state.version if state else _NOTHING for state in (before, after))
    if old != new:
        # `git apply` accepts a binary patch only with both ids in full.
        digits = len(_NOTHING) if _is_binary(before) or _is_binary(after) else _ID_DIGITS
        lines.append(f"index {old[:digits]}..{new[:digits]}{kept_mode}")
    return lines


def _is_binary(state: FileState | None) -> bool:
    return state is not None and b"\0" in state.content


def _hunks(before: bytes, after: bytes, old: str, new: str, *, with_binary: bool) -> str:
    if before == after:
        return ""
    if b"\0" in before or b"\0" in after:
        if with_binary:
            return _binary_patch(before, after)
        return f"Binary files {old.rstrip()} and {new.rstrip()} differ\n"
    whole: bytes = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT).data
    hunks = whole[whole.index(b"\n@@ ") + 1 :]
    # Git cuts the heading of a hunk after 80 bytes, possibly inside a character.
    hunks = _HEADING.sub(lambda match: match.group().decode("utf-8", "ignore").encode(), hunks)
    return f"--- {old}\n+++ {new}\n" + hunks.decode("utf-8", "surrogateescape")


def _binary_patch(before: bytes, after: bytes) -> str:
    flags = DiffOption.FORCE_BINARY | DiffOption.SHOW_BINARY
    whole: bytes = pygit2.Patch.create_from(before, after, flag=flags).data
    return whole[whole.index(b"GIT binary patch\n") :].decode("ascii")


_HEADING = re.compile(rb"(?m)^@@ .*$")
