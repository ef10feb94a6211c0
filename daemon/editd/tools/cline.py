"""Cline's `replace_in_file`: SEARCH/REPLACE blocks, each replacing the whole lines that it names.

All blocks are matched against the file before the call. Lines match exactly, or without white space at
both ends, or by the first and last line of the block. The first of these ways with a match decides.
Blocks follow the file's order; an exact match above the previous block is accepted if there is no other.

M1  A block replaces the first match after the block before it. A warning counts the other matches.
M2  A warning reports each match that is not exact.
M3  A malformed diff is refused if the original misreads it: an unclosed section, a marker inside another
    section, lines that two blocks replace.

Ignores line ends and encodings: text and diff have LF here, see `tools.api`.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace as with_fields

from editd.edits.approximate import js_trim
from editd.edits.replace import LineMatcher, Replacement, describe_lines, list_numbers, no_match, replace
from editd.edits.search import with_plain_line_ends
from editd.errors import MalformedEdit, NoMatch
from editd.tool_api.arguments import argument, text_of
from editd.tool_api.dialect import Dialect, ToolDefinition
from editd.tool_api.review_answers import ReviewAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from editd.tool_api.file_access import ToolApi
    from editd.tool_api.review_answers import ChangedEdit

_MATCHES_MAX = 100  # other matches of a block that a warning counts
_FORM = (
    "A block is `------- SEARCH`, the old lines, `=======`, the new lines, `+++++++ REPLACE`, "
    "each marker alone on its line."
)


def replace_in_file(arguments: Mapping[str, Any], api: ToolApi) -> str:
    """Apply the blocks of `diff` to the file at `path`; an empty SEARCH section creates the file."""
    name = text_of(arguments, "path", may_be_empty=False)
    diff = text_of(arguments, "diff", may_be_empty=False)
    path = api.path(name)
    page = api.text_at(path)
    edits = edits_of(None if page is None else page.text, diff, path.text)
    if page is None:
        api.write(path, replace("", edits.replacements), edits.warnings)
    else:
        api.edit(page, edits.replacements, edits.warnings)
    return f"The content was successfully saved to {path.text}."


class Edits(Struct, frozen=True):
    """The replacements of all blocks, and warnings about their form and their matches."""

    replacements: tuple[Replacement, ...]
    warnings: tuple[str, ...]


def edits_of(text: str | None, diff: str, path: str = "the file") -> Edits:
    """Return the changes of `diff` in `text` (None: the file is missing), as replacements.

    Raises MalformedEdit and NoMatch, for the first fault in the diff: the original, too, matches while it
    parses.
    """
    blocks = read(diff)
    file = _File(text or "")
    matches: list[_Match] = []
    position = 0
    for block in blocks.blocks:
        match = _locate(file, block, position, path)
        if match is None:
            raise _not_there(text, file, block, path)
        matches.append(match)
        if not match.is_behind:
            position = match.end
    if blocks.fault is not None:
        raise blocks.fault
    _refuse_overlap(matches, path)
    return Edits(
        tuple(_replacement(file, match) for match in matches),
        (*blocks.warnings, *_warnings(file, matches, path)),
    )


# Reading the diff


class ClineBlock(Struct, frozen=True):
    """Old lines and their replacement. `line` is the line of the first marker in the diff, from 1."""

    number: int
    line: int
    search: tuple[str, ...]
    has_start: bool = True  # False if it begins with its separator; `hint` then names a likely cause
    hint: str = ""
    replacement: str = ""

    @property
    def name(self) -> str:
        return f"block {self.number} (line {self.line} of the diff)"


class ClineBlocks(Struct, frozen=True):
    """The blocks of a diff up to its first fault. After a fault, the last one may lack its replacement."""

    blocks: tuple[ClineBlock, ...]
    warnings: tuple[str, ...] = ()
    fault: MalformedEdit | None = None


class _Marker(Enum):
    START = re.compile(r"(?:-{3,}|<{3,}) SEARCH>?")
    SEPARATOR = re.compile(r"={3,}")
    END = re.compile(r"(?:\+{3,}|>{3,}) REPLACE>?")


class _Section(Enum):
    OUTSIDE = auto()
    SEARCH = auto()
    REPLACE = auto()


_NEXT: Mapping[tuple[_Section, _Marker], _Section] = {
    (_Section.OUTSIDE, _Marker.START): _Section.SEARCH,
    (_Section.OUTSIDE, _Marker.SEPARATOR): _Section.REPLACE,
    (_Section.SEARCH, _Marker.START): _Section.SEARCH,
    (_Section.SEARCH, _Marker.SEPARATOR): _Section.REPLACE,
    (_Section.REPLACE, _Marker.END): _Section.OUTSIDE,
}
_WRONG: Mapping[tuple[_Section, _Marker], tuple[str, str]] = {
    # The fault, and the hint if no line resembles the missing marker.
    (_Section.OUTSIDE, _Marker.END): ("is a REPLACE marker outside of any block", _FORM),
    (_Section.SEARCH, _Marker.END): (
        "closes the block of line {opened}, which has no `=======` line",
        "Put `=======` between the old lines and the new ones.",
    ),
    (_Section.REPLACE, _Marker.START): (
        "begins a block within the block of line {opened}, which has no REPLACE marker",
        "Close that block with `+++++++ REPLACE` before it.",
    ),
    (_Section.REPLACE, _Marker.SEPARATOR): (
        "is the second `=======` line of the block of line {opened}",
        "A line of three or more `=` cannot be in a section: leave it out, and change the lines around it.",
    ),
}
_NEARLY = re.compile(r"\s*(?:[-<+>=]{2,}\s*(?:SEARCH|REPLACE)\s*>*\s*|={2,}\s*)", re.IGNORECASE)
# A truncated END marker, in the last line of a diff that was cut off.
_CUT_OFF = re.compile(r"(?:\+{3,}|>{3,})(?: R?| RE| REP| REPL| REPLA| REPLAC| REPLACE>?\s+)?")
_BROKEN = re.compile(r"[-<=+>]+|[-<=+>]+\s*(?:SEARCH|REPLACE)\b.*")
# An END marker of another style, or behind a quote, a number, an entity or a character that is not seen.
_DISGUISED = re.compile(r".{0,20}?(?:[+>\uff0b\uff1e]{5,}|(?:&gt;){5,})\W{0,4}[A-Za-z_]{0,12}\W{0,8}")
# A line that ends with an END marker, a marker without its signs, and the end of a tag or of a fence around
# the diff. Matched against the last characters of the last line only.
_IN_PLACE = re.compile(
    r".*[+>]{3,}\s*REPLACE\W*|[\W_]*REPLACE[\W_]*|\s*</[\w:.-]+\s*>\s*|\s*(?:`{3,}|~{3,})\s*|\s*\]\]>\s*",
    re.IGNORECASE,
)
_END_CHARACTERS = 200
# A marker that is indented, in lower case, cut off, without its space, or followed by other text.
_BADLY_WRITTEN = re.compile(
    r"\s*(?:[-<=+>]{3,}\s*(?:SEARCH|REPLACE)(?![A-Za-z0-9]).*|[+>]{3,}\s*R(?:E(?:P(?:L(?:A(?:CE?)?)?)?)?)?\s*)",
    re.IGNORECASE,
)


def read(diff: str) -> ClineBlocks:
    """Parse `diff` into blocks, up to its first fault."""
    reader = _Reader(diff.replace("\r\n", "\n").split("\n"))
    try:
        reader.run()
    except MalformedEdit as fault:
        return ClineBlocks(tuple(reader.blocks), tuple(reader.warnings), fault)
    return ClineBlocks(tuple(reader.blocks), tuple(reader.warnings))


class _Reader(Struct):
    """The parser of a diff, with its state.

    The current block began at line `opened`; `content` is its section so far, from line `first` on.
    """

    lines: list[str]
    blocks: list[ClineBlock] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    section: _Section = _Section.OUTSIDE
    opened: int = 0
    first: int = 1
    content: list[str] = field(default_factory=list)

    def run(self) -> None:
        for number, line in enumerate(self.lines, 1):
            marker = _marker(line)
            if marker is None:
                self._refuse_lost_block(line, number)
                self.content.append(line)
            else:
                self._turn(marker, number)
        self._finish()

    def _refuse_lost_block(self, line: str, number: int) -> None:
        """Raise MalformedEdit for a badly written marker between blocks: its block would be left out."""
        if self.section is _Section.OUTSIDE and _BADLY_WRITTEN.fullmatch(line):
            raise _form_refusal(
                f"Line {number} of the diff ({line[:60]!r}) is outside of any block, and nearly a marker.",
                f"Line {number} ({line[:60]!r}) is nearly a marker, but not one. {_FORM}",
                number,
            )

    def _turn(self, marker: _Marker, number: int) -> None:
        section = _NEXT.get((self.section, marker))
        if section is None:
            fault, hint = _WRONG[self.section, marker]
            raise self._fault(f"Line {number} of the diff {fault.format(opened=self.opened)}.", hint, number)
        match marker:
            case _Marker.START:
                self._open(number)
            case _Marker.SEPARATOR:
                self._divide(number)
            case _Marker.END:
                self._close()
        self.section, self.first, self.content = section, number + 1, []

    def _open(self, number: int) -> None:
        if self.section is _Section.SEARCH and self.content:
            self.warnings.append(
                f"restarted: the SEARCH section of line {self.opened} of the diff begins again "
                f"at line {number}; the lines between were left out."
            )
        self.opened = number

    def _divide(self, number: int) -> None:
        count = len(self.blocks) + 1
        if self.section is _Section.OUTSIDE:
            self.opened = number
            self.blocks.append(ClineBlock(count, number, (), has_start=False, hint=self._nearly() or _FORM))
            return
        # A lone CR is a line end in a file (see `ToolText`), but is kept in a replacement.
        search = with_plain_line_ends(_join(self.content)).split("\n")[:-1]
        self.blocks.append(ClineBlock(count, self.opened, tuple(search)))

    def _close(self) -> None:
        self.blocks[-1] = with_fields(self.blocks[-1], replacement=_join(self.content))

    def _finish(self) -> None:
        if self.section is _Section.SEARCH:
            raise self._fault(
                f"The block of line {self.opened} of the diff has no `=======` line.",
                f"Finish it, or leave it out. {_FORM}",
                self.opened,
            )
        if self.section is _Section.REPLACE:
            self._finish_replacement()
        if not self.blocks:
            raise self._fault("The diff holds no SEARCH/REPLACE block.", _FORM, 1)

    def _finish_replacement(self) -> None:
        """Close the last block at the end of the diff, unless one of its lines may be a broken marker."""
        is_new_file = not self.blocks[-1].search
        if self.content and _CUT_OFF.fullmatch(self.content[-1]) and not is_new_file:
            self.content.pop()
        texts = [number for number, line in enumerate(self.content) if line.strip()]
        last = texts[-1] if texts else -1
        for number, line in enumerate(self.content):
            is_broken = (
                _BROKEN.fullmatch(line.strip())
                or _DISGUISED.fullmatch(line)
                or _IN_PLACE.fullmatch(line[-_END_CHARACTERS:])
            )
            if _BADLY_WRITTEN.fullmatch(line) or (number == last and is_broken):
                raise self._fault(
                    f"The block of line {self.opened} of the diff has no REPLACE marker, and line "
                    f"{self.first + number} ({line[:60]!r}) may be a broken one.",
                    "End the diff with a line `+++++++ REPLACE`.",
                    self.first + number,
                )
        adds_line = bool(self.content) and not self.content[-1]
        if adds_line and is_new_file:
            raise self._fault(
                f"The block of line {self.opened} of the diff makes a new file, and has no REPLACE marker.",
                "End the diff with a line `+++++++ REPLACE`.",
                self.opened,
            )
        self.warnings.append(
            f"unclosed: the block of line {self.opened} of the diff has no REPLACE marker; "
            "the end of the diff was taken for it"
            + (", and its last line end for an empty line." if adds_line else ".")
        )
        self._close()

    def _fault(self, message: str, hint: str, line: int) -> MalformedEdit:
        return _form_refusal(message, self._nearly() or hint, line)

    def _nearly(self) -> str:
        """Return a hint about a line of this section that resembles a marker, or an empty one."""
        for number, text in enumerate(self.content, self.first):
            if _NEARLY.fullmatch(text):
                return f"Line {number} ({text[:60]!r}) is nearly a marker, but not one. {_FORM}"
        return ""


def _join(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _marker(line: str) -> _Marker | None:
    if line[:1] not in ("-", "<", "=", "+", ">"):
        return None
    return next((marker for marker in _Marker if marker.value.fullmatch(line)), None)


def _form_refusal(message: str, hint: str, line: int) -> MalformedEdit:
    return MalformedEdit(message, hint=hint, data={"line": line})


# Finding the lines


class _File:
    """The file's lines; `is_open` if the last of them has no line end.

    After a final line end the original has one more, empty line. Here its index is `len(lines)`, and it
    matches only if nothing else does.
    """

    def __init__(self, text: str) -> None:
        pieces = text.split("\n")
        self.length = len(text)
        self.is_open = bool(pieces[-1])
        self.exact = LineMatcher(pieces if self.is_open else pieces[:-1])
        self.lines = self.exact.lines

    @cached_property
    def trimmed(self) -> LineMatcher:
        return LineMatcher([js_trim(line) for line in self.lines])

    def is_last(self, start: int, size: int) -> bool:
        """Return whether the last of these lines is the file's last one, without a line end.

        Such lines never match exactly in the original. Here they do if there is no other match.
        """
        return self.is_open and start + size == len(self.lines)

    def between(self, wanted: Sequence[str], start: int) -> Iterator[int]:
        """Yield each line from `start` on with the first and the last of `wanted` in their places."""
        size = len(wanted) - 1
        for line in self.trimmed.places(wanted[:1], start):
            if self.trimmed.lines[line + size : line + size + 1] == list(wanted[-1:]):
                yield line

    def at_end(self, wanted: Sequence[str], start: int, *, is_between: bool = False) -> Iterator[int]:
        """Yield the line of `wanted` if the line after the final line end is its last line.

        With `is_between`, compare only the first and the last of `wanted`.
        """
        first = len(self.lines) - len(wanted) + 1
        if self.is_open or wanted[-1] or first < max(start, 0):
            return
        compared = 1 if is_between else len(wanted) - 1
        if self.trimmed.lines[first : first + compared] == list(wanted[:compared]):
            yield first


class _Way(Struct, frozen=True):
    """One way to match the lines of a block."""

    kind: str  # "exact", or the kind of the warning
    places: Callable[[int], Iterator[int]]  # each line of the file, from one on, that the block begins at

    def first(self, start: int) -> int | None:
        """Return the first match from the line `start` on, or None."""
        return next(self.places(start), None)


class _Match(Struct, frozen=True):
    """The match of a block: the lines from `start` up to, not including, `end`."""

    block: ClineBlock
    way: _Way
    start: int
    end: int
    is_behind: bool = False  # above the match of the previous block

    @property
    def lines(self) -> str:
        """The lines' numbers in the file, from 1, in words."""
        return describe_lines((self.start + 1, max(self.end, self.start + 1)))


