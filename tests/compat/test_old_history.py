"""A workspace and a state folder that commit 98fa59a made: this version opens them and goes on.

`history_of_98fa59a.tar.xz` has `workspace/` with its `.git`, the state folder as `state/old`, and `log.json`,
the output of `editctl log --json` of that commit. Transactions: 1 replace, 2 write, 3 move, 4 chmod and
replace, 5 a file from outside, 6 its deletion, 7 a binary file from outside, 8 undo of 1, 9 exec, 10 redo of
8, 11 and 12 of the session `robot` with a lease (both expired since), published and packed. 13 and 14 were in
the journal alone when the daemon was killed with SIGKILL.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.workplace import Workplace

ARCHIVE = Path(__file__).with_name("history_of_98fa59a.tar.xz")
NEWEST = 14


@pytest.fixture
def log(place: Workplace) -> list[dict[str, Any]]:
    """Unpack the archive into the test's own place; the log of that time, newest first."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place.folder)  # without `filter`, which needs Python 3.11.4; the archive is ours
    place.state.parent.mkdir(parents=True, exist_ok=True)
    (place.folder / "state" / "old").rename(place.state)
    found: list[dict[str, Any]] = json.loads((place.folder / "log.json").read_text())["transactions"]
    return found


def test_it_opens_is_clean_and_has_the_same_log(place: Workplace, log: list[dict[str, Any]]) -> None:
    files = place.files()
    with place.start() as client:
        assert client.check().problems == []
        now = {one.seq: one for one in client.log(limit=100).transactions}
        for then in log:
            one = now[then["seq"]]
            assert (one.id, one.kind, one.actor, one.session, one.message) == tuple(
                then[key] for key in ("id", "kind", "actor", "session", "message")
            )
        assert max(now) == NEWEST, "nothing was recorded that did not happen"
    assert place.files() == files
    place.stop()
    subprocess.run(["git", "--git-dir", place.store, "fsck", "--strict"], check=True, capture_output=True)


def test_old_transactions_are_undone(place: Workplace, log: list[dict[str, Any]]) -> None:
    del log
    with place.start() as client:
        client.undo(1)
        client.undo(4)
        client.undo(13)
        client.undo(7)
        client.rollback("robot", include_published=True)
        assert client.check().problems == []
    files = place.files()
    assert files["poem.txt"] == b"one\ntwo\nthree\nfour\n5\n"
    assert files["src/main.py"] == b'def greet():\n    return "hello"\n'
    assert not (place.root / "src/main.py").stat().st_mode & 0o111
    assert files["docs.md"] == b"a new file\n"
    assert not {"blob.bin", "robot.txt"} & files.keys()
