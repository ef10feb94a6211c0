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

import json
import os
import re
import resource
import signal
import sys
import warnings
from array import array
from bisect import bisect_left
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from editd.edits.approximate import approximate_matches, equal_windows
from editd.edits.comparison import Comparison, encoded
from editd.edits.search import Match, Search
from editd.edits.token_pattern import token_pattern
from editd.errors import InvalidRegex, Refused, Timeout, TooLarge
from editd.system.confinement import confine, python_paths
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from editd.system.frames import Frame

Done = TypeVar("Done")

# The refusals of a regular expression that is invalid, too slow, or matches too much.

_SHOWN_MAX = 500  # characters of a client's text that an error repeats


def invalid(message: str, pattern: str, position: int | None, hint: str) -> InvalidRegex:
    """Refuse an invalid expression. `position` is the offset of the error in the pattern, if known."""
    return InvalidRegex(
        _shortened(message), hint=hint, data={"position": position, "pattern": _shortened(pattern)}
    )  # fmt: skip


_KINDS_OF_TEXT_SEARCH = {
    "approximate": "approximate search",
    "lines": "search for the lines",
    "tokens": "search for the tokens",
}


def out_of_time(wanted: Search, seconds: float) -> Timeout:
    """Refuse a search that exceeded its time limit."""
    pattern = wanted.pattern
    kind = _KINDS_OF_TEXT_SEARCH.get(wanted.language)
    if kind is not None:
        return Timeout(
            f"The {kind} was stopped after {seconds:g} s.",
            hint="Send the text exactly as it is in the file.",
            data={"seconds": seconds, "pattern": _shortened(pattern)},
        )
    return Timeout(
        f"The regular expression was stopped after {seconds:g} s.",
        hint="Simplify it. Avoid nested quantifiers such as (a+)+, which try every way to divide the text.",
        data={"seconds": seconds, "pattern": _shortened(pattern)},
    )


def too_many(matches_max: int) -> TooLarge:
    """Refuse an expression with too many matches."""
    return TooLarge(
        f"The regular expression matches more than {matches_max} times.",
        hint="Match longer texts, or fewer lines at a time.",
        data={"limit": matches_max},
    )


