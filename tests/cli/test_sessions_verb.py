"""`editctl sessions` and `editctl workspaces`, through the real command and the real daemon."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    place.write({"a": "one\ntwo\n"})
    with place.start() as client:
        yield client


def editctl(place: Workplace, *words: str, **more: str) -> str:
    done = place.editctl(*words, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sessions(place: Workplace) -> dict[str, dict[str, Any]]:
    return {one["session"]: one for one in json.loads(editctl(place, "sessions", "--json"))["sessions"]}


def test_sessions_lists_open_and_closed_ones_with_the_size_of_their_work(
    place: Workplace, client: Client
) -> None:
    client.apply([write("a", "uno\ntwo\nthree\n")], actor="ann", session="named")
    client.apply([replace("a", "two", "2")], actor="ann", session="named")
    undone = client.apply([write("b", "b\n")], actor="ann", session="named").transaction
    assert undone is not None
    client.undo(undone.seq)
    with place.client() as other:
        other.session_open("opened", actor="bob")
        other.apply([write("c", "1\n2\n")])
        found = sessions(place)
        named, opened = found["named"], found["opened"]
        assert (named["state"], named["actor"], opened["state"]) == ("closed", "ann", "connected")
        assert [named[name] for name in ("edits", "files", "added", "removed")] == [2, 1, 3, 2]
        assert [opened[name] for name in ("edits", "files", "added", "removed")] == [1, 1, 2, 0]
        table = editctl(place, "sessions").splitlines()
        assert table[0].split() == ["session", "actor", "edits", "files", "+/-", "last", "used", "state"]
        assert "+3 -2" in next(line for line in table if line.startswith("named"))
        assert "named" not in editctl(place, "sessions", "--open")
        other.session_close("opened")
    assert sessions(place)["opened"]["state"] == "closed"


def test_sessions_names_the_commit_that_a_session_was_published_as(place: Workplace) -> None:
    place.git("init", "-q", "-b", "main")
    place.git("add", "-A")
    place.git("commit", "-q", "--allow-empty", "-m", "Begin")
    with place.start() as client:
        client.apply([write("a", "a\n")], actor="ann", session="s")
        commit = client.publish("Work", session="s", author="Ann <ann@example.org>").commit
    assert sessions(place)["s"]["published"] == [{"commit": commit, "branch": "main"}]
    assert f"closed, published as {commit[:7]} on main" in editctl(place, "sessions")


def test_completion_offers_sessions_that_are_closed(place: Workplace, client: Client) -> None:
    client.apply([write("a", "x\n")], actor="ann", session="long-gone")
    for words in ("editctl rollback ", "editctl log --of ", "editctl rm --session "):
        told = editctl(
            place, _EDITCTL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()))
        )
        assert "long-gone" in told, words


def test_workspaces_lists_those_that_run_and_those_that_do_not(place: Workplace, client: Client) -> None:
    root = os.path.realpath(place.root)
    (found,) = json.loads(editctl(place, "workspaces", "--json"))["workspaces"]
    assert place.process is not None
    assert (found["root"], found["running"], found["pid"]) == (root, True, place.process.pid)
    client.close()
    place.stop()
    (place.state.parent / ("0" * 16)).mkdir()  # a daemon has left it before it had a root
    assert f"{root}  not running" in editctl(place, "workspaces")
    assert editctl(place, "workspaces", "--running") == ""


def test_the_daemon_of_a_removed_folder_ends_when_nobody_is_connected(
    place: Workplace, client: Client
) -> None:
    client.settle()
    shutil.rmtree(place.root)
    assert client.status().pid, "a client keeps the daemon, and the history"
    assert "running, pid" in editctl(place, "workspaces", "--running", folder=str(place.folder))
    assert ", its folder is gone" in editctl(place, "workspaces", folder=str(place.folder))
    assert place.process is not None
    assert place.process.poll() is None
    client.close()
    assert place.process.wait(30) == 0
    place.root.mkdir()
    place.write({"new.txt": "new\n"})
    with place.start() as again:  # the folder that is at the path now
        again.settle()
        assert again.read("new.txt").content == "new\n"
        again.undo(again.log(limit=1).transactions[0].seq)
    assert place.files()["a"] == b"one\ntwo\n"


def test_prune_deletes_the_histories_of_removed_folders_alone(place: Workplace, client: Client) -> None:
    client.settle()
    assert "Nothing to remove" in editctl(place, "workspaces", "--prune", "--yes", folder=str(place.folder))
    shutil.rmtree(place.root)
    kept = editctl(place, "workspaces", "--prune", "--yes", folder=str(place.folder))
    assert "stop it first" in kept
    assert place.state.exists()
    client.close()
    assert place.process is not None
    assert place.process.wait(30) == 0
    asked = place.editctl("workspaces", "--prune", folder=str(place.folder))
    assert (asked.returncode, "Add --yes" in asked.stderr) == (2, True)
    assert place.state.exists()
    assert "removed the history of" in editctl(
        place, "workspaces", "--prune", "--yes", folder=str(place.folder)
    )
    assert not place.state.exists()
    assert editctl(place, "workspaces", folder=str(place.folder)) == ""
