"""What a request has needed goes with its answer: in a cycle it would stay until garbage is collected.

That would cost the search for it, and memory that is new where old would do: an edit holds both contents.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.every_method import FOUND, METHODS
from support.workplace import TOP, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

ROUNDS = 12


@pytest.fixture(scope="module")
def littering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, Client]]:
    with workplace(tmp_path_factory.mktemp("place"), {"a.txt": FOUND, "plain": "plain"}) as place:
        place.launcher = (
            sys.executable,
            str(TOP / "tests" / "support" / "garbage_daemon.py"),
            str(place.folder / "garbage"),
        )
        with place.start() as client:
            client.settle()
            yield place, client


def garbage(place: Workplace, client: Client) -> dict[str, int]:
    """How many of which types of the daemon's own were left in cycles since this was last asked."""
    out = place.folder / "garbage"
    os.kill(client.status().pid, signal.SIGUSR2)
    wait_until(out.exists, "the daemon does not count its garbage")
    found: dict[str, int] = json.loads(out.read_text())
    out.unlink()
    return found


@pytest.mark.parametrize("name", METHODS)
def test_no_request_leaves_anything_in_a_cycle(littering: tuple[Workplace, Client], name: str) -> None:
    place, client = littering
    garbage(place, client)
    for _ in range(ROUNDS):
        client.apply([write("a.txt", f"{FOUND}\n", force=True), write("plain", "plain\n", force=True)])
        with contextlib.suppress(EditdError):
            METHODS[name](client, str(place.root), "a.txt")
    assert {kind: count for kind, count in garbage(place, client).items() if count >= ROUNDS} == {}
