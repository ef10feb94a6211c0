"""Many small packs become one, and nothing that was in them is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pygit2
import pytest

from editd.store import repack
from editd.store.git_objects import commit_content
from editd.store.git_repository import (
    create_store,
    exclusive_lock,
    move_head,
    read_manifest,
    shared_lock,
    write_manifest,
)
from editd.store.pack_writer import PackWriter
from support.crash_checks import PATIENCE_SECONDS, wait_until

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
    """Put packs together if there are many, as the packing process has it done, and wait for that."""
    consolidation = repack.Repacker(str(store))
    consolidation.begin()
    wait_until(lambda: not consolidation.is_under_way, "it does not end")


def test_few_packs_are_left_alone(store: Path) -> None:
    commits(store, 5)
    before = packs(store)
    run(store)
    assert packs(store) == before


def test_many_packs_become_one_that_git_finds_sound(store: Path) -> None:
    made = commits(store, repack.PACKS_MAX + 1)
    size = sum(pack.stat().st_size for pack in packs(store))
    run(store)
    assert len(packs(store)) == 1
    assert packs(store)[0].stat().st_size < size / 3, "with deltas"
    git = ["git", "--git-dir", str(store)]
    subprocess.run([*git, "fsck", "--full", "--strict"], check=True, capture_output=True)
    listed = subprocess.run([*git, "rev-list", "history"], check=True, capture_output=True, text=True).stdout
    assert listed.split() == [oid.hex() for oid in reversed(made)]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (store / "objects/pack").iterdir())


def test_a_run_that_was_killed_before_the_old_packs_went_is_repeated_without_loss(
    store: Path, tmp_path: Path
) -> None:
    """The second run makes a pack of the same bytes and name as the first run's pack."""
    made = commits(store, 2)
    shutil.copytree(store / "objects/pack", tmp_path / "before")
    repack.repack(pygit2.Repository(str(store)))
    [combined] = packs(store)
    shutil.copytree(tmp_path / "before", store / "objects/pack", dirs_exist_ok=True)
    repack.repack(pygit2.Repository(str(store)))
    assert packs(store) == [combined]
    git = ["git", "--git-dir", str(store)]
    listed = subprocess.run([*git, "rev-list", "history"], check=True, capture_output=True, text=True).stdout
    assert listed.split() == [oid.hex() for oid in reversed(made)]


def test_a_reader_that_had_the_store_open_goes_on_reading(store: Path) -> None:
    made = commits(store, repack.PACKS_MAX + 1)
    reader = pygit2.Repository(str(store))
    assert reader.odb.read(pygit2.Oid(raw=made[0]))[1].endswith(b"0\n")
    run(store)
    for number, oid in enumerate(made):
        assert reader.odb.read(pygit2.Oid(raw=oid))[1].endswith(b"\n%d\n" % number)


def test_a_pack_that_is_kept_is_left_alone(store: Path) -> None:
    commits(store, repack.PACKS_MAX + 2)
    kept = packs(store)[0]
    kept.with_suffix(".keep").touch()
    run(store)
    assert kept in packs(store)
    assert len(packs(store)) == 2


