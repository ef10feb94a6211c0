"""Parsers of values that a file writes in its own form, such as `"90d"` and `"2GiB"`."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any

from editd.config import placeholders
from editd.errors import Refused
from editd.values.glob import Glob
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
SECONDS_MAX = 1000 * 365 * 86400  # a longer time makes no sense, and overflows clocks
BYTES_MAX = 10**6 * 2**40  # a million TiB: it must fit into an integer of 64 bits
_WORDS = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def duration(value: object) -> float:
    """Return the seconds of `"90d"`. Raises ValueError."""
    number, unit = _split(value, 'a duration, such as "90d" (units: s, m, h, d, w)')
    if unit not in _SECONDS or number <= 0:
        raise ValueError('expected a duration, such as "90d" (units: s, m, h, d, w)')
    if number * _SECONDS[unit] > SECONDS_MAX:
        raise ValueError("expected a duration of at most a thousand years")
    return number * _SECONDS[unit]


def in_units(seconds: float) -> str:
    """Return the shortest text that `duration` reads as so many seconds, all of them whole."""
    unit, length = next(
        (unit, length) for unit, length in reversed(_SECONDS.items()) if seconds % length == 0
    )
    return f"{seconds / length:g}{unit}"


def term(value: object) -> float:
    """Return the seconds of `"14d"`, or 0, which is "never". Raises ValueError."""
    return 0.0 if value == 0 and not isinstance(value, bool) else duration(value)


def size(value: object) -> int:
    """Return the bytes of `"2GiB"`, or of a plain number of them. Raises ValueError."""
    expected = 'a number of bytes, or a size such as "2GiB"'
    if isinstance(value, int) and not isinstance(value, bool):
        number, unit = float(value), "B"
    else:
        number, unit = _split(value, expected)
    if unit.upper() not in _BYTES or number < 1:
        raise ValueError(f"expected {expected}")
    if number * _BYTES[unit.upper()] > BYTES_MAX:
        raise ValueError("expected a size of at most a million TiB")
    return int(number * _BYTES[unit.upper()])


def encoding(value: object) -> str:
    """Return the name of a Python encoding. Raises ValueError."""
    try:
        codecs.lookup(str(value))
    except LookupError:
        raise ValueError(f"{value!r} is not an encoding") from None
    return str(value)


def globs(value: object) -> tuple[str, ...]:
    """Return globs of paths. Raises ValueError."""
    return _parse(value, Glob, 'globs, such as ["**/*.pem"]')


def paths(value: object) -> tuple[str, ...]:
    """Return paths in the workspace. Raises ValueError."""
    return _parse(value, WorkspacePath, 'paths, such as ["pyproject.toml"]')


def places(value: object) -> tuple[str, ...]:
    """Return absolute paths, or paths below `~/`. Raises ValueError."""
    expected = 'expected a list of absolute paths, or of paths below "~/", such as ["~/.cache/ruff"]'
    if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise ValueError(expected)
    if not all(item.startswith(("/", "~/")) for item in value):
        raise ValueError(expected)
    return tuple(value)


def _parse(value: object, kind: type[Glob | WorkspacePath], expected: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"expected a list of {expected}")
    try:
        return tuple(kind.parse(item).text for item in value)
    except Refused as refusal:
        raise ValueError(refusal.message.rstrip(".")) from None


def command(value: object) -> tuple[str, ...]:
    """Return a program and its arguments; the program is a name in PATH or an absolute path.

    Raises ValueError for a relative path: the folder that it runs in has files written by clients.
    """
    expected = 'expected a list of a program and its arguments, such as ["ruff", "format", "-"]'
    if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise ValueError(expected)
    if not value or not value[0]:
        raise ValueError(expected)
    if "/" in value[0] and not value[0].startswith(("/", "~/")):
        raise ValueError("the program must be a name in PATH, or an absolute path")
    return tuple(value)


def hook_command(value: object) -> tuple[str, ...]:
    """Return the command of a hook. Raises ValueError, also for a placeholder that could run as code."""
    return _without_problem(command(value), placeholders.problem_of)


def check_command(value: object) -> tuple[str, ...]:
    """Return the command of a check of proposals. Raises ValueError, also for a placeholder."""
    return _without_problem(command(value), placeholders.problem_of_check)


def _without_problem(parts: tuple[str, ...], problem_of: Callable[[tuple[str, ...]], str]) -> tuple[str, ...]:
    problem = problem_of(parts)
    if problem:
        raise ValueError(problem)
    return parts


def _split(value: object, expected: str) -> tuple[float, str]:
    match = _WORDS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected {expected}")
    return float(match[1]), match[2]


FORMS: Mapping[str, Callable[[object], Any]] = {
    "duration": duration,
    "term": term,
    "size": size,
    "encoding": encoding,
    "globs": globs,
    "paths": paths,
    "hook command": hook_command,
    "check command": check_command,
    "places": places,
}
