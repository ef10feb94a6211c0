"""Who edits from the daemon's first moment on, or without a pause, is served as fast as who comes later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.workspace.replaced_files import KEPT_SECONDS
from support.crash_checks import packer, wait_until
from support.workplace import workplace, write

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_replaced_becomes_spares_from_the_first_edit_on(tmp_path: Path) -> None:
    """Making a file is the dearest step of an edit: it is only ever made ahead, or used again."""
    with workplace(tmp_path, {"a.txt": "0\n"}) as place, place.start() as client:
        began, most = time.monotonic(), 0
        while time.monotonic() < began + KEPT_SECONDS + 1.0:
            client.apply([write("a.txt", f"{time.monotonic()}\n")])
            if time.monotonic() > began + KEPT_SECONDS:  # by then those that were made ahead are long used
                most = max(most, sum(emptiness(place.state / "replaced")))
        assert most


def test_what_was_replaced_does_not_wait_for_packing(tmp_path: Path) -> None:
    """Packing takes its time: what gathers meanwhile takes room, and somebody may have written into it."""
    with workplace(tmp_path, {"a.txt": "0\n"}) as place, place.start() as client:
        client.apply([write("a.txt", "0.5\n")])
        assert client.check().problems == []  # which packs
        packing, replaced = packer(place), place.state / "replaced"
        os.kill(packing, signal.SIGSTOP)
        try:
            client.apply([write("a.txt", "1\n")])
            assert False in emptiness(replaced)
            wait_until(lambda: False not in emptiness(replaced), "it was never looked at")
            assert client.status().journal["unpacked"] == 1
        finally:
            os.kill(packing, signal.SIGCONT)


def emptiness(folder: Path) -> list[bool]:
    """Of each file: whether it is a spare; else it was replaced."""
    found: list[bool] = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # taken just now
            found.append(not path.stat().st_size)
    return found
