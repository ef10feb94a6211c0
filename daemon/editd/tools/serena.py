"""Serena's `replace_content`: a literal text or a regular expression, replaced once or everywhere.

It follows the original's version of December 2025, with the rules of all dialects. The core is
`replacements_of`: matches and a template in, replacements out.

A match of several lines that contains a later match is refused: it may begin too early. A match that begins
within another one and ends after it counts as a second place. If all are replaced, they are taken from the
left, and a warning reports one that overlaps the last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.edits.gitignore import Rule, is_ignored, rules_of
from editd.edits.replace import (
    EMPTY_FILE_HINT,
    LINES_TOLD_MAX,
    Replacement,
    describe_lines,
    list_numbers,
    no_match,
)
from editd.edits.search import (
    Match,
    Search,
    Span,
    lines_of,
    nearest,
    places_of,
    with_plain_line_ends,
    with_twin,
)
from editd.errors import Ambiguous, FileMissing, InvalidParams, NoMatch, NotAFile, PathIgnored
from editd.tool_api.arguments import argument, kind_of, refuse_half_characters, text_of
from editd.tool_api.dialect import Dialect, ToolDefinition
from editd.tool_api.overlaps import overlap_warning, overlap_warnings
from editd.values.name_key import key_of
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.tool_api.file_access import ToolApi
    from editd.tool_api.tool_text import ToolText

_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "f", "n"})
_GROUP = re.compile(r"\$!(\d+)")


class SerenaCall(Struct, frozen=True):
    path: str
    needle: str
    repl: str
    is_literal: bool
    is_multiple: bool

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> SerenaCall:
        """Parse the arguments; InvalidParams for one that is missing or of the wrong type."""
        path, needle, repl = (text_of(args, name) for name in ("relative_path", "needle", "repl"))
        mode = text_of(args, "mode")
        if mode not in ("literal", "regex"):
            raise InvalidParams(
                f"`mode` is {mode!r}.", hint='Send "literal" or "regex".', data={"argument": "mode"}
            )
        is_multiple = _truth_of(args.get("allow_multiple_occurrences", False))
        return cls(path, needle, repl, mode == "literal", is_multiple)


def replace_content(args: Mapping[str, Any], api: ToolApi) -> str:
    """Replace the matches of the needle in one file; return `OK`."""
    call = SerenaCall.parse(args)
    page = _page(call.path, api)
    needle = _needle_of(call, page)
    if call.is_literal:
        matches = literal_matches(page.text, needle)
    else:
        matches = list(api.matches(Search("python", needle, page.text, looks_inside=True)))
    if not matches:
        raise _nothing(page, needle, call)
    replacements = replacements_of(page.text, matches, call.repl, is_literal=call.is_literal)
    starts = [match.start for match in matches]
    if call.is_literal and not call.is_multiple:
        starts = [span.start for span in with_twin(page.text, places_of(page.text, needle))]
    elif (twin := matches[-1].twin) is not None:
        starts.append(twin)
    if len(starts) > 1 and not call.is_multiple:
        raise _several(page, starts)
    refuse_half_characters(call.repl, "repl")
    warnings = _warnings(page, matches[-1], is_literal=call.is_literal)
    api.edit(page, replacements, warnings)
    return "OK"


def _warnings(page: ToolText, last: Match, *, is_literal: bool) -> Sequence[str]:
    """Return a warning if a match that was not replaced overlaps the last one."""
    if is_literal:
        return overlap_warnings(page.text, Span(last.start, last.end), "the needle")
    return () if last.twin is None else [overlap_warning(page.text, last.start, last.twin, "the needle")]


def literal_matches(text: str, needle: str) -> list[Match]:
    """Return the matches of `needle`, which is not empty, in `text`, from the left, without overlaps."""
    return [Match(span.start, span.end) for span in places_of(text, needle)]


def replacements_of(text: str, matches: Sequence[Match], repl: str, *, is_literal: bool) -> list[Replacement]:
    """Return each match's replacement: `repl`, with `$!1` as group 1 unless `is_literal`.

    Raises Ambiguous for a match that contains a later one, InvalidParams for an unknown group.
    """
    replacements = []
    for match in matches:
        if match.has_inner:
            raise _begins_early(text, match, len(matches))
        new = repl if is_literal else _expand(repl, match, text)
        replacements.append(Replacement(match.start, match.end, new))
    return replacements


def _expand(repl: str, match: Match, text: str) -> str:
    """Replace each `$!n` in the template by the text of group n, empty for a group outside the match."""

    def group(reference: re.Match[str]) -> str:
        digits = reference[1]
        number = int(digits) if len(digits) < 10 else len(match.groups) + 1
        if number > len(match.groups):
            raise InvalidParams(
                f"`repl` names group {digits[:20]}, and the pattern has {len(match.groups)}.",
                hint="Use `$!1` for the pattern's first group in parentheses, `$!0` for the whole match. "
                'Only mode "literal" can insert a `$!` before digits.',
                data={"argument": "repl", "group": digits[:20], "groups": len(match.groups)},
            )
        content = text[match.start : match.end] if number == 0 else match.groups[number - 1]
        return content or ""

    return _GROUP.sub(group, repl)


def _truth_of(value: object) -> bool:
    """Parse a boolean, or a number or word for one."""
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    word = value.lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise InvalidParams(
        f"`allow_multiple_occurrences` must be a boolean, not {kind_of(value)} such as this.",
        hint="Send true or false, or leave it out (default: false).",
        data={"argument": "allow_multiple_occurrences"},
    )


# ── The file ───────────────────────────────────────────────────────────────────────────────────


def _page(name: str, api: ToolApi) -> ToolText:
    """Return the file that a call names; check that it is inside, exists, is not ignored and no folder."""
    path = api.path(name.rstrip("/") or name)
    _refuse_missing_folders(name, api)
    is_folder = api.names(path.text) is not None
    if not is_folder and api.version(path) is None:
        raise _missing(name)
    _refuse_ignored(path, api, is_folder=is_folder)
    page = api.text_at(path)
    if page is None or name.endswith("/"):
        raise NotAFile(f"{name} names a folder.", hint="Name a file, without a final `/`.")
    return page


def _refuse_missing_folders(path: str, api: ToolApi) -> None:
    """Raise FileMissing if a `..` follows a name that is no folder."""
    names: list[str] = []
    for name in path.removeprefix(api.root).split("/"):
        if name == "..":
            if names and api.names("/".join(names)) is None:
                raise _missing(path)
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)


def _missing(name: str) -> FileMissing:
    return FileMissing(
        f"There is no file {name}.",
        hint="Check the path, which is relative to the workspace's root: this tool makes no files.",
        data={"path": name},
    )


def _refuse_ignored(path: WorkspacePath, api: ToolApi, *, is_folder: bool) -> None:
    def rules_in(folder: str) -> Sequence[Rule]:
        path = WorkspacePath.parse(f"{folder}/.gitignore" if folder else ".gitignore")
        page = api.peek(path)
        # As in git, the target folder of a symbolic link has no rules under the link's name.
        rules: Sequence[Rule] = ()
        if page is not None and key_of(page.path.folder) == folder:
            rules = rules_of(key_of(page.text).split("\n"), folder)
        return rules if folder else (*rules_of([*map(key_of, api.settings.ignored_paths)]), *rules)

    if is_ignored(key_of(path.text), rules_in, is_folder=is_folder):
        raise PathIgnored(
            f"{path} is ignored, by a `.gitignore` or the configuration's `ignored_paths`.",
            hint="Edit the file that it is made from, or change the rule: this tool edits no ignored files.",
            data={"path": path.text},
        )


# ── The needle ─────────────────────────────────────────────────────────────────────────────────


def _needle_of(call: SerenaCall, page: ToolText) -> str:
    """Return the needle for the search in the page's text; refuse an empty one.

    In a file with line ends other than LF, a line end of a literal needle matches any.
    """
    if not call.needle:
        if page.text and not call.is_multiple:
            raise _several(page, range(len(page.text) + 1))
        raise InvalidParams(
            "`needle` is empty.",
            hint=EMPTY_FILE_HINT
            if not page.text
            else "Give the text to be replaced. To insert, replace a text by itself and the new text.",
            data={"argument": "needle"},
        )
    return with_plain_line_ends(call.needle) if call.is_literal and "\r" in page.raw else call.needle


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
            hint=f'Use mode "literal", or escape special characters: the needle itself is at line {line}.',
            data={"literal_lines": lines_of(page.text, places[:LINES_TOLD_MAX])},
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
        hint=f"The nearest passage is at {describe_lines((near.start_line, near.end_line))}. "
        "Line ends are `\\n` here, `.` matches them too, `^` and `$` match at each line.",
        data=near.to_data(),
    )


def _words_of(pattern: str) -> str:
    """Return a rough text of what a pattern matches, only to find the nearest passage."""
    text = re.sub(r"\\n", "\n", pattern)
    text = re.sub(r"\\[a-zA-Z][*+?]*|\.[*+?]+|\(\?[:=!<P]*", " ", text)
    return re.sub(r"\\(.)", r"\1", text)


def _several(page: ToolText, places: Sequence[int]) -> Ambiguous:
    lines = lines_of(page.text, places[:LINES_TOLD_MAX])
    return Ambiguous(
        f"The needle matches {len(places)} times in {page.path}, at lines {list_numbers(lines)}.",
        hint="Extend it until it names one place, or set allow_multiple_occurrences to replace all of them.",
        data={"found": len(places), "lines": lines},
    )


def _begins_early(text: str, match: Match, occurrences: int) -> Ambiguous:
    first, last = lines_of(text, [match.start, match.end - 1])
    return Ambiguous(
        f"The match at {describe_lines((first, last))} holds another match, which begins later: "
        "it may begin too early.",
        hint="Begin the pattern with text that occurs once, not with a part that can be shorter, such as "
        "`\\s*`, or name the text between instead of `.*?`.",
        data={"found": occurrences, "lines": [first], "start_line": first, "end_line": last},
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
                    "relative_path": argument("string", "The file, relative to the workspace's root."),
                    "needle": argument(
                        "string",
                        "The text to find: the text itself in mode literal; in mode regex a "
                        "Python regular expression, in which `.` matches line ends too and `^` and `$` match "
                        "at each line. Line ends are LF.",
                    ),
                    "repl": argument(
                        "string",
                        "The new text, unchanged. In mode regex only, `$!1` is the "
                        "text of the first group, and so on.",
                    ),
                    "mode": argument("string", "The kind of `needle`.", enum=["literal", "regex"]),
                    "allow_multiple_occurrences": argument(
                        "boolean",
                        "Replace every match instead of refusing when there are several.",
                        default=False,
                    ),
                },
                "required": ["relative_path", "needle", "repl", "mode"],
            },
            run=replace_content,
            searched="relative_path",
        ),
    ),
)
