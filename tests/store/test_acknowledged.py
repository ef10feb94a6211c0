"""The mark: what was acknowledged long ago is missed, though a power cut came between."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.store.acknowledged import read_acknowledged
from editd.store.journal import JournalPosition, frames
from editd.store.salvage import Salvage, open_history
from support import machine as machines
from support.crash_checks import wait_until
from support.harness import Harness, apply
from support.harness import write as edit
from support.machine import machine
from support.workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from editd.engine.commands import Apply

OURS = (apply(edit("a", "one\n")), apply(edit("a", "two\n")))


@pytest.mark.parametrize(
    ("theirs", "damage"),
    [
        ((apply(edit("a", "x\n" * 1000)),), "it ends with transaction 1, and was acknowledged up to 2"),
        (
            (apply(edit("a", "uno\n")), apply(edit("a", "dos\n"))),
            "its transaction 2 is not the acknowledged one",
        ),
    ],
    ids=["shorter", "other"],
)
def test_a_journal_of_a_copy_that_went_its_own_way_is_damage(
    tmp_path: Path, theirs: tuple[Apply, ...], damage: str
) -> None:
    """Each of its frames checks, and only the mark knows that another journal was acknowledged."""
    ours = Harness(tmp_path / "ours")
    ours.baseline({"a": "old\n"})
    copy = Harness(tmp_path / "copy")
    shutil.copytree(ours.folder, copy.folder, dirs_exist_ok=True)
    ours.crash(*OURS)
    copy.crash(*theirs)
    (segment,) = (copy.state / "journal").glob("*.segment")
    shutil.copy(segment, ours.state / "journal")
    history = open_history(str(ours.state))
    assert isinstance(history, Salvage)
    assert damage in history.damage.message
    history.close()


def test_damage_in_the_last_frame_is_found_after_a_power_cut_once_files_were_synced(
    tmp_path: Path,
) -> None:
    reason = machines.missing()
    if reason is not None:
        pytest.skip(reason)
    with machine(tmp_path / "place") as disk:
        place = disk.place
        # Elsewhere than the state, so that syncing the workspace does not sync the mark with it.
        subprocess.run(["mount", "-t", "tmpfs", "none", str(place.root)], check=True)
        with disk.start() as client:
            client.apply([write("a", "one\n")])
            client.apply([write("a", "two\n")])
            wait_until(lambda: client.status().journal["unflushed"] == 0, "not synced")
        disk.cut()
        journal = place.state / "journal"
        mark = read_acknowledged(str(journal))
        *_, last = frames(str(journal), JournalPosition(0, 0))
        assert mark is not None
        assert JournalPosition(mark.segment, mark.offset) == last.end
        segment = max(journal.glob("*.segment"))
        content = bytearray(segment.read_bytes())
        content[content.index(b"two\n")] ^= 1
        segment.write_bytes(content)
        history = open_history(str(place.state))
        assert isinstance(history, Salvage)
        assert str(segment) in history.damage.message
        history.close()
