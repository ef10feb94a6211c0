"""engine.seen: readers that nobody keeps are forgotten, the oldest first."""

from __future__ import annotations

from editd.engine.requests import reader_of
from editd.engine.seen import READERS_MAX, Seen
from editd.values.changeset import Base, ReadMark
from editd.values.path import WorkspacePath

PATH = WorkspacePath.parse("a")


def test_names_that_nobody_opened_are_forgotten_where_there_are_too_many() -> None:
    seen = Seen()
    seen.keep(reader_of("kept"), ())
    names = ["kept", *(f"passing {number}" for number in range(READERS_MAX + 10))]
    for name in names:
        seen.note(reader_of(name), PATH, ReadMark(Base(None)))
    assert len(seen) == READERS_MAX + 1
    assert seen.by(reader_of("kept"), PATH) is not None
    assert seen.by(reader_of("passing 0"), PATH) is None
    assert seen.by(reader_of(names[-1]), PATH) is not None


def test_lines_that_were_seen_again_or_beside_others_are_one_range_with_them() -> None:
    seen = Seen()
    reader = reader_of("passing")
    for first, last in ((5, 6), (1, 2), (5, 6), (7, 9), (2, 2), (11, 12)):
        seen.note_lines(reader, PATH, Base(None), first, last)
    assert seen.sight(reader, PATH) == ReadMark(Base(None), ((1, 2), (5, 9), (11, 12)))
