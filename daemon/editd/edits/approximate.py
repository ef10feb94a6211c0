"""The searches for a block of lines, as in Gemini CLI: by equal lines, or by the edit distance of windows.

Equal lines are so without the white space around them.

Approximately, a window of as many lines as the block is a match if its score is at most `SCORE_MAX`. White
space counts a tenth. Of overlapping matches the best one is taken.

Pure, but slow for a large text of similar lines. So only the worker for searches runs them, within a time
limit: see `Search` in `edits.search`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING

from editd.edits.search import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JS_SPACES = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""The white space of ECMAScript: of `\\s` and of `trim` (ECMA-262, 22.1.3.32)."""
PIECE = 1 << 19  # characters that one call looks at: Python holds its lock until the call ends
SCORE_MAX = 0.1  # the weighted distance for each unit of the block
SPACE_WEIGHT = 0.1
_WITHOUT_SPACES = dict.fromkeys(map(ord, JS_SPACES))


def js_trim(text: str) -> str:
    """Trim as `String.prototype.trim` does, in pieces, so that megabytes of spaces hold no thread up."""
    if len(text) <= PIECE:
        return text.strip(JS_SPACES)
    start, end = 0, len(text)
    while start < end:
        piece = text[start : min(start + PIECE, end)]
        rest = len(piece.lstrip(JS_SPACES))
        start += len(piece) - rest
        if rest:
            break
    while start < end:
        piece = text[max(start, end - PIECE) : end]
        rest = len(piece.rstrip(JS_SPACES))
        end -= len(piece) - rest
        if rest:
            break
    return text[start:end]


def source_lines(text: str) -> list[Span]:
    """Return the lines of `text`, each with its LF.

    A line begins after the last CR, U+2028 or U+2029 in it, because those end a line in ECMAScript. The
    text before that belongs to no line.
    """
    if not any(separator in text for separator in "\r\u2028\u2029"):
        ends = [*accumulate(len(line) + 1 for line in text.split("\n")[:-1])]
        ends += [len(text)] if text and not text.endswith("\n") else []
        return [Span(start, end) for start, end in pairwise([0, *ends])]
    lines: list[Span] = []
    end = 0
    while end < len(text):
        start, end = end, text.find("\n", end) + 1 or len(text)
        first = max(text.rfind(separator, start, end) for separator in "\r\u2028\u2029") + 1 or start
        if first < end:
            lines.append(Span(first, end))
    return lines


