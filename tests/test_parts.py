"""parts: the optional parts, by the entry points of the distributions on `sys.path`."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import TYPE_CHECKING

import pytest

from editd import parts
from editd.parts import GROUPS, PARTS, TOOLS, Part, PartFailed, entries_in, parts_of
from support.distributions import install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Put a folder first on `sys.path`, for this test."""

    def prepend(folder: Path) -> None:
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        parts.parts.cache_clear()

    parts.parts.cache_clear()
    yield prepend
    parts.parts.cache_clear()


def test_the_parts_are_those_that_the_standard_library_finds() -> None:
    """If one of editd's is missing: the environment is older than pyproject.toml. Install editd again."""
    by_library = {
        (entry.group, entry.name, entry.value)
        for group in GROUPS
        for entry in importlib.metadata.entry_points(group=group)
    }
    assert {(part.group, part.name, part.target) for part in parts.parts()} == by_library
    assert parts_of(TOOLS)


def test_each_part_of_editd_can_be_loaded() -> None:
    for part in parts.parts():
        assert part.is_there(), part
        part.load()


def test_another_distribution_can_have_a_part(tmp_path: Path, on_path: Callable[[Path], None]) -> None:
    install(tmp_path, "greetings", "[editd.tools]\nhello = greetings:WORLD\n", {"greetings": "WORLD = 7"})
    on_path(tmp_path)
    part = parts_of(TOOLS)["hello"]
    assert (part.distribution, part.load()) == ("greetings", 7)


def test_the_first_distribution_of_a_name_counts(tmp_path: Path, on_path: Callable[[Path], None]) -> None:
    for name in ("older", "newer"):
        install(tmp_path / name, "greetings", f"[editd.tools]\n{name} = greetings:{name}\n", {})
        on_path(tmp_path / name)
    assert "newer" in parts_of(TOOLS)
    assert "older" not in parts_of(TOOLS)


def test_a_part_with_the_name_of_another_has_an_error(
    tmp_path: Path, on_path: Callable[[Path], None]
) -> None:
    """Editd's own counts, also if the other one is first on the path."""
    install(tmp_path, "a-greetings", "[editd.tools]\nroo = greetings:ROO\n", {})
    on_path(tmp_path)
    assert parts_of(TOOLS)["roo"].distribution == "editd"
    (double,) = [part for part in parts.parts() if part.error is not None]
    assert (double.name, double.distribution) == ("roo", "a-greetings")
    assert double.error == "editd has a part of the same name"
    with pytest.raises(PartFailed, match="editd has a part of the same name"):
        double.load()


def test_a_folder_that_is_none_is_no_error(tmp_path: Path, on_path: Callable[[Path], None]) -> None:
    (tmp_path / "archive.zip").write_bytes(b"PK")
    on_path(tmp_path / "archive.zip")
    on_path(tmp_path / "missing")
    assert parts_of(TOOLS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[editd.tools]\na = b.c:D", [("editd.tools", "a", "b.c:D", False)]),
        ("[ editd.parts ]\n  a=b  \n", [("editd.parts", "a", "b", False)]),
        ("[editd.tools]\na = b:C [extra]\n", [("editd.tools", "a", "b:C", False)]),
        ("[console_scripts]\na = b:C\n[editd.tools]\n# c = d:E\n; f = g:H\n\n", []),
        ("a = b:C\n", []),
        ("[editd.tools]\na = no module\n", [("editd.tools", "a", "no module", True)]),
        ("[editd.tools]\nonly a name\n", [("editd.tools", "only a name", "", True)]),
    ],
)
def test_a_line_names_a_part(text: str, expected: list[tuple[str, str, str, bool]]) -> None:
    made = [(part.group, part.name, part.target, part.error is not None) for part in entries_in(text, "x")]
    assert made == expected


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module:X", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("editd.parts:NOTHING", "AttributeError"),
        ("editd.no_such_module", "ModuleNotFoundError"),
    ],
)
def test_a_part_that_cannot_be_loaded_has_a_reason(target: str, reason: str) -> None:
    with pytest.raises(PartFailed, match=reason):
        Part(PARTS, "a", target, "x").load()


def test_a_missing_module_is_not_there() -> None:
    for target in ("no_such_module", "no_such_package.module:X", "editd.no_such_module"):
        assert not Part(PARTS, "a", target, "x").is_there()
