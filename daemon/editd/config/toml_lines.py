"""Line numbers: the line of each key in a TOML file, which tomllib does not report."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Name = tuple[str, ...]

PARSED_BYTES_MAX = 2 << 20  # by `lines_of`: a second, and enough for 250 lines of 60 bytes each
DEPTH_MAX = 16  # no known key has so many names; a file may have thousands in one


@lru_cache(maxsize=2)  # each error of a file asks for its line
def lines_of(text: str) -> Mapping[Name, int]:
    """Return the first line of each key and table, from 1. `text` is TOML, perhaps with gaps.

    If the first lines alone are TOML, they end with a statement. So keys that are new in them come
    from the lines after the previous such prefix. That takes the square of the lines, and needs no second
    parser. After `PARSED_BYTES_MAX` of prefixes, the keys further down have no line.
    """
    lines: dict[Name, int] = {}
    begun: int | None = None
    so_far = ""
    parsed_bytes = 0
    for number, line in enumerate(text.split("\n"), 1):
        so_far += line + "\n"
        if begun is None and line.strip() and not line.lstrip().startswith("#"):
            begun = number
        if begun is None:
            continue
        parsed_bytes += len(so_far)
        if parsed_bytes > PARSED_BYTES_MAX:
            break
        try:
            tree = tomllib.loads(so_far)
        except tomllib.TOMLDecodeError:
            continue
        for name in _names(tree):
            lines.setdefault(name, begun)
        begun = None
    return lines


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
