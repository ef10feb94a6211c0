"""A server that was restored from a backup: hosts whose work it lacks are forked, until their repair."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import Conflict
from support.hosts import exchange, hosts, move_log, until
from support.log_checker import log_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES, "b.txt": LINES}
ROUNDS = 8  # pairs of them, in which a host would push or change its state


def until_returned(client: Client) -> list[int]:
    """Return the transactions that returned files of a host to the log's, once there are some."""
    until(lambda: client.remote_status().returned != [], "no file has returned")
    return client.remote_status().returned


def refs_of(server: Path) -> str:
    return subprocess.run(
        ["git", "--git-dir", server, "for-each-ref"], capture_output=True, text=True, check=True
    ).stdout


def repair_fork(forked: Client, other: Client) -> None:
    """Let a paused host see that the server was restored, repair it, and exchange."""
    forked.remote_resume()
    until(lambda: forked.remote_status().state == "forked", "it does not notice")
    forked.remote_repair()
    exchange(other, forked)


def restore_behind(server: Path, number: int, lander: Client, *paused: Client) -> None:
    """Restore the server to an entry, on which a host that knows no later one lands its waiting work.

    The backup has no queue, so that nobody lands work of another host before that is repaired.
    """
    for client in paused:
        client.remote_pause()
    for line in refs_of(server).splitlines():
        if "/queues/" in line:
            subprocess.run(["git", "--git-dir", server, "update-ref", "-d", line.split()[-1]], check=True)
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


def test_a_repair_brings_back_what_was_set_aside_of_a_host_that_has_left(tmp_path: Path) -> None:
    with hosts(tmp_path, 3, FILES) as (places, (one, other, third), server):
        third.remote_pause()
        other.remote_pause()
        one.apply([replace("a.txt", "line 5\n", "five\n")])
        exchange(one)
        lost = other.apply([replace("a.txt", "line 5\n", "FIVE\n")], message="set aside").transaction
        other.remote_resume()
        exchange(one, other)
        until(lambda: one.proposal_list().proposals != [], "it is not set aside")
        other.remote_leave()
        third.apply([replace("b.txt", "line 1\n", "1\n")])
        restore_behind(server, 0, third, one)
        one.remote_resume()
        until(lambda: one.remote_status().state == "forked", "it does not notice")
        one.remote_repair()
        exchange(one, third)
        until(lambda: third.proposal_list().proposals != [], "the log has it no more")
        assert [shown.message for shown in third.proposal_list().proposals] == ["set aside"]
        outcomes = {entry.origin: entry.trailers["Outcome"] for entry in log_of(server)[1:]}
        assert lost is not None
        assert outcomes[lost.id] == "aside"
        (mine,) = one.proposal_list().proposals
        one.proposal_reject(mine.proposal)
        until(lambda: third.proposal_list().proposals == [], "it is not decided for all")
        assert places[0].files() == places[2].files()


def test_a_repair_lands_the_decisions_that_the_log_has_lost(tmp_path: Path) -> None:
    with hosts(tmp_path, 3, FILES) as (_, (one, other, third), server):
        other.remote_pause()
        one.apply([replace("a.txt", "line 5\n", "five\n")])
        exchange(one)
        other.apply([replace("a.txt", "line 5\n", "FIVE\n")])
        other.remote_resume()
        exchange(one, other, third)
        until(lambda: one.proposal_list().proposals != [], "it is not set aside")
        third.remote_pause()
        before = len(log_of(server))
        (shown,) = one.proposal_list().proposals
        one.proposal_reject(shown.proposal)
        until(lambda: log_of(server)[-1].is_decision, "the log has no decision")
        exchange(one, other)
        third.apply([replace("b.txt", "line 1\n", "1\n")])
        restore_behind(server, before - 1, third, one, other)
        assert third.proposal_list().proposals != []
        one.remote_resume()
        until(lambda: one.remote_status().state == "forked", "it does not notice")
        one.remote_repair()
        until(lambda: third.proposal_list().proposals == [], "the decision is lost")


