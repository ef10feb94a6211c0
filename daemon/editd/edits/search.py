"""The search for one text in another: exact matches, or the nearest passage.

`occurrences` finds spans, and ignores line ends if there is no exact match. `nearest` serves the refusal
of a search without a match: it returns the most similar passage, and its differences.

Never guesses for the caller: a near passage is only reported, not used. The time is linear in the length
of the text (1 MB in well under 50 ms): only lines that share rare words with the needle are compared, or
parts of words with a short needle.
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from difflib import SequenceMatcher
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from editd.errors import Refused


# Regular expression searches as values: planning never runs a regular expression.
#
# A client's pattern may run forever, and Python's `re` holds the interpreter's lock while it runs. So
# planning calls `SearchSource.matches`, which raises `NeedsSearch` if the result is missing. The caller has
# a worker process run the search, and plans again with its result.

Language = Literal["python", "ecmascript", "approximate", "lines", "tokens"]


class Search(Struct, frozen=True):
    """All matches of `pattern` in `text`, from the left, none overlapping the one before.

    `python`: `re` with DOTALL and MULTILINE. `ecmascript`: a `RegExp` with the flag g. `approximate`: no
    expression, but windows of lines that resemble `pattern`, from the best on (`edits.approximate`). `lines`:
    windows of lines that equal the lines of `pattern` but for white space around them. `tokens`: the tokens
    of `pattern` from the beginning of a line on, with any white space between (`edits.token_pattern`).
    """

    language: Language
    pattern: str
    text: str
    ignore_case: bool = False
    template: str | None = None
    """ecmascript: a replacement as in `String.prototype.replace`, expanded for each match."""
    looks_inside: bool = False
    """python: whether to set `has_inner`, for a match of several lines that contains another match, and
    `twin` of the last match."""
    is_multiline: bool = False
    """ecmascript: whether `^` and `$` match at each line, the flag m."""
    skipped: int = 0
    """lines: the number of lines between two windows, at least."""


class Match(Struct, frozen=True):
    """One match, from `start` up to, not including, `end`, in characters of the text."""

    start: int
    end: int
    groups: tuple[str | None, ...] = ()  # from group 1 on; None for a group outside the match
    expansion: str = ""  # of the template, for this match
    has_inner: bool = False  # see `Search.looks_inside`
    twin: int | None = None  # the start of a match that begins within this one, and ends after it


class NeedsSearch(Exception):
    """The search without whose result planning cannot continue. Internal: never sent to a client."""

    def __init__(self, search: Search) -> None:
        super().__init__(search.pattern)
        self.search = search


class SearchSource(Protocol):
    def matches(self, search: Search) -> tuple[Match, ...]:
        """Return the matches; raises NeedsSearch if there is no result yet, InvalidRegex or Timeout."""
        ...


class SearchResults(Struct, frozen=True):
    """The finished searches with their results."""

    found: Mapping[Search, tuple[Match, ...] | Refused]

    def matches(self, search: Search) -> tuple[Match, ...]:
        if search not in self.found:
            raise NeedsSearch(search)
        answer = self.found[search]
        if isinstance(answer, Exception):
            raise answer
        return answer


LINE_END = re.compile(r"\r\n|\n|\r")

# Limits that keep the search for a near passage linear in the text.
_WORDS_MAX = 32  # words of the needle to search for, the longest first
_HITS_MAX = 64  # places of one word; a more frequent word locates nothing
_SHORT_CHARACTERS_MAX = 80  # of a needle that is also searched by characters and parts of words
_PIECE_CHARACTERS = 3  # of a part of a word
_PIECE_HITS_MAX = 500
_CANDIDATES_MAX = 12  # passages that are compared line by line
_LINES_MAX = 60  # lines of a passage that are compared, and shown
_LINE_CHARACTERS_MAX = 300  # of a line that is compared
_SHOWN_CHARACTERS_MAX = 8000
_EXPLAINED_CHARACTERS_MAX = 1 << 16  # of a needle and a passage whose difference is explained
_PIECE_OF_WORK = 1 << 20  # characters that one call works on: Python holds its lock until the call ends
_RESEMBLES = 0.5  # below this likeness (0 to 1) a passage would only mislead
_RESEMBLES_IN_PART = 0.7  # the same for part of a line


_TEXT = ("text",)  # the difference of a passage that the other kinds do not explain


class Span(Struct, frozen=True, order=True):
    """A range of a text from `start` up to, not including, `end`, in characters."""

    start: int
    end: int


class Nearest(Struct, frozen=True):
    """The passage most similar to the needle: its lines, from 1, both included, and its text."""

    start_line: int
    end_line: int
    text: str
    differs: tuple[str, ...]
    difference: tuple[str, str] | None = None  # the first one: the text as sent, and as in the file

    def to_data(self) -> dict[str, Any]:
        """Return the passage in the form of a refusal's data."""
        passage = {"start_line": self.start_line, "end_line": self.end_line, "text": self.text}
        data: dict[str, Any] = {"nearest": passage, "differs": list(self.differs)}
        if self.difference is not None:
            sent, there = self.difference
            data["difference"] = {
                "sent": sent, "sent_bytes": _hex(sent), "file": there, "file_bytes": _hex(there),
            }  # fmt: skip
        return data


