"""The tour's copy: what is in it, what is not, and where an edit can be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd_client.cli import tour
from editd_client.cli.tour import copy_folder, find_places, make_example

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "".join(f"this is line {number}\n" for number in "abcdefghijklmnop")


def make(folder: Path, *names: str, text: str = TEXT) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def copied(source: Path, target: Path) -> set[str]:
    copy_folder(str(source), str(target))
    return {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}


def test_only_ordinary_visible_files_are_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make(source, "a.py", "src/b.py", ".git/config", "node_modules/c.js", ".venv/d.py", ".env", "src/.cache/e")
    (source / "link").symlink_to("a.py")
    (source / "large").write_bytes(bytes(tour.FILE_BYTES_MAX + 1))
    assert copied(source, tmp_path / "target") == {"a.py", "src/b.py"}


def test_the_copy_is_bounded_in_files_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "source", *(f"{number}.txt" for number in range(9)))
    monkeypatch.setattr(tour, "FILES_MAX", 4)
    first = copy_folder(str(tmp_path / "source"), str(tmp_path / "first"))
    assert (first.files, first.is_whole) == (4, False)
    monkeypatch.setattr(tour, "BYTES_MAX", len(TEXT) * 2)
    second = copy_folder(str(tmp_path / "source"), str(tmp_path / "second"))
    assert (second.files, second.bytes) == (2, len(TEXT) * 2)


def test_a_place_has_two_lines_far_apart_that_are_there_once(tmp_path: Path) -> None:
    make(tmp_path, "deep/first.txt", "top.txt")
    places = find_places(str(tmp_path))
    assert [place.path for place in places] == ["top.txt", "deep/first.txt"]
    assert (places[0].top, places[0].bottom) == ("this is line a", "this is line p")
    assert places[0].text.count(places[0].top) == 1


@pytest.mark.parametrize(
    "text",
    [
        "too short\n",
        "the same line\n" * 30,
        TEXT.replace("\n", "\r\n"),
        TEXT.rstrip("\n"),
        TEXT.replace("line", "\0"),
        "x" * 200_000,
        "".join(f"\tbegins with a tab {number}\n" for number in range(20)),
    ],
)
def test_what_does_not_serve_is_no_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text, newline="")
    assert find_places(str(tmp_path)) == []


def test_what_is_not_utf8_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(TEXT.replace("line", "caf\xe9").encode("latin-1"))
    assert find_places(str(tmp_path)) == []


def test_the_example_serves(tmp_path: Path) -> None:
    make_example(str(tmp_path))
    assert [place.path for place in find_places(str(tmp_path))] == ["recipe.md", "shopping.py"]
