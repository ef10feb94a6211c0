"""Deep folders and long paths: what they cost grows with their length, and no path is fatal."""

from __future__ import annotations

import os
import resource
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Delete
from workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workplace import Workplace

LONG = pytest.mark.long
DEEP = 900  # a walk below as many folders never ended
SETTLE_SECONDS = 60  # of a machine that others use, too: alone it takes two


@pytest.fixture(autouse=True)
def _removed_afterwards(place: Workplace) -> Iterator[None]:
    """Remove what is deep by rm(1): pytest removes old folders by a function that recurses into each."""
    yield
    place.end()
    subprocess.run(["rm", "-rf", place.root], check=True)


def make_deep(root: Path, names: list[str], *, with_files: bool = False) -> None:
    """Make folders in one another, by names alone: the whole path may be longer than any call takes."""
    folder = os.open(root, os.O_RDONLY)
    for name in names:
        if with_files:
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("last", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)


@pytest.mark.timeout(300)
def test_a_path_of_1100_names_is_edited_and_undone_like_any_other(place: Workplace) -> None:
    path = "a/" * 1100 + "file"
    with place.start() as client:
        client.apply([write(path, "one\n")])
        client.apply([write(path, "two\n")])
        client.undo()
        assert client.read(path).content == "one\n"
    place.kill()
    with place.start() as client:
        client.apply([Delete(path=path)])
        assert not (place.root / "a").exists()
        client.settle()
        assert client.check().problems == []
        assert client.status().head == 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("has_git", "with_files"),
    [(True, True), pytest.param(True, False, marks=LONG), pytest.param(False, True, marks=LONG)],
)
def test_a_folder_900_deep_is_seen_and_checked_in_seconds(
    place: Workplace, has_git: bool, with_files: bool
) -> None:
    if has_git:
        place.git("init", "-q")
        place.write({".gitignore": "build/\n*.o\n"})
    with place.start() as client:
        client.settle()
        make_deep(place.root, ["a"] * DEEP, with_files=with_files)
        client.settle(timeout=SETTLE_SECONDS)
        assert client.read("a/" * DEEP + "last", at=client.status().head).content == ""
        assert client.check().problems == []
        assert client.status().uncovered == []
    place.stop()


def test_a_scan_of_a_deep_folder_needs_few_descriptors(place: Workplace) -> None:
    make_deep(place.root, ["a"] * 400, with_files=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        with place.start() as client:
            client.settle()
            assert client.status().uncovered == []
            assert client.read("a/" * 400 + "last", at=0).content == ""
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_path_longer_than_any_call_takes_is_reported_and_no_problem(place: Workplace) -> None:
    make_deep(place.root, ["n" * 200] * 25)
    with place.start() as client:
        client.settle()
        assert client.check().problems == []
        (told,) = client.status().uncovered
        assert "4095 bytes" in told
        assert len(told) < 1000
        client.apply([write("beside", "text\n")])
        client.settle()
        assert client.check().problems == []
    place.stop()
