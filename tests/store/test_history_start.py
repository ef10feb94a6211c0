"""The floor of a compacted history: where what names it is damaged, that is found, named and mended."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from editd.errors import HistoryDamaged
from editd.store.git_repository import SHALLOW, read_history_start
from editd.store.repair import Repair
from editd.store.salvage import Salvage, open_history
from editd.store.verify_history import verify_full
from support.crash_checks import fsck, history_files
from support.harness import Harness
from support.workplace import Workplace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NEWEST, KEPT = 8, 3


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("floor") / "place", {"still": "untouched\n"}) as place:
        config = place.folder / "config/editd"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(f"history.keep = {{ count = {KEPT} }}\n")
        with place.start() as client:
            for number in range(1, NEWEST + 1):
                client.apply([write("a", f"{number}\n")])
            assert client.gc().oldest == NEWEST - KEPT
        place.stop()
        yield place


def digit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[7] = ord("0") if content[7] != ord("0") else ord("1")
    path.write_bytes(content)


SPOILT: dict[str, Callable[[Path], object]] = {
    "a digit": digit,
    "nonsense": lambda path: path.write_text("nonsense\n"),
    "emptied": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("is_index_there", [True, False])
@pytest.mark.parametrize("what", SPOILT)
def test_a_floor_that_is_damaged_is_named_and_found_again(
    compacted: Workplace, tmp_path: Path, what: str, is_index_there: bool
) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(compacted.state, kept)
    try:
        shallow = compacted.store / "shallow"
        named = shallow.read_bytes()
        SPOILT[what](shallow)
        if not is_index_there:
            for path in compacted.state.glob("index.db*"):
                path.unlink()
        before = history_files(compacted)
        history = open_history(str(compacted.state))
        assert isinstance(history, Salvage)
        assert str(shallow) in history.damage.message
        assert int(history.head) == NEWEST
        history.close()
        assert history_files(compacted) == before
        repair = Repair(str(compacted.state), lambda _: None)
        assert repair.lost == []
        repair.carry_out()
        assert shallow.read_bytes() == named
        history = open_history(str(compacted.state))
        assert not isinstance(history, Salvage), history.damage
        assert int(history.floor.seq) == NEWEST - KEPT
        assert [history.find(seq).seq for seq in range(NEWEST - KEPT, NEWEST + 1)]
        history.index.flush()
        assert verify_full(str(compacted.state)) == ([], False)
        history.close()
        fsck(compacted)
    finally:
        shutil.rmtree(compacted.state)
        kept.rename(compacted.state)


@pytest.mark.parametrize("content", [b"", b"ab" * 10, b"ab" * 10 + b"\n", b"ab" * 20, b"ab" * 21 + b"\n"])
def test_a_floor_that_is_not_one_line_with_an_id_names_no_commit(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SHALLOW).write_bytes(content)
    with pytest.raises(HistoryDamaged, match="names no commit"):
        read_history_start(str(tmp_path))


def test_a_floor_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    place = Harness(tmp_path / "place")
    place.baseline({"a": "1\n"})
    (place.store / "shallow").mkdir()
    with pytest.raises(IsADirectoryError):
        open_history(str(place.state))
