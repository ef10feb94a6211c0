"""Distributions in a scratch folder, as pip would install them, and a copy of editd's core without parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TOP = Path(__file__).resolve().parents[2]
PART_FOLDERS = {"daemon/editd": ("tools", "remote"), "client/editd_client": ("screen", "web")}


def example(file: str) -> str:
    """Return a file of the example in docs/dialects.md, a package with a dialect."""
    page = (TOP / "docs/dialects.md").read_text()
    match = re.search(rf"<!-- own tool: {re.escape(file)} -->\n```\w+\n(.*?)```", page, re.DOTALL)
    assert match is not None, file
    return match[1]


HELLO_DIALECT = example("greetings.py")
HELLO_ENTRY_POINTS = (
    example("pyproject.toml").replace('project.entry-points."editd.tools"', "editd.tools").replace('"', "")
)


def install(folder: Path, name: str, entry_points: str, modules: Mapping[str, str]) -> None:
    """Make a distribution in a folder: its modules by name, and its `entry_points.txt`."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


def core_alone(folder: Path) -> Path:
    """Make a folder with editd's core: all of both packages but for the parts, and no entry point of one."""
    for source, parts in PART_FOLDERS.items():
        package = folder / Path(source).name
        package.mkdir(parents=True)
        for child in (TOP / source).iterdir():
            if child.name not in (*parts, "__pycache__"):
                (package / child.name).symlink_to(child)
    install(folder, "editd", "", {})
    return folder
