"""Who sits at a terminal is told what is waited for, and nobody else is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.workplace import Workplace

EDITCTL = f"{sys.executable} -P -m editd_client -C . settle"
CLEAR = b"\r\x1b[K"
TOLD = CLEAR + b"editctl: waiting for `hello` "  # by which each command says who sits there
LONG_SECONDS = 2.5


def test_what_takes_over_a_second_is_said_on_a_terminal_and_taken_back(place: Workplace) -> None:
    with slow(place), asking(place, ["script", "-qec", EDITCTL, "/dev/null"]) as asked:
        assert asked.stdout is not None
        said = b""
        while TOLD not in said:
            some = os.read(asked.stdout.fileno(), 4096)
            assert some, said
            said += some
        wake(place)
        said += asked.stdout.read()
        assert asked.wait(30) == 0
    assert said.replace(b"\r\n", b"\n").endswith(CLEAR + b"settled at transaction 1\n")


def test_a_narrow_terminal_has_it_on_one_line(place: Workplace) -> None:
    narrow = f"stty cols 20; {EDITCTL}"
    with slow(place), asking(place, ["script", "-qec", narrow, "/dev/null"]) as asked:
        assert asked.stdout is not None
        said = b""
        while said.count(CLEAR) < 2:
            said += os.read(asked.stdout.fileno(), 4096)
        wake(place)
        asked.communicate(timeout=30)
    assert said.split(CLEAR)[1].decode() == "editctl: waiti… 1 s"


def test_where_nobody_looks_on_nothing_is_said_of_waiting(place: Workplace) -> None:
    with slow(place), asking(place, EDITCTL.split()) as asked:
        time.sleep(LONG_SECONDS)
        wake(place)
        assert asked.communicate(timeout=30)[0] == b"settled at transaction 1\n"


@contextlib.contextmanager
def slow(place: Workplace) -> Iterator[None]:
    """The daemon runs, and does not go on until `wake`."""
    with place.start() as client:
        client.apply([write("a", "1\n")])
        client.settle()
    assert place.process is not None
    place.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        wake(place)


def wake(place: Workplace) -> None:
    assert place.process is not None
    place.process.send_signal(signal.SIGCONT)


def asking(place: Workplace, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, cwd=place.root, env={**place.environment, "TERM": "xterm"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
