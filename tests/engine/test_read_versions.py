"""engine.sessions: readers that nobody keeps are forgotten, the oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.engine.commands import reader_of
from editd.engine.sessions import READERS_MAX, ReadVersions
from editd.values.content import version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Base, ReadMark
from harness import Harness

if TYPE_CHECKING:
    from pathlib import Path

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
        engine.read(PATH, reader_of("s"), None, (2, 3))
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
