"""The process that runs regular expressions, so that none holds up the daemon.

`python -m editd.engine.regex_worker`, framed messages on stdin and stdout (`system.frames`). It says
`{ready}` when it is warm. Then a request, as `request_of` makes it, is answered by
`{matches: [[start, end, groups, expansion, has_inner]]}` …, the last with `done`, or by
`{refused, message, hint, data}`.

It keeps the time limit itself where it can (Python's `re` looks for signals, QuickJS at its clock),
and goes on. Where it cannot, as while QuickJS compiles, its owner kills it (`server.regex_pool`).
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from editd.edits.regex import Match, Search
from editd.engine import js_regex
from editd.engine.regex_errors import invalid, out_of_time, too_large, too_many
from editd.errors import InvalidRegex, Refused, Timeout, TooLarge
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.system.frames import Frame

SECONDS = 2.0
BOUNDS = js_regex.SearchLimits(
    matches_max=100_000,  # to plan an edit of these holds up the daemon for most of a second
    characters_max=64 * 1024 * 1024,  # as much as the largest file
)
MEMORY_BYTES_MAX = 1024 * 1024 * 1024
"""Of address space. A search of a file of 64 MiB, the largest, takes up to half of it, since the text is
there as a frame, as Python's and as the engine's; the rest is for what the expression remembers."""
PART = 1000  # matches in one frame: the daemon serves others between two

_KINDS: dict[str, type[Refused]] = {kind.code: kind for kind in (InvalidRegex, Timeout, TooLarge)}


def search(wanted: Search, seconds: float = SECONDS) -> tuple[Match, ...]:
    """Return all matches. InvalidRegex, TooLarge; Timeout for ECMAScript, and in the process for any."""
    try:
        if wanted.language == "ecmascript":
            return tuple(js_regex.find(wanted, seconds, BOUNDS))
        return tuple(_python(wanted))
    except MemoryError:
        raise too_large(f"more than {MEMORY_BYTES_MAX >> 20} MiB of memory") from None


def request_of(wanted: Search, seconds: float) -> Frame:
    """The frame that asks the process for a search."""
    return {**asdict(wanted), "seconds": seconds}


def matches_of(answer: Frame) -> list[Match]:
    """The matches of one frame of an answer; raises the Refused that it holds."""
    if "refused" in answer:
        raise _KINDS[answer["refused"]](answer["message"], hint=answer["hint"], data=answer["data"])
    return [Match(start, end, tuple(groups), *rest) for start, end, groups, *rest in answer["matches"]]


def answers(request: Frame) -> Iterator[Frame]:
    """Run one request, within its time; yield the frames of the answer."""
    try:
        seconds = request.pop("seconds")
        matches = _limited(Search(**request), seconds)
    except Refused as refusal:
        yield {
            "refused": refusal.code,
            "message": refusal.message,
            "hint": refusal.hint,
            "data": refusal.data,
        }
        return
    for start in range(0, len(matches), PART):
        yield {"matches": [_row(match) for match in matches[start : start + PART]]}
    yield {"matches": [], "done": True}


def _row(match: Match) -> tuple[object, ...]:
    return match.start, match.end, match.groups, match.expansion, match.has_inner


def _python(wanted: Search) -> Iterator[Match]:
    pattern = _compiled(wanted)
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
    """Does the pattern match anywhere in a match of several lines without its first character?"""
    found = match.group()
    return "\n" in found and match.re.search(found[1:]) is not None


def _compiled(wanted: Search) -> re.Pattern[str]:
    flags = re.DOTALL | re.MULTILINE | (re.IGNORECASE if wanted.ignore_case else 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later Python may read otherwise
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
        "It is to be one of Python's re; a character that is meant as it stands takes a backslash.",
    )  # fmt: skip


# ── The process ────────────────────────────────────────────────────────────────────────────────────


class _OutOfTime(BaseException):
    """Raised in the middle of a search by the timer's signal."""


def _limited(wanted: Search, seconds: float) -> tuple[Match, ...]:
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return search(wanted, seconds)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _OutOfTime:
        raise out_of_time(wanted.pattern, seconds) from None


def _ring(_signal: int, _frame: Any) -> None:
    raise _OutOfTime


def main() -> None:
    """Serve requests until stdin closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # where it is killed, that is no accident
    signal.signal(signal.SIGALRM, _ring)
    warnings.simplefilter("ignore")  # of clients' patterns
    for language in ("python", "ecmascript"):
        search(Search(language, "a", "a"))  # so that the first request pays for no import
    try:
        write_frame(sys.stdout.buffer, {"ready": True})
        while (request := read_frame(sys.stdin.buffer)) is not None:
            for frame in answers(request):
                write_frame(sys.stdout.buffer, frame)
    except BrokenPipeError:  # The daemon is gone. What it has not read goes nowhere, without a complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())


if __name__ == "__main__":
    main()
    exit_fast()