def _locate(file: _File, block: ClineBlock, low: int, path: str) -> _Match | None:
    """Return the first match of `block` from line `low` on, or the first one above it, or None."""
    exact, *others = _ways(file, block.search)
    if not block.search:
        if file.length:
            raise _empty_search(block, path)
        return _Match(block, exact, 0, 0, is_behind=low > 0)
    size = len(block.search)
    below, above = exact.first(low), exact.first(0)
    if below is not None and not file.is_last(below, size):
        return _Match(block, exact, below, below + size)
    if above is not None and file.is_last(above, size):
        above = None
    for way in others:
        start = way.first(low)
        if start is not None:
            return _Match(block, exact if start == below else way, start, start + size)
    return None if above is None else _Match(block, exact, above, above + size, is_behind=True)


def _ways(file: _File, search: Sequence[str]) -> Iterator[_Way]:
    """Yield the ways to match `search`, the strictest first."""
    yield _Way("exact", lambda start: file.exact.places(search, start))
    trimmed = [js_trim(line) for line in search]
    yield _Way("line_trimmed", lambda start: file.trimmed.places(trimmed, start))
    yield _Way("line_trimmed", lambda start: file.at_end(trimmed, start))
    if len(search) > 2:  # of two lines, both are compared above
        yield _Way("block_anchor", lambda start: file.between(trimmed, start))
        yield _Way("block_anchor", lambda start: file.at_end(trimmed, start, is_between=True))