def _hex(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").hex(" ")


def occurrences(text: str, needle: str) -> list[Span]:
    """Return the matches of `needle` in `text` as spans that do not overlap, from the left.

    If there is no exact match, any line end matches any other. A match never begins or ends between the
    CR and the LF of one line end. `needle` must not be empty.
    """
    exact = list(_matches(text, needle))
    if exact or not ("\r" in text or "\r" in needle):
        return exact
    return list(_plain_matches(text, needle))


def _plain_matches(text: str, needle: str) -> Iterator[Span]:
    """Yield the matches of `needle` in `text`. Any line end matches any other."""
    lost = lost_returns(text)
    for span in _matches(with_plain_line_ends(text), with_plain_line_ends(needle)):
        yield Span(span.start + bisect_left(lost, span.start), span.end + bisect_left(lost, span.end))


def places_of(text: str, needle: str) -> list[Span]:
    """Return the exact matches of `needle`, which is not empty, from the left, without overlaps."""
    matches: list[Span] = []
    start = text.find(needle)
    while start >= 0:
        end = start + len(needle)
        matches.append(Span(start, end))
        start = text.find(needle, end)
    return matches


def lost_returns(text: str) -> list[int]:
    """Return the offsets of removed CRs in the text with plain line ends.

    A position after the n-th of these is n characters further right in `text`.
    """
    if "\r" not in text:
        return []
    return [match.start() - index for index, match in enumerate(re.finditer("\r\n", text))]


def with_twin(text: str, spans: Sequence[Span]) -> Sequence[Span]:
    """Return the matches of one needle, and one that overlaps the last: such a match is not unique.

    Line ends of the twin may differ, if a match's line ends may.
    """
    twin = overlapping(text, spans[-1]) if spans else None
    return spans if twin is None else [*spans, twin]


def overlapping(text: str, span: Span) -> Span | None:
    """Return another match of the text of `span` that begins within it, or None."""
    needle = text[span.start : span.end]
    start = text.find(needle, span.start + 1, span.end + len(needle) - 1)
    if start >= 0:
        return Span(start, start + len(needle))
    begin = span.start + (2 if needle.startswith("\r\n") else 1)
    part = text[begin : span.end + 2 * len(needle)] if "\r" in needle or "\r" in text else ""
    for match in islice(_plain_matches(part, needle), 1):
        if begin + match.start < span.end:
            return Span(begin + match.start, begin + match.end)
    return None


def lines_of(text: str, positions: Iterable[int]) -> list[int]:
    """Return the line number, from 1, of each position."""
    starts = line_starts(text)
    return [bisect_right(starts, position) for position in positions]


def line_starts(text: str) -> list[int]:
    """Return the offset of each line; a text that ends with a line end has an empty line after it."""
    if "\r" in text:
        return [0, *(match.end() for match in LINE_END.finditer(text))]
    return [0, *accumulate(len(line) + 1 for line in _lines(text)[:-1])]


def _lines(text: str) -> list[str]:
    """Return the lines of a text with plain line ends, as `split` does, in several calls."""
    lines: list[str] = []
    line: list[str] = []  # the parts of the line that goes on
    for start in range(0, len(text), _PIECE_OF_WORK):
        first, *others = text[start : start + _PIECE_OF_WORK].split("\n")
        line.append(first)
        if others:
            lines.append("".join(line))
            line = [others.pop()]
            lines += others
    return [*lines, "".join(line)]


def with_plain_line_ends(text: str) -> str:
    """Return `text` with every line end as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def nearest(text: str, needle: str) -> Nearest | None:
    """Return the passage of `text` that is most similar to `needle`, or None without a similar one.

    Line numbers before the lines of `needle` and escapes in it are ignored if the file does not have them,
    and entities if only one of the two has them: tools add or remove them when they show a file or encode
    a call.
    """
    needle = needle[:_EXPLAINED_CHARACTERS_MAX]
    likeness, near = _nearest(text, needle)
    if near is None or near.differs == _TEXT:
        for kind, variant in _variants(needle):
            other_likeness, other = _nearest(text, variant)
            if other is not None and (other.differs != _TEXT or other_likeness > likeness):
                near = replace(other, differs=(kind, *other.differs))
                break
    return None if near is None else replace(near, difference=_difference(needle, near.text))


def _variants(needle: str) -> Iterator[tuple[str, str]]:
    """Yield the needle without a mistake in each kind of encoding, if it may have one."""
    bare = without_line_numbers(needle)
    if bare is not None:
        yield "line numbers", bare
    plain = _ESCAPE.sub(_unescape, needle)
    if plain != needle:
        yield "escapes", plain
    for plain in (html.unescape(needle), html.escape(needle, quote=False)):
        if plain != needle:
            yield "entities", plain


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[2], 16)) if match[2] else _ESCAPED.get(match[1], match[1])


_ESCAPE = re.compile(r"\\([ntr\"'\\]|u([0-9a-fA-F]{4}))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def _difference(needle: str, passage: str) -> tuple[str, str] | None:
    """Return the first difference of a needle from its nearest passage, in both texts."""
    sent, there = needle[:_COMPARED_CHARACTERS_MAX], passage[:_COMPARED_CHARACTERS_MAX]
    changes = [one for one in SequenceMatcher(None, sent, there).get_opcodes() if one[0] != "equal"]
    for kind, start, end, first, last in changes:
        is_around = kind == "insert" and start in (0, len(sent))  # a part of the lines is compared
        if not is_around:
            shown = _SHOWN_DIFFERENCE_MAX
            return sent[start:end][:shown], there[first:last][:shown]
    return None


_COMPARED_CHARACTERS_MAX = 2000
_SHOWN_DIFFERENCE_MAX = 40


# A line number as `cat -n`, `grep -n` and tools for models write it. A number before blanks may also be text.
_LINE_NUMBER = re.compile(r"[ \t]*(\d+)(?:([\t\u2192:|])| ([:|\u2192]) ?| |$)")


def without_line_numbers(needle: str) -> str | None:
    """Return `needle` without the line number before each of its lines; None if it has none."""
    plain = with_plain_line_ends(needle)
    lines = plain.removesuffix("\n").split("\n")
    matches = [match for line in lines if (match := _LINE_NUMBER.match(line)) is not None]
    numbers = [int(match[1]) for match in matches]
    is_counting = len(matches) == len(lines) and all(b == a + 1 for a, b in pairwise(numbers))
    if not is_counting or not (len(matches) > 1 or matches[0][2] or matches[0][3]):
        return None
    rests = [line[match.end() :] for line, match in zip(lines, matches, strict=True)]
    if all(match[2] in (":", "|") for match in matches) and all(rest[:1] in ("", " ") for rest in rests):
        rests = [rest[1:] for rest in rests]
    return "\n".join(rests) + plain[len(plain.removesuffix("\n")) :]


def _nearest(text: str, needle: str) -> tuple[float, Nearest | None]:
    """Return the passage of `text` most similar to `needle`, and their similarity, from 0 to 1."""
    wanted = _fold(with_plain_line_ends(needle)).rstrip("\n").split("\n")[:_LINES_MAX]
    folded = _fold(with_plain_line_ends(text))
    lines = _lines(folded)
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
    """Compare the passages with the most votes; return the best similarity to `wanted` and its first line."""
    candidates = [start for start, _ in votes.most_common(_CANDIDATES_MAX)]
    # Prefer the first of equals, so that the result is deterministic.
    scored = [(_likeness(lines[start : start + len(wanted)], wanted), -start) for start in candidates]
    likeness, negative = max(scored, default=(0.0, 0))
    return likeness, -negative


def differences(needle: str, passage: str) -> tuple[str, ...]:
    """Return the kinds of difference: the keys of `_BLINDNESS`, or `part of a line`.

    Returns `("text",)` if these do not explain it, or if one text is too long to be explained. A needle that
    is only part of a line is compared with that part. It is `part of a line` if it ends a line that goes on
    in the file.
    """
    kinds = list(_BLINDNESS)
    if max(len(needle), len(passage)) >= _EXPLAINED_CHARACTERS_MAX:
        return _TEXT
    if not _is_same(needle, passage, kinds):
        return _TEXT
    for kind in tuple(kinds):
        without = [other for other in kinds if other != kind]
        if _is_same(needle, passage, without):
            kinds = without
    if "line ends" in kinds and _goes_on(needle, passage, kinds):
        kinds[kinds.index("line ends")] = "part of a line"
    return tuple(kinds)


def _goes_on(needle: str, passage: str, kinds: Iterable[str]) -> bool:
    """Return whether the needle ends with a line end, and its last line is longer in the passage."""
    for kind in kinds:
        needle, passage = _BLINDNESS[kind](needle), _BLINDNESS[kind](passage)
    return bool(needle) and needle in passage and needle + "\n" not in passage + "\n"


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
    for quote in _QUOTES:  # many times faster than str.translate for a text with few quotes
        text = text.replace(quote, "'")
    return text


def _with_plain_dashes(text: str) -> str:
    return text if text.isascii() else _DASH.sub("-", text)


def _without_invisible(text: str) -> str:
    return text if text.isascii() else _INVISIBLE.sub("", _NO_BREAK.sub(" ", text))


def _fold(text: str) -> str:
    """Return a text with the same lines, for a search that ignores what an eye may not see."""
    plain = _with_plain_quotes(text)
    pieces = (plain[start : start + _PIECE_OF_WORK] for start in range(0, len(plain), _PIECE_OF_WORK))
    return "".join(_without_invisible(_with_plain_dashes(piece)).lower() for piece in pieces)


_BLINDNESS: Mapping[str, Callable[[str], str]] = {
    "line ends": lambda text: with_plain_line_ends(text).rstrip("\n"),
    "whitespace": lambda text: re.sub(r"(?<=\S)[^\S\n]+(?=\S)", " ", re.sub(r"(?m)[^\S\n]+$", "", text)),
    "indentation": lambda text: re.sub(r"(?m)^[^\S\n]+", "", text),
    "case": str.casefold,
    "quotes": _with_plain_quotes,
    "dashes": _with_plain_dashes,
    "unicode form": lambda text: text if text.isascii() else unicodedata.normalize("NFC", text),
    "invisible character": _without_invisible,
}
_DASH: re.Pattern[str] = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")
_INVISIBLE: re.Pattern[str] = re.compile("[\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_NO_BREAK: re.Pattern[str] = re.compile("[\xa0\u2000-\u200a\u202f\u3000]")


def _is_same(needle: str, passage: str, kinds: Iterable[str]) -> bool:
    for kind in kinds:
        needle, passage = _BLINDNESS[kind](needle), _BLINDNESS[kind](passage)
    return needle in passage


def _votes(folded: str, wanted: list[str]) -> Counter[int]:
    """Return a score for the passage that begins at each line, by the words it shares with the needle."""
    offsets = {word: offset for offset, line in reversed(list(enumerate(wanted))) for word in _words(line)}
    words = sorted(offsets, key=len, reverse=True)[:_WORDS_MAX]
    return _votes_for(folded, {word: offsets[word] for word in words}, _HITS_MAX)


def _votes_by_pieces(folded: str, wanted: list[str]) -> Counter[int]:
    """Return the same scores by shared parts of words and single characters."""
    pieces = {piece: offset for offset, line in reversed(list(enumerate(wanted))) for piece in _pieces(line)}
    return _votes_for(folded, pieces, _PIECE_HITS_MAX)


def _votes_for(folded: str, offsets: Mapping[str, int], hits_max: int) -> Counter[int]:
    """Return the scores by shared texts, each at a line of the needle; long and rare texts count more."""
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
    """Return the similarity of the lines, pair by pair, from 0 to 1."""
    total = 0.0
    for number, (line, goal) in enumerate(zip(lines, wanted, strict=False)):
        is_long = len(line) > _EXPLAINED_CHARACTERS_MAX
        here, there = line if is_long else " ".join(line.split()), " ".join(goal.split())
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
    """Return the similarity of `part` to the best piece of `line` of its length; 0 if it is low."""
    blocks = SequenceMatcher(None, part, line, autojunk=False).get_matching_blocks()
    starts = {max(block.b - block.a, 0) for block in blocks}
    pieces = (line[start : start + len(part)] for start in starts)
    likeness = max(SequenceMatcher(None, piece, part, autojunk=False).ratio() for piece in pieces)
    return likeness if likeness >= _RESEMBLES_IN_PART else 0.0
