"""A daemon to which nothing happens: it sleeps, and keeps no more memory than it needs."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.server.maintenance import PACK_QUIET_SECONDS
from editd.wire.messages import Tool
from support.crash_checks import in_the_long_form
from support.workplace import write

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace

SUBSCRIBERS = 240
KEPT_KIB_MAX = 12 * 1024  # of what they took: the rest of a heap that was used
REST_SECONDS = 60.0  # for the daemon to finish what is left of the edits


def woken(pid: int) -> int:
    """Return how often the threads of a process, and its child processes, have slept and were woken."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        count += int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
        count += sum(woken(int(child)) for child in (task / "children").read_text().split())
    return count


def resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])


def change_many(client: Client, number: int) -> None:
    """Make a transaction of which subscribers are told in some kilobytes."""
    client.apply([write(f"a-rather-long-folder-name/{file}.txt", f"{number}\n") for file in range(40)])


def test_no_timer_wakes_the_daemon_while_nothing_happens(place: Workplace) -> None:
    with place.start() as client:
        client.session_open("agent", ttl=3600)
        client.apply([write("a.txt", "a\n")])
        subscriber = place.client()
        subscriber.subscribe()
        assert place.process is not None
        until = time.monotonic() + REST_SECONDS
        before, after = -1, woken(place.process.pid)
        while after != before and time.monotonic() < until:  # it packs, syncs and makes files ahead
            before = after
            time.sleep(PACK_QUIET_SECONDS + 1.0)  # longer than anything that is put off
            after = woken(place.process.pid)
        assert after == before, "it never rests"
        assert client.status().journal["unpacked"] == 0
        client.apply([write("b.txt", "b\n")])  # and it is awake when it is needed
        (place.root / "c.txt").write_text("c\n")
        client.settle()
        assert client.status().head == 3
        subscriber.close()


SHORT_IDLE = """
import sys
from editd.cli import main
from editd.server import child_process
child_process.IDLE_SECONDS = 0.5
sys.argv[1:] = sys.argv[4:]
main()
"""


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize("is_short", [True, in_the_long_form(False)])
def test_an_idle_daemon_is_one_process_and_has_the_others_back_when_it_needs_them(
    place: Workplace, is_short: bool
) -> None:
    if is_short:
        place.launcher = (sys.executable, "-c", SHORT_IDLE)
    place.write({"a.txt": "line 0\n"})
    with place.start() as client:
        assert place.process is not None
        for number in (1, 2):
            client.settle()  # the scanning process
            client.apply([Tool(
                dialect="serena", tool="replace_content",
                args={"relative_path": "a.txt", "needle": r"^line \d", "repl": f"line {number}",
                      "mode": "regex"},
            )])  # fmt: skip
            until = time.monotonic() + REST_SECONDS
            while children(place.process.pid):
                assert time.monotonic() < until, "a process does not end"
                time.sleep(0.1)
        assert client.status().head == 2
        print(f"{resident_kib(place.process.pid) / 1024:.0f} MiB")


@pytest.mark.parametrize("is_folder", [False, True])
def test_the_daemon_ends_when_its_socket_or_the_folder_of_it_is_gone(
    place: Workplace, *, is_folder: bool
) -> None:
    with place.start() as client:
        client.settle()  # it waits by now
    if is_folder:
        os.rename(place.runtime / "editd", place.runtime / "elsewhere")
    else:
        os.unlink(place.socket)
    assert place.process is not None
    assert place.process.wait(30) == 0


def test_the_memory_of_240_subscribers_is_given_back(place: Workplace) -> None:
    ask = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscribe", "params": {"since": 0}}).encode()
    with place.start() as client:
        for number in range(10):
            change_many(client, number)
        assert place.process is not None
        before = resident_kib(place.process.pid)
        subscribers = []
        for _ in range(SUBSCRIBERS):  # which never read
            subscribers.append(socket.socket(socket.AF_UNIX))
            subscribers[-1].connect(place.socket)
            subscribers[-1].sendall(ask + b"\n")
            client.status()
        for number in range(40):
            change_many(client, number)
        taken = resident_kib(place.process.pid) - before
        for subscriber in subscribers:
            subscriber.close()
        until = time.monotonic() + REST_SECONDS
        while resident_kib(place.process.pid) - before > KEPT_KIB_MAX and time.monotonic() < until:
            time.sleep(0.2)
        assert resident_kib(place.process.pid) - before <= KEPT_KIB_MAX, f"they took {taken} KiB"
        assert taken > KEPT_KIB_MAX, "they took next to nothing, so that this shows nothing"
