"""A table at the end of a file of TOML, added and removed as text; all else keeps its bytes.

The standard library reads TOML and tomlkit rewrites it, but neither has the place of a table. The scanner
knows strings, comments and brackets, so that it takes no line inside a string for a header.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

from editd_client.agents.jsonc import Splice, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]',
    re.DOTALL,
)


def load(text: str) -> dict[str, Any]:
    """Return the values. Raises UnreadableError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UnreadableError("it is nested too deeply") from None
    except ValueError as error:  # also for an integer of too many digits
        raise UnreadableError(str(error)) from None


def add_table(text: str, path: Sequence[str], values: Mapping[str, object]) -> Splice:
    """Return the splice that appends the table. Raises UnreadableError if the file cannot take it there."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_value(value)}" for key, value in values.items())]
    block = newline.join(lines)
    ends = text.endswith("\n")
    if text:
        block = (newline if ends else newline * 2) + block
    if ends or not text:
        block += newline
    splice = Splice(len(text), len(text), block)
    expected = load(text)
    table: Any = expected
    for key in path[:-1]:
        table = table.setdefault(key, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise UnreadableError(f"{path[0]} is no table")
    table[path[-1]] = dict(values)
    if load(splice.of(text)) != expected:
        raise UnreadableError("a table at its end would mean something else")
    return splice


def replace_table(text: str, path: Sequence[str], values: Mapping[str, object]) -> Splice:
    """Return the splice that replaces the lines of the table. Raises UnreadableError if it has no header."""
    start, end = _place(text, path)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_value(value)}" for key, value in values.items())]
    return Splice(start, end, newline.join(lines))


def remove_table(text: str, path: Sequence[str]) -> Splice:
    """Return the splice that removes the table with the empty line before it."""
    start, end = _place(text, path)
    before = re.search(r"\r?\n\Z", text[:start])
    if text[end:].startswith(("\n", "\r\n")):
        end += 2 if text.startswith("\r\n", end) else 1
        blank = re.search(r"(?:\A|(?<=\n))\r?\n\Z", text[:start])
        start = blank.start() if blank else start
    elif before is not None:  # the file ends without a newline, as it did before
        start = before.start()
        start -= 2 if text[:start].endswith("\r\n") else 1 if text[:start].endswith("\n") else 0
    expected = load(text)
    table = expected
    for key in path[:-1]:
        table = table[key]
    del table[path[-1]]
    if len(path) > 1 and not table:
        expected = _without_empty(expected, path[:-1], load(text[:start] + text[end:]))
    if load(text[:start] + text[end:]) != expected:
        raise UnreadableError(f"the table {'.'.join(path)} is in several places")
    return Splice(start, end, "")


def _without_empty(expected: dict[str, Any], path: Sequence[str], present: dict[str, Any]) -> dict[str, Any]:
    """Drop the outer tables that only the removed table implied."""
    if path and path[0] not in present:
        return {key: value for key, value in expected.items() if key != path[0]}
    return expected


def _place(text: str, path: Sequence[str]) -> tuple[int, int]:
    """Return the start of the table's header and the end of its last line, without comments after it."""
    headers = list(_headers(text))
    for number, (start, name) in enumerate(headers):
        if name == tuple(path):
            limit = headers[number + 1][0] if number + 1 < len(headers) else len(text)
            lines = text[start:limit].splitlines(keepends=True)
            while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
                lines.pop()
            return start, start + len("".join(lines).rstrip("\r\n"))
    raise UnreadableError(f"the table {'.'.join(path)} has no header")


def _headers(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the place and the name of each `[header]`, and of each `[[header]]` with an empty name."""
    depth = 0
    line = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == "\n":
            line = token.end()
        elif mark in ("[", "{"):
            if depth == 0 and not text[line : token.start()].strip():
                end = text.find("\n", line)
                yield line, _name(text[line : len(text) if end < 0 else end])
            depth += 1
        elif mark in ("]", "}"):
            depth -= 1


def _name(header: str) -> tuple[str, ...]:
    names: list[str] = []
    table: Any
    try:
        table = tomllib.loads(header.strip())
    except (ValueError, RecursionError):
        return ()
    while isinstance(table, dict) and table:
        ((name, table),) = table.items()
        names.append(name)
    return () if isinstance(table, list) else tuple(names)


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)  # JSON's strings, numbers and flags are TOML's, too
