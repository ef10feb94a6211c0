"""docs/security.md: what the daemon keeps is its user's alone, whatever the umask."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace


def loose(top: Path) -> Iterator[str]:
    """What below `top` others may read, write or enter; folders are 0700 and files 0600 or less."""
    for path in (top.parent, top, *top.rglob("*")):
        if path.parent.name == "replaced":
            continue  # the workspace's own files, with their own modes, for a second, in a folder of 0700
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & 0o077:
            yield f"{path} {stat.S_IMODE(mode):04o}"


def test_all_that_the_daemon_keeps_is_its_users_alone(place: Workplace) -> None:
    place.write({"a.txt": "one\n", ".env": "TOKEN=secret\n"})
    before = os.umask(0)
    try:
        with place.start() as client:
            client.settle()
            token = client.session_open("s", actor="ada").token
            for number in range(3):
                client.apply([write("a.txt", f"{number}\n")], session="s")
            wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")
            client.undo(3)
            assert list(loose(place.state)) == []
            run = Path(place.socket).parent
            assert stat.S_IMODE(run.stat().st_mode) == 0o700
            assert stat.S_IMODE(os.stat(place.socket).st_mode) == 0o600
        place.kill()
        with place.start() as client:
            assert list(loose(place.state)) == []
        place.stop()
    finally:
        os.umask(before)
    assert list(loose(place.state)) == []
    kept = b"".join(path.read_bytes() for path in place.state.rglob("*") if path.is_file())
    assert token.encode() not in kept, "of a token only its hash is kept"


def test_a_token_keeps_sessions_apart_and_no_more_than_that(place: Workplace) -> None:
    place.write({"a.txt": "one\n"})
    with place.start() as one, place.client() as other:
        one.session_open("s")
        one.apply([write("a.txt", "two\n")], session="s")
        with pytest.raises(EditdError) as caught:
            other.apply([write("a.txt", "three\n")], session="s")
        assert caught.value.name == "unknown_session"
        other.apply([write("a.txt", "three\n")])  # without a session, as docs/security.md says
        other.undo(2)
        place.stop()
