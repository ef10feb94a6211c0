"""The regex worker: a process that runs regular expressions, so that a slow one does not block the daemon.

`python -m editd.engine.regex_worker`, framed messages on stdin and stdout (`system.frames`). It sends
`{ready}` after its imports. `request_of` makes a request. The answer is
`{matches: [[start, end, groups, expansion, has_inner, twin]]}` …, the last frame with `done`, or
`{refused, message, hint, data}`.

It enforces the time limit itself if possible (Python's `re` checks for signals, QuickJS checks its clock) and
serves the next request. Otherwise, as during the compilation in QuickJS, its owner kills it
(`server.regex_pool`). It also runs the searches for lines, and comparisons of texts, which may be as slow:
the answer to these is `{result}`, then `{done}`.

Before its first request it gives up the network, and all files but Python's.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import asdict

from editd.edits.comparison import Comparison, encode_result
from editd.edits.search import Match, Search
from editd.engine.search_refusals import out_of_time
from editd.engine.text_search import MEMORY_BYTES_MAX, search
from editd.errors import InvalidRegex, Refused, Timeout, TooLarge
from editd.system.confinement import confine, python_paths
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.system.frames import Frame

Done = TypeVar("Done")

PART = 1000  # matches in one frame: the daemon serves other clients between frames

_KINDS: dict[str, type[Refused]] = {kind.code: kind for kind in (InvalidRegex, Timeout, TooLarge)}


def request_of(wanted: Search, seconds: float) -> Frame:
    """Return the frame of a request."""
    return {**asdict(wanted), "seconds": seconds}


def matches_of(answer: Frame) -> list[Match]:
    """Return the matches of one frame of an answer. Raises its refusal, if it is one."""
    if "refused" in answer:
        raise _KINDS[answer["refused"]](answer["message"], hint=answer["hint"], data=answer["data"])
    return [Match(start, end, tuple(groups), *rest) for start, end, groups, *rest in answer["matches"]]


COMPARISON_SECONDS = 10.0
COMPARISON_BYTES_MAX = 96 * 1024 * 1024
"""Of the texts together: their lines and changes take several times as much of the process's memory."""
RESULT_BYTES_MAX = 64 * 1024 * 1024


def comparison_request(comparison: Comparison, seconds: float) -> Frame:
    """Return the frame of a request to compare texts."""
    return {"compare": comparison.name, "arguments": comparison.arguments, "seconds": seconds}


def comparison_result(answer: Frame) -> bytes:
    """Return the encoded result of a comparison. Raises its refusal, if it is one."""
    if "refused" in answer:
        raise _KINDS[answer["refused"]](answer["message"], hint=answer["hint"], data=answer["data"])
    result: bytes = answer["result"]
    return result


def comparison_out_of_time(seconds: float) -> Timeout:
    """Refuse a comparison that exceeded its time limit."""
    return Timeout(
        f"The comparison of two versions of a text was stopped after {seconds:g} s.",
        hint="Nothing was changed. Read the file again, and make the edit for its current content.",
        data={"seconds": seconds},
    )


def comparison_too_large(amount: str) -> TooLarge:
    """Refuse a comparison that needs too much. `amount` is such as "more than 1 GiB of memory"."""
    return TooLarge(
        f"The comparison of two versions of a text takes {amount}.",
        hint="Nothing was changed. Read the file again, and make the edit for its current content.",
    )


def import_comparisons() -> None:
    """Import the modules that register the comparisons. libgit2 reads the system's certificates then."""
    import editd.edits.diff
    import editd.edits.merge  # noqa: F401


def _compare(request: Frame) -> bytes:
    import pygit2  # late: the daemon imports this module, too

    try:
        result = encode_result(Comparison(request["compare"], tuple(request["arguments"])))
    except (MemoryError, pygit2.GitError):  # libgit2 raises either if it gets no memory
        raise comparison_too_large(f"more than {MEMORY_BYTES_MAX >> 20} MiB of memory") from None
    if len(result) > RESULT_BYTES_MAX:
        raise comparison_too_large(f"more than {RESULT_BYTES_MAX >> 20} MiB for its result")
    return result


def _comparison_answers(request: Frame) -> Iterator[Frame]:
    seconds = request["seconds"]
    try:
        result = _within(partial(_compare, request), seconds, comparison_out_of_time(seconds))
    except Refused as refusal:
        yield _refusal_frame(refusal)
    else:
        yield {"result": result}
        yield {"matches": [], "done": True}


def _refusal_frame(refusal: Refused) -> Frame:
    return {
        "refused": refusal.code,
        "message": refusal.message,
        "hint": refusal.advice.to_plain(),
        "data": refusal.data,
    }


def answers(request: Frame) -> Iterator[Frame]:
    """Run one request within its time limit. Yield the frames of the answer."""
    if "compare" in request:
        yield from _comparison_answers(request)
        return
    try:
        seconds = request.pop("seconds")
        matches = _limit(Search(**request), seconds)
    except Refused as refusal:
        yield _refusal_frame(refusal)
        return
    for start in range(0, len(matches), PART):
        yield {"matches": [_row(match) for match in matches[start : start + PART]]}
    yield {"matches": [], "done": True}


def _row(match: Match) -> tuple[object, ...]:
    return match.start, match.end, match.groups, match.expansion, match.has_inner, match.twin


class _OutOfTime(BaseException):
    """Raised by the timer's signal during a search."""


def _limit(wanted: Search, seconds: float) -> tuple[Match, ...]:
    return _within(partial(search, wanted, seconds), seconds, out_of_time(wanted, seconds))


def _within(work: Callable[[], Done], seconds: float, late: Timeout) -> Done:
    """Do some work within its time limit. Raises `late` after that."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _OutOfTime:
        raise late from None


def _ring(_signal: int, _frame: Any) -> None:
    raise _OutOfTime


def main() -> None:
    """Serve requests until stdin closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dump when it is killed
    signal.signal(signal.SIGALRM, _ring)
    warnings.simplefilter("ignore")  # about clients' patterns
    for language in ("python", "ecmascript"):
        search(Search(language, "a", "a"))  # so that the first request needs no imports
    import_comparisons()  # while the system's files can be read
    confine([], readable=python_paths())
    try:
        write_frame(sys.stdout.buffer, {"ready": True})
        while (request := read_frame(sys.stdin.buffer)) is not None:
            for frame in answers(request):
                write_frame(sys.stdout.buffer, frame)
    except BrokenPipeError:  # The daemon is gone. Discard unread output without an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())


if __name__ == "__main__":
    main()
    exit_fast()
