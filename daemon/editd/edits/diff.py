"""Diffs: the change of one path as a git diff, and the place of a diff's hunk in a file.

`git apply` and `edits.patch` accept the diff. libgit2 computes the hunks (xdiff). The headers are written
here, because libgit2 writes no mode or rename headers for contents outside a repository. Content with a NUL
becomes a git binary patch, or on request the line `Binary files a and b differ`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct
from pygit2.enums import DiffOption

from editd.edits.comparison import limit
from editd.edits.replace import no_match, with_applied_hunk
from editd.errors import NoMatch
from editd.wire.raw_text import has_bytes

if TYPE_CHECKING:
    from editd.values.content import Decoder, FileState
    from editd.values.path import WorkspacePath

_NOTHING = "0" * 40
_ID_DIGITS = 10  # of a version in an index line: for people, no program reads it back


def unified_diff(
    path: WorkspacePath,
    before: FileState | None,
    after: FileState | None,
    path_after: WorkspacePath | None = None,
    *,
    with_binary: bool = True,
    decoder: Decoder | None = None,
) -> str:
    """Return the diff from `before` to `after`; "" if nothing changed.

    Another `path_after` makes it a rename. Bytes that are not UTF-8 become surrogate escapes in the
    text, and C-style escapes in a quoted path, as git writes them. With a `decoder`, text of another
    encoding is decoded, and a header line names the encoding. If no known encoding fits a text, the line is
    `encoding unknown`, and its bytes remain.
    """
    moved_to = path_after or path
    if before is not None and after is not None and before.is_symlink != after.is_symlink:
        # Like git: a change between file and symlink is a deletion and a creation.
        gone = unified_diff(path, before, None, with_binary=with_binary, decoder=decoder)
        return gone + unified_diff(moved_to, None, after, with_binary=with_binary, decoder=decoder)
    if before == after and moved_to == path:
        return ""
    reasons = [state.missing for state in (before, after) if state is not None and state.missing]
    if reasons:
        return _without_content(path, before, after, moved_to, reasons)
    encoding = None if decoder is None else decoder.encoding(before, after)
    if decoder is not None and encoding is not None:
        before, after = decoder.in_utf8(before), decoder.in_utf8(after)
    old, new = quote(f"a/{path.text}"), quote(f"b/{moved_to.text}")
    hunks = _hunks(
        before.content if before else b"",
        after.content if after else b"",
        _name(old) if before else "/dev/null",
        _name(new) if after else "/dev/null",
        with_binary=with_binary,
    )
    if decoder is not None and encoding is None and has_bytes(hunks):
        encoding = "unknown"
    headers = [*_headers(path, before, after, moved_to), *([f"encoding {encoding}"] if encoding else [])]
    return "".join(f"{line}\n" for line in headers) + hunks


def _without_content(
    path: WorkspacePath,
    before: FileState | None,
    after: FileState | None,
    moved_to: WorkspacePath,
    reasons: Sequence[str],
) -> str:
    """Return the header, and after it the reasons why contents are missing.

    It has no hunk, so that no program can apply a reason as a content. Git refuses the line after the header,
    because the header has only a part of the ids.
    """
    headers = _headers(path, before, after, moved_to)
    if before is None or after is None or before.version != after.version:
        old = quote(f"a/{path.text}") if before else "/dev/null"
        new = quote(f"b/{moved_to.text}") if after else "/dev/null"
        headers.append(f"Binary files {old} and {new} differ")
        headers += [f"({reason})" for reason in dict.fromkeys(reasons)]
    return "".join(f"{line}\n" for line in headers)


def line_counts(before: FileState | None, after: FileState | None) -> tuple[int, int]:
    """Return the numbers of lines added and removed; zeros for content that is not text."""
    old, new = (state.content if state else b"" for state in (before, after))
    if old == new or b"\0" in old or b"\0" in new:
        return 0, 0
    return _count_lines(old, new)


@limit(tuple[int, int])
def _count_lines(before: bytes, after: bytes) -> tuple[int, int]:
    _, added, removed = pygit2.Patch.create_from(before, after).line_stats
    return added, removed


def quote(path: str) -> str:
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
    lines = [f"diff --git {quote(f'a/{path.text}')} {quote(f'b/{moved_to.text}')}"]
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
            lines += [f"rename from {quote(path.text)}", f"rename to {quote(moved_to.text)}"]
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
    hunks = _text_patch(before, after)
    try:
        text = hunks.decode()
    except UnicodeDecodeError:
        # Git cuts the heading of a hunk after 80 bytes, possibly inside a character.
        hunks = _HEADING.sub(lambda match: match.group().decode("utf-8", "ignore").encode(), hunks)
        text = hunks.decode("utf-8", "surrogateescape")
    return f"--- {old}\n+++ {new}\n{text}"


@limit(bytes)
def _text_patch(before: bytes, after: bytes) -> bytes:
    whole: bytes = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT).data
    return whole[whole.index(b"\n@@ ") + 1 :]


@limit(str)
def _binary_patch(before: bytes, after: bytes) -> str:
    flags = DiffOption.FORCE_BINARY | DiffOption.SHOW_BINARY
    whole: bytes = pygit2.Patch.create_from(before, after, flag=flags).data
    return whole[whole.index(b"GIT binary patch\n") :].decode("ascii")


_HEADING = re.compile(rb"(?m)^@@ .*$")


# Hunks, and their application to a file's lines: the part of patch(1) that locates a hunk.
#
# A hunk applies at the lines that match its old lines. These places are tried in order:
# 1. the line in its header, shifted by the offset of the previous hunk,
# 2. the start or end of the file, if its context is shorter on that side,
# 3. the match nearest to the line in its header.
# With fuzz, context lines at its ends may be dropped, as in patch(1). Lines match byte for byte; failing
# that, without their line ends.
#
# Unlike patch(1), a hunk with less context on one side may apply in the middle of the file, because its
# old lines match there.
#
# Never changes a byte of a context line, and never guesses a place for a hunk that does not match.

Lines = Sequence[bytes]  # each with its line end; only a file's last may be without


class PatchHunk(Struct, frozen=True):
    """One contiguous part of a patch; `lines` are pairs of a sign (space, `-`, `+`) and a text."""

    number: int  # in its file, from 1
    line: int  # of its header in the patch, from 1
    old_start: int
    lines: tuple[tuple[bytes, bytes], ...]

    def without(self, head: int, tail: int) -> tuple[tuple[bytes, bytes], ...]:
        """Return the lines without the first `head` and the last `tail`."""
        return self.lines[head : len(self.lines) - tail]

    @property
    def context(self) -> tuple[int, int]:
        """The numbers of context lines at its beginning and its end."""
        changed = [index for index, (sign, _) in enumerate(self.lines) if sign != b" "]
        if not changed:
            return len(self.lines), 0
        return changed[0], len(self.lines) - 1 - changed[-1]


class AppliedPatch(Struct, frozen=True):
    """The content after all hunks, and a warning for each hunk that applied with an offset or fuzz."""

    content: bytes
    warnings: tuple[str, ...]


def apply_hunks(
    content: bytes, hunks: Sequence[PatchHunk], *, fuzz: int = 0, path: str = "the file"
) -> AppliedPatch:
    """Apply `hunks` to `content`, in their order; NoMatch for the first that does not match.

    If a hunk matches byte for byte, its new lines are inserted unchanged. Otherwise they take the line
    ends of the lines around them, and a missing final newline stays missing.
    """
    file = _File(_lines_of(content))
    result: list[bytes] = []
    warnings = []
    taken = offset = 0
    for hunk in hunks:
        target = _locate(file, hunk, taken, offset, fuzz)
        if target is None:
            raise _refusal(content, file, hunk, path)
        result += file.lines[taken : target.start]
        result += _put_in(target, file.lines)
        taken = target.start + len(_old(target.lines))
        offset = target.offset
        if target.offset or target.fuzz:
            warnings.append(
                f"Hunk {hunk.number} of {path} was applied at line {target.start + 1} "
                f"({target.offset:+d} lines from its header's line, fuzz {target.fuzz})."
            )
    result += file.lines[taken:]
    return AppliedPatch(_join(result), tuple(warnings))


@dataclass(frozen=True)
class _File:
    lines: Lines

    @cached_property
    def bare(self) -> Lines:
        """The lines without their line ends, for hunks that do not match byte for byte."""
        return [_bare(line) for line in self.lines]


class _Place(Struct, frozen=True):
    """The place of a hunk in the file: its start (from 0), and its lines after fuzz has dropped some."""

    start: int
    lines: Sequence[tuple[bytes, bytes]]
    offset: int
    fuzz: int
    exact: bool


def _locate(file: _File, hunk: PatchHunk, low: int, offset: int, fuzz: int) -> _Place | None:
    leading, trailing = hunk.context
    for dropped in range(min(fuzz, max(leading, trailing)) + 1):
        # As in patch(1), the side with more context loses lines first.
        head = max(0, dropped + leading - max(leading, trailing))
        tail = max(0, dropped + trailing - max(leading, trailing))
        cut = hunk.without(head, tail)
        old = _old(cut)
        named = hunk.old_start - (1 if _old(hunk.lines) else 0) + head
        firsts = [named + offset]
        if leading < trailing and hunk.old_start <= 1:
            firsts.append(0)
        elif trailing < leading:
            firsts.append(len(file.lines) - len(old))
        start = _find(file.lines, old, firsts, low)
        # A hunk without old lines has nothing to match, so it takes the file's line ends.
        exact = start is not None and (bool(old) or not file.lines)
        if start is None:
            start = _find(file.bare, [_bare(line) for line in old], firsts, low)
        if start is not None:
            return _Place(start, cut, start - named, dropped, exact)
    return None


def _find(keys: Lines, goal: Lines, firsts: Sequence[int], low: int) -> int | None:
    """Return the index of `goal` in `keys` from `low` on: at one of `firsts`, or nearest to `firsts[0]`."""
    for start in firsts:
        if low <= start <= len(keys) - len(goal) and keys[start : start + len(goal)] == goal:
            return start
    return min(_places(keys, goal, low), key=lambda start: (abs(start - firsts[0]), -start), default=None)


def _places(keys: Lines, goal: Lines, low: int) -> Iterator[int]:
    """Yield each index of `goal` in `keys`; none for an empty `goal`, which only its line number locates."""
    start, end = low, len(keys) - len(goal) + 1
    while goal and start < end:
        try:
            start = keys.index(goal[0], start, end)
        except ValueError:
            return
        if keys[start : start + len(goal)] == goal:
            yield start
        start += 1


def _put_in(target: _Place, lines: Lines) -> list[bytes]:
    """Return the new lines at `target`: the file's own context lines and the hunk's added lines."""
    result = []
    position = target.start
    end = _end_of(lines[position]) if position < len(lines) else b""
    end = end or _end_of(lines[0] if lines else b"") or b"\n"
    sign = b""
    for sign, text in target.lines:
        if sign == b"+":
            result.append(_bare(text) + end if _end_of(text) and not target.exact else text)
            continue
        if sign == b" ":
            result.append(lines[position])
        end = _end_of(lines[position]) or end
        position += 1
    if target.exact or not result or position < len(lines):
        return result
    if lines and not _end_of(lines[-1]):
        result[-1] = _bare(result[-1])
    return result


def _join(lines: Lines) -> bytes:
    """Join the lines; one without a line end that is no longer the last gets one."""
    end = next(filter(None, map(_end_of, lines)), b"\n")
    return b"".join(line if line.endswith(b"\n") else line + end for line in lines[:-1]) + b"".join(
        lines[-1:]
    )


def _refusal(content: bytes, file: _File, hunk: PatchHunk, path: str) -> NoMatch:
    data = {"path": path, "hunk": hunk.number, "line": hunk.line, "expected_line": hunk.old_start}
    signs = [sign.decode() for sign, _ in hunk.lines]
    new = [_bare(text) for sign, text in hunk.lines if sign != b"-"]
    applied = next(_places(file.bare, new, 0), None)
    if applied is not None:
        refusal = NoMatch(
            f"Hunk {hunk.number} seems to be applied already: see line {applied + 1} of {path}.",
            hint="Leave the hunk out, or read the file again.",
            data=data,
        )
        return with_applied_hunk(refusal, [_decode(line) for line in file.bare], applied, "".join(signs))
    return no_match(
        f"Hunk {hunk.number} (line {hunk.line} of the patch) does not apply to {path}.",
        _decode(content),
        _decode(b"".join(_old(hunk.lines))),
        data,
    )


def _decode(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _old(lines: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    return [text for sign, text in lines if sign != b"+"]


def _lines_of(content: bytes) -> list[bytes]:
    *ended, last = content.split(b"\n")
    return [line + b"\n" for line in ended] + ([last] if last else [])


def _bare(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _end_of(line: bytes) -> bytes:
    return line[len(_bare(line)) :] if line.endswith(b"\n") else b""
