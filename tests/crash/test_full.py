"""What is full or read-only in earnest: an edit is refused with a hint, and goes through once it is not."""

from __future__ import annotations

import errno
import socket
import subprocess
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support import machine as machines
from support.crash_checks import fsck, has_empty_segment, held, strays, wait_until
from support.machine import mounted
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import RawIOBase
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

SMALL = "size=24m,nr_inodes=400"  # two segments of the journal, and little else
LARGE = "x" * 1_000_000

pytestmark = pytest.mark.skipif(machines.missing() is not None, reason=f"{machines.missing()}")


@pytest.fixture
def mounts() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def small(mounts: ExitStack, where: Path) -> Path:
    """A small file system of its own, mounted at `where`."""
    where.mkdir(parents=True, exist_ok=True)
    mounts.enter_context(mounted("none", where, options=SMALL, kind="tmpfs"))
    return where


def fill(where: Path) -> Path:
    """Take all the room that there is."""
    taken = where / "taken"
    with taken.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with pytest.raises(OSError, match="No space"):
                write_on(file, size)
    return taken


def write_on(file: RawIOBase, size: int) -> None:
    while file.write(bytes(size)):
        continue


def take_inodes(where: Path) -> Path:
    taken = where / "taken"
    taken.mkdir()
    with pytest.raises(OSError, match="No space"):
        deque((taken / str(number)).write_bytes(b"") for number in range(10_000))
    return taken


def refused(client: Client, number: int, content: str = LARGE) -> None:
    """The edit is refused, says why and what to do, and nothing of it is there."""
    before = client.status().head
    with pytest.raises(EditdError) as refusal:
        client.apply([write("large", content)])
    assert refusal.value.name == "io_error"
    assert refusal.value.data["errno"] == number
    assert refusal.value.hint
    status = client.status()
    assert (status.state, status.head) == ("ready", before)


def goes_on(place: Workplace, client: Client) -> None:
    client.apply([write("large", LARGE)])
    client.settle()
    assert held(place)["large"] == LARGE.encode()
    assert strays(place.root) == []
    assert client.check().problems == []


@pytest.mark.parametrize("lack", ["room", "inodes"])
def test_a_full_workspace_refuses_until_there_is_room(tmp_path: Path, mounts: ExitStack, lack: str) -> None:
    with workplace(tmp_path / "place") as place:
        small(mounts, place.root)
        with place.start() as client:
            client.apply([write("small", "small\n")])
            taken = fill(place.root) if lack == "room" else take_inodes(place.root)
            client.settle()  # what was made there is recorded, and not while the edit is refused
            refused(client, errno.ENOSPC)
            assert client.read("small").content == "small\n"
            subprocess.run(["rm", "-r", str(taken)], check=True)
            goes_on(place, client)
        place.stop()
        fsck(place)
        mounts.close()


def test_a_full_state_folder_refuses_until_there_is_room(tmp_path: Path, mounts: ExitStack) -> None:
    with workplace(tmp_path / "place") as place:
        where = small(mounts, tmp_path / "place" / "state")
        with place.start() as client:
            client.apply([write("small", "small\n")])
            taken = fill(where)
            with pytest.raises(EditdError, match="disk is full"):
                deque(
                    client.apply([write(f"{number}", LARGE)]) for number in range(30)
                )  # the journal's segments
            refused(client, errno.ENOSPC)
            assert client.read("small").content == "small\n"
            assert client.status().journal["unpacked"], "packing needs room, too"
            taken.unlink()
            remount(where, "size=200m")
            wait_until(lambda: not client.status().journal["unpacked"], "it is not packed")
            goes_on(place, client)
        place.stop()
        fsck(place)
        mounts.close()


def test_sessions_and_leases_end_though_the_disk_is_full(tmp_path: Path, mounts: ExitStack) -> None:
    """What ends by itself ends in time, who waits is told, and all goes on once there is room."""
    with workplace(tmp_path / "place") as place:
        where = small(mounts, tmp_path / "place" / "state")
        with place.start() as holder, place.client() as waiter, ThreadPoolExecutor() as apart:
            with place.client() as client:
                client.session_open("gone", ttl=3)
            holder.session_open("holder")
            waiter.session_open("waiter")
            holder.lease_acquire(["src/"], 4)  # by then the disk is full
            waiting = apart.submit(waiter.lease_acquire, ["src/"], 60, wait=60)
            wait_until(lambda: holder.lease_list().waiting == 1, "nobody waits")
            wait_until(
                lambda: has_empty_segment(place), "no segment is ready, and one that is half made gives room"
            )
            taken = fill(where)
            with pytest.raises(EditdError) as refusal:
                waiting.result(30)
            assert refusal.value.data["errno"] == errno.ENOSPC
            assert refusal.value.hint
            assert holder.lease_list().leases == []
            with pytest.raises(EditdError, match="disk is full"):
                holder.session_open("another")
            wait_until(lambda: "a session cannot end" in place.log(), "its time is not over")
            assert "gone" in names(holder), "it could not be written, so it is open"
            taken.unlink()
            wait_until(lambda: "gone" not in names(holder), "the session has not ended")
            waiter.lease_acquire(["src/"], 60)
        place.stop()
        with place.start() as client:
            assert names(client) == {"holder", "waiter"}
            assert [lease.session for lease in client.lease_list().leases] == ["waiter"]
        place.stop()
        mounts.close()