def _refuse_overlap(matches: Sequence[_Match], path: str) -> None:
    for first, second in pairwise(sorted(matches, key=lambda match: (match.start, match.end))):
        if second.start < first.end:
            earlier, later = sorted((first, second), key=lambda match: match.block.number)
            raise _form_refusal(
                f"{_capital(earlier.block.name)} and {later.block.name} both replace line {second.start + 1} "
                f"of {path}.",
                "Combine the two blocks into one.",
                later.block.line,
            )


def _replacement(file: _File, match: _Match) -> Replacement:
    """Return the replacement of a match. A missing final line end stays missing."""
    new, last = match.block.replacement, len(file.lines)
    start, end = (min(file.exact.starts[min(line, last)], file.length) for line in (match.start, match.end))
    if file.is_last(match.start, match.end - match.start):
        new = new.removesuffix("\n")
    return Replacement(start + _indentation_kept(file, match), end, new)


def _indentation_kept(file: _File, match: _Match) -> int:
    """Return the length of the first line's indentation, if nothing else keeps the match from being exact.

    It stays in the file: the original also matches from the middle of a line on.
    """
    search, new = match.block.search, match.block.replacement
    if match.way.kind != "line_trimmed" or not js_trim(new[:1]):
        return 0
    if file.is_last(match.start, match.end - match.start):
        return 0  # the original does not match a text without its line end, and keeps nothing
    lines = file.lines[match.start : match.end]
    size = len(lines[0]) - len(search[0]) if lines else 0
    is_exact = size > 0 and lines[0].endswith(search[0]) and list(lines[1:]) == list(search[1:])
    return size if is_exact and not js_trim(lines[0][:size]) else 0


