"""What only the owner may do, by `editctl`: the reviewers' socket and the PIN, whichever verb needs them.

The short form has each verb and test at one of the two sockets, by the seed of the commit.
"""

from __future__ import annotations

import json
import select
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.config.paths import review_socket_path
from support.pseudo_terminal import PseudoTerminal
from support.reviewers import PIN, configure, set_pin
from support.seeds import one_of
from support.supervisor import supervised
from support.workplace import START_SECONDS, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

OWN = '[review]\nsocket = "own"\n'
SOCKETS = {"ordinary socket": "", "reviewers' socket": OWN}  # and the configuration of the daemon for it
VERBS = (["undo", "1"], ["gc"], ["lease", "release", "--force"], ["session", "close", "bob"])


@pytest.fixture
def served(place: Workplace, request: pytest.FixtureRequest) -> Iterator[Workplace]:
    """Transaction 1 and a lease are bob's; `robot` is the session of an agent, and of the terminal."""
    configure(place, SOCKETS[request.param])
    set_pin(place)
    place.write({"a.txt": "one\n"})
    with place.start() as bob, place.client() as robot:
        bob.session_open("bob")
        bob.apply([write("bobs.txt", "bob\n")])
        lease = bob.lease_acquire(["leased/**"], 600).lease
        token = robot.session_open("robot", kind="agent").token
        place.variables |= {"EDITD_SESSION": "robot", "EDITD_TOKEN": token, "LEASE": lease}
        yield place
    place.stop()


def terminal_of(place: Workplace, *words: str) -> PseudoTerminal:
    words = (*words, place.variables["LEASE"]) if words[0] == "lease" else words
    argv = [str(place.provide_editctl() / "editctl"), *words]
    return PseudoTerminal(argv, (100, 24), folder=str(place.root), environment=place.environment)


@pytest.mark.parametrize(
    ("words", "served"),
    [
        pytest.param(words, *one.values, marks=one.marks)
        for turn, words in enumerate(VERBS)
        for one in one_of(SOCKETS, turn)
    ],
    indirect=["served"],
)
def test_an_owner_s_verb_asks_for_the_pin_on_a_terminal(served: Workplace, words: list[str]) -> None:
    with terminal_of(served, *words) as terminal:
        terminal.until("Only the owner may")
        terminal.until("PIN: ")
        terminal.send(f"{PIN}\n")
        while terminal.read(START_SECONDS):
            pass
        assert terminal.process.wait(START_SECONDS) == 0, terminal.text().decode()
    if words[0] == "undo":
        assert "bobs.txt" not in served.files()


@pytest.mark.parametrize("served", one_of(SOCKETS), indirect=True)
def test_a_wrong_pin_or_none_changes_nothing(served: Workplace) -> None:
    for pin, reason in (("0000", "That is not the PIN"), ("", "Only the owner may take back")):
        with terminal_of(served, "undo", "1") as terminal:
            terminal.until("PIN: ")
            terminal.send(f"{pin}\n")
            terminal.until(reason)
            assert terminal.process.wait(START_SECONDS) == 1
    assert served.files()["bobs.txt"] == b"bob\n"


@pytest.mark.parametrize("served", one_of(SOCKETS, 1), indirect=True)
def test_without_a_terminal_nothing_is_asked(served: Workplace) -> None:
    denied = served.editctl("undo", "1", stdin=f"{PIN}\n")
    assert denied.returncode == 1
    assert "Only the owner may take back" in denied.stderr
    assert "PIN: " not in denied.stderr
    assert served.files()["bobs.txt"] == b"bob\n"


@pytest.mark.parametrize("verb", ["status", "stop"])
def test_status_and_stop_are_the_owner_s_where_systemd_starts_the_daemon(place: Workplace, verb: str) -> None:
    """The socket that systemd listens at is there first: the reviewers' own one comes with the daemon."""
    configure(place, OWN)
    with supervised(place) as unit:
        argv = [str(place.provide_editctl() / "editctl"), "-C", str(place.root), verb, "--json"]
        with subprocess.Popen(argv, env=place.environment, stdout=subprocess.PIPE, text=True) as asking:
            assert select.select([unit.listener], [], [], START_SECONDS)[0], "editctl has connected"
            unit.start()
            said, _ = asking.communicate(timeout=START_SECONDS)
        assert asking.returncode == 0
        assert unit.process is not None
        if verb == "stop":
            assert unit.process.wait(START_SECONDS) == 0
            return
        status = json.loads(said)
        assert (status["pid"], status["review_socket"]) == (
            unit.process.pid, review_socket_path(place.socket),
        )  # fmt: skip
        unit.end()


def test_a_decision_is_the_owner_s_where_systemd_starts_the_daemon(place: Workplace) -> None:
    configure(place, OWN)
    with supervised(place) as unit:
        words = ["review", "allow", "docs/**", "--json"]
        argv = [str(place.provide_editctl() / "editctl"), "-C", str(place.root), *words]
        with subprocess.Popen(argv, env=place.environment, stdout=subprocess.PIPE, text=True) as asking:
            assert select.select([unit.listener], [], [], START_SECONDS)[0], "editctl has connected"
            unit.start()
            said, _ = asking.communicate(timeout=START_SECONDS)
        assert asking.returncode == 0
        assert json.loads(said)["grant"] == 1
        unit.end()
