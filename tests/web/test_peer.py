"""web.peer: the user at the other end of a connection, by the kernel's table of sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd_client.web.peer import Address, has_left, may_enter, owner_in, owner_of
from support.web_page import web_page

if TYPE_CHECKING:
    from support.web_page import WebPage
    from support.workplace import Workplace

OURS = Address("127.7.8.9", 8080)
THEIRS = Address("127.0.0.1", 40000)
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

AS_NOBODY = """
import os, socket, sys
family = getattr(socket, sys.argv[3])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
stream = socket.socket(family, socket.SOCK_STREAM)
stream.settimeout(20)
try:
    stream.connect((sys.argv[1], int(sys.argv[2])))
    stream.sendall(sys.stdin.buffer.read())
    print(stream.recv(100) or b"closed")
except OSError as error:
    print(type(error).__name__)
"""
DROPPED = ("b'closed'", "ConnectionResetError", "BrokenPipeError")


def as_nobody(page: WebPage, request: str, family: str = "AF_INET") -> str:
    """Return the first bytes of the answer that another user gets."""
    host, _, port = page.host.partition(":")
    name = f"::ffff:{host}" if family == "AF_INET6" else host
    argv = [sys.executable, "-I", "-c", AS_NOBODY, name, port, family]
    done = subprocess.run(argv, input=request.encode(), capture_output=True, check=True, cwd="/")
    return done.stdout.decode().strip()


@pytest.mark.needs("peer credentials")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_with_the_token_and_the_cookie_is_dropped_before_a_byte_is_read(
    place: Workplace,
) -> None:
    """The attack: the address is public, and a browser has sent its cookie to another port."""
    place.write({"a": "one\n"})
    refused = "Refused a connection of user 65534: the page serves only your own programs.\n"
    with place.start(), web_page(place, is_forked=False, errors_expected=refused) as page:
        page.enter()
        for family in ("AF_INET", "AF_INET6"):
            for path in ("/", f"/?t={page.token}"):
                request = f"GET {path} HTTP/1.1\r\nHost: {page.host}\r\nCookie: {page.cookie}\r\n\r\n"
                assert as_nobody(page, request, family) in DROPPED
            assert as_nobody(page, "", family) in DROPPED, "a connection without a byte is dropped as well"
        assert page.get("/").status == 200, "the user's own browser goes on"
    place.stop()


@pytest.mark.parametrize(
    ("owner", "expected"),
    [(os.geteuid(), True), (0, True), (os.geteuid() + 1, False), (65534, False), (None, False)],
)
def test_the_user_and_root_enter_and_an_unknown_owner_does_not(owner: int | None, expected: bool) -> None:
    assert may_enter(owner) is expected


@pytest.mark.needs("peer credentials")
def test_the_owner_of_a_real_connection_is_found_in_both_families() -> None:
    with socket.socket() as listener:
        listener.bind(("127.7.8.9", 0))
        listener.listen()
        port = listener.getsockname()[1]
        for family, host in ((socket.AF_INET, "127.7.8.9"), (socket.AF_INET6, "::ffff:127.7.8.9")):
            with socket.socket(family) as browser:
                browser.connect((host, port))
                connected, peer = listener.accept()
                with connected:
                    assert not has_left(connected)
                    assert owner_of(Address(*connected.getsockname()), Address(*peer)) == os.geteuid()


@pytest.mark.needs("peer credentials")
def test_a_browser_that_has_closed_its_end_has_no_owner() -> None:
    """The kernel gives a closed socket to root: a connection may not become root's by its end."""
    with socket.socket() as listener:
        listener.bind(("127.7.8.9", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            connected, peer = listener.accept()
        with connected:
            assert owner_of(Address(*connected.getsockname()), Address(*peer)) is None
            assert has_left(connected)


def row(local: str, remote: str, state: str = "01", uid: int = 1000) -> str:
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 4242 1\n"


@pytest.mark.skipif(sys.byteorder != "little", reason="the lines are those of a little-endian machine")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (row("0100007F:9C40", "0908077F:1F90"), 1000),
        (row("0000000000000000FFFF00000100007F:9C40", "0000000000000000FFFF00000908077F:1F90"), 1000),
        (row("0908077F:1F90", "0100007F:9C40", uid=0), None),  # the server's own end
        (row("0100007F:9C41", "0908077F:1F90"), None),
        (row("0100007F:9C40", "0908077F:1F91"), None),
        (row("0100007F:9C40", "0908077F:1F90", state="06", uid=0), None),  # TIME_WAIT
        (row("0100007F:9C40", "0908077F:1F90", state="05", uid=0), None),  # FIN_WAIT2
        ("   0: 0100007F:9C40 0908077F:1F90 01\n", None),
        ("", None),
    ],
)
def test_only_the_browsers_end_of_an_established_connection_counts(lines: str, expected: int | None) -> None:
    assert owner_in((HEAD + lines).splitlines(), OURS, THEIRS) == expected
