"""system.peer: who is on the other end of a socket."""

from __future__ import annotations

import os
import socket

import pytest

from editd.system.peer import Peer, has_hung_up, may_connect, peer_of


@pytest.mark.needs("peer credentials")
def test_the_kernel_tells_who_connected() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_of(ours) == Peer(os.getpid(), os.geteuid(), os.getegid())


@pytest.mark.needs("peer credentials")
def test_a_socket_without_a_peer_says_so() -> None:
    with socket.socket(socket.AF_INET) as lonely:
        peer = peer_of(lonely)
    assert peer.pid == 0
    assert not may_connect(peer)


@pytest.mark.parametrize(
    ("uid", "expected"), [(os.geteuid(), True), (0, True), (os.geteuid() + 1, False), (2**32 - 1, False)]
)
def test_the_daemons_user_and_root_may_speak_and_nobody_else(uid: int, expected: bool) -> None:
    assert may_connect(Peer(1, uid, 0)) is expected


def test_one_that_has_closed_both_halves_has_hung_up_and_one_that_still_listens_has_not() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert not has_hung_up(ours)
        theirs.send(b"the last word")
        theirs.shutdown(socket.SHUT_WR)
        assert not has_hung_up(ours)
        theirs.close()
        assert has_hung_up(ours)
