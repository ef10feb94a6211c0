"""Many small packs become one, and nothing that was in them is lost."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pygit2
import pytest

from editd.store import consolidate
from editd.store.head import move_head
from editd.store.objects import commit_content
from editd.store.pack import PackWriter
from editd.store.repository import create_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    create_store(str(tmp_path / "store.git"))
    return tmp_path / "store.git"


def packs(store: Path) -> list[Path]:
    return sorted((store / "objects/pack").glob("*.pack"))


def commits(store: Path, count: int) -> list[bytes]:
    """A chain of commits, each with its tree and blob in a pack of its own."""
    made: list[bytes] = []
    text = os.urandom(1000).hex().encode()
    for number in range(count):
        writer = PackWriter(str(store / "objects/pack"))
        blob = writer.add("blob", text + b"%d\n" % number)
        tree = writer.add("tree", b"100644 file\0" + blob)
        content = commit_content(tree, made[-1:], "a <a@a>", "a <a@a>", number * 1_000_000, f"{number}\n")
        made.append(writer.add("commit", content))
        writer.finish()
    move_head(str(store), made[-1])
    return made


def run(store: Path) -> None:
    repository = pygit2.Repository(str(store))
    consolidate.consolidate(repository, str(store / "objects/pack"))


def test_few_packs_are_left_alone(store: Path) -> None:
    commits(store, 5)
    before = packs(store)
    run(store)
    assert packs(store) == before


def test_many_packs_become_one_that_git_finds_sound(store: Path) -> None:
    made = commits(store, consolidate.PACKS_MAX + 1)
    size = sum(pack.stat().st_size for pack in packs(store))
    run(store)
    assert len(packs(store)) == 1
    assert packs(store)[0].stat().st_size < size / 3, "with deltas"
    git = ["git", "--git-dir", str(store)]
    subprocess.run([*git, "fsck", "--full", "--strict"], check=True, capture_output=True)
    listed = subprocess.run([*git, "rev-list", "history"], check=True, capture_output=True, text=True).stdout
    assert listed.split() == [oid.hex() for oid in reversed(made)]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (store / "objects/pack").iterdir())


def test_a_reader_that_had_the_store_open_goes_on_reading(store: Path) -> None:
    made = commits(store, consolidate.PACKS_MAX + 1)
    reader = pygit2.Repository(str(store))
    assert reader.odb.read(pygit2.Oid(raw=made[0]))[1].endswith(b"0\n")
    run(store)
    for number, oid in enumerate(made):
        assert reader.odb.read(pygit2.Oid(raw=oid))[1].endswith(b"\n%d\n" % number)


def test_a_pack_that_is_kept_is_left_alone(store: Path) -> None:
    commits(store, consolidate.PACKS_MAX + 2)
    kept = packs(store)[0]
    kept.with_suffix(".keep").touch()
    run(store)
    assert kept in packs(store)
    assert len(packs(store)) == 2


def test_a_large_pack_is_left_alone(store: Path) -> None:
    commits(store, consolidate.PACKS_MAX + 1)
    writer = PackWriter(str(store / "objects/pack"))
    writer.add("blob", os.urandom(consolidate.SMALL_BYTES))
    large = writer.finish()
    run(store)
    assert large in [pack.stem for pack in packs(store)]
    assert len(packs(store)) == 2
