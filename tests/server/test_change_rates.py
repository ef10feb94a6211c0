"""server.change_rates: a busy path rests between two records, and `status` names the sources of growth."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from editd.server import change_rates
from editd.server.change_rates import AT_ONCE, ChangeRates
from support.crash_checks import wait_until
from support.reviewers import configure
from support.workplace import write

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace

MIB = 1 << 20


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(clock: Clock) -> ChangeRates:
    return ChangeRates(clock)


def test_a_path_rests_only_after_several_records_without_a_pause(rates: ChangeRates, clock: Clock) -> None:
    for _ in range(AT_ONCE):
        assert rates.rest([b"db"]) == set()
        rates.note(b"db", 1, is_new=False)
        clock.now += 1
    assert rates.rest([b"db", b"other"]) == set(), "both may be one save"
    assert rates.seconds_left() is None
    assert rates.rest([b"db"]) == {b"db"}
    assert rates.seconds_left() == rates.interval_seconds - 1
    assert rates.take_rested() == frozenset()
    clock.now += rates.interval_seconds
    assert rates.take_rested() == {b"db"}
    assert rates.rest([b"db"]) == set()
    assert rates.seconds_left() is None


def test_a_pause_ends_the_count(rates: ChangeRates, clock: Clock) -> None:
    for _ in range(3 * AT_ONCE):
        rates.note(b"a", 1, is_new=False)
        clock.now += 3 * rates.interval_seconds
    clock.now -= 3 * rates.interval_seconds
    assert rates.rest([b"a"]) == set()


def test_an_edit_through_the_daemon_begins_the_count_anew(rates: ChangeRates) -> None:
    for _ in range(AT_ONCE):
        rates.note(b"a", 1, is_new=False)
    rates.edited(b"a")
    rates.edited(b"never recorded")
    assert rates.rest([b"a"]) == set()
    rates.note(b"a", 1, is_new=False)
    assert rates.rest([b"a"]) == set()


def test_a_settle_takes_all_and_an_interval_of_0_is_no_rest(rates: ChangeRates) -> None:
    for _ in range(AT_ONCE):
        rates.note(b"db", 1, is_new=False)
    assert rates.rest([b"db"]) == {b"db"}
    assert rates.take_rested(is_settling=True) == {b"db"}
    rates.interval_seconds = 0.0
    assert rates.rest([b"db"]) == set()


def test_the_path_that_makes_most_of_the_growth_is_named(rates: ChangeRates) -> None:
    """utensils/claudette #942: 38.9 GB of checkpoints, mostly of a few files, and nothing said so."""
    for number in range(100):
        rates.note(b"var/app.db", 12 * MIB, is_new=False)
        rates.note(b"src/%d" % number, 1000, is_new=False)
    (sentence,) = rates.notices()
    assert sentence.startswith(
        "var/app.db makes most of the growth of the history: 100 versions with 1200 MiB"
    )


def test_growth_by_many_paths_names_none(rates: ChangeRates) -> None:
    for number in range(1000):
        rates.note(b"f%d" % (number % 10), 10 * MIB, is_new=False)
    assert rates.notices() == []


def test_the_folder_with_thousands_of_new_files_is_named_once(rates: ChangeRates) -> None:
    for number in range(5000):
        rates.note(b"web/node_modules/p%d/f%d" % (number // 20, number), 1, is_new=True)
    rates.note(b"web/index.js", 1, is_new=True)
    (sentence,) = rates.notices()
    assert sentence.startswith("web/node_modules has 5000 new files that git does not ignore")


def test_the_numbers_of_many_paths_are_not_kept(rates: ChangeRates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_rates, "PATHS_MAX", 5)
    for number in range(100):
        rates.note(b"d%d/f" % number, 1, is_new=True)
    assert len(rates.by_path) == 5
    assert len(rates._new_files) == 5


# ── through the socket ──


def versions(client: Client, path: str) -> int:
    return len(client.log(path=path, kind="outside", limit=1000).transactions)


def record_once(place: Workplace, client: Client, number: int) -> None:
    """Write a version, and wait until it is recorded as the next one."""
    (place.root / "app.log").write_text(f"{number}: a line\n")
    wait_until(lambda: versions(client, "app.log") == number + 1, "it is not recorded")


@pytest.mark.needs("inotify")
def test_a_log_that_changes_without_pause_is_recorded_at_intervals_and_by_a_settle(place: Workplace) -> None:
    place.write({"app.log": "0\n"})
    configure(place, '[history]\nrecord_interval = "1h"\n')
    with place.start() as client:
        client.settle()
        for number in range(AT_ONCE):
            record_once(place, client, number)
        for _ in range(10):
            with open(place.root / "app.log", "a", encoding="utf-8") as file:
                file.write("a line more\n")
            time.sleep(0.3)  # longer than the quiet after which a change is recorded
        assert versions(client, "app.log") == AT_ONCE
        client.settle()
        assert versions(client, "app.log") == AT_ONCE + 1
        assert client.read("app.log", at=client.status().head).content.count("more") == 10


@pytest.mark.needs("inotify")
def test_an_edit_of_a_resting_path_records_it_first(place: Workplace) -> None:
    place.write({"app.log": "0\n"})
    configure(place, '[history]\nrecord_interval = "1h"\n')
    with place.start() as client:
        client.settle()
        for number in range(AT_ONCE):
            record_once(place, client, number)
        (place.root / "app.log").write_text("theirs\n")
        client.apply([write("app.log", "mine\n", force=True)])
        assert versions(client, "app.log") == AT_ONCE + 1
        client.undo()
        assert place.files()["app.log"] == b"theirs\n"


@pytest.mark.needs("inotify")
def test_a_path_is_recorded_when_its_rest_ends(place: Workplace) -> None:
    place.write({"app.log": "0\n"})
    configure(place, '[history]\nrecord_interval = "1s"\n')
    with place.start() as client:
        client.settle()
        for number in range(AT_ONCE + 3):
            record_once(place, client, number)


@pytest.mark.needs("inotify")
def test_status_names_the_folder_of_a_bulk_of_new_files(place: Workplace) -> None:
    with place.start() as client:
        client.settle()
        for number in range(change_rates.NEW_FILES_MIN):
            path = place.root / f"made/p{number // 100}/f{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{number}\n")
        client.settle()
        (sentence,) = client.status().notices
        assert sentence.startswith("made has 2000 new files")
        done = place.editctl("status")
        assert "made has 2000 new files" in done.stdout
