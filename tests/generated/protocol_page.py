"""The signatures of the methods in docs/protocol.md. The rest of the page is written by hand."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from editd.wire import messages

FILE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
SIGNATURE = re.compile(r"(?<=^### `)([\w.]+)(`\n```\n)\{.*?\}\n→ \{.*?\}(?=\n```$)", re.MULTILINE)


def text() -> str:
    """Return the text of the page."""
    return SIGNATURE.sub(_signature, FILE.read_text())


def _signature(present: re.Match[str]) -> str:
    kind = messages.REQUESTS.get(present[1])
    if kind is None:
        return present[0]  # the test of the page's methods names it
    taken = ", ".join(fields_of(kind))
    returned = ", ".join(name.rstrip("?") for name in fields_of(messages.ANSWERS[kind]))
    return f"{present[1]}{present[2]}{{{taken}}}\n→ {{{returned}}}"


def fields_of(kind: type[messages.Message]) -> list[str]:
    """Return the fields of a message as the page writes them, `?` after what may be left out."""
    return [one.encode_name + ("" if one.required else "?") for one in msgspec.structs.fields(kind)]
