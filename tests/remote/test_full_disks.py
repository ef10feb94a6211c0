"""A disk that is full, on the server or on a host: once there is room, the exchange goes on."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support import machine as machines
from support.git_servers import GitServer
from support.hosts import bare_repository, exchange, hosts, name_host, until
from support.log_checker import log_of
from support.machine import mounted, new_image
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from pathlib import Path

LINES = "".join(f"line {number}\n" for number in range(1, 10))

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(machines.missing() is not None, reason=f"{machines.missing()}"),
]


def fill(folder: Path) -> Path:
    """Take all the room of a file system, without writing to it."""
    taken = folder / "taken"
    descriptor = os.open(taken, os.O_CREAT | os.O_WRONLY)
    try:
        size, offset = 1 << 28, 0
        while size >= 1024:
            try:
                os.posix_fallocate(descriptor, offset, size)
                offset += size
            except OSError:
                size //= 2
    finally:
        os.close(descriptor)
    return taken


def test_a_full_server_refuses_and_takes_it_all_once_there_is_room(tmp_path: Path) -> None:
    with mounted(new_image(tmp_path), tmp_path / "server"):
        repository = bare_repository(tmp_path / "server" / "work.git")
        with hosts(tmp_path, 2, {"a.txt": LINES}, server=GitServer(repository, str(repository))) as (
            places,
            (one, other),
            _,
        ):
            taken = fill(tmp_path / "server")
            for number in range(1, 4):
                one.apply(
                    [replace("a.txt", f"line {number}\n", f"{number}\n"), write(f"f{number}", "x" * 20_000)]
                )
            until(lambda: one.remote_status().state == "refused", "it is not refused")
            until(lambda: one.remote_status().tentative == 3, "it does not count them")
            assert len(log_of(repository)) == 1
            taken.unlink()
            exchange(one, other)
            assert places[0].files() == places[1].files()
            assert [entry.is_applied for entry in log_of(repository)] == [False, True, True, True]


def test_a_host_whose_disk_is_full_takes_in_the_rest_once_there_is_room(tmp_path: Path) -> None:
    with (
        hosts(tmp_path, 1, {"a.txt": LINES}) as (places, (one,), server),
        workplace(tmp_path / "full") as full,
        mounted(new_image(tmp_path), full.folder / "state"),
    ):
        name_host(full, "full")
        with full.start() as client:
            client.remote_join(str(server))
            taken = fill(full.folder / "state")
            for number in range(20):
                one.apply([write(f"f{number}", f"{number}" * 50_000)])
            exchange(one)
            until(lambda: client.remote_status().error is not None, "it does not notice")
            with contextlib.suppress(EditdError):  # its journal may be full as well
                client.apply([write("mine", "mine\n")])
            assert client.remote_status().number == 0, "it has taken in what it has no room for"
            taken.unlink()
            exchange(one, client)
            assert places[0].files() == full.files()
            assert client.check().problems == []
            client.apply([write("later", "later\n")])
            exchange(one, client)
        full.stop()
    assert places[0].files()["later"] == b"later\n"
