"""The searches in a text: by expressions of Python or ECMAScript, for lines, tokens, or a text like it."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.edits.approximate import approximate_matches, equal_windows
from editd.edits.search import Match, Search
from editd.edits.token_pattern import token_pattern
from editd.engine.js_regex import SearchLimits, find_js
from editd.engine.search_refusals import invalid, out_of_time, too_large, too_many
from editd.errors import Timeout, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 2.0
BOUNDS = SearchLimits(
    matches_max=100_000,  # planning an edit with so many blocks the daemon for almost a second
    characters_max=64 * 1024 * 1024,  # as much as the largest file
)
MEMORY_BYTES_MAX = 1024 * 1024 * 1024
"""Address space. A search of the largest file, 64 MiB, takes up to half of it for copies of the text: the
frame, Python's text, and the engine's text. The rest is for the state of the match."""
INNER_MAX = 1000  # matches within one, among them `_with_twin` looks for one that ends after it


def search(wanted: Search, seconds: float = SECONDS) -> tuple[Match, ...]:
    """Return all matches. Raises InvalidRegex, TooLarge or Timeout.

    Outside the worker, the time limit applies to ECMAScript only.
    """
    try:
        if wanted.language == "ecmascript":
            return tuple(find_js(wanted, seconds, BOUNDS))
        if wanted.language == "lines":
            return _equal_lines(wanted)
        if wanted.language == "tokens":
            return tuple(_tokens(wanted, seconds))
        if wanted.language == "approximate":
            spans = approximate_matches(wanted.text, wanted.pattern)
            return tuple(Match(span.start, span.end) for span in spans)
        matches = tuple(_python(wanted))
        return _with_twin(wanted, matches) if wanted.looks_inside and matches else matches
    except MemoryError:
        raise too_large(f"more than {MEMORY_BYTES_MAX >> 20} MiB of memory") from None


def _tokens(wanted: Search, seconds: float) -> list[Match]:
    pattern = token_pattern(wanted.pattern)
    expression = replace(wanted, language="ecmascript", pattern=pattern, is_multiline=True)
    try:
        return find_js(expression, seconds, BOUNDS)
    except Timeout:
        raise out_of_time(wanted, seconds) from None


def _equal_lines(wanted: Search) -> tuple[Match, ...]:
    most = BOUNDS.matches_max
    spans = equal_windows(wanted.text, wanted.pattern, skipped=wanted.skipped, matches_max=most + 1)
    if len(spans) > most:
        raise TooLarge(
            f"The lines of the text are in the file more than {most} times.",
            hint="Add lines around the change, so that it names one place.",
            data={"limit": most},
        )
    return tuple(Match(span.start, span.end) for span in spans)


def _python(wanted: Search) -> Iterator[Match]:
    pattern = _compile(wanted)
    characters = 0
    for number, match in enumerate(pattern.finditer(wanted.text)):
        if number == BOUNDS.matches_max:
            raise too_many(BOUNDS.matches_max)
        groups = match.groups()
        characters += sum(len(group) for group in groups if group)
        if characters > BOUNDS.characters_max:
            raise too_large(f"groups of more than {BOUNDS.characters_max} characters")
        yield Match(match.start(), match.end(), groups, has_inner=wanted.looks_inside and _inside(match))


def _inside(match: re.Match[str]) -> bool:
    """Return whether the pattern also matches in a multi-line match without its first character."""
    text = match.group()
    return "\n" in text and match.re.search(text[1:]) is not None


def _with_twin(wanted: Search, matches: tuple[Match, ...]) -> tuple[Match, ...]:
    """Return the matches, with the start of one that overlaps the last, so that the last is not unique."""
    last, pattern = matches[-1], _compile(wanted)
    position = last.start + 1
    for _ in range(INNER_MAX):
        inner = pattern.search(wanted.text, position)
        if inner is None or inner.start() >= last.end:
            break
        if inner.end() > last.end:
            return *matches[:-1], replace(last, twin=inner.start())
        position = inner.start() + 1
    return matches


def _compile(wanted: Search) -> re.Pattern[str]:
    flags = re.DOTALL | re.MULTILINE | (re.IGNORECASE if wanted.ignore_case else 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about syntax that a later Python may change
            return re.compile(wanted.pattern, flags)
    except re.error as error:
        where = "" if error.pos is None else f", at position {error.pos} of the pattern"
        reason, position = error.msg + where, error.pos
    except RecursionError:
        reason, position = "it is nested too deeply", None
    except (OverflowError, ValueError) as error:
        reason, position = str(error), None
    raise invalid(
        f"Invalid regular expression: {reason}.", wanted.pattern, position,
        "Use the syntax of Python's re. Escape a literal special character with a backslash.",
    )  # fmt: skip
