"""A search of all that a state folder holds, independent of the code that removes contents.

`holders(state, secret)` names each file with the bytes in it: as they are, in any deflated stream of a pack
(whole objects and deltas), or in a value of a database, whose pages may cut a value in two.
"""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSES_MAX = 50
STREAM = b"\x78"  # the first byte of every zlib stream with a window of 32 KiB, which git writes


def holders(state: Path, secret: bytes) -> list[str]:
    """Return the files below `state` that hold the secret in some form, by their relative paths.

    A running daemon renames files meanwhile: then everything is searched anew.
    """
    for _ in range(PASSES_MAX):
        with contextlib.suppress(FileNotFoundError):
            files = sorted(path for path in state.rglob("*") if path.is_file() and not path.is_symlink())
            return [
                str(one.relative_to(state)) for one in files if any(secret in form for form in _forms(one))
            ]
    raise AssertionError(f"files were renamed during each of {PASSES_MAX} passes")


def _forms(path: Path) -> Iterator[bytes]:
    """Yield the content of a file as it is, and all that is packed in it."""
    content = path.read_bytes()
    yield content
    if path.suffix == ".pack":
        yield from _streams(content)
    if content.startswith(b"SQLite format 3\0"):
        yield from _values(path)


def _streams(content: bytes) -> Iterator[bytes]:
    """Yield each deflated stream, wherever it begins."""
    at = content.find(STREAM)
    while at >= 0:
        decoder = zlib.decompressobj()
        with contextlib.suppress(zlib.error):  # no stream begins here
            yield decoder.decompress(content[at:])
        at = content.find(STREAM, at + 1)


def _values(path: Path) -> Iterator[bytes]:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            for row in database.execute(f'select * from "{table}"'):
                yield from (
                    value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
                    for value in row
                    if isinstance(value, str | bytes)
                )
    finally:
        database.close()
