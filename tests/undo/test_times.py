"""The order of transactions is that of their numbers, and their times are those of the clock."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Filter
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

DAY = 86_400
SET_BACK = "Times are not in order: the clock was set back before transaction 3."


class Clock:
    """The clock of a daemon, wrong by some seconds."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set(0)

    def set(self, seconds: int) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self.file)

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=int(self.file.read_text()))


@pytest.fixture
def clock(place: Workplace) -> Clock:
    clock = Clock(place.folder / "clock")
    launcher = Path(__file__).resolve().parent.parent / "support" / "wrong_clock_daemon.py"
    place.launcher = (sys.executable, str(launcher), str(clock.file))
    return clock


@pytest.fixture
def client(place: Workplace, clock: Clock) -> Iterator[Client]:
    """A history whose second transaction is dated a thousand days ahead."""
    with place.start() as client:
        make(client, "1")
        clock.set(1000 * DAY)
        make(client, "2")
        clock.set(0)
        make(client, "3")
        yield client


def make(client: Client, name: str) -> None:
    client.apply([write(name, "x")], session="s")


def later() -> str:
    """Return a time after everything so far, and let the clock pass it."""
    moment = datetime.now(UTC).isoformat()
    time.sleep(0.001)
    return moment


def test_one_transaction_with_a_wrong_clock_does_not_date_the_next_ones(client: Client, clock: Clock) -> None:
    first, ahead, now = (datetime.fromisoformat(client.show(seq).transaction.time) for seq in (1, 2, 3))
    assert ahead - first > timedelta(days=999)
    assert timedelta(0) <= now - first < timedelta(days=1)
    assert now <= clock.now()
    assert [one.seq for one in client.log(after=0).transactions] == [3, 2, 1]


def test_a_rollback_since_a_time_takes_back_what_is_dated_so_and_says_that_times_are_not_in_order(
    place: Workplace, client: Client
) -> None:
    since = later()
    make(client, "4")
    trial = client.rollback("s", since=since, dry_run=True)
    assert [file.path for file in trial.files] == ["2", "4"]
    assert trial.warnings[0].startswith(SET_BACK)
    made = client.undo(filter=Filter(session="s", since=since))
    assert made.warnings == trial.warnings
    assert sorted(place.files()) == ["1", "3"]


def test_a_log_by_time_says_so_as_well(place: Workplace, client: Client) -> None:
    since = later()
    make(client, "4")
    by_time = client.log(since=since)
    assert [one.seq for one in by_time.transactions] == [4, 2]
    assert isinstance(by_time.warnings, list)
    assert by_time.warnings[0].startswith(SET_BACK)
    assert client.log_count(since=since).count == 2
    assert client.log_count(since=since).warnings == by_time.warnings
    until = client.log(until=since, after=0, brief=True)
    assert [one.seq for one in until.transactions] == [3, 1]
    assert until.warnings == by_time.warnings
    shown = place.editctl("log", "--since", since, "--oneline")
    assert SET_BACK in shown.stderr
    assert len(shown.stdout.splitlines()) == 2


def test_a_time_over_which_no_clock_was_set_back_needs_no_warning(client: Client) -> None:
    whole = client.log(since="2020-01-01T00:00:00Z")
    assert [one.seq for one in whole.transactions] == [3, 2, 1, 0]
    assert not isinstance(whole.warnings, list)
    assert not isinstance(client.log(since="2090-01-01T00:00:00Z").warnings, list)
    assert client.rollback("s", since=2, dry_run=True).warnings == []


def test_a_restore_to_a_time_goes_to_the_newest_transaction_of_then(place: Workplace, client: Client) -> None:
    moment = later()
    make(client, "4")
    made = client.restore(moment)
    assert made.warnings[0].startswith(SET_BACK)
    assert sorted(place.files()) == ["1", "2", "3"]


def test_the_order_holds_over_a_restart_and_a_rebuilt_index(
    place: Workplace, client: Client, clock: Clock
) -> None:
    client.close()
    place.stop()
    for file in place.state.glob("index.db*"):
        file.unlink()
    clock.set(-DAY)
    with place.start() as again:
        since = later()
        make(again, "4")
        assert again.show(4).transaction.time < again.show(1).transaction.time
        assert again.log(since=since).transactions[0].seq == 2
        assert isinstance(again.log(since=since).warnings, list)
        assert again.check().ok


def test_a_clock_that_was_wrong_makes_no_transaction_too_old_to_keep(
    place: Workplace, client: Client, clock: Clock
) -> None:
    """The age of what was made while the clock was a year behind is not known."""
    clock.set(-365 * DAY)
    make(client, "4")
    clock.set(0)
    make(client, "5")
    place.editctl("config", "set", "history.keep.age", "30d")
    client.gc()
    assert [one.seq for one in client.log(after=0).transactions] == [5, 4, 3, 2, 1]
