"""server.systemd and the handing over of sockets: the real daemon under a supervisor of our own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from editd.server.systemd import SystemdNotifier, SystemdStatus
from editd_client.client import Client
from editd_client.errors import Unreachable
from support.supervisor import HANGING, Supervised, supervised
from support.workplace import START_SECONDS, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace


@pytest.fixture
def unit(place: Workplace) -> Iterator[Supervised]:
    with supervised(place) as made:
        yield made


def test_who_comes_before_the_daemon_is_served_by_it_and_the_socket_stays_when_it_ends(
    unit: Supervised, place: Workplace
) -> None:
    early = socket.socket(socket.AF_UNIX)
    early.connect(place.socket)
    early.sendall(b'{"id": 1, "method": "status"}\n')
    inode = os.stat(place.socket).st_ino
    unit.start()
    assert json.loads(early.makefile().readline())["result"]["root"] == str(place.root)
    early.close()
    with place.client() as client:
        assert client.apply([write("a.txt", "a\n")]).transaction is not None
    unit.end()
    assert os.stat(place.socket).st_ino == inode

    late = socket.socket(socket.AF_UNIX)  # nobody is there; the next daemon finds who waits
    late.connect(place.socket)
    late.sendall(b'{"id": 1, "method": "status"}\n')
    unit.start()
    assert json.loads(late.makefile().readline())["result"]["head"] == 1
    late.close()
    unit.end()


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_supervisor_hears_of_the_start_of_reloading_and_of_the_end(
    place: Workplace, is_abstract: bool
) -> None:
    with supervised(place, is_abstract=is_abstract) as unit:
        unit.start()
        assert str(place.root) in unit.hear("STATUS=")
        unit.hear("READY=1")
        assert unit.process is not None
        unit.process.send_signal(signal.SIGHUP)
        word, _, since = unit.hear("RELOADING=1").partition("\n")
        assert word == "RELOADING=1"
        microseconds = int(since.removeprefix("MONOTONIC_USEC="))
        assert 0 <= time.clock_gettime(time.CLOCK_MONOTONIC) - microseconds / 1e6 < START_SECONDS
        unit.hear("READY=1")
        unit.process.terminate()
        unit.hear("STOPPING=1")
        assert not [said for said in unit.heard if said.startswith("WATCHDOG")], "nobody has asked for it"


def test_a_loop_that_hangs_does_not_ping_the_watchdog(unit: Supervised) -> None:
    unit.start(code=HANGING, watchdog_seconds=0.3)
    unit.hear("READY=1")
    for _ in range(5):
        unit.hear("WATCHDOG=1", seconds=START_SECONDS)
    assert unit.process is not None
    os.kill(unit.process.pid, signal.SIGUSR1)
    time.sleep(0.3)  # for the signal to be taken; from here on there is nothing to wait for
    unit.drain()
    time.sleep(0.9)
    assert unit.drain() == []
    unit.process.send_signal(signal.SIGABRT)  # as systemd then does
    _, said = unit.process.communicate(timeout=START_SECONDS)
    assert b"most recent call first" in said, "the journal tells where it hung"


def test_an_idle_end_is_a_clean_one_and_the_next_client_is_served_again(
    unit: Supervised, place: Workplace
) -> None:
    (place.folder / "config" / "editd").mkdir()
    (place.folder / "config" / "editd" / "config.toml").write_text("idle_seconds = 0.2\n")
    for _ in range(2):
        unit.start()
        with place.client() as client:
            client.status()
        assert unit.process is not None
        _, said = unit.process.communicate(timeout=START_SECONDS)
        assert unit.process.returncode == 0, said


def test_a_daemon_that_lost_its_socket_ends_and_the_one_that_was_handed_it_goes_on(place: Workplace) -> None:
    client = place.start()
    client.apply([write("a.txt", "a\n")])
    first = place.process
    assert first is not None
    os.unlink(place.socket)  # so does systemd when a socket unit is started over a live daemon
    os.rename(os.path.dirname(place.socket), place.runtime / "before")
    with supervised(place) as unit:
        inode = os.stat(place.socket).st_ino
        unit.start()
        with place.client() as other:
            assert other.status().head == 1
            assert first.wait(START_SECONDS) == 0
            assert other.apply([write("b.txt", "b\n")]).transaction is not None
        assert os.stat(place.socket).st_ino == inode, "who lost a socket does not remove another's"
        unit.end()
    client.close()


def test_a_daemon_without_the_socket_does_not_take_what_another_was_handed(
    unit: Supervised, place: Workplace
) -> None:
    unit.start()
    unit.hear("READY=1")
    supervised_one = place.process
    place.process = None
    with pytest.raises(AssertionError, match="busy"):
        place.start()
    place.process = supervised_one
    unit.end()
    with pytest.raises(AssertionError, match="Another process already listens"):
        place.start()


def test_what_is_handed_over_and_does_not_listen_is_refused_in_words(place: Workplace) -> None:
    with supervised(place) as unit:
        with socket.socket(socket.AF_UNIX) as useless:
            unit.listener, kept = useless, unit.listener
            unit.start()
            assert unit.process is not None
            _, said = unit.process.communicate(timeout=START_SECONDS)
        kept.close()
        assert unit.process.returncode == 1
        assert b"not a listening Unix stream socket" in said
    with pytest.raises(Unreachable):
        Client(place.socket, reconnect=False).status()


def test_a_reload_that_fails_is_over_and_the_end_does_not_fail_by_what_was_told(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    asked: list[None] = []

    def status() -> Any:
        asked.append(None)
        if len(asked) == 2:
            raise RuntimeError("a fault of ours")
        return SimpleNamespace(state="ready", reason=None, root="/", head=1, clients=0)

    def reload() -> None:
        raise RuntimeError("another")

    async def live() -> None:
        supervision = SystemdStatus(SystemdNotifier.of({"NOTIFY_SOCKET": address}), status)
        supervision.ready()
        with pytest.raises(RuntimeError, match="another"):
            supervision.reloading(reload)
        await asyncio.sleep(0)  # it asks for the status, and dies of that
        await asyncio.sleep(0)
        assert len(asked) == 2
        await supervision.stopping()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        news.bind(address)
        asyncio.run(live())
        news.setblocking(False)
        heard = [news.recv(65536).decode().partition("=")[0] for _ in range(6)]
    assert heard == ["STATUS", "READY", "RELOADING", "READY", "STATUS", "STOPPING"]
