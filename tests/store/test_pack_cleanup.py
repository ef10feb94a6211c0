"""What a killed packing process has left is removed; what is whole, and what others are making, stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.store.git_repository import create_store, write_manifest
from editd.store.pack_cleanup import is_tidy, tidy
from editd.store.pack_writer import PackWriter
from editd.store.verify import verify_quick
from support.crash_checks import wait_until
from support.workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace


@pytest.fixture
def packs(tmp_path: Path) -> Path:
    store = tmp_path / "store.git"
    create_store(str(store))
    write_manifest(str(store))
    return store / "objects" / "pack"


def whole_pack(packs: Path) -> str:
    writer = PackWriter(str(packs))
    writer.add("blob", b"content\n")
    name = writer.finish(keep=True)
    assert name is not None
    return name


def names(packs: Path) -> set[str]:
    return {path.name for path in packs.iterdir()}


def test_a_whole_pack_is_kept_from_nothing_any_more_and_stays(packs: Path) -> None:
    name = whole_pack(packs)
    assert not is_tidy(str(packs))
    tidy(str(packs))
    assert names(packs) == {f"{name}.pack", f"{name}.idx"}
    assert is_tidy(str(packs))


@pytest.mark.parametrize("left", [["pack-1.keep"], ["pack-1.keep", "pack-1.pack", "pack-1.idx.tmp"]])
def test_a_pack_that_has_no_index_yet_goes(packs: Path, left: list[str]) -> None:
    for name in left:
        (packs / name).write_bytes(b"half")
    tidy(str(packs))
    assert names(packs) == set()


def test_temporaries_go_but_not_those_of_compaction(packs: Path) -> None:
    (packs / "tmp_pack_1_2").write_bytes(b"PACK")
    (packs / "pack-1.keep.tmp").write_bytes(b"")
    (packs / "tmp_abc").mkdir()
    (packs / "tmp_abc" / "pack-2.pack").write_bytes(b"PACK")
    (packs / "tmp_gc_abc").mkdir()
    tidy(str(packs))
    assert names(packs) == {"tmp_gc_abc"}


def test_a_pack_whose_index_went_before_it_goes(packs: Path) -> None:
    """`repack` and `sweep` were killed between their two unlinks: the manifest is without the pack."""
    name = whole_pack(packs)
    (packs / f"{name}.keep").unlink()
    (packs / f"{name}.idx").unlink()
    tidy(str(packs))
    assert names(packs) == set()


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_pack_that_the_history_rests_on_stays_though_its_index_is_missing(
    packs: Path, is_kept: bool
) -> None:
    name = whole_pack(packs)
    store = packs.parent.parent
    write_manifest(str(store))
    (packs / f"{name}.idx").unlink()
    if not is_kept:
        (packs / f"{name}.keep").unlink()
    tidy(str(packs))
    assert names(packs) == {f"{name}.pack"}
    assert f"{name}.idx" in verify_quick(str(store.parent))[0].file


def test_where_the_manifest_is_damaged_no_pack_goes(packs: Path) -> None:
    name = whole_pack(packs)
    (packs / f"{name}.keep").unlink()
    (packs / f"{name}.idx").unlink()
    (packs.parent.parent / "manifest").write_bytes(b"nonsense")
    tidy(str(packs))
    assert names(packs) == {f"{name}.pack"}


def test_a_pack_that_compaction_is_putting_into_its_place_stays(packs: Path) -> None:
    name = whole_pack(packs)
    (packs / f"{name}.keep").unlink()
    (packs / f"{name}.idx").unlink()
    (packs.parent.parent.parent / "compacting").touch()
    tidy(str(packs))
    assert names(packs) == {f"{name}.pack"}


def test_a_start_removes_what_is_left_though_nobody_edits(place: Workplace) -> None:
    packs = place.store / "objects" / "pack"
    with place.start() as client:
        client.apply([write("a", "1\n")])
    place.stop()
    before = names(packs)
    (packs / "pack-1.keep").write_bytes(b"editd\n")
    (packs / "tmp_abc").mkdir()
    (packs / "tmp_abc" / "pack-2.pack").write_bytes(b"PACK")
    with place.start() as client:
        wait_until(lambda: names(packs) == before, "it stays")
        assert client.status().head == 1
