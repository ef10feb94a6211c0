"""The classes of refusals in the client: one for each name of the protocol."""

from __future__ import annotations

from pathlib import Path

from editd.wire.messages import ERROR_CODES

FILE = Path(__file__).resolve().parents[2] / "client" / "editd_client" / "errors.py"
FIRST_LINE = "# ── One class for each name of the protocol, made by tests/generated "


def text() -> str:
    """Return the text of the module. What stands before the classes is written by hand."""
    present = FILE.read_text()
    return (
        present[: present.index(FIRST_LINE)]
        + FIRST_LINE.ljust(93, "─")
        + "\n"
        + "".join(map(_class, ERROR_CODES))
    )


def _class(name: str) -> str:
    title = "".join(word.capitalize() for word in name.split("_"))
    return f'\n\nclass {title}(EditdError):\n    """The refusal `{name}`."""\n'
