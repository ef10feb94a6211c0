"""Gemini CLI's `replace` of 2026, "smart" and "head": the stages that look for `old_string`.

The stages are exact, flexible (white space around each line), regex (white space between tokens) and fuzzy
(`edits.approximate`). The first one with a match decides. All but the exact one run in the process for
searches, within its time limit.

Replacements are spans, so that a byte outside them never changes. Therefore text before a CR in a line is
kept, `$` in `new_string` is literal, and one of several places is never taken. The lines after a match
stay separate lines, and no blank line is added, unlike in the original.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.edits.approximate import JS_SPACES, js_trim, source_lines, units_of
from editd.edits.replace import Replacement
from editd.edits.search import Search, Span, overlapping, places_of
from editd.tool_api.arguments import has_half_character

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.edits.search import Match

FUZZY_UNITS_MIN = 10  # of an old_string that may be searched approximately
FUZZY_WORK_MAX = 400_000_000  # lines of the file times the square of old_string's length, as in the original
_INDENT = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"[^\S\n]*(?:\n|\Z)")


class StageCall(Struct, frozen=True):
    """The strings of a call, with LF line ends. `original` is `old_string` as given."""

    old: str
    new: str
    original: str
    is_head: bool
    count: float | None  # the expected number of matches; None: any

    @property
    def new_line(self) -> str:
        """`new` without its final line end: the one after a match stays."""
        return self.new.removesuffix("\n")

    @property
    def new_words(self) -> str:
        """`new_line` without the line ends around it that `old` has as well: a match has none of them."""
        lines = self.new_line
        for _ in range(_line_ends_before(self.old)):
            lines = lines.removeprefix("\n")
        for _ in range(_line_ends_before(self.old[::-1]) - 1):
            lines = lines.removesuffix("\n")
        return lines

    @property
    def removes_lines(self) -> bool:
        """Whether whole lines are removed, with their line end."""
        return not self.new and self.old.endswith("\n")

    @property
    def removes_words(self) -> bool:
        """Whether lines are removed with their line end, and only line ends around them may be kept."""
        around = _line_ends_before(self.old) + _line_ends_before(self.old[::-1])
        return self.old.endswith("\n") and not self.new.strip("\n") and len(self.new) < around

    def fits(self, occurrences: int) -> bool:
        return occurrences >= 1 if self.count is None else occurrences == self.count


class StageResult(Struct, frozen=True):
    """The replacements of one stage. `occurrences` is the number that the original counts.

    `places` has the starts of all matches, also of matches that the original skips. `twin` is the start of a
    match that overlaps the last one.
    """

    stage: str
    occurrences: int
    places: tuple[int, ...]
    replacements: tuple[Replacement, ...]
    twin: int | None = None


def run_stages(
    text: str, call: StageCall, search: Callable[[Search], tuple[Match, ...]]
) -> StageResult | None:
    """Return the result of the first stage that finds `old`, or None.

    `search` raises NeedsSearch for a search that has no result yet.
    """
    if has_half_character(call.old):  # no file holds half of a character
        return None
    return (
        _exact(text, call)
        or _flexible(text, call, search)
        or _regex(text, call, search)
        or _fuzzy(text, call, search)
    )


def _exact(text: str, call: StageCall) -> StageResult | None:
    spans = places_of(text, call.old)
    if not spans:
        return None
    twin = overlapping(text, spans[-1])
    return _result(
        "exact", text, call, spans, [call.new] * len(spans), twin=None if twin is None else twin.start
    )


def _flexible(
    text: str, call: StageCall, search: Callable[[Search], tuple[Match, ...]]
) -> StageResult | None:
    if max((js_trim(line) for line in call.old.split("\n")), key=len) not in text:
        return None
    if not search(Search("lines", call.old, text)):
        return None
    # In the original, a blank line after a final line end belongs to the match. Here it decides the stage.
    lines = call.old.removesuffix("\n") or call.old
    matches = kept = search(Search("lines", lines, text))
    last = matches[-1]
    skipped = call.new.count("\n")
    if skipped and len(matches) > 1 and not call.is_head:
        # "Smart" goes on as many lines after a match as the new text has, and so misses some.
        kept = search(Search("lines", lines, text, skipped=skipped))
    windows = [Span(match.start, match.end) for match in kept]
    twin = _overlapping(text, last, lambda rest: search(Search("lines", lines, rest)))
    places = [match.start for match in matches]
    if not call.fits(len(kept)):  # refused by the count alone
        return StageResult("indentation", len(windows), tuple(places), (), twin)
    blocks = [_indent(text, window.start, call.new) for window in windows]
    if call.new:  # otherwise the block and the next line would be one line
        blocks = [
            block + "\n" if text[window.end - 1] == "\n" and not block.endswith("\n") else block
            for window, block in zip(windows, blocks, strict=True)
        ]
    return _result("indentation", text, call, windows, blocks, places=places, twin=twin)


def _regex(text: str, call: StageCall, search: Callable[[Search], tuple[Match, ...]]) -> StageResult | None:
    if not js_trim(call.old):
        return None
    matches = search(Search("tokens", call.old, text))
    if not matches:
        return None
    taken = matches if call.is_head and call.count is None else matches[:1]
    spans, blocks = list[Span](), list[str]()
    for match in taken:
        # A match ends with a word: the line end after it stays in the text, unless the line is removed.
        line_end = _LINE_END.match(text, match.end)
        end = line_end.end() if line_end and call.removes_words else match.end
        new = call.new_words if line_end or call.old.endswith("\n") else call.new
        spans.append(Span(match.start, end))
        blocks.append(_indent(text, match.start, new))
    occurrences = len(matches) if call.is_head else 1
    twin = _overlapping(text, matches[-1], lambda rest: search(Search("tokens", call.old, rest)))
    places = [match.start for match in matches]
    return _result(
        "white_space", text, call, spans, blocks, places=places, occurrences=occurrences, twin=twin
    )


def _overlapping(text: str, last: Match, search: Callable[[str], tuple[Match, ...]]) -> int | None:
    """Return the start of a match that begins at a later line within the last match, or None."""
    rest = text.find("\n", last.start, last.end) + 1
    if not rest or rest >= last.end:
        return None
    later = search(text[rest:])
    return rest + later[0].start if later and rest + later[0].start < last.end else None


def _fuzzy(text: str, call: StageCall, search: Callable[[Search], tuple[Match, ...]]) -> StageResult | None:
    length = units_of(call.original)
    if length < FUZZY_UNITS_MIN or length**2 > FUZZY_WORK_MAX:
        return None
    if len(source_lines(text)) * length**2 > FUZZY_WORK_MAX:
        return None
    matches = search(Search("approximate", call.old, text))
    if not matches:
        return None
    windows = sorted(Span(match.start, match.end) for match in matches)
    blocks = [
        _indent(text, window.start, call.new_line)
        + ("\n" if text[window.end - 1] == "\n" and not call.removes_lines else "")
        for window in windows
    ]
    return _result("approximate", text, call, windows, blocks)


def _line_ends_before(text: str) -> int:
    return len(text) - len(text.lstrip("\n"))


def _result(
    stage: str,
    text: str,
    call: StageCall,
    spans: Sequence[Span],
    blocks: Sequence[str],
    *,
    places: Sequence[int] | None = None,
    occurrences: int | None = None,
    twin: int | None = None,
) -> StageResult:
    replacements = [
        Replacement(span.start, span.end, block) for span, block in zip(spans, blocks, strict=True)
    ]
    return StageResult(
        stage,
        len(spans) if occurrences is None else occurrences,
        tuple(span.start for span in spans) if places is None else tuple(places),
        with_final_newline(text, replacements),
        twin,
    )


def _indent(text: str, start: int, new: str) -> str:
    """Return `new` with the indentation of the text at `start` in place of its own first line's."""
    lines = new.split("\n")
    target, reference = _indent_at(text, start), _indent_at(lines[0], 0)
    return "\n".join(
        ""
        if not js_trim(line)
        else target + (line[len(reference) :] if line.startswith(reference) else line.lstrip(JS_SPACES))
        for line in lines
    )


def _indent_at(text: str, start: int) -> str:
    match = _INDENT.match(text, start)
    return "" if match is None else match.group()


def with_final_newline(text: str, replacements: Sequence[Replacement]) -> tuple[Replacement, ...]:
    """Return the replacements so that the text ends with a LF after them if and only if it did before."""
    rest, touching = list(replacements), list[Replacement]()
    end = len(text)
    while rest and rest[-1].end == end:  # those at the end of the text, which may be empty afterwards
        touching.insert(0, rest.pop())
        end = touching[0].start
    if not touching:
        return tuple(replacements)
    inserted = "".join(replacement.text for replacement in touching)
    before = inserted[-1:] or (rest[-1].text[-1:] if rest and rest[-1].end == end else text[:end][-1:])
    if text.endswith("\n") == (before == "\n"):
        return tuple(replacements)
    if text.endswith("\n"):
        return (*rest, Replacement(end, len(text), inserted + "\n"))
    if inserted:
        return (*rest, Replacement(end, len(text), inserted[:-1]))
    return (*rest, Replacement(end - 1, len(text), ""))
