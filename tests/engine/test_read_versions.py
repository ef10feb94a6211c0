"""engine.read_versions: readers that nobody keeps are forgotten, the oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.engine.commands import reader_of
from editd.engine.read_versions import READERS_MAX, ReadVersions
from editd.values.changeset import Base, ReadMark
from editd.values.path import WorkspacePath
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
