"""Gemini CLI's `replace` of 2026: "smart" expects a count, and "head" takes `allow_multiple`.

The call, its path and its refusals, in the original's words. `gemini_stages` has the search.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from editd.edits.approximate import js_trim
from editd.edits.replace import EMPTY_FILE_HINT, LINES_TOLD_MAX, list_numbers, no_match
from editd.edits.search import lines_of
from editd.errors import (
    Ambiguous,
    CountMismatch,
    FileExists,
    FileMissing,
    InvalidParams,
    NoChange,
    NotAFile,
    PathOutside,
    Refused,
)
from editd.tool_api.arguments import kind_of, refuse_half_characters, text_of
from editd.tool_api.overlaps import overlap_warning
from editd.tools.gemini_stages import StageCall, run_stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.tool_api.file_access import ToolApi
    from editd.tool_api.tool_text import ToolText
    from editd.tools.gemini_stages import StageResult
    from editd.values.path import WorkspacePath

FOLDERS_MAX = 50  # that the search for a relative path looks into, as in the original
_PLACEHOLDERS = frozenset(
    {
        "rest of", "rest of method", "rest of methods", "rest of code",
        "unchanged code", "unchanged method", "unchanged methods",
    }
)  # fmt: skip
_WAYS = {
    "indentation": "with other white space around its lines",
    "white_space": "with other white space between its words",
    "approximate": "only approximately",
}


class SmartCall(Struct, frozen=True):
    path: str
    old: str
    new: str
    count: float | None  # None: any number of matches from one on
    is_head: bool

    @classmethod
    def parse(cls, args: Mapping[str, Any], *, is_head: bool) -> SmartCall:
        """Parse the arguments; InvalidParams for one that is missing or of the wrong type."""
        names = ("file_path", "instruction", "old_string", "new_string")
        path, _, old, new = (text_of(args, name) for name in names)
        count = _count_of_head(args) if is_head else parse_count(args)
        if not path:
            raise InvalidParams(
                "The 'file_path' parameter must be non-empty.",
                hint="Give the path of a file.",
                data={"argument": "file_path"},
            )
        return cls(path, old, new, count, is_head)


def parse_count(args: Mapping[str, Any]) -> float:
    """Return `expected_replacements`. The original accepts a fraction, which no number of matches equals."""
    count = args.get("expected_replacements", 1)
    if isinstance(count, bool) or not isinstance(count, int | float) or not count >= 1:
        raise InvalidParams(
            "`expected_replacements` is "
            + (f"{count}." if kind_of(count) == "a number" else f"to be a number, not {kind_of(count)}."),
            hint="Send a number from 1, or leave it out (default: 1).",
            data={"argument": "expected_replacements"},
        )
    return count


def _count_of_head(args: Mapping[str, Any]) -> float | None:
    allows = args.get("allow_multiple", False)
    if not isinstance(allows, bool):
        raise InvalidParams(
            f"`allow_multiple` must be a boolean, not {kind_of(allows)}.",
            hint="Send true to replace all matches, or leave it out.",
            data={"argument": "allow_multiple"},
        )
    return None if allows else 1


def generation_of(
    args: Mapping[str, Any], configured: Literal["auto", "classic", "smart", "head"]
) -> Literal["classic", "smart", "head"]:
    """Return the generation of a call: the configured one, or the newest one with its arguments."""
    if configured != "auto":
        return configured
    if "allow_multiple" in args:
        return "head"
    if "instruction" not in args:
        return "classic"
    return "smart" if "expected_replacements" in args else "head"


def refuse_other_generations(
    args: Mapping[str, Any], generation: Literal["classic", "smart", "head"]
) -> None:
    """Raise InvalidParams for the number of matches in the form of another generation: it has no effect."""
    other, own = _COUNTS if generation == "head" else reversed(_COUNTS)
    if other in args:
        raise InvalidParams(
            f"`{other}` is no argument of the generation {generation}.",
            hint=f"Send `{own}`, or leave both out to replace one occurrence.",
            data={"argument": other, "similar": own},
        )


_COUNTS = ("expected_replacements", "allow_multiple")


def run(args: Mapping[str, Any], api: ToolApi, *, is_head: bool) -> str:
    """Create a file, or replace a text in one; return the original's answer."""
    call = SmartCall.parse(args, is_head=is_head)
    name = _locate(call, api)
    _refuse_placeholder(call)
    path = api.path(name)
    shown = name if name.startswith("/") else f"{api.root}/{path}"
    page = api.text_at(path)
    if page is None:
        return create(path, call.old, call.new, shown, f"File not found: {shown}", api)
    if not call.old:
        raise FileExists(
            f"File already exists, cannot create: {shown}",
            hint="Give the text that is to be replaced as old_string." if page.raw else EMPTY_FILE_HINT,
            data={"path": path.text},
        )
    return _replace(call, page, shown, api)


