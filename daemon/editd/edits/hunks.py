"""Hunks, and their application to a file's lines: the part of patch(1) that locates a hunk.

A hunk applies at the lines that match its old lines. These places are tried in order:
1. the line in its header, shifted by the offset of the previous hunk,
2. the start or end of the file, if its context is shorter on that side,
3. the match nearest to the line in its header.
With fuzz, context lines at its ends may be dropped, as in patch(1). Lines match byte for byte; failing
that, without their line ends.

Unlike patch(1), a hunk with less context on one side may apply in the middle of the file, because its
old lines match there.

Never changes a byte of a context line, and never guesses a place for a hunk that does not match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec import Struct

from editd.edits.replace import no_match, note_applied_hunk
from editd.errors import NoMatch

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
        place = _locate(file, hunk, taken, offset, fuzz)
        if place is None:
            raise _refusal(content, file, hunk, path)
        result += file.lines[taken : place.start]
        result += _put_in(place, file.lines)
        taken = place.start + len(_old(place.lines))
        offset = place.offset
        if place.offset or place.fuzz:
            warnings.append(
                f"Hunk {hunk.number} of {path} was applied at line {place.start + 1} "
                f"({place.offset:+d} lines from its header's line, fuzz {place.fuzz})."
            )
    result += file.lines[taken:]
    return AppliedPatch(_joined(result), tuple(warnings))


@dataclass(frozen=True)
class _File:
    lines: Lines

    @cached_property
    def bare(self) -> Lines:
        """The lines without their line ends, for hunks that do not match byte for byte."""
        return [_bare(line) for line in self.lines]


class _Place(Struct, frozen=True):
    """The place of a hunk in the file: its start (from 0), and its lines without those that fuzz dropped."""

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


def _put_in(place: _Place, lines: Lines) -> list[bytes]:
    """Return the new lines at `place`: the file's own context lines and the hunk's added lines."""
    result = []
    position = place.start
    end = _end_of(lines[position]) if position < len(lines) else b""
    end = end or _end_of(lines[0] if lines else b"") or b"\n"
    sign = b""
    for sign, text in place.lines:
        if sign == b"+":
            result.append(_bare(text) + end if _end_of(text) and not place.exact else text)
            continue
        if sign == b" ":
            result.append(lines[position])
        end = _end_of(lines[position]) or end
        position += 1
    if place.exact or not result or position < len(lines):
        return result
    if lines and not _end_of(lines[-1]):
        result[-1] = _bare(result[-1])
    return result


def _joined(lines: Lines) -> bytes:
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
        note_applied_hunk(refusal, [_shown(line) for line in file.bare], applied, "".join(signs))
        return refusal
    return no_match(
        f"Hunk {hunk.number} (line {hunk.line} of the patch) does not apply to {path}.",
        _shown(content),
        _shown(b"".join(_old(hunk.lines))),
        data,
    )


def _shown(content: bytes) -> str:
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
