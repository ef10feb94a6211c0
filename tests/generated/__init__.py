"""The files that `python tests/generated --write` makes from messages and tables of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from generated import (
    architecture_page,
    editor_types,
    editor_words,
    error_classes,
    protocol_page,
    requests_module,
)

if TYPE_CHECKING:
    from pathlib import Path

GENERATORS = (requests_module, error_classes, protocol_page, architecture_page)


def stale_files() -> dict[Path, str]:
    """Return the files that are not as the code makes them, with the text that each should have."""
    made = {one.FILE: one.text() for one in GENERATORS} | editor_types.files() | editor_words.files()
    return {path: text for path, text in made.items() if not path.exists() or path.read_text() != text}
