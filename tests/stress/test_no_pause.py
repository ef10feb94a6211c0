"""Who edits from the daemon's first moment on, without a pause, is served as fast as who comes later."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.workspace.replaced import KEPT_SECONDS
from workplace import workplace, write

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_replaced_becomes_spares_from_the_first_edit_on(tmp_path: Path) -> None:
    """Making a file is the dearest step of an edit: it is only ever made ahead, or used again."""
    with workplace(tmp_path, {"a.txt": "0\n"}) as place, place.start() as client:
        began, most = time.monotonic(), 0
        while time.monotonic() < began + KEPT_SECONDS + 1.0:
            client.apply([write("a.txt", f"{time.monotonic()}\n")])
            if time.monotonic() > began + KEPT_SECONDS:  # by then those that were made ahead are long used
                most = max(most, empty_files(place.state / "replaced"))
        assert most


def empty_files(folder: Path) -> int:
    count = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # taken just now
            count += not path.stat().st_size
    return count