def _replace(call: SmartCall, page: ToolText, shown: str, api: ToolApi) -> str:
    text = page.raw.replace("\r\n", "\n")  # a lone CR is no line end; offsets equal the page's
    old, new = call.old.replace("\r\n", "\n"), call.new.replace("\r\n", "\n")
    result = run_stages(text, StageCall(old, new, call.old, call.is_head, call.count), api.matches)
    if result is None:
        raise no_match(
            f"Failed to edit, 0 occurrences found for old_string in {shown}. Ensure you're not escaping "
            "content incorrectly and check whitespace, indentation, and context.",
            text, old, new=new, count=None if call.count is None else int(call.count),
        )  # fmt: skip
    _refuse_count(call, text, result, shown)
    if old == new:
        raise NoChange(
            f"No changes to apply. The old_string and new_string are identical in file: {shown}",
            hint="Send the new text as new_string: line ends alone cannot be changed.",
            data={"path": page.path.text},
        )
    refuse_half_characters(call.new, "new_string")
    api.edit(page, result.replacements, _warnings(text, result))
    return f"Successfully modified file: {shown} ({result.occurrences} replacements)."


def create(path: WorkspacePath, old: str, new: str, shown: str, missing: str, api: ToolApi) -> str:
    """Create a file, of any generation. Raises FileMissing with the message `missing` if `old` has text."""
    _refuse_blocked_path(path, api)
    if old:
        raise FileMissing(
            missing,
            hint='Check the path, or send an empty old_string ("") to make the file with new_string.',
            data={"path": path.text},
        )
    refuse_half_characters(new, "new_string")
    api.write(path, new)
    return f"Created new file: {shown} with provided content."


# ── The path ───────────────────────────────────────────────────────────────────────────────────


