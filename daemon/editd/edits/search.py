"""Where a text stands in another: exactly, or else nearly.

`occurrences` finds spans; line ends do not matter to it unless they must. `nearest` is for the
refusal of a search that found nothing: which passage was probably meant, and in what it differs.

Never guesses for the caller: a near passage is only ever told, not taken. Its time is bounded by
the length of the text (1 MB in well under 50 ms): it looks at lines that share rare words with the
needle, or parts of words with a short one, and at no others.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from difflib import SequenceMatcher
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

LINE_END = re.compile(r"\r\n|\n|\r")

# Limits of the search for a near passage; with these it stays linear in the text.
_WORDS_MAX = 32  # words of the needle that are looked for, the longest first
_HITS_MAX = 64  # a word that is in more places than this says little about where
_SHORT_CHARACTERS_MAX = 80  # of a needle whose single characters and parts of words are looked for, too
_PIECE_CHARACTERS = 3  # of a part of a word
_PIECE_HITS_MAX = 500
_CANDIDATES_MAX = 12  # passages that are compared in earnest
_LINES_MAX = 60  # lines of a passage that are compared, and shown
_LINE_CHARACTERS_MAX = 300  # of a line that is compared
_SHOWN_CHARACTERS_MAX = 8000
_RESEMBLES = 0.5  # below this likeness (0 to 1) a passage would only mislead
_RESEMBLES_IN_PART = 0.7  # the same for part of a line


_TEXT = ("text",)  # what a passage differs in that no single kind of difference explains


class Span(Struct, frozen=True, order=True):
    """`start` up to, not including, `end`, in characters."""

    start: int
    end: int


class Nearest(Struct, frozen=True):
    """The passage most like what was looked for: its lines, from 1, both included, and its text."""

    start_line: int
    end_line: int
    text: str
    differs: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        """The passage as it stands in a refusal's data."""
        place = {"start_line": self.start_line, "end_line": self.end_line, "text": self.text}
        return {"nearest": place, "differs": list(self.differs)}


def occurrences(text: str, needle: str) -> list[Span]:
    """Return where `needle` stands in `text`, as spans that do not overlap, from the left.

    Exactly, where it does that anywhere; else with any line end standing for any other. A match
    never begins or ends between the CR and the LF of one line end. `needle` must not be empty.
    """
    exact = list(_matches(text, needle))
    if exact or not ("\r" in text or "\r" in needle):
        return exact
    lost = lost_returns(text)
    return [
        Span(span.start + bisect_left(lost, span.start), span.end + bisect_left(lost, span.end))
        for span in _matches(with_plain_line_ends(text), with_plain_line_ends(needle))
    ]


def lost_returns(text: str) -> list[int]:
    """Return where the text with plain line ends has lost a CR, as offsets into that text.

    What lies after the n-th of these stands n further right in `text`.
    """
    if "\r" not in text:
        return []
    return [match.start() - index for index, match in enumerate(re.finditer("\r\n", text))]


def overlapping(text: str, span: Span) -> Span | None:
    """Return another place of what stands at `span` that shares characters with it, if there is one."""
    needle = text[span.start : span.end]
    start = text.find(needle, span.start + 1, span.end + len(needle) - 1)
    return None if start < 0 else Span(start, start + len(needle))


def lines_of(text: str, positions: Iterable[int]) -> list[int]:
    """Return the number of the line, from 1, that each position is in."""
    starts = line_starts(text)
    return [bisect_right(starts, position) for position in positions]


def line_starts(text: str) -> list[int]:
    """Return where each line begins; a text that ends with a line end has an empty line after it."""
    if "\r" in text:
        return [0, *(match.end() for match in LINE_END.finditer(text))]
    return [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])]


