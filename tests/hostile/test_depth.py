"""Deep folders and long paths: what they cost grows with their length, and no path is fatal."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd.values.path import WorkspacePath, ways_down
from editd.wire.messages import Delete
from editd.workspace.scope import WorkspaceScope
from support import harness
from support.harness import Harness, apply, done
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.workplace import Workplace

LONG = pytest.mark.long
DEEP = 900  # a walk below as many folders never ended
SETTLE_SECONDS = 60  # of a machine that others use, too: alone it takes less than one
LINEAR = 2.6  # twice as deep costs so many times as much at most; 4 would be quadratic


@pytest.fixture(autouse=True)
def _removed_afterwards(place: Workplace) -> Iterator[None]:
    """Remove what is deep by rm(1): pytest removes old folders by a function that recurses into each."""
    yield
    place.end()
    subprocess.run(["rm", "-rf", place.root], check=True)


def make_deep(root: Path, names: list[str], *, with_files: bool = False, last: str = "last") -> None:
    """Make folders in one another, by names alone: the whole path may be longer than any call takes."""
    folder = os.open(root, os.O_RDONLY)
    for name in names:
        if with_files:
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open(last, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)


def calls_in(work: Callable[[], object]) -> int:
    """Return how many calls Python makes for `work`: what it costs, whatever else the machine does."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.needs("openat2")  # without it, a path costs a call for each folder above it
def test_an_edit_that_makes_twice_as_many_folders_costs_twice_as_much(place: Workplace) -> None:
    def cost(depth: int) -> int:
        folder = Harness(place.root / str(depth))
        folder.baseline()
        with folder.engine() as engine:
            request = apply(harness.write("a/" * depth + "file", "one\n"))
            return calls_in(lambda: done(engine, request))

    assert cost(600) < LINEAR * cost(300)


@pytest.mark.needs("openat2")
def test_what_is_found_in_a_folder_twice_as_deep_costs_twice_as_much(place: Workplace) -> None:
    def cost(depth: int) -> int:
        folder = Harness(place.root / str(depth))
        folder.baseline()
        make_deep(folder.root, ["a"] * depth, with_files=True)
        scope = WorkspaceScope(str(folder.root))
        with folder.engine(is_ours=scope.is_in) as engine:
            inspection = engine.recorder.inspect()

            def take_in() -> None:
                for above in range(depth):
                    inspection.look(WorkspacePath("a/" * above + "file"))
                inspection.record()

            return calls_in(take_in)

    assert cost(600) < LINEAR * cost(300)


def test_a_generated_folder_is_known_by_its_mark_however_deep_it_is(place: Workplace) -> None:
    names = ["n" * 203] * 20 + ["cache"]
    make_deep(place.root, names, last="CACHEDIR.TAG")
    scope = WorkspaceScope(str(place.root))
    raw = "/".join(names).encode()
    assert len(os.fsencode(place.root)) + len(raw) > 4096, "no call takes the absolute path"
    *above, generated = ways_down(raw, ())
    assert all(scope.takes(way, None, is_folder=True) for way in above)
    assert not scope.takes(generated, None, is_folder=True)


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
