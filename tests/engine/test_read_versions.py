"""engine.sessions: readers that nobody keeps are forgotten, and marks beyond a limit, the oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.engine import sessions
from editd.engine.commands import Reader, reader_of
from editd.engine.sessions import READERS_MAX, ReadVersions
from editd.values.content import version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Base, ReadMark
from support.harness import Harness

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PATH = WorkspacePath.parse("a")


def test_names_that_nobody_opened_are_forgotten_where_there_are_too_many() -> None:
    seen = ReadVersions()
    seen.keep(reader_of("kept"), ())
    names = ["kept", *(f"passing {number}" for number in range(READERS_MAX + 10))]
    for name in names:
        seen.note(reader_of(name), PATH, ReadMark(Base(None)))
    assert len(seen) == READERS_MAX + 1
    assert seen.by(reader_of("kept"), PATH) is not None
    assert seen.by(reader_of("passing 0"), PATH) is None
    assert seen.by(reader_of(names[-1]), PATH) is not None


def test_a_read_of_some_lines_is_noted_as_those_lines_alone(tmp_path: Path) -> None:
    place = Harness(tmp_path / "place")
    place.baseline({"a": "1\n2\n3\n"})
    with place.engine() as engine:
        engine.read(PATH, reader_of("s"), (2, 3))
        sight = engine.seen.sight(reader_of("s"), PATH)
    assert sight is not None
    assert sight.lines == ((2, 3),)


def test_lines_that_were_seen_again_or_beside_others_are_one_range_with_them() -> None:
    seen = ReadVersions()
    reader = reader_of("passing")
    for first, last in ((5, 6), (1, 2), (5, 6), (7, 9), (2, 2), (11, 12)):
        seen.note_lines(reader, PATH, Base(None), first, last)
    assert seen.sight(reader, PATH) == ReadMark(Base(None), ((1, 2), (5, 9), (11, 12)))


def test_lines_of_an_older_version_do_not_count_as_seen_of_the_present_one() -> None:
    seen = ReadVersions()
    reader = reader_of("passing")
    older, present = (Base(version_of(text)) for text in (b"1\n2\n", b"one\ntwo\n"))
    seen.note_lines(reader, PATH, older, 1, 1)
    seen.note_lines(reader, PATH, present, 2, 2)
    assert seen.sight(reader, PATH) == ReadMark(present, ((2, 2),))


def path_of(number: int) -> WorkspacePath:
    return WorkspacePath.parse(f"f{number:03}")


def mark(seen: ReadVersions, reader: str, numbers: range) -> None:
    for number in numbers:
        seen.note(Reader(reader), path_of(number), ReadMark(Base(None)))


def known(seen: ReadVersions, reader: str, numbers: range) -> list[int]:
    return [number for number in numbers if seen.by(Reader(reader), path_of(number)) is not None]


def test_the_oldest_marks_of_a_reader_go_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ReadVersions()
    assert seen.weaker() == []
    monkeypatch.setattr(sessions, "PATHS_MAX", 5)
    mark(seen, "a", range(8))
    assert known(seen, "a", range(8)) == [3, 4, 5, 6, 7]
    assert seen.weaker()[0].startswith("3 versions that sessions had read were forgotten")


def test_marks_of_long_paths_are_fewer_and_forgotten_readers_leave_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = len("f000") + sessions.MARK_BYTES
    monkeypatch.setattr(sessions, "READER_BYTES_MAX", 4 * one)
    monkeypatch.setattr(sessions, "MARKS_BYTES_MAX", 6 * one)
    seen = ReadVersions()
    mark(seen, "a", range(5))
    assert known(seen, "a", range(5)) == [1, 2, 3, 4]
    mark(seen, "b", range(3))
    assert (known(seen, "a", range(5)), known(seen, "b", range(3))) == ([2, 3, 4], [0, 1, 2])
    seen.forget(Reader("a"))
    mark(seen, "b", range(3, 4))
    assert (seen.all_bytes, seen.evicted, known(seen, "b", range(4))) == (4 * one, 2, [0, 1, 2, 3])


def test_an_evicted_mark_of_a_kept_reader_goes_from_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PATHS_MAX", 2)
    seen = ReadVersions()
    seen.keep(Reader("a"), [(path_of(0), ReadMark(Base(None)))])
    mark(seen, "a", range(1, 3))
    changed = {path.text: sight for _, path, sight in seen.take_changed(9)}
    assert changed == {"f000": None, "f001": ReadMark(Base(None)), "f002": ReadMark(Base(None))}