@pytest.mark.parametrize("full", ["journal", "store.git"])
def test_one_of_journal_and_store_is_full_while_the_other_is_not(
    tmp_path: Path, mounts: ExitStack, full: str, is_long: bool
) -> None:
    if not is_long:
        pytest.skip("the sample leaves it out: run it with --long")
    with workplace(tmp_path / "place") as place:
        with place.start() as client:
            client.apply([write("first", "first\n")])
        place.stop()
        kept = tmp_path / "kept"
        (place.state / full).rename(kept)
        where = small(mounts, place.state / full)
        subprocess.run(["cp", "-a", f"{kept}/.", str(where)], check=True)
        with place.start() as client:
            client.apply([write("small", "small\n")])
            client.settle()
            assert client.check().problems == []
            taken = fill(where)
            if full == "journal":
                with pytest.raises(EditdError, match="disk is full"):
                    deque(client.apply([write(f"{number}", LARGE)]) for number in range(30))
                refused(client, errno.ENOSPC)
            else:
                client.apply([write("waiting", "in the journal\n")])
                assert client.status().journal["unpacked"], "packing needs room"
            taken.unlink()
            remount(where, "size=200m")
            wait_until(lambda: not client.status().journal["unpacked"], "it is not packed")
            goes_on(place, client)
        place.stop()
        fsck(place)
        mounts.close()


def test_a_read_only_workspace_refuses_until_it_is_writable(tmp_path: Path, mounts: ExitStack) -> None:
    with workplace(tmp_path / "place") as place:
        small(mounts, place.root)
        with place.start() as client:
            client.apply([write("small", "small\n")])
            client.settle()
            remount(place.root, "ro")
            refused(client, errno.EROFS)
            assert client.read("small").content == "small\n"
            remount(place.root, "rw")
            goes_on(place, client)
        place.stop()
        fsck(place)
        mounts.close()


def test_no_daemon_starts_on_a_read_only_state_folder_and_one_does_once_it_is_writable(
    tmp_path: Path, mounts: ExitStack
) -> None:
    with workplace(tmp_path / "place") as place:
        where = small(mounts, tmp_path / "place" / "state")
        place.start().close()
        place.stop()
        remount(where, "ro")
        with pytest.raises(AssertionError, match="Read-only file system"):
            place.start()
        assert place.process is not None
        assert place.process.wait() == 1
        remount(where, "rw,size=200m")
        with place.start() as client:
            goes_on(place, client)
        place.stop()
        mounts.close()


def test_edits_go_on_while_connections_ask_for_all_descriptors(tmp_path: Path) -> None:
    with workplace(tmp_path / "place") as place:
        place.launcher = ("prlimit", "--nofile=64")
        with place.start() as client, ExitStack() as connections:
            client.apply([write("small", "small\n")])
            for _ in range(100):
                connection = connections.enter_context(socket.socket(socket.AF_UNIX))
                connection.connect(place.socket)
            wait_until(lambda: is_turned_away(place), "there is room for another client")
            for number in range(10):
                client.apply([write("another", f"{number}\n")])
            wait_until(lambda: not client.status().journal["unpacked"], "it is not packed")
            wait_until(lambda: not client.status().journal["unflushed"], "it is not synced")
            assert client.status().state == "ready"
            connections.close()
            wait_until(lambda: client.status().clients == 1, "the daemon has not noticed that they are gone")
            goes_on(place, client)
        place.stop()
        fsck(place)


def names(client: Client) -> set[str]:
    return {session.session for session in client.session_list().sessions}


def is_turned_away(place: Workplace) -> bool:
    """Is one client more told that there is no room? In a flood of them nobody is told anything."""
    with pytest.raises(EditdError) as refusal, place.client() as another:
        another.status()
    return refusal.value.name == "overloaded"


def remount(where: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(where)], check=True)
