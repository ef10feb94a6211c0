"""What the tests of the workspace's files may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.system.filesystem import Disk, open_folder
from editd.workspace import replaced_files
from support import working_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.system.filesystem import OpenFolder


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let go of the folders that a test's disks hold, as the end of the daemon does."""
    disks: set[Disk] = set()
    folders: list[OpenFolder] = []
    begin, close = Disk.__init__, Disk.close

    def noted(disk: Disk, root: str | bytes, *, walk: bool = False) -> None:
        begin(disk, root, walk=walk)
        disks.add(disk)

    def closed(disk: Disk) -> None:
        close(disk)
        disks.remove(disk)

    def noted_folder(path: str) -> OpenFolder:
        folders.append(open_folder(path))
        return folders[-1]

    monkeypatch.setattr(Disk, "__init__", noted)
    monkeypatch.setattr(Disk, "close", closed)
    monkeypatch.setattr(replaced_files, "open_folder", noted_folder)
    yield
    for disk in list(disks):
        disk.close()
    for folder in folders:
        folder.__exit__(None, None, None)


@pytest.fixture(params=[False, True], ids=["made", "spared"])
def spared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run it twice: with temporaries made beside their targets, and with spares."""
    monkeypatch.setattr(working_files, "is_spared", request.param)
    return bool(request.param)
