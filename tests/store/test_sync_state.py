"""How far the files are synced, as it is noted in the state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.store.sync_state import note_synced, read_synced

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_noted_last_is_read(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for seq in (0, 12, 7):
        note_synced(folder, seq)
        assert read_synced(folder) == seq


@pytest.mark.parametrize("content", [None, b"", b"\0\0\0", b"nonsense"])
def test_nobody_knows_where_there_is_no_number(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "synced").write_bytes(content)
    assert read_synced(str(tmp_path)) is None
