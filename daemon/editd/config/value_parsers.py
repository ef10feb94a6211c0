"""Parsers of values that a file writes in its own form, such as `"90d"` and `"2GiB"`."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any

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
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError('expected a list of globs, such as ["**/*.pem"]')
    try:
        return tuple(Glob.parse(item).text for item in value)
    except Refused as refusal:
        raise ValueError(refusal.message.rstrip(".")) from None


def paths(value: object) -> tuple[str, ...]:
    """Return paths in the workspace. Raises ValueError."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError('expected a list of paths, such as ["pyproject.toml"]')
    try:
        return tuple(WorkspacePath.parse(item).text for item in value)
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
    if any("{files}" in item and item != "{files}" for item in value) or "{files}" in value[0]:
        raise ValueError("{files} must be an argument by itself, and becomes one argument for each file")
    if "{files}" in value and any("{file}" in item for item in value):
        raise ValueError("use either {file} or {files}")
    return tuple(value)


def _split(value: object, expected: str) -> tuple[float, str]:
    found = _WORDS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected {expected}")
    return float(found[1]), found[2]


FORMS: Mapping[str, Callable[[object], Any]] = {
    "duration": duration,
    "size": size,
    "encoding": encoding,
    "globs": globs,
    "paths": paths,
    "command": command,
}
Extra = dict[str, object]
DURATION, SIZE, ENCODING, GLOBS, PATHS, COMMAND = (Extra(form=name) for name in FORMS)
