"""Line numbers: the line of a TOML file on which each key is, which tomllib does not report."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Name = tuple[str, ...]

DEPTH_MAX = 16  # no known key has so many names; a file may have thousands in one


def lines_of(text: str) -> dict[Name, int]:
    """Return the line, from 1, on which each key and table begins. `text` is TOML, perhaps with gaps.

    If the first lines are TOML by themselves, they end with a statement. So keys that are new in them come
    from the lines after the previous such prefix. That takes the square of the lines, and needs no second
    parser.
    """
    found: dict[Name, int] = {}
    begun: int | None = None
    so_far = ""
    for number, line in enumerate(text.split("\n"), 1):
        so_far += line + "\n"
        if begun is None and line.strip() and not line.lstrip().startswith("#"):
            begun = number
        if begun is None:
            continue
        try:
            tree = tomllib.loads(so_far)
        except tomllib.TOMLDecodeError:
            continue
        for name in _names(tree):
            found.setdefault(name, begun)
        begun = None
    return found


def _names(tree: Mapping[str, Any], above: Name = ()) -> Iterator[Name]:
    for key, value in tree.items():
        yield (*above, key)
        if len(above) >= DEPTH_MAX:
            continue
        if isinstance(value, dict):
            yield from _names(value, (*above, key))
        elif isinstance(value, list):  # of tables: each has its number as a name
            tables = {str(number): table for number, table in enumerate(value, 1) if isinstance(table, dict)}
            yield from _names(tables, (*above, key))
