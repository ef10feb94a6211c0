"""Roo Code's `search_and_replace`: every match of a text or of an ECMAScript expression, in a range of lines.

The core is `replacements_of`: text in, replacements out. The range is searched once, as one text, so
that a match may span its lines but not its borders. Unlike the original, a search without a match differs
from one without a change, an invalid range is refused, and a literal search has a literal replacement.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.edits.approximate import JS_SPACES
from editd.edits.replace import (
    LINES_TOLD_MAX,
    Replacement,
    describe_lines,
    list_numbers,
    no_match,
    offsets,
)
from editd.edits.search import Search, Span, lines_of, nearest, occurrences, with_plain_line_ends
from editd.errors import FileMissing, InvalidParams, NoChange, NoMatch
from editd.tool_api.arguments import argument, kind_of, text_of
from editd.tool_api.dialect import Dialect, ToolDefinition
from editd.tool_api.overlaps import overlap_warnings
from editd.tool_api.review_answers import ReviewAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.edits.search import Match
    from editd.tool_api.file_access import ToolApi
    from editd.tool_api.review_answers import ChangedEdit

_SPECIAL = re.compile(r"[.*+?^${}()|[\]\\]")  # characters with a meaning in an expression
_TEMPLATE = re.compile(r"\$[$&`']")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX = 15  # a number with more digits is beyond the last line anyway


class RooCall(Struct, frozen=True):
    path: str
    search: str
    replace: str
    is_regex: bool = False
    ignore_case: bool = False
    start_line: int | None = None
    end_line: int | None = None

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> RooCall:
        """Parse the arguments, flags and numbers as strings too; InvalidParams for an invalid one."""
        values = {name: value for name, value in args.items() if value is not None}
        path = text_of(values, "path", may_be_empty=False)
        search = text_of(values, "search", may_be_empty=False)
        replace = text_of(values, "replace")
        is_regex, ignore_case = _flag(values, "use_regex"), _flag(values, "ignore_case")
        start, end = _number(values, "start_line"), _number(values, "end_line")
        return cls(path, search, replace, is_regex, ignore_case, start, end)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning about text that the original would expand as a template."""
        if self.is_regex or not (match := _TEMPLATE.search(self.replace)):
            return ()
        return (f"template: `{match.group()}` was inserted unchanged; use_regex would expand it.",)


def replacements_of(
    call: RooCall, text: str, matches: Callable[[Search], Sequence[Match]]
) -> tuple[Replacement, ...]:
    """Return the replacements of every match in the range, even replacements that change nothing.

    `matches` runs an expression. Raises InvalidParams for an invalid range, NoMatch, and the errors of
    `matches`.
    """
    span = range_of(call, text)
    target = text[span.start : span.end]
    if call.is_regex or call.ignore_case:
        replacements = [
            Replacement(match.start + span.start, match.end + span.start, match.expansion)
            for match in matches(search_of(call, target))
        ]
    else:
        replacements = [
            Replacement(match.start + span.start, match.end + span.start, call.replace)
            for match in occurrences(target, with_plain_line_ends(call.search))
        ]
    if not replacements:
        raise _no_match_refusal(call, text)
    return tuple(replacements)


def search_of(call: RooCall, target: str) -> Search:
    """Return the search of the call; a text to match in any case becomes an expression."""
    if call.is_regex:
        return Search("ecmascript", call.search, target, call.ignore_case, call.replace)
    pattern = _SPECIAL.sub(r"\\\g<0>", with_plain_line_ends(call.search))
    return Search("ecmascript", pattern, target, call.ignore_case, call.replace.replace("$", "$$"))


def range_of(call: RooCall, text: str) -> Span:
    """Return the span from `start_line` to `end_line` of `text`, without the last line end."""
    starts = offsets(text.split("\n"))
    count = len(starts) - 1
    first = max(call.start_line or 1, 1)
    last = count if call.end_line is None else min(call.end_line, count)
    if call.end_line is not None and call.end_line < 1:
        raise _senseless("end_line", f"`end_line` is {call.end_line}.", count)
    if first > count:
        raise _senseless("start_line", f"`start_line` is {first}, and {call.path} ends before.", count)
    if first > last:
        raise _senseless("end_line", f"`end_line` is {last}, before `start_line`, which is {first}.", count)
    return Span(starts[first - 1], starts[last] - 1)


def _senseless(argument: str, message: str, count: int) -> InvalidParams:
    return InvalidParams(
        message,
        hint=f"Name lines from 1 to {count}, both ends included, or leave both out for the whole file.",
        data={"argument": argument, "lines": count},
    )


def _no_match_refusal(call: RooCall, text: str) -> NoMatch:
    """Return the refusal of a search without a match, with matches outside the range or the nearest text."""
    has_range = call.start_line is not None or call.end_line is not None
    where = f"the range of lines in {call.path}" if has_range else call.path
    if call.is_regex:
        return _expression_refusal(call, text, f"The expression matches nothing in {where}.")
    message = f"The text to be replaced is not in {where}."
    search = with_plain_line_ends(call.search)
    whole = (text.lower(), search.lower()) if call.ignore_case else (text, search)
    elsewhere = [span.start for span in occurrences(*whole)]
    if not elsewhere:
        return no_match(message, text, call.search, new=call.replace, count=None)
    lines = lines_of(whole[0], elsewhere[:LINES_TOLD_MAX])
    return NoMatch(
        message,
        hint="Correct `start_line` and `end_line` to include a whole match: there are matches at "
        f"line{'' if len(elsewhere) == 1 else 's'} {list_numbers(lines)}.",
        data={"found": len(elsewhere), "lines": lines},
    )


