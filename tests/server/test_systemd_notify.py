"""server.systemd: what the environment says is believed only where it is said to this process."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from editd.server.systemd import SystemdNotifier

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_supervisor_nothing_is_given_and_telling_does_nothing() -> None:
    supervisor = SystemdNotifier.of({})
    assert not supervisor.is_there
    supervisor.ready()
    supervisor.status("all is well")


def test_what_was_meant_for_another_process_is_not_taken_and_not_handed_on() -> None:
    environment = {
        "LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "editd",
        "WATCHDOG_PID": str(os.getpid() + 1), "WATCHDOG_USEC": "1000000", "PATH": "/bin",
    }  # fmt: skip
    supervisor = SystemdNotifier.of(environment)
    assert (supervisor.listener, supervisor.watchdog_seconds) == (None, None)
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [("2000000", 2.0), ("500", 0.0005), ("0", None), ("", None), ("-5", None), ("soon", None)],
)
def test_the_watchdog_wants_microseconds(wanted: str, seconds: float | None) -> None:
    assert SystemdNotifier.of({"WATCHDOG_USEC": wanted}).watchdog_seconds == seconds
    assert (
        SystemdNotifier.of({"WATCHDOG_USEC": wanted, "WATCHDOG_PID": str(os.getpid())}).watchdog_seconds
        == seconds
    )


def test_a_status_is_one_line_of_bounded_length_and_said_once(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        news.bind(str(tmp_path / "n"))
        news.setblocking(False)
        supervisor = SystemdNotifier.of({"NOTIFY_SOCKET": str(tmp_path / "n")})
        supervisor.status("two\nREADY=1")
        supervisor.status("two READY=1")
        supervisor.status("x" * 5000)
        assert news.recv(9000) == b"STATUS=two READY=1"
        assert news.recv(9000) == b"STATUS=" + b"x" * 500
        with pytest.raises(BlockingIOError):
            news.recv(9000)


@pytest.mark.parametrize("address", ["/nowhere/at/all", "@nobody-listens-here", "relative", "vsock:2:1234"])
def test_a_supervisor_that_cannot_be_told_is_not_a_reason_to_fail(address: str) -> None:
    supervisor = SystemdNotifier.of({"NOTIFY_SOCKET": address})
    supervisor.ready()
    supervisor.alive()