def _warnings(file: _File, matches: Sequence[_Match], path: str) -> Iterator[str]:
    taken = {line: match.block.number for match in matches for line in range(match.start, match.end)}
    others: dict[tuple[tuple[str, ...], str], list[int]] = {}  # blocks with the same old lines share them
    for match in matches:
        if match.way.kind != "exact":
            yield _approximate(match, path)
        key = (match.block.search, match.way.kind)
        if key not in others:
            others[key] = _other_matches(file, match, taken)
        if others[key]:
            yield _first_match(match, others[key], path)


def _approximate(match: _Match, path: str) -> str:
    """Return the warning of M2."""
    how = (
        "but for white space at the beginning or the end of lines"
        if match.way.kind == "line_trimmed"
        else "by its first and last line only; the lines between differ, and were replaced"
    )
    return f"{match.way.kind}: {match.block.name} matched {match.lines} of {path} {how}."


def _first_match(match: _Match, others: Sequence[int], path: str) -> str:
    """Return the warning of M1."""
    count = f"{len(others)} or more" if len(others) == _MATCHES_MAX else f"{len(others)}"
    places = f"{count} other {'place' if len(others) == 1 else 'places'}"
    lines = list_numbers([line + 1 for line in others])
    return (
        f"first_match: {match.block.name} matches {places} of {path} as well, "
        f"at line{'' if len(others) == 1 else 's'} {lines}; only {match.lines} changed."
    )


