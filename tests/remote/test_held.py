"""Files that a host cannot have: they are held, nothing else waits for them, and they are never deletions."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support import file_systems
from support.hosts import bare_repository, exchange, hosts, name_host, until
from support.log_checker import objects_of
from support.workplace import FILE_SYSTEM_VARIABLE, replace, workplace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"line {number}\n" for number in range(1, 10))
LOOKS = 3  # at the held files
FILES = {"a.txt": LINES, "README": "upper\n"}


def test_a_path_with_an_ignored_folder_in_the_way_is_held_and_the_rest_goes_on(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), _):
        places[1].git("init", "-q")
        places[1].write({".git/info/exclude": "build\n", "build/log": "mine alone\n"})
        one.apply([write("build", "theirs\n"), write("b.txt", "b\n")], message="both")
        until(lambda: other.remote_status().held == ["build"], "it is not held")
        mine = other.apply([replace("a.txt", "line 5\n", "five\n")]).transaction
        assert mine is not None
        one.apply([write("build", "theirs, again\n")])
        exchange(one, other)
        assert places[1].files() == {
            "README": b"upper\n", "a.txt": LINES.replace("line 5", "five").encode(), "b.txt": b"b\n",
            "build/log": b"mine alone\n",
        }  # fmt: skip
        assert places[0].files()["build"] == b"theirs, again\n"
        other.close()
        places[1].stop()
        with places[1].start() as again:
            again.apply([write("c.txt", "c\n")])
            exchange(one, again)
            assert again.remote_status().held == ["build"]
            assert again.check().problems == []
            shutil.rmtree(places[1].root / "build")
            exchange(one, again)
            until(lambda: again.remote_now(timeout=10).held == [], "it is held for ever")
            until(lambda: "build" in places[1].files(), "it is not taken in")
            assert places[1].files()["build"] == b"theirs, again\n"
            again.apply([write("build", "mine\n")])
            exchange(one, again)
            assert again.check().problems == []
        assert places[0].files()["c.txt"] == b"c\n"
        assert places[0].files()["build"] == b"mine\n"


def hold_ignored(place: Workplace, one: Client, other: Client, *names: str) -> None:
    """Let `one` write files that git ignores in the `place` of `other`, which holds its own."""
    place.git("init", "-q")
    place.write({".git/info/exclude": "*.log\n", **dict.fromkeys(names, "mine alone\n")})
    one.apply([write(name, "theirs\n") for name in names])
    until(lambda: other.remote_status().held == list(names), "they are not held")
    exchange(one, other)


def test_a_path_is_held_only_as_long_as_git_ignores_the_file_there(tmp_path: Path) -> None:
    names = ["removed.log", "shown.log"]
    with hosts(tmp_path, 2, FILES) as (places, (one, other), _):
        hold_ignored(places[1], one, other, *names)
        assert other.remote_status().held == names, "they are not held any more"
        for name, held in ((names[0], names[1:]), (names[1], [])):
            if held:
                (places[1].root / name).unlink()
            else:
                places[1].write({".git/info/exclude": ""})
            until(lambda held=held: other.remote_now(timeout=10).held == held, "it is held for ever")  # type: ignore[misc]
            until(lambda name=name: places[1].files().get(name) == b"theirs\n", "it is not taken in")  # type: ignore[misc]
            made = other.log(limit=1).transactions[0]
            assert made.message == f"Take in from the log: {name}"
        one.apply([write(name, "theirs, again\n") for name in names])
        exchange(one, other)
        assert [places[1].files()[name] for name in names] == [b"theirs, again\n"] * 2
        other.close()
        places[1].stop()
        with places[1].start() as again:
            again.apply([replace(name, "again", "once more") for name in names])
            exchange(one, again)
            assert again.remote_status().held == []
            assert again.check().problems == []
        assert places[0].files() == places[1].files()


@pytest.mark.parametrize("choice", ["take", "keep"])
def test_a_file_that_git_ignores_stays_as_it_is_when_its_host_joins_again(
    tmp_path: Path, choice: str
) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        hold_ignored(places[1], one, other, "build.log")
        other.remote_leave()
        other.apply([write("c.txt", "mine\n")])
        if choice == "take":
            other.remote_join(str(server), take="log")
        else:
            other.remote_join(str(server), keep="mine")
        exchange(one, other)
        assert other.remote_status().held == ["build.log"]
        assert places[1].files()["build.log"] == b"mine alone\n"
        assert places[0].files()["build.log"] == b"theirs\n"
        assert b"mine alone" not in objects_of(server)
        assert ("c.txt" in places[0].files()) == (choice == "keep")
        places[1].write({".git/info/exclude": ""})
        until(lambda: other.remote_now(timeout=10).held == [], "it is held for ever")
        until(lambda: places[1].files() == places[0].files(), "it is not taken in")
        assert other.check().problems == []


def test_a_held_file_that_the_log_lacks_is_not_deleted_when_git_ignores_it_no_more(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), _):
        places[1].git("init", "-q")
        places[1].write({".git/info/exclude": "build.log\n", "build.log": "mine alone\n"})
        with pytest.raises(EditdError):
            other.apply([replace("build.log", "not in it", "x")])  # so it is recorded as found
        exchange(one, other)
        warned = other.apply([replace("build.log", "mine", "Mine")]).warnings
        assert warned == ["Stays on this host, because it is held: build.log."]
        places[1].write({".git/info/exclude": ""})
        other.apply([write("b.txt", "b\n")])
        exchange(one, other)
        for _ in range(LOOKS):
            other.remote_now(timeout=10)
        exchange(one, other)
        assert places[1].files()["build.log"] == b"Mine alone\n"
        assert other.remote_status().held == ["build.log"]
        one.apply([write("build.log", "theirs\n")])
        until(lambda: other.remote_now(timeout=10).held == [], "it is held for ever")
        until(lambda: places[1].files()["build.log"] == b"theirs\n", "it is not taken in")
        assert other.check().problems == []


@pytest.mark.parametrize("is_first", [True, False])
def test_a_host_that_begins_a_log_keeps_what_git_ignores_to_itself(tmp_path: Path, is_first: bool) -> None:
    with hosts(tmp_path, 1, FILES, join=False) as (places, (one,), server):
        places[0].git("init", "-q")
        places[0].write({".git/info/exclude": "build.log\n", "build.log": "mine alone\n"})
        with pytest.raises(EditdError):
            one.apply([replace("build.log", "not in it", "x")])
        if not is_first:
            one.apply([replace("build.log", "mine", "MINE")])
        one.remote_leave(lose=True)
        one.remote_init(str(bare_repository(tmp_path / "second.git")))
        exchange(one)
        sent = objects_of(tmp_path / "second.git")
        assert (b"alone" in sent) == (not is_first), "an edit has touched it"
        assert b"alone" not in objects_of(server)


@pytest.mark.long
@pytest.mark.skipif(file_systems.missing("apfs") is not None, reason=f"{file_systems.missing('apfs')}")
def test_two_names_that_a_disk_takes_for_one_are_no_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), server):
        one.apply([write("readme", "lower\n")])
        exchange(one)
        monkeypatch.setenv(FILE_SYSTEM_VARIABLE, "apfs")
        with workplace(tmp_path / "folding") as folding:
            name_host(folding, "folding")
            with folding.start() as client:
                client.remote_join(str(server))
                one.apply([write("A.TXT", "another\n"), write("b.txt", "b\n")])
                client.apply([write("c.txt", "c\n")])
                exchange(one, client)
                names = {name.lower() for name in folding.files()}
                assert names == {"a.txt", "readme", "b.txt", "c.txt"}
                assert len(client.remote_status().held) == 2
                client.settle()
                exchange(one, client)
        assert sorted(places[0].files()) == ["A.TXT", "README", "a.txt", "b.txt", "c.txt", "readme"]
        assert places[0].files()["README"] == b"upper\n"
        assert places[0].files()["readme"] == b"lower\n"
