"""A file with several names is recorded under each of them, whichever name another program writes through."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.crash_checks import wait_until

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace

pytestmark = pytest.mark.needs("inotify")


def recorded(client: Client, path: str) -> str:
    return client.read(path, at=client.status().head).content


def write_through(place: Workplace, path: str, text: str) -> None:
    with open(place.root / path, "w", encoding="utf-8") as file:
        file.write(text)


def test_a_write_through_one_name_is_recorded_under_both(place: Workplace) -> None:
    place.write({"d/a": "1\n", "e/c": "1\n"})
    os.link(place.root / "d/a", place.root / "e/b")
    with place.start() as client:
        client.settle()
        for path, text in (("d/a", "2\n"), ("e/b", "3\n")):
            write_through(place, path, text)
            client.settle()
            assert (recorded(client, "d/a"), recorded(client, "e/b")) == (text, text)
        assert [{file.path for file in one.files} for one in client.log(after=0).transactions] == [
            {"d/a", "e/b"}
        ] * 2


def test_a_name_that_came_later_is_known_too_without_a_settle(place: Workplace) -> None:
    place.write({"d/a": "1\n"})
    with place.start() as client:
        client.settle()
        (place.root / "e").mkdir()
        os.link(place.root / "d/a", place.root / "e/b")
        wait_until(lambda: client.status().head == 1, "the link was not recorded")
        write_through(place, "e/b", "2\n")
        wait_until(lambda: client.status().head >= 2, "the write was not recorded")
        client.settle()
        assert (recorded(client, "d/a"), recorded(client, "e/b")) == ("2\n", "2\n")


def test_a_name_that_git_ignores_is_not_recorded(place: Workplace) -> None:
    place.write({"a": "1\n", ".gitignore": "cache/\n"})
    subprocess.run(["git", "init", "-q", place.root], check=True)
    (place.root / "cache").mkdir()
    os.link(place.root / "a", place.root / "cache/a")
    with place.start() as client:
        client.settle()
        write_through(place, "a", "2\n")
        client.settle()
        assert [[file.path for file in one.files] for one in client.log(after=0).transactions] == [["a"]]
