"""Gemini CLI's `replace`: an exact text, expected an exact number of times, or a new file.

It follows the original with the rules of all dialects. The version of November 2025 ("classic") is here.
Those of 2026 ("smart" and "head") are in `gemini_smart`. The core is `replacements_of`: text and strings
in, replacements and warnings out.

An `old_string` without a match is also searched with its escapes undone, and a warning reports that. The
original's trimming of both strings is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.edits.replace import EMPTY_FILE_HINT, LINES_TOLD_MAX, Replacement, no_match
from editd.edits.search import lines_of, places_of, with_twin
from editd.errors import (
    Ambiguous,
    CountMismatch,
    FileExists,
    InvalidParams,
    NoChange,
    Refused,
)
from editd.tool_api.arguments import argument, refuse_half_characters, text_of
from editd.tool_api.dialect import Dialect, ToolDefinition
from editd.tool_api.overlaps import overlap_warnings
from editd.tool_api.review_answers import ReviewAnswers
from editd.tools import gemini_smart
from editd.tools.gemini_smart import parse_count, places_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.tool_api.file_access import ToolApi
    from editd.tool_api.review_answers import ChangedEdit
    from editd.tool_api.tool_text import ToolText
    from editd.values.path import WorkspacePath

_ESCAPED = re.compile(r"\\+([ntr'\"`\\\n])")
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r"}


class GeminiCall(Struct, frozen=True):
    path: str
    old: str
    new: str
    count: float
    is_by_user: bool

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> GeminiCall:
        """Parse the arguments; InvalidParams for one that is missing or of the wrong type."""
        path, old, new = (text_of(args, name) for name in ("file_path", "old_string", "new_string"))
        count = parse_count(args)
        by_user = args.get("modified_by_user")
        return cls(path, old, new, count, bool(by_user) or isinstance(by_user, list | dict))


class ReplaceResult(Struct, frozen=True):
    replacements: tuple[Replacement, ...]
    warnings: tuple[str, ...] = ()


def run(args: Mapping[str, Any], api: ToolApi) -> str:
    """Create a file, or replace a text in one; return the original's answer."""
    generation = gemini_smart.generation_of(args, api.settings.generation)
    gemini_smart.refuse_other_generations(args, generation)
    if generation != "classic":
        return gemini_smart.run(args, api, is_head=generation == "head")
    call = GeminiCall.parse(args)
    path = _path(call.path, api)
    page = api.text_at(path)
    if page is None:
        missing = f"There is no file {path}."
        return gemini_smart.create(path, call.old, call.new, call.path, missing, api) + _by_user(call)
    if not call.old:
        raise FileExists(
            f"{path} exists, and `old_string` is empty, which is for a new file.",
            hint="Give the text that is to be replaced as old_string." if page.raw else EMPTY_FILE_HINT,
            data={"path": path.text},
        )
    result = replacements_of(_reading(page), _search_text(call, page), call.new, call.count, path=path.text)
    if page.with_replacements(result.replacements) == page.raw:
        raise _no_change(path.text)
    refuse_half_characters(call.new, "new_string")
    api.edit(page, result.replacements, result.warnings)
    count = len(result.replacements)
    return f"Successfully modified file: {call.path} ({count} replacements)." + _by_user(call)


def replacements_of(
    text: str, old: str, new: str, count: float = 1, *, path: str = "the file"
) -> ReplaceResult:
    """Return the replacements of `old`, which is not empty, by `new` at each of its `count` matches.

    Raises NoMatch, Ambiguous or CountMismatch for another number of matches; NoChange if `old` is `new`.
    """
    assert old, "an empty text is at every place"
    looked_for, spans = old, places_of(text, old)
    if not spans:
        looked_for = unescape(old)
        spans = places_of(text, looked_for)
    if not spans:
        raise no_match(f"`old_string` is not in {path}.", text, old, new=new, count=int(count))
    is_unescaped = looked_for != old
    places = [span.start for span in (with_twin(text, spans) if count == 1 else spans)]
    if len(places) != count:
        raise _count_refusal(text, places, count, path, is_unescaped=is_unescaped)
    if old == new:
        raise _no_change(path)
    warnings = [_how_it_was_read(text, places)] if is_unescaped else []
    warnings += overlap_warnings(text, spans[-1], "old_string")
    return ReplaceResult(tuple(Replacement(span.start, span.end, new) for span in spans), tuple(warnings))


def unescape(text: str) -> str:
    """Undo the escapes of LF, TAB, CR, quotes and `\\`, with any number of backslashes each."""
    return _ESCAPED.sub(lambda escape: _MEANINGS.get(escape[1], escape[1]), text)


