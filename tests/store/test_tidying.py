"""What a killed packing process has left is removed; what is whole, and what others are making, stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.store.pack import PackWriter
from editd.store.tidying import tidy

if TYPE_CHECKING:
    from pathlib import Path


def whole_pack(packs: Path) -> str:
    writer = PackWriter(str(packs))
    writer.add("blob", b"content\n")
    name = writer.finish(keep=True)
    assert name is not None
    return name


def names(packs: Path) -> set[str]:
    return {path.name for path in packs.iterdir()}


def test_a_whole_pack_is_kept_from_nothing_any_more_and_stays(tmp_path: Path) -> None:
    name = whole_pack(tmp_path)
    tidy(str(tmp_path))
    assert names(tmp_path) == {f"{name}.pack", f"{name}.idx"}


@pytest.mark.parametrize("left", [["pack-1.keep"], ["pack-1.keep", "pack-1.pack", "pack-1.idx.tmp"]])
def test_a_pack_that_has_no_index_yet_goes(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).write_bytes(b"half")
    tidy(str(tmp_path))
    assert names(tmp_path) == set()


def test_temporaries_go_but_not_those_of_compaction(tmp_path: Path) -> None:
    (tmp_path / "tmp_pack_1_2").write_bytes(b"PACK")
    (tmp_path / "pack-1.keep.tmp").write_bytes(b"")
    (tmp_path / "tmp_abc").mkdir()
    (tmp_path / "tmp_abc" / "pack-2.pack").write_bytes(b"PACK")
    (tmp_path / "tmp_gc_abc").mkdir()
    tidy(str(tmp_path))
    assert names(tmp_path) == {"tmp_gc_abc"}