def test_packing_goes_on_while_packs_are_put_together(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits(store, repack.PACKS_MAX + 1)
    is_going, may_end = threading.Event(), threading.Event()
    put_together = pygit2.Repository.pack

    def slowly(*arguments: Any, **options: Any) -> Any:
        is_going.set()
        assert may_end.wait(PATIENCE_SECONDS)
        return put_together(*arguments, **options)

    monkeypatch.setattr(pygit2.Repository, "pack", slowly)
    consolidation = repack.Repacker(str(store))
    consolidation.begin()
    assert is_going.wait(PATIENCE_SECONDS)
    with exclusive_lock(str(store)):
        new = commits_more(store)
        write_manifest(str(store))
    assert consolidation.is_under_way
    consolidation.begin()
    may_end.set()
    wait_until(lambda: not consolidation.is_under_way, "it does not end")
    manifest = read_manifest(str(store))
    assert manifest is not None
    assert manifest.packs.keys() == {pack.stem for pack in packs(store)}
    assert new in manifest.packs
    assert len(manifest.packs) == 2


def test_no_pack_goes_while_they_are_proven_and_packing_goes_on(store: Path) -> None:
    commits(store, repack.PACKS_MAX + 1)
    before = packs(store)
    consolidation = repack.Repacker(str(store))
    with shared_lock(str(store)):
        consolidation.begin()
        wait_until(lambda: list(store.glob("objects/pack/tmp_*/*.idx")), "they are not put together")
        with exclusive_lock(str(store)):
            assert packs(store) == before
        assert consolidation.is_under_way
    wait_until(lambda: not consolidation.is_under_way, "it does not end")
    assert len(packs(store)) == 1


def test_only_so_many_are_put_together_at_once_that_a_large_one_comes_of_them(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repack, "SMALL_OBJECTS", 3 * 20 - 1)
    commits(store, repack.PACKS_MAX + 1)  # of three objects each
    run(store)
    assert len(packs(store)) == repack.PACKS_MAX + 1 - 20 + 1
    commits(store, 20)
    large = next(pack for pack in packs(store) if len(objects_of(pack)) == 60)
    run(store)
    assert large in packs(store)


def test_what_cannot_be_put_together_stays_as_it_is_and_the_log_says_so(
    store: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(store, repack.PACKS_MAX + 1)
    before = packs(store)
    tried = 0

    def fails(*_: object, **__: object) -> None:
        nonlocal tried
        tried += 1
        raise pygit2.GitError("failed to write: No space left on device")

    monkeypatch.setattr(pygit2.Repository, "pack", fails)
    consolidation = repack.Repacker(str(store))
    for _ in range(2):
        consolidation.begin()
        wait_until(lambda: not consolidation.is_under_way, "it does not end")
    assert packs(store) == before
    assert [path.name for path in before[0].parent.iterdir() if path.name.startswith("tmp_")] == []
    assert caplog.messages == ["small packs could not be combined: failed to write: No space left on device"]
    assert tried == 1, "until there are many more"


def test_a_pack_whose_index_is_cut_off_is_left_alone(store: Path) -> None:
    commits(store, repack.PACKS_MAX + 2)
    broken = packs(store)[0]
    os.truncate(broken.with_suffix(".idx"), 100)
    run(store)
    assert broken in packs(store)


def commits_more(store: Path) -> str:
    """One more pack, and its name."""
    writer = PackWriter(str(store / "objects/pack"))
    writer.add("blob", os.urandom(100))
    name = writer.finish()
    assert name is not None
    return name


def objects_of(pack: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "show-index"],
        stdin=pack.with_suffix(".idx").open("rb"),
        check=True,
        capture_output=True,
        text=True,
    )
    return listed.stdout.splitlines()


def test_a_large_pack_is_left_alone(store: Path) -> None:
    commits(store, repack.PACKS_MAX + 1)
    writer = PackWriter(str(store / "objects/pack"))
    writer.add("blob", os.urandom(repack.SMALL_BYTES))
    large = writer.finish()
    run(store)
    assert large in [pack.stem for pack in packs(store)]
    assert len(packs(store)) == 2


def test_one_that_is_cut_off_leaves_no_index_without_its_pack(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(store, 2)
    before = packs(store)
    rename = os.rename

    def only_one(source: str, target: str) -> None:
        rename(source, target)
        monkeypatch.undo()
        raise OSError("cut off")

    monkeypatch.setattr("editd.store.repack.os.rename", only_one)
    with pytest.raises(OSError, match="cut off"):
        repack.repack(pygit2.Repository(str(store)))
    (new,) = set(packs(store)) - set(before)
    assert not new.with_suffix(".idx").exists()