def _reading(page: ToolText) -> str:
    """Return the text as the original reads it: a lone CR is no line end. Offsets equal the page's."""
    return page.raw.replace("\r\n", "\n")


def _search_text(call: GeminiCall, page: ToolText) -> str:
    """Return `old_string` for the search: in a file with CR LF, its CR LF become LF."""
    return call.old.replace("\r\n", "\n") if "\r\n" in page.raw else call.old


# ── The file ───────────────────────────────────────────────────────────────────────────────────


def _path(name: str, api: ToolApi) -> WorkspacePath:
    if not name.startswith("/"):
        raise InvalidParams(
            f"`file_path` is to be absolute, and is {name!r}." if name else "`file_path` is empty.",
            hint=f"Give the whole path, such as {api.root}/{name or 'src/main.c'}.",
            data={"argument": "file_path"},
        )
    return api.path(name)


def _by_user(call: GeminiCall) -> str:
    return f" User modified the `new_string` content to be: {call.new}." if call.is_by_user else ""


# ── Warnings and refusals ──────────────────────────────────────────────────────────────────────


def _how_it_was_read(text: str, places: Sequence[int]) -> str:
    return (
        f"unescaped: old_string is there only with its backslashes undone, at {places_named(text, places)}; "
        "new_string was inserted unchanged."
    )


def _count_refusal(
    text: str, places: Sequence[int], count: float, path: str, *, is_unescaped: bool
) -> Refused:
    occurrences = len(places)
    how = "with its backslashes undone " if is_unescaped else ""
    times = "once" if occurrences == 1 else f"{occurrences} times"
    where = f"`old_string` is {how}in {path} {times}, at {places_named(text, places)}"
    lines = lines_of(text, places[:LINES_TOLD_MAX])
    if count == 1:
        return Ambiguous(
            f"{where}.",
            hint="Add lines around it to old_string and new_string until it names one place, "
            f"or send expected_replacements: {occurrences} to replace all of them.",
            data={"found": occurrences, "lines": lines},
        )
    return CountMismatch(
        f"{where}; expected_replacements is {count}.",
        hint=f"Send expected_replacements: {occurrences} to replace all of them.",
        data={"expected": count, "found": occurrences, "lines": lines},
    )


def _no_change(path: str) -> NoChange:
    return NoChange(
        f"`new_string` is equal to `old_string`: nothing in {path} would change.",
        hint="Send the new text as new_string: line ends alone cannot be changed.",
        data={"path": path},
    )


TEXT_CHARACTERS_MAX = 4_000  # of a new text that is repeated; its difference replaces a longer one


def answer_to_changes(edit: ChangedEdit) -> str:
    """Return the original's answer to an edit that landed with the user's changes."""
    content = edit.text if len(edit.text) <= TEXT_CHARACTERS_MAX else edit.diff
    return f"{edit.answer} User modified the `new_string` content to be: {content}."


def answer_to_rejection(comment: str) -> str:
    """Return the original's answer to an edit that the user denied."""
    fact = "[Operation Cancelled] Reason: User denied execution."
    return f"{fact} {comment}" if comment else fact


DIALECT = Dialect(
    "gemini",
    "Gemini CLI's tool that replaces an exact text in one file, or makes a new file.",
    (
        ToolDefinition(
            name="replace",
            description="Replace old_string by new_string in one file. It must be there exactly "
            "once, or expected_replacements times, so give some lines around the change. "
            "An empty old_string makes a new file that holds new_string.",
            schema={
                "type": "object",
                "properties": {
                    "file_path": argument("string", "The file's absolute path, which begins with `/`."),
                    "old_string": argument(
                        "string",
                        "The exact text to be replaced, white space and indentation "
                        "included, nothing escaped. Empty for a new file.",
                    ),
                    "new_string": argument("string", "The exact new text, nothing escaped. Empty to delete."),
                    "instruction": argument("string", "What the change is for."),
                    "allow_multiple": argument("boolean", "Replace all matches (default: false)."),
                    "expected_replacements": argument(
                        "number",
                        "The number of occurrences of old_string; all of them are replaced.",
                        minimum=1,
                        default=1,
                    ),
                },
                "required": ["file_path", "old_string", "new_string"],
            },
            run=run,
            also=frozenset(
                {"modified_by_user", "ai_proposed_content", "ai_proposed_string", "wait_for_previous"}
            ),
        ),
    ),
    ReviewAnswers(answer_to_changes, answer_to_rejection, is_of_one_file=True),
)
