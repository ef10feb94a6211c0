"""A server that was restored from a backup: hosts whose work it lacks are forked, until their repair."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from hosts import exchange, hosts, move_log, until
from log_checker import log_of
from workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES, "b.txt": LINES}
ROUNDS = 8  # pairs of them, in which a host would push or change its state


def refs_of(server: Path) -> str:
    return subprocess.run(
        ["git", "--git-dir", server, "for-each-ref"], capture_output=True, text=True, check=True
    ).stdout


def restore_behind(server: Path, number: int, lander: Client, *paused: Client) -> None:
    """Restore the server to an entry, on which a host that knows no later one lands its waiting work."""
    for client in paused:
        client.remote_pause()
    move_log(server, str(log_of(server)[number].commit.id))
    lander.remote_resume()
    exchange(lander)


def test_a_forked_host_pushes_nothing_and_its_state_stays(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (_, (one, other), server):
        other.remote_pause()
        one.apply([replace("a.txt", "line 1\n", "1\n")])
        exchange(one)
        other.apply([replace("b.txt", "line 1\n", "1\n")])
        restore_behind(server, 0, other, one)
        one.apply([replace("a.txt", "line 2\n", "2\n")])
        before = refs_of(server)
        one.remote_resume()
        until(lambda: one.remote_status().state == "forked", "it does not notice")
        states = [one.remote_now(timeout=10).state]
        for number in range(ROUNDS):
            one.apply([write(f"{number}.txt", "more\n")])
            states.append(one.remote_now(timeout=10).state)
        assert states == ["forked"] * len(states)
        assert refs_of(server) == before, "it has pushed"
        one.remote_repair()
        exchange(one, other)
        assert len(log_of(server)) == 4 + ROUNDS
