"""Serena's `replace_content`: a literal text or a regular expression, replaced once or everywhere.

As its version of December 2025 has it, with the rules that hold for all dialects. The core is
`replacements_of`: matches and a template in, replacements out.

A regular expression that matches several lines, and the rest of such a match again, is refused: it
may have begun too early. Literal places may overlap; those from the left count, and a warning tells.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.edits.gitignore import Rule, is_ignored, rules_of
from editd.edits.lines import numbered
from editd.edits.regex import Match, Search
from editd.edits.replace import Replacement, no_match
from editd.edits.search import Span, lines_of, nearest, overlapping, with_plain_line_ends
from editd.errors import Ambiguous, FileMissing, InvalidParams, NoMatch, NotAFile, PathIgnored
from editd.tools.api import Dialect, ToolDefinition
from editd.tools.arguments import kind_of, text_of
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.tools.api import ToolApi
    from editd.tools.tool_text import ToolText

_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "f", "n"})
_GROUP = re.compile(r"\$!(\d+)")
_LINES_TOLD_MAX = 100
_SURROGATE = re.compile("[\ud800-\udfff]")


class SerenaCall(Struct, frozen=True):
    path: str
    needle: str
    repl: str
    is_literal: bool
    is_multiple: bool

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> SerenaCall:
        """The arguments; InvalidParams for one that is missing or of the wrong kind."""
        path, needle, repl = (text_of(args, name) for name in ("relative_path", "needle", "repl"))
        mode = text_of(args, "mode")
        if mode not in ("literal", "regex"):
            raise InvalidParams(
                f"`mode` is {mode!r}.", hint='It is "literal" or "regex".', data={"argument": "mode"}
            )
        is_multiple = _truth_of(args.get("allow_multiple_occurrences", False))
        return cls(path, needle, repl, mode == "literal", is_multiple)


def replace_content(args: Mapping[str, Any], desk: ToolApi) -> str:
    """Replace what the needle finds in one file, and answer `OK`."""
    call = SerenaCall.parse(args)
    page = _page(call.path, desk)
    needle = _checked_needle(call, page)
    if call.is_literal:
        matches: Sequence[Match] = literal_matches(page.text, needle)
    else:
        matches = desk.matches(Search("python", needle, page.text, looks_inside=True))
    if not matches:
        raise _nothing(page, needle, call)
    replacements = replacements_of(page.text, matches, call.repl, is_literal=call.is_literal)
    if len(matches) > 1 and not call.is_multiple:
        raise _several(page, [match.start for match in matches])
    _refuse_what_cannot_be_written(call)
    desk.edit(page, replacements, _overlaps(page.text, matches) if call.is_literal else ())
    return "OK"


def literal_matches(text: str, needle: str) -> list[Match]:
    """Where `needle`, which is not empty, stands in `text`, from the left, none overlapping another."""
    matches = []
    start = text.find(needle)
    while start >= 0:
        matches.append(Match(start, start + len(needle)))
        start = text.find(needle, start + len(needle))
    return matches


def replacements_of(text: str, matches: Sequence[Match], repl: str, *, is_literal: bool) -> list[Replacement]:
    """Each match with what is put there: `repl`, in which `$!1` is group 1 unless it is literal.

    Ambiguous for a match that holds a later one; InvalidParams for a group that the pattern has not.
    """
    replacements = []
    for match in matches:
        if match.has_inner:
            raise _begins_early(text, match, len(matches))
        new = repl if is_literal else _expanded(repl, match, text)
        replacements.append(Replacement(match.start, match.end, new))
    return replacements


def _expanded(repl: str, match: Match, text: str) -> str:
    """The template with each `$!n` as the text of group n; one that took no part leaves it as it is."""

    def group(reference: re.Match[str]) -> str:
        digits = reference[1]
        number = int(digits) if len(digits) < 10 else len(match.groups) + 1
        if number > len(match.groups):
            raise InvalidParams(
                f"`repl` asks for group {digits[:20]}, and the pattern has {len(match.groups)}.",
                hint="`$!1` is the text of the pattern's first group in parentheses, `$!0` the whole match. "
                'A `$!` before digits cannot be put in by mode "regex"; mode "literal" puts it in as it is.',
                data={"argument": "repl", "group": digits[:20], "groups": len(match.groups)},
            )
        found = text[match.start : match.end] if number == 0 else match.groups[number - 1]
        return reference[0] if found is None else found

    return _GROUP.sub(group, repl)


def _truth_of(value: object) -> bool:
    """A boolean, or a number or word for one."""
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    word = value.lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise InvalidParams(
        f"`allow_multiple_occurrences` is to be a boolean, not {kind_of(value)} such as this.",
        hint="Send true or false, or leave it out: it is false then.",
        data={"argument": "allow_multiple_occurrences"},
    )


# ── The file ───────────────────────────────────────────────────────────────────────────────────


def _page(given: str, desk: ToolApi) -> ToolText:
    """The file that a call names: inside, there, not ignored, and no folder, looked at in that order."""
    path = desk.path(given.rstrip("/") or given)
    _refuse_missing_folders(given, desk)
    is_folder = desk.names(path.text) is not None
    if not is_folder and desk.version(path) is None:
        raise _missing(given)
    _refuse_ignored(path, desk, is_folder=is_folder)
    page = desk.page(path)
    if page is None or given.endswith("/"):
        raise NotAFile(f"{given} names a folder.", hint="Name a file, without a final `/`.")
    return page


def _refuse_missing_folders(given: str, desk: ToolApi) -> None:
    """FileMissing where a `..` leaves something that is no folder."""
    names: list[str] = []
    for name in given.removeprefix(desk.root).split("/"):
        if name == "..":
            if names and desk.names("/".join(names)) is None:
                raise _missing(given)
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)


def _missing(given: str) -> FileMissing:
    return FileMissing(
        f"There is no file {given}.",
        hint="Check the path, which is relative to the workspace's root; this tool makes no files.",
        data={"path": given},
    )


def _refuse_ignored(path: WorkspacePath, desk: ToolApi, *, is_folder: bool) -> None:
    def rules_in(folder: str) -> Sequence[Rule]:
        here = WorkspacePath.parse(f"{folder}/.gitignore" if folder else ".gitignore")
        page = desk.glance(here)
        # As git does it, a folder that a symbolic link leads to brings no rules of its own.
        rules = () if page is None or page.path.folder != folder else rules_of(page.text.split("\n"), folder)
        return rules if folder else (*rules_of(desk.settings.ignored_paths), *rules)

    if is_ignored(path.text, rules_in, is_folder=is_folder):
        raise PathIgnored(
            f"{path} is ignored, by a `.gitignore` or the configuration's `ignored_paths`.",
            hint="This tool leaves such files alone; edit the file that it is made from, or change the rule.",
            data={"path": path.text},
        )


# ── The needle ─────────────────────────────────────────────────────────────────────────────────


def _checked_needle(call: SerenaCall, page: ToolText) -> str:
    """The needle as it is looked for in the page's text; an empty one is refused.

    In a file with other line ends than LF, those of a literal needle stand for any.
    """
    if not call.needle:
        if page.text and not call.is_multiple:
            raise _several(page, range(len(page.text) + 1))
        raise InvalidParams(
            "`needle` is empty.",
            hint="Give the text that is to be replaced; to insert, replace a text by itself and what is new.",
            data={"argument": "needle"},
        )
    return with_plain_line_ends(call.needle) if call.is_literal and "\r" in page.raw else call.needle


def _refuse_what_cannot_be_written(call: SerenaCall) -> None:
    if _SURROGATE.search(call.repl):
        raise InvalidParams(
            "`repl` holds half of a surrogate pair, which no file can hold.",
            hint="Send the whole character.",
            data={"argument": "repl"},
        )


def _overlaps(text: str, matches: Sequence[Match]) -> list[str]:
    """A warning where the last match has an overlapping twin that was not replaced."""
    last = matches[-1]
    twin = overlapping(text, Span(last.start, last.end))
    if twin is None:
        return []
    here, there = lines_of(text, [last.start, twin.start])
    return [f"overlap: the needle also stands at line {there}, overlapping the place at line {here}."]


# ── Refusals ───────────────────────────────────────────────────────────────────────────────────


def _nothing(page: ToolText, needle: str, call: SerenaCall) -> NoMatch:
    message = f"The needle is not in {page.path}."
    if call.is_literal:
        count = None if call.is_multiple else 1
        return no_match(message, page.text, needle, new=call.repl, count=count)
    message = f"The regular expression matches nothing in {page.path}."
    places = [match.start for match in literal_matches(page.text, needle)]
    if places:
        line = lines_of(page.text, places[:1])[0]
        return NoMatch(
            message,
            hint=f'The needle itself is at line {line}: use mode "literal", or escape what is special in it.',
            data={"literal_lines": lines_of(page.text, places[:_LINES_TOLD_MAX])},
        )
    near = nearest(page.text, _words_of(needle))
    if near is None:
        return NoMatch(
            message,
            hint="Nothing in the file resembles it: read the file again.",
            data={"nearest": None, "differs": []},
        )
    return NoMatch(
        message,
        hint=f"The nearest passage is at {numbered((near.start_line, near.end_line))}. "
        "Line ends are `\\n` here, `.` matches them too, `^` and `$` match at each line.",
        data=near.to_data(),
    )


def _words_of(pattern: str) -> str:
    """About what a pattern would match: for the nearest passage only."""
    text = re.sub(r"\\n", "\n", pattern)
    text = re.sub(r"\\[a-zA-Z][*+?]*|\.[*+?]+|\(\?[:=!<P]*", " ", text)
    return re.sub(r"\\(.)", r"\1", text)


def _several(page: ToolText, places: Sequence[int]) -> Ambiguous:
    lines = lines_of(page.text, places[:_LINES_TOLD_MAX])
    shown = ", ".join(map(str, lines[:10])) + (", …" if len(places) > 10 else "")
    return Ambiguous(
        f"The needle matches {len(places)} times in {page.path}, at lines {shown}.",
        hint="Make it longer until it names one place, or set allow_multiple_occurrences if all are meant.",
        data={"found": len(places), "lines": lines},
    )


def _begins_early(text: str, match: Match, found: int) -> Ambiguous:
    first, last = lines_of(text, [match.start, match.end - 1])
    return Ambiguous(
        f"The match at {numbered((first, last))} holds another one, which begins later: "
        "it may begin too early.",
        hint="Let the pattern begin with text that is there once, not with what can be shorter, such as "
        "`\\s*`, or name what lies between instead of `.*?`.",
        data={"found": found, "lines": [first], "start_line": first, "end_line": last},
    )


DIALECT = Dialect(
    "serena",
    "Serena's tool that replaces a text or a regular expression in one file.",
    (
        ToolDefinition(
            name="replace_content",
            description="Replace what `needle` matches in one file by `repl`. It must match exactly once, "
            "unless allow_multiple_occurrences is true. For a long passage, use mode regex and write "
            "`first words.*?last words` instead of the whole of it.",
            schema={
                "type": "object",
                "properties": {
                    "relative_path": {
                        "type": "string",
                        "description": "The file, relative to the workspace's root.",
                    },
                    "needle": {
                        "type": "string",
                        "description": "What is looked for: the text itself in mode literal; in mode regex a "
                        "Python regular expression, in which `.` matches line ends too and `^` and `$` match "
                        "at each line. Line ends are LF.",
                    },
                    "repl": {
                        "type": "string",
                        "description": "What is put there, as it stands. In mode regex only, `$!1` is the "
                        "text of the first group, and so on.",
                    },
                    "mode": {
                        "type": "string",
                        "enum": ["literal", "regex"],
                        "description": "How `needle` is meant.",
                    },
                    "allow_multiple_occurrences": {
                        "type": "boolean",
                        "default": False,
                        "description": "Replace every match instead of refusing when there are several.",
                    },
                },
                "required": ["relative_path", "needle", "repl", "mode"],
            },
            run=replace_content,
        ),
    ),
)