def _expression_refusal(call: RooCall, text: str, message: str) -> NoMatch:
    near = nearest(text, re.sub(r"\\([^\w\s])", r"\1", call.search))
    rules = (
        "`^` and `$` match the beginning and the end of the searched range, not of a line, and "
        "each line end is one \\n."
    )
    if near is None:
        return NoMatch(message, hint=rules, data={"nearest": None, "differs": []})
    return NoMatch(
        message,
        hint=f"The nearest passage is at {describe_lines((near.start_line, near.end_line))}. {rules}",
        data=near.to_data(),
    )


# ── Arguments ──────────────────────────────────────────────────────────────────────────────────────


def _flag(args: Mapping[str, Any], name: str) -> bool:
    """Parse a boolean, or one as a string; an empty string is false."""
    value = args.get(name, False)
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in ("true", "false", ""):
        raise InvalidParams(
            f"`{name}` is " + (f"{value!r}." if isinstance(value, str) else f"{kind_of(value)}."),
            hint="Send true or false.",
            data={"argument": name},
        )
    return word == "true"


def _number(args: Mapping[str, Any], name: str) -> int | None:
    """Parse a number, or the number that begins a string (ECMAScript's parseInt); None for ""."""
    value = args.get(name, "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if abs(value) < 10**_DIGITS_MAX else 10**_DIGITS_MAX
    match = _NUMBER.match(value.lstrip(JS_SPACES)) if isinstance(value, str) else None
    if match:
        return int(match.group()[: _DIGITS_MAX + 1])
    if value == "":
        return None
    raise InvalidParams(
        f"`{name}` must be a line number, not {value!r}."
        if isinstance(value, str)
        else f"`{name}` must be a line number, not {kind_of(value)}.",
        hint="Send a whole number from 1.",
        data={"argument": name},
    )


def _number_warnings(args: Mapping[str, Any]) -> list[str]:
    """Return a warning for each line number that the original reads as another one."""
    warnings = []
    for name in ("start_line", "end_line"):
        value, number = args.get(name), None if args.get(name) is None else _number(args, name)
        if number is None or number >= 10**_DIGITS_MAX:
            continue
        line = max(number, 1)
        if value != line and str(value).strip(JS_SPACES) != str(line):
            warnings.append(f"line_number: `{name}` is {str(value)[:40]!r}, and was read as line {line}.")
    return warnings


# ── The tool ───────────────────────────────────────────────────────────────────────────────────────


def run(args: Mapping[str, Any], api: ToolApi) -> str:
    """Replace every match in the file; return their number in words."""
    call = RooCall.parse(args)
    path = api.path(call.path)
    page = api.text_at(path)
    if page is None:
        raise FileMissing(f"{path} does not exist.", hint="Name an existing file.", data={"path": path.text})
    replacements = replacements_of(call, page.text, api.matches)
    count = "1 match" if len(replacements) == 1 else f"{len(replacements)} matches"
    if all(page.text[one.start : one.end] == with_plain_line_ends(one.text) for one in replacements):
        raise NoChange(
            f"Nothing in {path} would change: the replacement of {count} is equal to the match.",
            hint="Leave the call out, or correct `replace`.",
            data={"found": len(replacements)},
        )
    warnings = [*call.warnings(), *_number_warnings(args)]
    if not (call.is_regex or call.ignore_case):
        last = Span(replacements[-1].start, replacements[-1].end)
        warnings += overlap_warnings(page.text[: range_of(call, page.text).end], last, "the text")
    api.edit(page, replacements, warnings)
    return f"Replaced {count} in {call.path}."


_CHANGES_NOTICE = (
    "You do not need to re-read the file, as you have seen all changes Proceed with the task using these "
    "changes as the new baseline. If the user's edits have addressed part of the task or changed the "
    "requirements, adjust your approach accordingly."
)


def answer_to_changes(edit: ChangedEdit) -> str:
    """Return the original's answer to an edit that landed with the user's changes."""
    answer = {
        "path": edit.path, "operation": "modified", "user_edits": edit.diff, "notice": _CHANGES_NOTICE,
    }  # fmt: skip
    return json.dumps(answer, ensure_ascii=False)


def answer_to_rejection(comment: str) -> str:
    """Return the original's answer to an edit that the user denied."""
    reason = {"feedback": comment} if comment else {"message": "The user denied this operation."}
    return json.dumps({"status": "denied", **reason}, ensure_ascii=False)


DIALECT = Dialect(
    "roo",
    "Roo Code's search_and_replace: every match of a text or an ECMAScript expression.",
    (
        ToolDefinition(
            "search_and_replace",
            "Replace every match of a text, or of an ECMAScript regular expression, in one file.",
            {
                "type": "object",
                "properties": {
                    "path": argument("string", "The file, relative to the workspace's root."),
                    "search": argument(
                        "string",
                        "The text or expression to find. An expression has the flag g, and i with "
                        "ignore_case, but not m: ^ and $ are the ends of the searched range.",
                    ),
                    "replace": argument(
                        "string",
                        "The new text, empty to delete. With use_regex a template: $1, $<name>, $&, $$.",
                    ),
                    "use_regex": argument(["boolean", "string"], "true: `search` is an expression."),
                    "ignore_case": argument(["boolean", "string"], "true: upper and lower case are equal."),
                    "start_line": argument(["integer", "string"], "The first line to search, from 1."),
                    "end_line": argument(["integer", "string"], "The last line to search."),
                },
                "required": ["path", "search", "replace"],
            },
            run,
        ),
    ),
    ReviewAnswers(answer_to_changes, answer_to_rejection, is_of_one_file=True),
)