def _locate(call: SmartCall, api: ToolApi) -> str:
    """Return the path of the call, or the only file in the first folders whose path ends with it."""
    whole = call.path
    if whole.startswith("/") or _exists(whole, api):
        return whole
    name = whole.rstrip("/").rpartition("/")[2]
    matches = [path for path in _files_named(name, api) if f"{api.root}/{path}".endswith(whole)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        places = ", ".join(f"{api.root}/{path}" for path in matches)
        raise InvalidParams(
            f"The file path '{whole}' is ambiguous and matches multiple files. "
            f"Please provide a more specific path. Matches: {places}",
            hint="Give the absolute path of one file.",
            data={"argument": "file_path", "matches": matches},
        )
    if call.is_head:
        return whole
    raise InvalidParams(
        f"File not found for '{whole}' and path is not absolute.",
        hint=f"Give the whole path, such as {api.root}/{whole}.",
        data={"argument": "file_path"},
    )


def _exists(name: str, api: ToolApi) -> bool:
    """Return whether there is something at a relative path, or a path that will be refused."""
    try:
        return api.version(api.path(name)) is not None
    except (NotAFile, PathOutside):
        return True


def _files_named(name: str, api: ToolApi) -> Iterator[str]:
    """Yield the files of that name, breadth first, from the first folders of the workspace."""
    folders = [""]
    for folder in folders:  # it grows
        for entry in api.names(folder) or ():
            if entry.endswith("/") and len(folders) < FOLDERS_MAX:
                folders.append(f"{folder}{entry}")
            elif entry == name:
                yield f"{folder}{entry}"


def _refuse_blocked_path(path: WorkspacePath, api: ToolApi) -> None:
    """Raise PathOutside, as the original does, if a file or a dangling link obstructs `path`."""
    names = path.text.split("/")
    for depth in range(len(names)):
        listing = api.names("/".join(names[:depth])) or []
        prefix = "/".join(names[: depth + 1])
        if names[depth] in listing and api.names(prefix) is None:
            raise PathOutside(
                f"{prefix} is no folder."
                if depth + 1 < len(names)
                else f"{prefix} is a symbolic link to nothing.",
                hint="Name a file in a folder, or a new file.",
                data={"path": path.text},
            )


# ── Placeholders ───────────────────────────────────────────────────────────────────────────────


def _refuse_placeholder(call: SmartCall) -> None:
    if _placeholders(call.new) - _placeholders(call.old):
        raise InvalidParams(
            "`new_string` contains an omission placeholder (for example 'rest of methods ...'). "
            "Provide exact literal replacement text.",
            hint="Write the omitted lines into new_string.",
            data={"argument": "new_string"},
        )


def _placeholders(text: str) -> set[str]:
    """Return the words before the dots of each line that stands for omitted lines."""
    if "..." not in text:
        return set()
    lines = (line for line in text.split("\n") if "..." in line)
    return {words for line in lines if (words := _placeholder(line)) in _PLACEHOLDERS}


def _placeholder(line: str) -> str:
    line = js_trim(js_trim(line).removeprefix("//"))
    if line.startswith("(") and line.endswith(")"):
        line = js_trim(line[1:-1])
    words, _, rest = line.partition("...")
    is_open = js_trim(rest).strip(".")
    return "" if is_open else re.sub("[ \t\r\n]+", " ", js_trim(words.lower()))


# ── Counts and warnings ────────────────────────────────────────────────────────────────────────


def _refuse_count(call: SmartCall, text: str, result: StageResult, shown: str) -> None:
    """Raise for a wrong number of matches, and for matches that the original skips: nothing is guessed."""
    count, occurrences, places = call.count, result.occurrences, result.places
    if count is None:
        return
    if count == 1 and result.twin is not None:  # a place that overlaps the only one is a second one
        places = (*places, result.twin)
    if occurrences == count:
        occurrences = len(places)
    if occurrences == count:
        return
    refusal: type[Refused] = Ambiguous if count == 1 else CountMismatch
    times = "occurrence" if count == 1 else "occurrences"
    tail = " If you intended to replace multiple occurrences, set 'allow_multiple' to true."
    setting = "allow_multiple: true" if call.is_head else f"expected_replacements: {occurrences}"
    raise refusal(
        f"Failed to edit, Expected {count:g} {times} but found {occurrences} for old_string in file: {shown}"
        + (f".{tail}" if call.is_head else ""),
        hint=f"It is at {places_named(text, places)}. Add lines around it to old_string and "
        f"new_string until it names one place, or send {setting} to replace all of them.",
        data={
            **({} if count == 1 else {"expected": count}),
            "found": occurrences,
            "lines": lines_of(text, places[:LINES_TOLD_MAX]),
        },
    )


def _warnings(text: str, result: StageResult) -> list[str]:
    warnings = []
    if result.stage != "exact":
        where = places_named(text, result.places)
        warnings.append(f"{result.stage}: old_string is there {_WAYS[result.stage]}, at {where}.")
    if result.twin is not None:
        warnings.append(overlap_warning(text, result.places[-1], result.twin, "old_string"))
    return warnings


def places_named(text: str, places: Sequence[int]) -> str:
    """Return the line numbers in words: `line 3`, or `lines 3, 5`."""
    return f"line{'' if len(places) == 1 else 's'} {list_numbers(lines_of(text, places[:LINES_TOLD_MAX]))}"