def test_files_that_do_not_follow_from_the_log_return_to_it(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        other.apply([write("c.txt", "c\n")])
        exchange(one, other)
        other.remote_pause()
        one.apply([replace("a.txt", "line 1\n", "1\n")])
        exchange(one)
        other.close()
        places[1].stop()
        (taken,) = places[1].state.rglob("taken.json")  # as if a backup had it, and not the history
        place = json.loads(taken.read_text()) | {"taken": str(log_of(server)[-1].commit.id)}
        taken.write_text(json.dumps(place))
        with places[1].start() as again:
            again.apply([replace("a.txt", "line 9\n", "9\n")])
            again.remote_resume()
            exchange(one, again)
            until(lambda: places[0].files() == places[1].files(), "they differ for good")
            assert again.check().problems == []
            (returned,) = until_returned(again)
            assert again.show(returned).transaction.actor == "editd"
            assert f"{returned}: files of this host returned" in places[1].editctl("remote", "status").stdout
        assert places[0].files()["a.txt"].decode() == LINES.replace("line 1", "1").replace("line 9", "9")


def test_a_repair_goes_back_behind_the_join_of_a_host(tmp_path: Path) -> None:
    """The server forgets entries that the host had joined with, while their author was away for good."""
    with hosts(tmp_path, 3, FILES, join=False) as (places, (one, other, third), server):
        other.remote_join(str(server))
        other.remote_pause()
        one.apply([replace("a.txt", "line 1\n", "1\n")], message="lost")
        exchange(one)
        third.remote_join(str(server))
        third.apply([replace("a.txt", "line 9\n", "9\n", guard="text")], message="after the join")
        third.apply([replace("a.txt", "1\nline 2", "uno\nline 2", guard="text")], message="depends")
        exchange(third)
        one.remote_leave()
        other.apply([replace("b.txt", "line 1\n", "1\n")], message="on the restored log")
        restore_behind(server, 0, other, third)
        repair_fork(third, other)
        until(lambda: places[1].files() == places[2].files(), "they differ for good")
        assert places[2].files()["a.txt"].decode() == LINES.replace("line 1", "uno").replace("line 9", "9")
        assert places[2].files()["b.txt"].decode() == LINES.replace("line 1", "1")
        assert sorted(entry.commit.message.partition("\n")[0] for entry in log_of(server)[1:]) == [
            "after the join", "depends", "lost", "on the restored log"
        ]  # fmt: skip
        assert [client.check().problems for client in (other, third)] == [[], []]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_host_without_a_copy_of_the_log_goes_on_from_the_last_entry_of_both(
    tmp_path: Path, *, goes_on: bool
) -> None:
    """The server was restored, and another host may have gone on there."""
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        other.apply([replace("a.txt", "line 1\n", "1\n")], message="of the other")
        one.apply([replace("a.txt", "line 5\n", "5\n", guard="text")], message="before the backup")
        exchange(one, other)
        other.remote_pause()
        one.apply([replace("a.txt", "line 9\n", "9\n", guard="text")], message="lost")
        exchange(one)
        places[0].stop()
        shutil.rmtree(next(places[0].state.rglob("log.git")))
        if goes_on:
            other.apply([replace("b.txt", "line 1\n", "1\n")], message="on the restored log")
        restore_behind(server, 2, other)
        with places[0].start() as again:
            until(lambda: again.remote_status().state == "forked", "it does not notice")
            assert "`editctl remote repair`" in (again.remote_status().error or "")
            later = again.apply([replace("b.txt", "line 9\n", "9\n", guard="text")], message="later")
            assert later.transaction is not None
            again.remote_repair()
            exchange(again, other)
            assert places[0].files() == places[1].files()
            texts = places[1].files()["a.txt"].decode(), places[1].files()["b.txt"].decode()
            assert texts[0] == LINES.replace("line 1", "1").replace("line 5", "5").replace("line 9", "9")
            assert texts[1] == (LINES.replace("line 1", "1") if goes_on else LINES).replace("line 9", "9")
            messages = [entry.commit.message.partition("\n")[0] for entry in log_of(server)[1:]]
            assert sorted(messages[2:]) == sorted(["lost", "later", *["on the restored log"] * goes_on])
            here = [shown.message for shown in again.log().transactions]
            assert here.count("on the restored log") == goes_on, "the transaction is not taken in as itself"
            assert [client.check().problems for client in (again, other)] == [[], []]


def test_a_host_without_a_copy_of_the_log_says_when_it_has_nothing_in_common_with_the_server(
    tmp_path: Path,
) -> None:
    with hosts(tmp_path, 2, FILES, join=False) as (places, (one, other), server):
        one.apply([replace("a.txt", "line 1\n", "1\n")])
        exchange(one)
        other.remote_join(str(server))
        other.apply([replace("a.txt", "line 9\n", "9\n")], message="kept")
        exchange(other)
        places[1].stop()
        shutil.rmtree(next(places[1].state.rglob("log.git")))
        one.remote_pause()
        move_log(server, str(log_of(server)[0].commit.id))
        with places[1].start() as again:
            until(lambda: again.remote_status().state == "forked", "it does not notice")
            with pytest.raises(Conflict, match="lacks the entry at which this host joined"):
                again.remote_repair()
            again.remote_leave(lose=True)
            again.remote_join(str(server), keep="mine")
            assert places[1].files()["a.txt"].decode().endswith("9\n")


def test_work_that_does_not_merge_after_a_repair_is_set_aside_and_its_history_says_so(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        other.remote_pause()
        mine = one.apply([replace("a.txt", "line 5\n", "five\n")], message="mine").transaction
        exchange(one)
        other.apply([replace("a.txt", "line 5\n", "FIVE\n")], message="on the restored log")
        restore_behind(server, 0, other, one)
        repair_fork(one, other)
        until(lambda: places[0].files() == places[1].files(), "they differ for good")
        assert places[0].files()["a.txt"].decode() == LINES.replace("line 5", "FIVE")
        assert mine is not None
        assert one.show(mine.seq).transaction.undone_by is not None
        for client in (one, other):
            until(lambda client=client: client.proposal_list().proposals != [], "it is no proposal")  # type: ignore[misc]
            assert [shown.message for shown in client.proposal_list().proposals] == ["mine"]
        assert [client.check().problems for client in (one, other)] == [[], []]
