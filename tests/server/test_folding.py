"""File systems that take two spellings for one name: refused as a root, out of scope below it (D33)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import folding_filesystem
from crash_checks import transactions
from editd.system.filesystem import open_folder
from editd.system.mounts import folding_of
from editd_client.errors import EditdError
from workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from workplace import Workplace

IGNORES = {"exfat": "case", "apfs": "case and form", "form": "form"}
KINDS = pytest.mark.parametrize("kind", IGNORES)


def skip_where_missing(kind: str) -> None:
    if (reason := folding_filesystem.missing(kind)) is not None:
        pytest.skip(reason)


def test_names_are_told_apart_on_the_file_system_of_the_tests(tmp_path: Path) -> None:
    with open_folder(str(tmp_path)) as folder:
        assert folding_of(folder) == ""
    assert os.listdir(tmp_path) == []


@KINDS
def test_a_root_whose_file_system_folds_names_is_refused_at_start_with_the_reason(
    place: Workplace, kind: str
) -> None:
    skip_where_missing(kind)
    with folding_filesystem.folding(kind, place.root, place.folder):
        (place.root / "README.md").write_text("the only copy\n")
        with pytest.raises(AssertionError, match=f"ignores {IGNORES[kind]} in names.*Move the project"):
            place.start()
        assert sorted(os.listdir(place.root)) == ["README.md"]


@KINDS
def test_such_a_mount_below_the_root_is_out_of_scope_and_status_names_it(place: Workplace, kind: str) -> None:
    skip_where_missing(kind)
    place.write({"a": "a\n"})
    with folding_filesystem.folding(kind, place.root / "stick", place.folder):
        (place.root / "stick/README.md").write_text("the only copy\n")
        with place.start() as client:
            client.settle()
            (sentence,) = [text for text in client.status().uncovered if "stick" in text]
            assert "README.md and readme.md" in sentence
            (place.root / "stick/README.md").rename(place.root / "stick/readme.md")
            (place.root / "stick/new").mkdir()
            (place.root / "stick/new/f").write_text("f\n")
            client.settle()
            assert [touched.path for tx in transactions(client) for touched in tx.files] == []
            for path in ("stick/ReadMe.md", "stick/other", "stick/none/yet"):
                with pytest.raises(EditdError, match="file system that ignores") as refusal:
                    client.apply([write(path, "mine\n")])
                assert refusal.value.name == "permission_denied"
            client.apply([write("a", "b\n")])
        place.stop()
        assert (place.root / "stick/readme.md").read_text() == "the only copy\n"


def test_a_mount_that_folds_names_and_comes_later_is_out_of_scope_too(place: Workplace) -> None:
    skip_where_missing("exfat")
    (place.root / "stick").mkdir()
    with place.start() as client:
        client.settle()
        with folding_filesystem.folding("exfat", place.root / "stick", place.folder):
            (place.root / "stick/f").write_text("f\n")
            client.settle()
            assert "stick" in " ".join(client.status().uncovered)
            with pytest.raises(EditdError, match="file system that ignores"):
                client.apply([write("stick/f", "mine\n")])
        assert [touched.path for tx in transactions(client) for touched in tx.files] == []
        place.stop()
