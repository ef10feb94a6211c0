"""The parts of the site that lie outside docs/: the changelog as a page, and links to other files.

mkdocs calls these functions by their names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

TOP = Path(__file__).resolve().parents[2]
CHANGELOG = "changelog.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog, whose links to pages lose the folder."""
    text = (TOP / "CHANGELOG.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, CHANGELOG, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Lead links out of docs/ to the changelog's page, or show the name of the file instead."""
    led = markdown.replace("](../CHANGELOG.md)", f"]({CHANGELOG})")
    return re.sub(r"\[([^]\n]*)\]\((?:\.\./|client/)[^)\n]*\)", r"\1", led)
