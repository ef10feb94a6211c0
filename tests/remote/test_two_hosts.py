"""Two daemons share a workspace through a bare repository in a folder: the real socket, and the real git."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from support.hosts import exchange, hosts, until
from support.log_checker import log_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {
    **dict.fromkeys(("arrives.txt", "merged.txt", "aside.txt"), LINES),
    "src/b.txt": "b\n",
    ".env": "secret\n",
}
Two = tuple[list["Workplace"], list["Client"], "Path"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Two hosts, for all tests of this module. Each test has a file of its own."""
    with hosts(tmp_path_factory.mktemp("two"), 2, FILES) as started:
        yield started


def test_an_edit_of_one_host_arrives_in_the_files_of_the_other(two: Two) -> None:
    places, (one, other), _ = two
    one.apply([replace("arrives.txt", "line 5\n", "five\n")], message="count in words")
    until(lambda: b"five\n" in places[1].files()["arrives.txt"], "it does not arrive")
    (arrived,) = other.log(limit=1).transactions
    assert (arrived.kind, arrived.message, arrived.host, arrived.number) == (
        "edit",
        "count in words",
        "host0",
        one.remote_land().number,
    )
    exchange(one, other)
    assert other.check().ok


def test_edits_of_different_lines_are_merged(two: Two) -> None:
    places, (one, other), _ = two
    for client in (one, other):
        client.remote_pause()
    one.apply([replace("merged.txt", "line 2\n", "two\n")])
    other.apply([replace("merged.txt", "line 8\n", "eight\n")])
    for client in (one, other):
        client.remote_resume()
    exchange(one, other)
    expected = LINES.replace("line 2", "two").replace("line 8", "eight").encode()
    assert [place.files()["merged.txt"] for place in places] == [expected, expected]


def test_what_does_not_merge_is_set_aside_and_becomes_a_proposal(two: Two) -> None:
    places, (one, other), server = two
    other.remote_pause()
    one.apply([replace("aside.txt", "line 5\n", "five\n")])
    exchange(one)
    kept = other.apply(
        [replace("aside.txt", "line 5\n", "FIVE\n"), write("c.txt", "c\n")], message="shout"
    ).transaction
    other.remote_resume()
    exchange(one, other)
    expected = LINES.replace("line 5", "five").encode()
    for place in places:
        assert place.files()["aside.txt"] == expected
        assert "c.txt" not in place.files(), "a transaction is never taken in by half"
    (proposal,) = other.proposal_list().proposals
    assert (proposal.message, sorted(proposal.paths)) == ("shout", ["aside.txt", "c.txt"])
    assert kept is not None
    log = log_of(server)
    assert [entry.origin for entry in log[1:]].count(other.show(kept.seq).transaction.id) == 1
    assert [entry.is_applied for entry in log[-2:]] == [True, False]


def test_an_excluded_file_never_leaves_its_host(two: Two) -> None:
    places, (one, other), server = two
    one.apply([write(".env", "very secret\n"), write("c.txt", "c\n")])
    exchange(one, other)
    assert ".env" not in places[1].files()
    assert places[1].files()["c.txt"] == b"c\n"
    for found in ("secret\n", "very secret\n"):
        blob = subprocess.run(
            ["git", "hash-object", "--stdin"], input=found, capture_output=True, text=True, check=True
        )
        known = subprocess.run(
            ["git", "--git-dir", server, "cat-file", "-e", blob.stdout.strip()],
            capture_output=True,
            check=False,
        )
        assert known.returncode != 0, "the server has it"


def test_now_does_not_wait_for_the_next_look_at_the_server(tmp_path: Path) -> None:
    poll_seconds = 20.0
    with hosts(tmp_path, 1, FILES) as (places, (one,), _):
        one.close()
        places[0].stop()
        config = places[0].folder / "config" / "editd" / "config.toml"
        config.write_text(f"[remote]\npoll = {poll_seconds}\n")
        with places[0].start() as client:
            client.remote_now(timeout=60)  # the first looks of a daemon come at once
            seconds = []
            for _ in range(3):
                begun = time.monotonic()
                assert client.remote_now(timeout=60).state == "current"
                seconds.append(time.monotonic() - begun)
        assert min(seconds) < poll_seconds / 2, "it waits for a look at the server, which comes later"
