"""What `editctl` shows while the daemon sees a workspace for the first time."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from editd_client.cli import progress

if TYPE_CHECKING:
    import pytest


def test_a_wait_shows_the_count_of_the_first_scan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SAY_SECONDS", 0.01)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((120, 40)))
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2, raising=False)
    is_over = threading.Event()
    counts = iter(range(1000, 1_000_000))
    has_shown_one = threading.Event()

    def scan_count() -> str:
        count = next(counts)
        if count > 1000:  # the first one was written
            has_shown_one.set()
        return f"first scan: {count:,} files"

    teller = threading.Thread(target=progress._tell, args=("waiting for `log`", scan_count, is_over))
    teller.start()
    assert has_shown_one.wait(30)
    is_over.set()
    teller.join()
    assert "editctl: first scan: 1,000 files" in capsys.readouterr().err