def units_of(text: str) -> int:
    """Return the length in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def equal_windows(text: str, block: str, *, skipped: int, matches_max: int) -> list[Span]:
    """Return the windows of `text` whose lines equal the lines of `block`, but for white space around them.

    The next one begins at least `skipped` lines after the end of the last. Stops after `matches_max`.
    """
    wanted = [js_trim(line) for line in block.split("\n")]
    if not all(line in text for line in set(wanted)):
        return []
    lines = source_lines(text)
    index = _LineIndex(text, lines)
    firsts = islice(index.windows(wanted, skipped), matches_max)
    return [Span(lines[first].start, lines[first + len(wanted) - 1].end) for first in firsts]


class _LineIndex:
    """The lines of a text without the white space around them, joined, so that a search is linear.

    Between two lines with other text between them, a line that equals no other separates windows.
    """

    def __init__(self, text: str, lines: Sequence[Span]) -> None:
        parts, position, end = ["\n"], 0, 0
        self._starts: list[int] = []
        for line in lines:
            gap = "\r\n" if line.start != end else ""
            part = gap + js_trim(text[line.start : line.end]) + "\n"
            self._starts.append(position + len(gap))
            parts.append(part)
            position, end = position + len(part), line.end
        self._joined = "".join(parts)

    def windows(self, wanted: Sequence[str], skipped: int) -> Iterator[int]:
        """Yield the first lines of the windows equal to `wanted`, at least `skipped` lines apart."""
        needle = "\n" + "\n".join(wanted) + "\n"
        match_start = self._joined.find(needle)
        while match_start >= 0:
            first = bisect_left(self._starts, match_start)
            yield first
            following = first + len(wanted) + skipped
            is_last = following >= len(self._starts)
            match_start = -1 if is_last else self._joined.find(needle, self._starts[following])


def approximate_matches(text: str, block: str) -> list[Span]:
    """Return the windows of `text` that resemble `block`, from the best to the worst, without overlaps."""
    lines = source_lines(text)
    searched = [_trim(block, line) for line in source_lines(block)]
    size = len(searched)
    scored = sorted((score, start) for start, score in _candidates(text, lines, "\n".join(searched), size))
    taken: dict[int, Span] = {}
    for _, start in scored:
        if not any(near in taken for near in range(start - size + 1, start + size)):
            taken[start] = Span(lines[start].start, lines[start + size - 1].end)
    return list(taken.values())


def _candidates(text: str, lines: Sequence[Span], block: str, size: int) -> Iterator[tuple[int, float]]:
    """Yield the first line and the score of each window that resembles `block`."""
    goal, bare_goal = _Pattern(block), _Pattern(block.translate(_WITHOUT_SPACES))
    if not goal.length:
        return
    trimmed = [_trim(text, line) for line in lines]
    lengths = [units_of(line) for line in trimmed]
    shared = _SharedUnits(bare_goal)
    length = sum(lengths[: size - 1]) + size - 1  # of the window with its line ends
    for added in range(min(size - 1, len(lines))):
        shared.add(trimmed[added], lengths[added] <= 2 * goal.length)
    last_gap = -1
    for end in range(len(lines)):
        if end and lines[end - 1].end != lines[end].start:
            last_gap = end
        if end < size - 1:
            continue
        start = end - size + 1
        shared.add(trimmed[end], lengths[end] <= 2 * goal.length)
        length += lengths[end]
        if last_gap <= start and abs(length - goal.length) / goal.length <= 1:
            window = "\n".join(trimmed[start : end + 1])
            score = _score(window, goal, bare_goal, shared.common)
            if score is not None:
                yield start, score
        length -= lengths[start]
        shared.remove(trimmed[start], lengths[start] <= 2 * goal.length)


def _score(window: str, goal: _Pattern, bare_goal: _Pattern, common: int) -> float | None:
    """Return the score of the window; None above `SCORE_MAX`."""
    most = int(SCORE_MAX * goal.length / (1 - SPACE_WEIGHT)) + 1  # a larger distance cannot score
    bare = _units(window.translate(_WITHOUT_SPACES))
    if max(len(bare), bare_goal.length) - common > most:
        return None
    bare_distance = bare_goal.distance(bare, most)
    if bare_distance > most:
        return None
    distance = goal.distance(_units(window), 2 * goal.length)
    score = (bare_distance + (distance - bare_distance) * SPACE_WEIGHT) / goal.length
    return score if score <= SCORE_MAX else None


class _Pattern:
    """A text whose edit distance to others is computed bit by bit (Myers, 1999; Hyyrö, 2003)."""

    def __init__(self, text: str) -> None:
        units = _units(text)
        self.length = len(units)
        self.counts = Counter(units)
        self._masks: dict[int, int] = {}
        for index, unit in enumerate(units):
            self._masks[unit] = self._masks.get(unit, 0) | 1 << index

    def distance(self, other: Sequence[int], most: int) -> int:
        """Return the Levenshtein distance, or any number above `most` if it is larger than `most`."""
        if not self.length:
            return len(other)
        everything, last = (1 << self.length) - 1, 1 << self.length - 1
        plus, minus, score, left = everything, 0, self.length, len(other)
        for unit in other:
            equal = self._masks.get(unit, 0)
            vertical = equal | minus
            horizontal = (((equal & plus) + plus) ^ plus) | equal
            increased = minus | (everything & ~(horizontal | plus))
            decreased = plus & horizontal
            score += bool(increased & last) - bool(decreased & last)
            left -= 1
            if score - left > most:
                return score - left
            increased = (increased << 1 | 1) & everything
            decreased = (decreased << 1) & everything
            plus = decreased | (everything & ~(vertical | increased))
            minus = increased & vertical
        return score


class _SharedUnits:
    """The number of units that a sliding window shares with a pattern, in any order."""

    def __init__(self, pattern: _Pattern) -> None:
        self._wanted = pattern.counts
        self._counts = dict.fromkeys(pattern.counts, 0)
        self.common = 0

    def add(self, line: str, is_counted: bool) -> None:
        self._change(line, 1, is_counted)

    def remove(self, line: str, is_counted: bool) -> None:
        self._change(line, -1, is_counted)

    def _change(self, line: str, sign: int, is_counted: bool) -> None:
        """Count the units of a line, unless it is too long for any window."""
        if not is_counted:
            return
        for unit, count in Counter(_units(line)).items():
            if unit in self._counts:
                before = self._counts[unit]
                after = self._counts[unit] = before + sign * count
                wanted = self._wanted[unit]
                self.common += min(after, wanted) - min(before, wanted)


def _trim(text: str, line: Span) -> str:
    return text[line.start : line.end].rstrip(JS_SPACES)


def _units(text: str) -> Sequence[int]:
    return array("H", text.encode("utf-16-le", "surrogatepass"))
