"""The floors of the house: a module imports from the floors below it and from its own package."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parent.parent
GROUND = {"errors", "system"}
FLOORS: dict[str, set[str]] = {
    # package: the packages of editd that it may import, beside its own
    "errors": set(),
    "system": set(),
    "wire": set(),
    "values": {"errors"},
    "edits": {"values", "errors"},
    "tools": {"edits", "values", "errors"},
    "store": {"edits", "values"} | GROUND,
    "workspace": {"edits", "values"} | GROUND,
    "engine": {"store", "workspace", "tools", "edits", "values", "config"} | GROUND,
    "config": {"values", "errors"},
    "server": {"engine", "store", "workspace", "tools", "edits", "wire", "values", "config"} | GROUND,
    "cli": {"server", "engine", "config", "values"} | GROUND,
}
CLIENT_MAY_IMPORT = {"wire", "config"}  # what is said on the socket, and what is said in the file
ASYNC_LIVES_IN = {"server", "cli"}


def modules(folder: str) -> list[str]:
    return sorted(str(file.relative_to(TOP)) for file in (TOP / folder).rglob("*.py"))


def imports(file: str) -> Iterator[str]:
    """Every module that is imported, in functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse((TOP / file).read_text(), file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_of(name: str) -> str | None:
    """The package of editd that a module belongs to; None for what is not editd's, "" for its top."""
    parts = name.split(".")
    if parts[0] != "editd":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FLOORS else ""


@pytest.mark.parametrize("file", modules("daemon"))
def test_a_daemon_module_imports_only_from_the_floors_below(file: str) -> None:
    own = Path(file).relative_to("daemon/editd").parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    allowed = FLOORS[own] | {own, ""}
    for name in imports(file):
        package = package_of(name)
        assert package is None or package in allowed, f"{file} ({own}) imports {name}"
        assert not name.startswith("editd_client"), f"{file} imports the client"
        assert own in ASYNC_LIVES_IN or name.split(".")[0] != "asyncio", f"{file} imports asyncio"


@pytest.mark.parametrize("file", modules("client"))
def test_the_client_imports_nothing_of_editd_but_what_is_said_and_configured(file: str) -> None:
    for name in imports(file):
        package = package_of(name)
        assert package is None or package in CLIENT_MAY_IMPORT | {""}, f"{file} imports {name}"
        assert name.split(".")[0] != "pygit2", f"{file} imports pygit2"


def test_the_top_level_holds_what_the_owner_fixed() -> None:
    allowed = {
        "pyproject.toml", "README.md", "daemon", "client", "tests", "systemd", "docs",
        "LICENSE", "CHANGELOG.md",
    }  # fmt: skip
    extra = {p.name for p in TOP.iterdir() if not p.name.startswith(".")} - allowed
    assert not extra, f"not of the house: {sorted(extra)}"


def test_no_module_is_named_after_an_activity() -> None:
    """A module is a noun: the thing that it holds."""
    files = [file for folder in ("daemon", "client") for file in modules(folder)]
    assert not [file for file in files if file.endswith("ing.py")]


SAME_THING = {
    # what the wire carries, and what the engine makes of it, until one type serves for both
    "Apply", "Change", "Chmod", "Delete", "EditText", "Move", "Part", "Patch", "Position", "Published",
    "Replace", "Restore", "Symlink", "TextEdit", "Tool", "Transaction", "Undo", "Write",
    "Workspace",  # as the daemon describes it, and as the client finds it
}  # fmt: skip


def test_no_two_public_classes_share_a_name() -> None:
    """But for the errors, of which the client has one for each code, and for `SAME_THING`."""
    homes: dict[str, list[str]] = {}
    for file in [file for folder in ("daemon", "client") for file in modules(folder)]:
        for node in ast.parse((TOP / file).read_text(), file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(file)
    errors = ["client/editd_client/errors.py", "daemon/editd/errors.py"]
    shared = {name for name, files in homes.items() if len(files) > 1 and sorted(files) != errors}
    assert shared == SAME_THING, shared ^ SAME_THING
