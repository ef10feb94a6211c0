"""Records of text lines, each with its own checksum: one damaged line costs no other.

    CHECKSUM BODY     the CRC-32 of the body in 8 hex digits, a space, the body in ASCII

Both records of absent contents have this form: `store.forgotten` and `store.excluded`.
"""

from __future__ import annotations

import re
import zlib

from editd.advice import Advice, command_term
from editd.errors import HistoryDamaged
from editd.system.files import read_or_empty

_LINE = re.compile(rb"([0-9a-f]{8}) (.*)")


def checked_line(body: str) -> bytes:
    """Return a line with its checksum and its end."""
    raw = body.encode("ascii")
    return b"%08x %b\n" % (zlib.crc32(raw), raw)


def read_lines(path: str) -> tuple[list[str], int]:
    """Return the bodies of a record, and the end of its whole lines.

    A line without its end is left out: an append was cut off. Raises HistoryDamaged for a wrong line.
    """
    bodies: list[str] = []
    at = 0
    for line in read_or_empty(path).splitlines(keepends=True):
        body = _body(line.removesuffix(b"\n"))
        is_torn = not line.endswith(b"\n")
        if body is None and not is_torn:
            raise damage_refusal(path, f"byte {at} begins a wrong line", at)
        if body is None or is_torn:
            break
        bodies.append(body)
        at += len(line)
    return bodies, at


def whole_lines_of(path: str) -> list[str]:
    """Return the bodies of the whole lines of a record, despite damage around them."""
    bodies = map(_body, read_or_empty(path).split(b"\n"))
    return [body for body in bodies if body is not None]


def damage_refusal(path: str, fault: str, at: int = 0) -> HistoryDamaged:
    """Return the refusal of a damaged record."""
    return HistoryDamaged(
        f"The history is damaged: {path}: {fault}, so a gap looks like damage.",
        hint=Advice(
            "No transaction is lost by this. ", command_term("check --repair"), " keeps its whole lines."
        ),
        data={"file": path, "offset": at},
    )


def _body(line: bytes) -> str | None:
    """Return the body of a line; None for a damaged one."""
    match = _LINE.fullmatch(line)
    if match is None or not match[2].isascii() or int(match[1], 16) != zlib.crc32(match[2]):
        return None
    return match[2].decode("ascii")
