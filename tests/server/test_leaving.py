"""Who leaves: a client takes with it what it has begun, and a daemon is there until all is done."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from support.crash_checks import wait_until
from support.workplace import write

if TYPE_CHECKING:
    from support.workplace import Workplace

TESTS = Path(__file__).parent.parent
STALLED_SECONDS = 4.0
HEAVY = "x" * 20_000_000  # the engine is away with it for a moment


class Vanishing:
    """A client that hangs up with an answer unread, so that the connection is reset."""

    def __init__(self, place: Workplace) -> None:
        self._stream = socket.socket(socket.AF_UNIX)
        self._stream.connect(place.socket)
        self.ask("status")
        time.sleep(0.2)

    def ask(self, method: str, **params: Any) -> None:
        self._stream.sendall(msgpack.packb([0, 1, method, [params]]) or b"")

    def vanish(self) -> None:
        self._stream.close()


def test_what_a_client_that_is_gone_has_asked_for_begins_nothing(place: Workplace) -> None:
    with place.start() as client:
        for _ in range(3):
            gone = Vanishing(place)
            busy = Vanishing(place)
            busy.ask("apply", edits=[{"op": "write", "path": "large", "content": HEAVY, "force": True}])
            time.sleep(0.05)
            gone.ask("exec.begin", command="ghost")
            gone.ask("session.open", name="ghost", ttl=1.0)
            gone.ask("begin")
            gone.ask("subscribe")
            gone.vanish()
            busy.vanish()
            wait_until(lambda: client.status().clients == 1, "they are not gone")
        client.settle()
        wait_until(lambda: client.status().watcher["state"] == "ready", "the watching is paused")
        wait_until(lambda: not client.session_list().sessions, "a session is open that nobody closes")
        (place.root / "theirs").write_text("theirs\n")
        client.settle()
        assert client.log(limit=1).transactions[0].kind == "outside"


def test_a_daemon_whose_disk_stalls_is_there_until_the_engine_is_done(place: Workplace) -> None:
    slow = place.folder / "slow"
    place.launcher = (sys.executable, str(TESTS / "support" / "slow_disk_daemon.py"), str(slow))
    with place.start() as client:
        client.apply([write("a", "a\n")])
        client.settle()
        slow.write_text(str(STALLED_SECONDS))
        place.write({f"theirs{number}": "x\n" * 1000 for number in range(5)})
        time.sleep(1)
    assert place.process is not None
    place.process.terminate()
    slow.unlink()
    began = time.monotonic()
    assert place.process.wait(30) == 0
    assert "ended" in place.log().splitlines()[-1]
    assert "broken" not in place.log()
    print(f"it took {time.monotonic() - began:.1f} s to end")
    with place.start() as client:
        client.settle()
        assert client.check().problems == []
        assert client.read("theirs4").content == "x\n" * 1000