def _other_matches(file: _File, match: _Match, taken: Mapping[int, int]) -> list[int]:
    """Return the first lines of a block's other matches, without matches that another block replaces.

    `taken` maps each replaced line to the number of its block.
    """
    if not match.block.search:
        return []

    def is_free(line: int) -> bool:
        return line != match.start and taken.get(line, match.block.number) == match.block.number

    exact = next(_ways(file, match.block.search))
    free = (islice(filter(is_free, way.places(0)), _MATCHES_MAX) for way in (exact, match.way))
    return sorted({line for lines in free for line in lines})[:_MATCHES_MAX]


# Refusals


def _not_there(text: str | None, file: _File, block: ClineBlock, path: str) -> NoMatch:
    data: dict[str, Any] = {"block": block.number, "line": block.line}
    if text is None:
        return NoMatch(
            f"{path} does not exist, so the lines of {block.name} are not in it.",
            hint="Check the path; to make a new file, send one block with nothing in its SEARCH section.",
            data={**data, "nearest": None, "differs": []},
        )
    message = f"The lines of {block.name} are not in {path}."
    refusal = no_match(message, text, _join(block.search), data, new=block.replacement)
    above = next((first for way in _ways(file, block.search) if (first := way.first(0)) is not None), None)
    if above is not None:
        hint = (
            f"Lines like these begin at line {above + 1}, which an earlier block has passed. Copy them "
            "exactly, put the blocks in the file's order, and let no two blocks name the same lines."
        )
        return refusal.revise(hint=hint)
    if refusal.data["nearest"] and not refusal.data["differs"]:
        line = refusal.data["nearest"]["start_line"]
        return refusal.revise(hint=f"It is only part of line {line}: give whole lines.")
    return refusal


