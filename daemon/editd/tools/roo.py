"""Roo Code's `search_and_replace`: every match of a text or of an ECMAScript expression, in a range of lines.

The core is `replacements_of`: text in, replacements out. The range is searched once, as one text, so
that a match may span its lines but not its borders. Against the original: a search that finds nothing
is told apart from one that changes nothing, a range that makes no sense is refused, and the
replacement of a literal search is literal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.edits.lines import JS_WHITE_SPACE, numbered, offsets
from editd.edits.regex import Search
from editd.edits.replace import Replacement, no_match
from editd.edits.search import Span, lines_of, nearest, occurrences, with_plain_line_ends
from editd.errors import FileMissing, InvalidParams, NoChange, NoMatch
from editd.tools.api import Dialect, ToolDefinition
from editd.tools.arguments import kind_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.edits.regex import Match
    from editd.tools.api import ToolApi

_SPECIAL = re.compile(r"[.*+?^${}()|[\]\\]")  # what means something in an expression
_TEMPLATE = re.compile(r"\$[$&`']")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX = 15  # more of them are as far beyond the last line
_LINES_TOLD_MAX = 100


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
        """The arguments, flags and numbers as strings too; InvalidParams for one that makes no sense."""
        given = {name: value for name, value in args.items() if value is not None}
        path = text_of(given, "path", may_be_empty=False)
        search = text_of(given, "search", may_be_empty=False)
        replace = text_of(given, "replace")
        is_regex, ignore_case = _flag(given, "use_regex"), _flag(given, "ignore_case")
        start, end = _number(given, "start_line"), _number(given, "end_line")
        return cls(path, search, replace, is_regex, ignore_case, start, end)

    def warnings(self) -> tuple[str, ...]:
        """What the original would have taken for more than it says."""
        if self.is_regex or not (found := _TEMPLATE.search(self.replace)):
            return ()
        return (
            f"template: `{found.group()}` was put in as it stands; with use_regex it would mean something.",
        )


def replacements_of(
    call: RooCall, text: str, matches: Callable[[Search], Sequence[Match]]
) -> tuple[Replacement, ...]:
    """Return the replacements for every match in the range, which may be of equal text.

    `matches` runs an expression. InvalidParams for a range that makes no sense, NoMatch, and what
    `matches` raises.
    """
    span = range_of(call, text)
    target = text[span.start : span.end]
    if call.is_regex or call.ignore_case:
        found = [
            Replacement(match.start + span.start, match.end + span.start, match.expansion)
            for match in matches(search_of(call, target))
        ]
    else:
        found = [
            Replacement(match.start + span.start, match.end + span.start, call.replace)
            for match in occurrences(target, with_plain_line_ends(call.search))
        ]
    if not found:
        raise _unmatched(call, text)
    return tuple(found)


def search_of(call: RooCall, target: str) -> Search:
    """The search for an expression, or for a text in any case as one."""
    if call.is_regex:
        return Search("ecmascript", call.search, target, call.ignore_case, call.replace)
    pattern = _SPECIAL.sub(r"\\\g<0>", with_plain_line_ends(call.search))
    return Search("ecmascript", pattern, target, call.ignore_case, call.replace.replace("$", "$$"))


def range_of(call: RooCall, text: str) -> Span:
    """The lines from `start_line` to `end_line` of `text`, without the line end after the last of them."""
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
        hint=f"Lines are counted from 1 to {count}, both ends included; leave both out for the whole file.",
        data={"argument": argument, "lines": count},
    )


def _unmatched(call: RooCall, text: str) -> NoMatch:
    """The refusal of a search without a match: what is outside the range, or else is nearest."""
    has_range = call.start_line is not None or call.end_line is not None
    where = f"the lines asked for of {call.path}" if has_range else call.path
    if call.is_regex:
        return _unmatched_expression(call, text, f"The expression matches nothing in {where}.")
    message = f"The text to be replaced is not in {where}."
    search = with_plain_line_ends(call.search)
    whole = (text.lower(), search.lower()) if call.ignore_case else (text, search)
    elsewhere = [span.start for span in occurrences(*whole)]
    if not elsewhere:
        return no_match(message, text, call.search, new=call.replace, count=None)
    lines = lines_of(whole[0], elsewhere[:_LINES_TOLD_MAX])
    shown = ", ".join(map(str, lines[:10])) + (", …" if len(elsewhere) > 10 else "")
    return NoMatch(
        message,
        hint=f"It begins at line{'' if len(elsewhere) == 1 else 's'} {shown}, and is to lie in the range "
        "whole: correct `start_line` and `end_line`.",
        data={"found": len(elsewhere), "lines": lines},
    )


def _unmatched_expression(call: RooCall, text: str, message: str) -> NoMatch:
    near = nearest(text, re.sub(r"\\([^\w\s])", r"\1", call.search))
    rules = (
        "`^` and `$` stand for the beginning and the end of all that is searched, not of a line, and "
        "each line end is one \\n."
    )
    if near is None:
        return NoMatch(message, hint=rules, data={"nearest": None, "differs": []})
    return NoMatch(
        message,
        hint=f"The nearest passage is at {numbered((near.start_line, near.end_line))}. {rules}",
        data=near.to_data(),
    )


# ── Arguments ──────────────────────────────────────────────────────────────────────────────────────


def _flag(args: Mapping[str, Any], name: str) -> bool:
    """A boolean, or one as a string; an empty one is not given."""
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
    """A number, or what a string begins with (ECMAScript's parseInt); None for an empty string or a 0."""
    value = args.get(name, "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) or None if abs(value) < 10**_DIGITS_MAX else 10**_DIGITS_MAX
    found = _NUMBER.match(value.lstrip(JS_WHITE_SPACE)) if isinstance(value, str) else None
    if found:
        return int(found.group()[: _DIGITS_MAX + 1])
    if value == "":
        return None
    raise InvalidParams(
        f"`{name}` is to be a line number, not {value!r}."
        if isinstance(value, str)
        else f"`{name}` is to be a line number, not {kind_of(value)}.",
        hint="Send a whole number from 1.",
        data={"argument": name},
    )


# ── The tool ───────────────────────────────────────────────────────────────────────────────────────


def run(args: Mapping[str, Any], desk: ToolApi) -> str:
    """Replace every match in the file, and say how many there were."""
    call = RooCall.parse(args)
    path = desk.path(call.path)
    page = desk.page(path)
    if page is None:
        raise FileMissing(
            f"{path} does not exist.", hint="Name a file that is there.", data={"path": path.text}
        )
    replacements = replacements_of(call, page.text, desk.matches)
    count = "1 match" if len(replacements) == 1 else f"{len(replacements)} matches"
    if all(page.text[made.start : made.end] == with_plain_line_ends(made.text) for made in replacements):
        raise NoChange(
            f"{path} stays as it is: what would be put in for {count} is what is there.",
            hint="Leave the call out, or correct `replace`.",
            data={"found": len(replacements)},
        )
    desk.edit(page, replacements, call.warnings())
    return f"Replaced {count} in {call.path}."


def _described(kind: str | list[str], description: str) -> dict[str, Any]:
    return {"type": kind, "description": description}


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
                    "path": _described("string", "The file, relative to the workspace's root."),
                    "search": _described(
                        "string",
                        "What to look for. As an expression it has the flag g, and i with ignore_case, but "
                        "not m: ^ and $ are the ends of all that is searched.",
                    ),
                    "replace": _described(
                        "string",
                        "What to put in; empty to delete. With use_regex a template: $1, $<name>, $&, $$.",
                    ),
                    "use_regex": _described(["boolean", "string"], "true: `search` is an expression."),
                    "ignore_case": _described(["boolean", "string"], "true: upper and lower case are equal."),
                    "start_line": _described(["integer", "string"], "The first line to search, from 1."),
                    "end_line": _described(["integer", "string"], "The last line to search."),
                },
                "required": ["path", "search", "replace"],
            },
            run,
        ),
    ),
)