def with_plain_line_ends(text: str) -> str:
    """Return `text` with every line end as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def nearest(text: str, needle: str) -> Nearest | None:
    """Return the passage of `text` that is most like `needle`, or None where nothing resembles it.

    Line numbers before the lines of `needle` are ignored if the file does not have them: a tool that
    shows files puts them there.
    """
    likeness, near = _nearest(text, needle)
    bare = without_line_numbers(needle)
    if bare is None or (near is not None and near.differs != _TEXT):
        return near
    bare_likeness, bare_near = _nearest(text, bare)
    if bare_near is None or (bare_near.differs == _TEXT and bare_likeness < likeness):
        return near
    return replace(bare_near, differs=("line numbers", *bare_near.differs))


# A line number as `cat -n`, `grep -n` and tools for models write it. Blanks alone may be text after a number.
_LINE_NUMBER = re.compile(r"[ \t]*(\d+)(?:([\t\u2192:|])| ([:|\u2192]) ?| |$)")


def without_line_numbers(needle: str) -> str | None:
    """Return `needle` without the line number before each of its lines; None if it has none."""
    plain = with_plain_line_ends(needle)
    lines = plain.removesuffix("\n").split("\n")
    found = [match for line in lines if (match := _LINE_NUMBER.match(line)) is not None]
    numbers = [int(match[1]) for match in found]
    is_counting = len(found) == len(lines) and all(second == first + 1 for first, second in pairwise(numbers))
    if not is_counting or not (len(found) > 1 or found[0][2] or found[0][3]):
        return None
    rests = [line[match.end() :] for line, match in zip(lines, found, strict=True)]
    if all(match[2] in (":", "|") for match in found) and all(rest[:1] in ("", " ") for rest in rests):
        rests = [rest[1:] for rest in rests]
    return "\n".join(rests) + plain[len(plain.removesuffix("\n")) :]


def _nearest(text: str, needle: str) -> tuple[float, Nearest | None]:
    """Return the passage of `text` that is most like `needle`, and how like it is, from 0 to 1."""
    wanted = _fold(with_plain_line_ends(needle)).rstrip("\n").split("\n")[:_LINES_MAX]
    folded = _fold(with_plain_line_ends(text))
    lines = folded.split("\n")
    likeness, first = _most_like(lines, wanted, _votes(folded, wanted))
    if likeness < _RESEMBLES and len(needle) <= _SHORT_CHARACTERS_MAX:
        likeness, first = _most_like(lines, wanted, _votes_by_pieces(folded, wanted))
    if likeness < _RESEMBLES:
        return likeness, None
    last = min(first + len(wanted), len(lines))  # not included
    starts = [*line_starts(text), len(text)]
    passage = text[starts[first] : starts[last]]
    shown = passage[:_SHOWN_CHARACTERS_MAX]
    return likeness, Nearest(first + 1, last, shown, differences(needle, passage))


def _most_like(lines: Sequence[str], wanted: Sequence[str], votes: Counter[int]) -> tuple[float, int]:
    """Return how like `wanted` the most like of the passages with the most votes is, and its first line."""
    candidates = [start for start, _ in votes.most_common(_CANDIDATES_MAX)]
    # Of equals the first, so that the answer is always the same one.
    scored = [(_likeness(lines[start : start + len(wanted)], wanted), -start) for start in candidates]
    likeness, negative = max(scored, default=(0.0, 0))
    return likeness, -negative


def differences(needle: str, passage: str) -> tuple[str, ...]:
    """Return in what the two differ: of `line ends`, `whitespace`, `indentation`, `case`, `quotes`.

    Those of them that explain all of it, else `("text",)`. A needle that is only part of a line is
    compared with that part.
    """
    kinds = list(_BLINDNESS)
    if not _is_same(needle, passage, kinds):
        return _TEXT
    for kind in tuple(kinds):
        without = [other for other in kinds if other != kind]
        if _is_same(needle, passage, without):
            kinds = without
    return tuple(kinds)


def _matches(text: str, needle: str) -> Iterator[Span]:
    position = text.find(needle)
    while position >= 0:
        end = position + len(needle)
        if _splits_crlf(text, position) or _splits_crlf(text, end):
            end = position + 1
        else:
            yield Span(position, end)
        position = text.find(needle, end)


def _splits_crlf(text: str, position: int) -> bool:
    return position > 0 and text[position - 1 : position + 1] == "\r\n"


_QUOTES = '"`\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\xab\xbb'  # typographic ones of any language


def _with_plain_quotes(text: str) -> str:
    for quote in _QUOTES:  # many times faster than str.translate where few of them are there
        text = text.replace(quote, "'")
    return text


def _fold(text: str) -> str:
    return _with_plain_quotes(text).lower()


_BLINDNESS: Mapping[str, Callable[[str], str]] = {
    "line ends": lambda text: with_plain_line_ends(text).rstrip("\n"),
    "whitespace": lambda text: re.sub(r"(?<=\S)[^\S\n]+(?=\S)", " ", re.sub(r"(?m)[^\S\n]+$", "", text)),
    "indentation": lambda text: re.sub(r"(?m)^[^\S\n]+", "", text),
    "case": str.casefold,
    "quotes": _with_plain_quotes,
}


def _is_same(needle: str, passage: str, kinds: Iterable[str]) -> bool:
    for kind in kinds:
        needle, passage = _BLINDNESS[kind](needle), _BLINDNESS[kind](passage)
    return needle in passage


def _votes(folded: str, wanted: list[str]) -> Counter[int]:
    """Return how much speaks for the passage beginning at each line, by the words it shares."""
    offsets = {word: offset for offset, line in reversed(list(enumerate(wanted))) for word in _words(line)}
    words = sorted(offsets, key=len, reverse=True)[:_WORDS_MAX]
    return _votes_for(folded, {word: offsets[word] for word in words}, _HITS_MAX)


def _votes_by_pieces(folded: str, wanted: list[str]) -> Counter[int]:
    """Return the same by the parts of words and the single characters that it shares."""
    pieces = {piece: offset for offset, line in reversed(list(enumerate(wanted))) for piece in _pieces(line)}
    return _votes_for(folded, pieces, _PIECE_HITS_MAX)


def _votes_for(folded: str, offsets: Mapping[str, int], hits_max: int) -> Counter[int]:
    """Return the votes of texts, each at a line of the needle; the longer and the rarer it is, the more."""
    starts = line_starts(folded)
    votes: Counter[int] = Counter()
    for text, offset in offsets.items():
        hits = list(islice(_matches(folded, text), hits_max))
        for hit in hits:
            start = max(bisect_right(starts, hit.start) - 1 - offset, 0)
            votes[start] += 1 + 1000 * len(text) // len(hits)
    return votes


def _pieces(line: str) -> Iterator[str]:
    yield from re.findall(r"\w+|[^\w\s]", line)
    for word in line.split():
        for start in range(len(word) - _PIECE_CHARACTERS + 1):
            yield word[start : start + _PIECE_CHARACTERS]


def _words(line: str) -> list[str]:
    return re.findall(r"\w{2,}", line[:_LINE_CHARACTERS_MAX]) or line[:_LINE_CHARACTERS_MAX].split()


def _likeness(lines: Sequence[str], wanted: Sequence[str]) -> float:
    """Return from 0 to 1 how like the lines are, each to its opposite number."""
    total = 0.0
    for number, (line, goal) in enumerate(zip(lines, wanted, strict=False)):
        here, there = " ".join(line.split()), " ".join(goal.split())
        if there and there in here:
            total += 1
            continue
        here, there = here[:_LINE_CHARACTERS_MAX], there[:_LINE_CHARACTERS_MAX]
        likeness = SequenceMatcher(None, here, there, autojunk=False).quick_ratio()
        if number in (0, len(wanted) - 1) and len(there) < len(here):
            likeness = max(likeness, _likeness_in_part(here, there))
        total += likeness
    return total / len(wanted)


def _likeness_in_part(line: str, part: str) -> float:
    """Return how like `part` the most like piece of `line` of its length is; 0 if that is not very like."""
    blocks = SequenceMatcher(None, part, line, autojunk=False).get_matching_blocks()
    starts = {max(block.b - block.a, 0) for block in blocks}
    pieces = (line[start : start + len(part)] for start in starts)
    likeness = max(SequenceMatcher(None, piece, part, autojunk=False).ratio() for piece in pieces)
    return likeness if likeness >= _RESEMBLES_IN_PART else 0.0