def _empty_search(block: ClineBlock, path: str) -> MalformedEdit:
    if not block.has_start:
        return _form_refusal(
            f"Line {block.line} of the diff is a `=======` line with no SEARCH marker before it.",
            block.hint,
            block.line,
        )
    return _form_refusal(
        f"The SEARCH section of {block.name} is empty, and {path} is not.",
        "Name the lines to be replaced: an empty SEARCH section only makes a new file.",
        block.line,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def answer_to_changes(edit: ChangedEdit) -> str:
    """Return the original's answer to an edit that landed with the user's changes."""
    return (
        f"The user made the following updates to your content:\n\n{edit.diff}\n\n"
        "The updated content, which includes both your original modifications and the user's edits, "
        f"has been successfully saved to {edit.path}. Here is the full, updated content of the file:\n\n"
        f'<final_file_content path="{edit.path}">\n{edit.text}\n</final_file_content>'
    )


def answer_to_rejection(comment: str) -> str:
    """Return the original's answer to an edit that the user denied."""
    fact = "The user denied this operation."
    feedback = "The user provided the following feedback:"
    return f"{fact}\n{feedback}\n<feedback>\n{comment}\n</feedback>" if comment else fact


DIALECT = Dialect(
    "cline",
    "Cline's edit tool: SEARCH/REPLACE blocks in one text.",
    (
        ToolDefinition(
            "replace_in_file",
            "Change parts of a file by one or more SEARCH/REPLACE blocks. Each block names whole lines "
            "exactly as they are in the file, and gives the lines to put in their place. A block replaces "
            "only the first match after the block before it: if its lines are in the file more than once, "
            "add lines around them. List the blocks in the file's order. To delete lines, leave the second "
            "section empty; to make a new file, the first. All blocks are made, or none.",
            {
                "type": "object",
                "properties": {
                    "path": argument("string", "The file, relative to the workspace's root or absolute."),
                    "diff": argument(
                        "string",
                        "The blocks, one after another, each marker alone on its line:\n"
                        "------- SEARCH\nold lines, to the letter\n=======\nnew lines\n+++++++ REPLACE",
                    ),
                },
                "required": ["path", "diff"],
            },
            replace_in_file,
            returns_content=True,
            searched="path",
            also=frozenset({"task_progress"}),
        ),
    ),
    ReviewAnswers(answer_to_changes, answer_to_rejection, is_of_one_file=True),
)
