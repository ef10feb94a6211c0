"""engine.sessions: when a session's time begins, and what it may believe after a restart."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from editd.engine.commands import Undo, reader_of
from editd.engine.sessions import ReadVersions, Sessions
from editd.engine.undo_selection import LastEditOf
from editd.errors import IoError, NothingToUndo
from editd.store.session_store import ReadVersionStore, SessionStore
from editd.values.content import Version, version_of
from editd.values.path_rules import Bounds
from editd.values.transaction import Authorship, Base, ReadMark
from support.harness import Harness, apply, done, path_of, refused, write

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000
TTL_SECONDS = 10.0
A = path_of("a")


@pytest.fixture
def seen() -> ReadVersions:
    return ReadVersions()


def opened(folder: Path, seen: ReadVersions, now_us: int = 0) -> Sessions:
    return Sessions(SessionStore(str(folder), now_us), ReadVersionStore(str(folder)), seen, now_us)


def open_one(sessions: Sessions, name: str = "s", ttl: float = TTL_SECONDS) -> None:
    sessions.open(
        name, actor=None, bounds=Bounds(None, None), on_stale=None, unread="allow", ttl=ttl, now_us=0
    )


def test_a_sessions_time_begins_when_its_connection_goes(tmp_path: Path, seen: ReadVersions) -> None:
    sessions = opened(tmp_path, seen)
    open_one(sessions)
    sessions.join("s", 1)
    assert sessions.expired(100 * SECOND) == []
    sessions.leave(1, 100 * SECOND)
    assert sessions.expired(105 * SECOND) == []
    assert sessions.expired(111 * SECOND) == ["s"]


def test_the_time_that_is_left_is_that_of_the_first_session_to_end_without_a_connection(
    tmp_path: Path, seen: ReadVersions
) -> None:
    sessions = opened(tmp_path, seen)
    assert sessions.seconds_left(0) is None
    for name, ttl in (("long", 30.0), ("short", 10.0), ("attached", 1.0)):
        open_one(sessions, name, ttl)
    sessions.join("attached", 1)
    assert sessions.seconds_left(4 * SECOND) == 6.0
    assert sessions.seconds_left(20 * SECOND) == 0.0


def test_a_sessions_time_goes_on_over_a_restart(tmp_path: Path, seen: ReadVersions) -> None:
    sessions = opened(tmp_path, seen)
    open_one(sessions)
    sessions.use("s", 1 * SECOND)
    sessions.close_all()
    sessions = opened(tmp_path, ReadVersions(), 8 * SECOND)
    assert sessions.seconds_left(8 * SECOND) == 3.0


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_session_is_in_doubt_after_an_end_at_which_its_reads_could_not_be_written(
    tmp_path: Path, seen: ReadVersions, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    sessions = opened(tmp_path, seen)
    open_one(sessions)
    seen.note(reader_of("s"), A, ReadMark(Base(None)))

    def fail(*_arguments: object) -> None:
        raise IoError(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "seen.db cannot be written")

    if is_lost:
        monkeypatch.setattr(ReadVersionStore, "write", fail)
    sessions.close_all()
    monkeypatch.undo()
    again = opened(tmp_path, ReadVersions(), 1).get("s")
    assert again is not None
    assert again.is_in_doubt == is_lost


def test_a_session_in_doubt_stays_so_after_a_clean_end(tmp_path: Path) -> None:
    open_one(opened(tmp_path, ReadVersions()))  # by a daemon that is killed
    for now_us in (1, 2):
        sessions = opened(tmp_path, ReadVersions(), now_us)
        again = sessions.get("s")
        assert again is not None
        assert again.is_in_doubt
        sessions.close_all()


def test_a_session_is_in_doubt_after_the_loss_of_its_reads(tmp_path: Path, seen: ReadVersions) -> None:
    sessions = opened(tmp_path, seen)
    open_one(sessions)
    sessions.close_all()
    (tmp_path / "seen.db").write_bytes(b"nonsense" * 1000)
    again = opened(tmp_path, ReadVersions(), 1).get("s")
    assert again is not None
    assert again.is_in_doubt


def test_which_lines_were_read_outlives_the_daemon(tmp_path: Path) -> None:
    sight = ReadMark(Base(Version(version_of(b"text\n"))), ((1, 2), (5, 7)))
    written = ReadVersionStore(str(tmp_path))
    written.write([("s", A, sight)], {})
    written.close()
    assert list(ReadVersionStore(str(tmp_path)).of("s")) == [(A, sight)]


def test_a_caller_without_a_session_does_not_undo_a_sessions_edit_by_a_tool(tmp_path: Path) -> None:
    place = Harness(tmp_path / "place")
    place.baseline({"a": "1\n"})
    with place.engine() as engine:
        done(engine, apply(write("a", "2\n"), session="agent"))
        last = LastEditOf(A, None)
        refusal = refused(engine, Undo(Authorship("somebody", None, ""), "connection 2", last))
        assert isinstance(refusal, NothingToUndo)
        done(engine, Undo(Authorship("somebody", "agent", ""), "connection 2", LastEditOf(A, "agent")))
    assert place.files() == {"a": "1\n"}
