"""The feed and the timeline on a real daemon: windows, new rows, queries, and what an undo changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd_client.review.feed import SKIP_MAX, WINDOW, WINDOWS_MAX, Feed
from editd_client.review.query import TransactionQuery
from editd_client.review.timeline import Timeline
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client

EDITS = 2 * WINDOW + 50


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A daemon with the baseline and EDITS transactions; each third is of the session `third`."""
    from support.workplace import workplace

    with workplace(tmp_path_factory.mktemp("feed") / "place") as place:
        with place.start() as made:
            made.settle()
            for number in range(1, EDITS + 1):
                session = "third" if number % 3 == 0 else "other"
                made.apply(
                    [write(f"f{number % 7}", f"{number}\n")], session=session, message=f"edit {number}"
                )
            yield made
        place.stop()


def fetch(client: Client, timeline: Timeline, first: int = 0, rows: int = 20) -> int:
    """Send, as a screen does, the calls that these rows need, until none is left. Return their number."""
    sent = 0
    while asked := timeline.requests(first, rows):
        for one in asked:
            timeline.feed.receive(one, client.ask(one.call))
            sent += 1
        timeline.follow_newest()
        assert sent < 50, "it asks again and again"
    return sent


def seqs(timeline: Timeline, first: int, rows: int) -> list[int | None]:
    return [getattr(timeline.at(row), "seq", None) for row in range(first, first + rows)]


def test_only_the_window_in_view_is_fetched_and_any_row_is_one_request_away(client: Client) -> None:
    timeline = Timeline()
    assert fetch(client, timeline) <= 3  # the count, the newest window, and the one below if it is near
    head = client.status().head
    assert timeline.count == head + 1
    assert seqs(timeline, 0, 20) == list(range(head, head - 20, -1))
    assert timeline.at(head) is None
    assert timeline.seq_at(head) == 0
    assert fetch(client, timeline, head, 1) == 1
    assert seqs(timeline, head - 1, 3) == [1, 0, None]


def test_a_reader_stays_on_its_transaction_and_one_that_follows_moves_to_the_newest(client: Client) -> None:
    reader, follower = Timeline(), Timeline()
    for timeline in (reader, follower):
        fetch(client, timeline)
    reader.move(5)
    stays = reader.selected
    assert stays is not None
    made = client.apply([write("new", "1\n")], message="new").transaction
    assert made is not None
    for timeline in (reader, follower):
        timeline.feed.announce(made.seq, made.kind)
        timeline.follow_newest()
        assert fetch(client, timeline) == 1
    assert reader.selected == stays
    assert reader.cursor_row == 6
    assert not reader.is_following
    assert follower.selected is not None
    assert (follower.selected.seq, follower.cursor_row) == (made.seq, 0)
    reader.move(-6)
    assert reader.is_following


def test_a_query_is_counted_by_the_daemon_and_its_last_page_is_found_from_above(client: Client) -> None:
    timeline = Timeline()
    timeline.restart(TransactionQuery.parse("session:third"))
    fetch(client, timeline)
    expected = [one.seq for one in client.log(session="third", limit=1000).transactions]
    assert timeline.count == len(expected) == EDITS // 3
    assert seqs(timeline, 0, len(expected)) == expected
    many = Timeline(Feed(TransactionQuery.parse("edit")))
    fetch(client, many)
    listed = [one.seq for one in client.log(grep="edit", limit=SKIP_MAX).transactions]
    many.oldest()
    assert fetch(client, many, many.cursor_row, 1) <= 3
    assert many.selected is not None
    assert many.selected.seq == listed[-1]
    middle = len(listed) // 2
    fetch(client, many, middle, 30)
    assert seqs(many, middle, 30) == listed[middle : middle + 30]


def test_a_query_grows_only_by_what_matches_it(client: Client) -> None:
    timeline = Timeline(Feed(TransactionQuery.parse("session:third")))
    fetch(client, timeline)
    before = timeline.count
    for session in ("other", "third", "other"):
        made = client.apply([write("more", session)], session=session).transaction
        assert made is not None
        timeline.feed.announce(made.seq, made.kind)
    fetch(client, timeline)
    assert timeline.count == before + 1
    assert timeline.selected is not None
    assert timeline.selected.who == "third"
    assert seqs(timeline, 0, 3) == [one.seq for one in client.log(session="third", limit=3).transactions]


def test_an_undo_is_shown_on_the_row_that_it_takes_back(client: Client) -> None:
    timeline = Timeline()
    made = client.apply([write("undone", "1\n")]).transaction
    assert made is not None
    fetch(client, timeline)
    assert timeline.selected is not None
    assert timeline.selected.undone_by is None
    undo = client.undo(made.seq).transaction
    assert undo is not None
    timeline.feed.announce(undo.seq, undo.kind)
    timeline.follow_newest()
    assert seqs(timeline, 1, 2) == [made.seq, made.seq - 1], "the rows are shown until they come again"
    fetch(client, timeline)
    row = timeline.at(1)
    assert row is not None
    assert (row.seq, row.undone_by) == (made.seq, undo.seq)


def test_a_row_has_its_files_lines_author_and_subject(client: Client) -> None:
    timeline = Timeline()
    client.apply([write("x", "1\n2\n"), write("y", "1\n")], session="rows", message="Two files\n\nand why")
    fetch(client, timeline)
    row = timeline.selected
    assert row is not None
    assert (row.kind, row.who, row.subject) == ("edit", "rows", "Two files")
    assert (row.files, row.added, row.deleted) == ("2 files", 3, 0)
    client.apply([write("x", "1\n")], session="rows")
    timeline.restart(TransactionQuery())
    fetch(client, timeline)
    assert timeline.selected is not None
    assert (timeline.selected.files, timeline.selected.added, timeline.selected.deleted) == ("x", 0, 1)


def test_marks_and_going_to_a_transaction(client: Client) -> None:
    timeline = Timeline()
    fetch(client, timeline)
    assert timeline.go_to(17)
    fetch(client, timeline, timeline.cursor_row, 1)
    timeline.toggle_mark()
    timeline.move(1)
    fetch(client, timeline, timeline.cursor_row, 1)
    timeline.toggle_mark()
    assert timeline.marks == {17, 16}
    timeline.toggle_mark()
    assert timeline.marks == {17}
    assert not timeline.go_to(10**9)


def test_an_answer_from_before_a_restart_changes_nothing(client: Client) -> None:
    feed = Feed()
    (counting,) = feed.requests(10, 0)
    feed.restart(TransactionQuery.parse("session:third"))
    feed.receive(counting, client.ask(counting.call))
    assert not feed.is_counted
    (counting,) = feed.requests(10, 0)
    assert feed.requests(10, 0) == [], "it is asked once"
    feed.note_failure(counting)
    assert [one.call.params for one in feed.requests(10, 0)] == [counting.call.params]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    monkeypatch.setattr("editd_client.review.feed.WINDOWS_MAX", 2)
    timeline = Timeline()
    for first in range(0, EDITS, 100):
        fetch(client, timeline, first, 20)
    kept = [row for row in range(timeline.count) if timeline.at(row) is not None]
    assert 0 < len(kept) <= 2 * WINDOW < timeline.count
    assert WINDOWS_MAX > 2
