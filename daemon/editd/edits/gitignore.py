"""Ignore rules: the lines of `.gitignore` files as in gitignore(5), matched against paths.

The last matching line decides; a folder's own file comes after the files of its parents. No rule
re-includes a path below an ignored folder. White space around a pattern is ignored.

The time of a match does not grow with the number of stars: the part between two stars is an atomic group,
matched at its first place and never retried. That is why this is not `pathspec`: its time for stars grows
with a power of the name's length, while every client waits. Of the 25 lines in the tests, pathspec 1.1.1
reads six unlike git: classes such as `[[:digit:]x]`, an unclosed `[`, ranges such as `[c-a]`, a bare `!`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_MEMBER = re.compile(r"\[:(\w+):\]|\\?(.)(?:-(?!\])\\?(.))?", re.DOTALL)
_SET = re.compile(r"\[([!^]?)(\]?(?:\[:\w+:\]|\\.|[^\]\\])*)\]", re.DOTALL)
_TOKEN = re.compile(rf"\*+|\?|\\.|{_SET.pattern}|.", re.DOTALL)


class Rule(Struct, frozen=True):
    """One line of the ignore file in `folder` ("" for the root), matching paths below that folder."""

    folder: str
    expression: re.Pattern[str]
    is_negative: bool
    is_for_folders: bool

    def matches(self, path: str, *, is_folder: bool) -> bool:
        inside = path[len(self.folder) + 1 :] if self.folder else path
        return (is_folder or not self.is_for_folders) and self.expression.fullmatch(inside) is not None


def rules_of(lines: Sequence[str], folder: str = "") -> tuple[Rule, ...]:
    """Return the rules in the lines of an ignore file in `folder`."""
    return tuple(rule for line in lines if (rule := _rule(line, folder)) is not None)


def is_ignored(path: str, rules_in: Callable[[str], Sequence[Rule]], *, is_folder: bool = False) -> bool:
    """Return whether `path`, or a folder above it, is ignored.

    `rules_in` returns the rules of the ignore file in a folder. It is never called below an ignored folder.
    """
    names = path.split("/")
    rules = [*rules_in("")]
    for depth in range(1, len(names) + 1):
        prefix = "/".join(names[:depth])
        is_whole = depth == len(names)
        last = next(
            (r for r in reversed(rules) if r.matches(prefix, is_folder=is_folder or not is_whole)), None
        )
        if last is not None and not last.is_negative:
            return True
        if not is_whole:
            rules += rules_in(prefix)
    return False


def _rule(line: str, folder: str) -> Rule | None:
    """Parse one line; None for a blank line or a comment."""
    pattern = _strip(line)
    if not pattern or pattern.startswith("#"):
        return None
    is_negative = pattern.startswith("!")
    pattern = pattern.removeprefix("!").lstrip()
    bare = pattern.rstrip("/")
    if not bare:
        return None
    names = bare.removeprefix("/").split("/")
    is_anchored = "/" in bare
    expression = re.compile(_of_path(names if is_anchored else ["**", *names]), re.DOTALL)
    return Rule(folder, expression, is_negative, is_for_folders=bare != pattern)


def _strip(line: str) -> str:
    """Strip white space around the line, but keep a final space that a backslash quotes."""
    bare = line.strip()
    is_quoted = len(bare) - len(bare.rstrip("\\")) & 1
    return bare + " " if is_quoted and line.lstrip().startswith(bare + " ") else bare


def _of_path(names: Sequence[str]) -> str:
    """Return the regular expression of a pattern's names; `**` matches any folders."""
    parts: list[list[str]] = [[]]
    for name in names:
        if len(name) > 1 and not name.strip("*"):
            parts.append([])
        else:
            parts[-1].append(_of_name(name))
    first, *between = ["/".join(part) for part in parts]
    if not between:
        return first
    *middle, last = between
    start = first + "/" if first else ""
    atoms = "".join(f"(?>(?:[^/]+/)*?{part}/)" for part in middle if part)
    return f"{start}{atoms}(?:[^/]+/)*{last}" if last else f"{start}{atoms}.+"


def _of_name(name: str) -> str:
    pieces = [""]
    for token in _TOKEN.finditer(name):
        if token[0].startswith("*"):
            pieces.append("")
        else:
            pieces[-1] += _of_character(token)
    first, *between = pieces
    if not between:
        return first
    *middle, last = between
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle) + "[^/]*" + last


def _of_character(token: re.Match[str]) -> str:
    """Return the expression of one character: `?`, a quoted one, a set or itself."""
    if token[0] == "?":
        return "[^/]"
    if token[2] is None:
        return re.escape(token[0][-1])
    members = "".join(_of_member(member) for member in _MEMBER.finditer(token[2]))
    if not members:
        return "[^/]" if token[1] else "(?!)"
    return f"(?!/)[{'^' if token[1] else ''}{members}]"


def _of_member(member: re.Match[str]) -> str:
    """Return one member of a set (class, range or character) in the syntax of `re`; "" if it is empty."""
    name, low, high = member.groups()
    if name is not None:
        return _CLASSES.get(name, "")
    if high is None:
        return re.escape(low)
    return f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