def too_large(amount: str) -> TooLarge:
    """Refuse an expression that needs too much. `amount` is such as "more than 1 GiB of memory"."""
    return TooLarge(
        f"The regular expression takes {amount}.",
        hint="Match and capture less at a time.",
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


# Regular expressions of ECMAScript, evaluated by QuickJS.
#
# QuickJS finds the matches and expands the template of each with its own `RegExp` and GetSubstitution
# (ECMA-262, 22.2.6.11). The results have offsets in characters of the text. Each search has a context of
# its own, which costs a quarter of a millisecond and keeps no state.
#
# Without the flag u, a match may begin or end between the two surrogates of a character outside the BMP.
# Such a match is extended to the whole character if its replacement leaves whole characters. Otherwise it
# is refused. A result never has half of a character.
#
# The language is Node 20's, because the supported tools ran in it. Later syntax is refused.

QUICKJS_BYTES_MAX = 512 * 1024 * 1024  # of the QuickJS heap, less than the limit of the process

_FIND = r"""
(function (pattern, flags, text, template, hasGroups, matchesMax, charactersMax) {
  let expression;
  try {
    expression = new RegExp(pattern, flags);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return JSON.stringify({ invalid: error.message });
  }
  const isPlain = !template.includes("$");
  const looksAround = /\$[`']/.test(template);
  const matches = [];
  let characters = 0;
  for (let match; (match = expression.exec(text)) !== null; ) {
    const start = match.index, end = start + match[0].length;
    if (start === end) expression.lastIndex = end + 1;
    if (matches.length === matchesMax) return JSON.stringify({ tooMany: true });
    const groups = hasGroups ? Array.from(match).slice(1) : [];
    let expansion = template;
    if (!isPlain) {
      // Only a template that uses the text around the match needs the whole text: linear overall.
      const subject = looksAround ? text : match[0];
      const position = match.index = looksAround ? start : 0;
      const single = { flags: "", global: false, exec: () => match };
      const replaced = RegExp.prototype[Symbol.replace].call(single, subject, template);
      const after = subject.length - position - (end - start);
      expansion = replaced.slice(position, replaced.length - after);
    }
    characters += expansion.length;
    for (const group of groups) characters += group === undefined ? 0 : group.length;
    if (characters > charactersMax) return JSON.stringify({ tooLong: true });
    matches.push([start, end, isPlain ? "" : expansion, groups]);
  }
  return JSON.stringify({ matches });
})
"""

_SURROGATE = re.compile("[\ud800-\udfff]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")

_SYNTAX = re.compile(
    r"\\[\s\S]"
    r"|\[(?:\\(?P<k>k)|\\[\s\S]|[^\]\\])*\]"  # a class, perhaps with `\k` in it
    r"|(?P<modifiers>\(\?[ims]*-?[ims]*:)"
    r"|\(\?<(?P<name>[^=!>][^>]*)>"
)


class SearchLimits(Struct, frozen=True):
    """The limits of one answer."""

    matches_max: int
    characters_max: int  # of groups and expansions together


def find_js(search: Search, seconds: float, bounds: SearchLimits) -> list[Match]:
    """Return all matches. Raises InvalidRegex, TooLarge, or Timeout after `seconds` of computing."""
    flags = "g" + "i" * search.ignore_case + "m" * search.is_multiline
    _refuse_unfit(search, flags)
    answer = _run(search, flags, seconds, bounds)
    if "invalid" in answer:
        raise _invalid(search, flags, answer["invalid"])
    if "tooMany" in answer:
        raise too_many(bounds.matches_max)
    if "tooLong" in answer:
        raise too_large(f"groups and expansions of more than {bounds.characters_max} characters")
    template = search.template
    is_plain = template is not None and "$" not in template
    rows = [
        Match(start, end, tuple(groups), cast("str", template) if is_plain else expansion)
        for start, end, expansion, groups in answer["matches"]
    ]
    rows = _in_characters(rows, search)
    return rows if template is not None else [Match(row.start, row.end, row.groups) for row in rows]


def _run(search: Search, flags: str, seconds: float, bounds: SearchLimits) -> dict[str, Any]:
    quickjs = _engine()
    context = quickjs.Context()
    context.set_memory_limit(QUICKJS_BYTES_MAX)
    function = context.eval(_FIND)
    context.set_time_limit(seconds)
    template = "$&" if search.template is None else search.template
    try:
        answer = function(
            search.pattern, flags, search.text, template, search.template is None,
            bounds.matches_max, bounds.characters_max,
        )  # fmt: skip
    except quickjs.JSException as error:
        if "interrupted" in str(error):
            raise out_of_time(search, seconds) from None
        raise too_large(f"more than {QUICKJS_BYTES_MAX >> 20} MiB of memory, or too deep a stack") from None
    return cast("dict[str, Any]", json.loads(answer))


@cache
def _engine() -> Any:
    """Import QuickJS. Only the process that runs it does so."""
    import quickjs

    return quickjs


def _refuse_unfit(search: Search, flags: str) -> None:
    """Raise InvalidRegex for syntax that QuickJS accepts and Node 20 does not.

    This is newer syntax, and `\\k` in a class together with a named group. A surrogate that is not escaped
    is refused, too, because it cannot be passed to QuickJS.
    """
    if _SURROGATE.search(search.pattern + (search.template or "")):
        raise _invalid(search, flags, "It or its template has half of a character")
    names = set[str]()
    has_k = False
    for token in _SYNTAX.finditer(search.pattern):
        if (token["modifiers"] or "(?:") != "(?:":
            raise _invalid(search, flags, "Invalid group", token.start())
        if token["name"] in names:
            raise _invalid(search, flags, "Duplicate capture group name", token.start())
        if token["name"]:
            names.add(token["name"])
        has_k |= token["k"] is not None
    if has_k and names:
        raise _invalid(search, flags, "Invalid escape")


def _invalid(search: Search, flags: str, reason: str, position: int | None = None) -> Exception:
    message = f"Invalid regular expression: /{search.pattern}/{flags}: {reason}."
    return invalid(message, search.pattern, position, "Use the syntax of ECMAScript, without the flag u.")


# ── From UTF-16 to characters ──────────────────────────────────────────────────────────────────────


def _in_characters(rows: list[Match], search: Search) -> list[Match]:
    """Convert offsets to characters. Raises InvalidRegex if a match splits a character."""
    astral = enumerate(_ASTRAL.finditer(search.text)) if rows else ()
    highs = array("L", (match.start() + index for index, match in astral))
    if not highs:
        return rows
    halves = _Halves(search.text, highs)
    matches = [halves.widened(row) for row in halves.joined(rows)]
    for match in matches:
        if any(_SURROGATE.search(text) for text in (match.expansion, *match.groups) if text):
            line = search.text.count("\n", 0, match.start) + 1
            raise invalid(
                "The expression takes half of the character "
                f"{_shown_character(search.text[match.start : match.end])} at line {line}, "
                "and would leave the other half of it.",
                search.pattern, None,
                "Match a character outside the BMP by its own text, or as "
                "[\\ud800-\\udbff][\\udc00-\\udfff]: it counts as two.",
            )  # fmt: skip
    return matches


def _shown_character(text: str) -> str:
    astral = _ASTRAL.search(text)
    return astral.group() if astral else text[:1]


class _Halves(Struct, frozen=True):
    """A text with characters outside the BMP. `highs` has the UTF-16 offsets of their first surrogates."""

    text: str
    highs: Sequence[int]

    def joined(self, rows: list[Match]) -> list[Match]:
        """Join matches that meet between two surrogates. Drop an empty match there."""
        result: list[Match] = []
        for row in rows:
            last = result[-1] if result else None
            if not self._is_between(row.start):
                result.append(row)
            elif last is not None and last.end == row.start:
                result[-1] = Match(last.start, row.end, last.groups, last.expansion + row.expansion)
            elif row.start < row.end:
                result.append(row)
        return result

    def widened(self, row: Match) -> Match:
        """Return the match in whole characters. Its expansion keeps the half that it did not match."""
        start, end, expansion = row.start, row.end, row.expansion
        if self._is_between(start):
            start -= 1
            expansion = self._pair_at(start)[0] + expansion
        if self._is_between(end):
            expansion += self._pair_at(end - 1)[1]
            end += 1
        groups = tuple(group and _paired(group) for group in row.groups)
        return Match(self._place(start), self._place(end), groups, _paired(expansion))

    def _is_between(self, offset: int) -> bool:
        index = bisect_left(self.highs, offset - 1)
        return index < len(self.highs) and self.highs[index] == offset - 1

    def _pair_at(self, offset: int) -> tuple[str, str]:
        code = ord(self.text[self._place(offset)]) - 0x10000
        return chr(0xD800 + (code >> 10)), chr(0xDC00 + (code & 0x3FF))

    def _place(self, offset: int) -> int:
        return offset - bisect_left(self.highs, offset)


def _paired(text: str) -> str:
    """Return the text with each pair of surrogates as one character."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


SECONDS = 2.0
BOUNDS = SearchLimits(
    matches_max=100_000,  # planning an edit with so many blocks the daemon for almost a second
    characters_max=64 * 1024 * 1024,  # as much as the largest file
)
MEMORY_BYTES_MAX = 1024 * 1024 * 1024
"""Address space. A search of the largest file, 64 MiB, takes up to half of it for copies of the text: the
frame, Python's text, and the engine's text. The rest is for the state of the match."""
PART = 1000  # matches in one frame: the daemon serves other clients between frames
INNER_MAX = 1000  # matches within one, among them `_with_twin` looks for one that ends after it

_KINDS: dict[str, type[Refused]] = {kind.code: kind for kind in (InvalidRegex, Timeout, TooLarge)}


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


def _compared(request: Frame) -> bytes:
    import pygit2  # late: the daemon imports this module, too

    try:
        result = encoded(Comparison(request["compare"], tuple(request["arguments"])))
    except (MemoryError, pygit2.GitError):  # libgit2 raises either if it gets no memory
        raise comparison_too_large(f"more than {MEMORY_BYTES_MAX >> 20} MiB of memory") from None
    if len(result) > RESULT_BYTES_MAX:
        raise comparison_too_large(f"more than {RESULT_BYTES_MAX >> 20} MiB for its result")
    return result


def _comparison_answers(request: Frame) -> Iterator[Frame]:
    seconds = request["seconds"]
    try:
        result = _within(partial(_compared, request), seconds, comparison_out_of_time(seconds))
    except Refused as refusal:
        yield _refusal_frame(refusal)
    else:
        yield {"result": result}
        yield {"matches": [], "done": True}


def _refusal_frame(refusal: Refused) -> Frame:
    return {
        "refused": refusal.code,
        "message": refusal.message,
        "hint": refusal.hint,
        "data": refusal.data,
    }


def answers(request: Frame) -> Iterator[Frame]:
    """Run one request within its time limit. Yield the frames of the answer."""
    if "compare" in request:
        yield from _comparison_answers(request)
        return
    try:
        seconds = request.pop("seconds")
        matches = _limited(Search(**request), seconds)
    except Refused as refusal:
        yield _refusal_frame(refusal)
        return
    for start in range(0, len(matches), PART):
        yield {"matches": [_row(match) for match in matches[start : start + PART]]}
    yield {"matches": [], "done": True}


def _row(match: Match) -> tuple[object, ...]:
    return match.start, match.end, match.groups, match.expansion, match.has_inner, match.twin


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
    """Return whether the pattern also matches in a multi-line match without its first character."""
    text = match.group()
    return "\n" in text and match.re.search(text[1:]) is not None


def _with_twin(wanted: Search, matches: tuple[Match, ...]) -> tuple[Match, ...]:
    """Return the matches, with the start of one that overlaps the last, so that the last is not unique."""
    last, pattern = matches[-1], _compiled(wanted)
    position = last.start + 1
    for _ in range(INNER_MAX):
        inner = pattern.search(wanted.text, position)
        if inner is None or inner.start() >= last.end:
            break
        if inner.end() > last.end:
            return *matches[:-1], replace(last, twin=inner.start())
        position = inner.start() + 1
    return matches


def _compiled(wanted: Search) -> re.Pattern[str]:
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


# ── The process ────────────────────────────────────────────────────────────────────────────────────


class _OutOfTime(BaseException):
    """Raised by the timer's signal during a search."""


def _limited(wanted: Search, seconds: float) -> tuple[Match, ...]:
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
