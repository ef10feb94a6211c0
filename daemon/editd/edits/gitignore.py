"""Ignore rules: the lines of `.gitignore` files, as gitignore(5) has them, asked by path.

The last line that matches decides, a folder's own file coming after those above it; below a folder
that is ignored nothing is brought back. White space around a pattern says nothing.

No pattern takes long: what stands between two stars is taken where it first fits, in an atomic group, so
that a match never tries more than one of them again. A `[` that nothing closes is itself.
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
    """One line: what it matches below `folder`, the one that its file lies in ("" for the root)."""

    folder: str
    expression: re.Pattern[str]
    is_negative: bool
    is_for_folders: bool

    def matches(self, path: str, *, is_folder: bool) -> bool:
        inside = path[len(self.folder) + 1 :] if self.folder else path
        return (is_folder or not self.is_for_folders) and self.expression.fullmatch(inside) is not None


def rules_of(lines: Sequence[str], folder: str = "") -> tuple[Rule, ...]:
    """Return the rules that the lines of an ignore file in `folder` say."""
    return tuple(rule for line in lines if (rule := _rule(line, folder)) is not None)


def is_ignored(path: str, rules_in: Callable[[str], Sequence[Rule]], *, is_folder: bool = False) -> bool:
    """True where `path`, or a folder that it lies in, is ignored.

    `rules_in` gives the rules of the file in a folder; it is asked for none below an ignored one.
    """
    names = path.split("/")
    rules = [*rules_in("")]
    for depth in range(1, len(names) + 1):
        here = "/".join(names[:depth])
        is_whole = depth == len(names)
        last = next(
            (r for r in reversed(rules) if r.matches(here, is_folder=is_folder or not is_whole)), None
        )
        if last is not None and not last.is_negative:
            return True
        if not is_whole:
            rules += rules_in(here)
    return False


def _rule(line: str, folder: str) -> Rule | None:
    """The rule of one line; None for one that says nothing."""
    pattern = _stripped(line)
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


def _stripped(line: str) -> str:
    """The line without white space around it, but for a space at the end that a backslash quotes."""
    bare = line.strip()
    is_quoted = len(bare) - len(bare.rstrip("\\")) & 1
    return bare + " " if is_quoted and line.lstrip().startswith(bare + " ") else bare


def _of_path(names: Sequence[str]) -> str:
    """The regular expression of a pattern's names; one of two stars or more stands for any folders."""
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
    """The expression of one character: `?`, a quoted one, a set or itself."""
    if token[0] == "?":
        return "[^/]"
    if token[2] is None:
        return re.escape(token[0][-1])
    members = "".join(_of_member(member) for member in _MEMBER.finditer(token[2]))
    if not members:
        return "[^/]" if token[1] else "(?!)"
    return f"(?!/)[{'^' if token[1] else ''}{members}]"


def _of_member(member: re.Match[str]) -> str:
    """What one member of a set, a class, a range or a character, is in a set of `re`; "" for nothing."""
    name, low, high = member.groups()
    if name is not None:
        return _CLASSES.get(name, "")
    if high is None:
        return re.escape(low)
    return f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
