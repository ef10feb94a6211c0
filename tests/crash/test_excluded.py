"""A crash while an excluded file is edited: the edit is whole or not there, and its secret is in no record.

The daemon is killed at each call that changes a file: while the versions are named, while the contents are
kept, at the journal's append, and while the file is published.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import Unreachable
from support import injection
from support.crash_checks import has_empty_segment, wait_until
from support.injection import attached
from support.kill_chain import KILL, Kept
from support.seeds import seed
from support.state_search import holders
from support.workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client
    from support.injection import Call
    from support.workplace import Workplace

BEFORE = "KEY=before\n"
SECRET = f"KEY={secrets.token_hex(20)}\n"
REPLY = "sendto"
EVERY = 12  # the short form takes one of so many steps, by the seed, and the last one

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


def edit(client: Client) -> None:
    client.apply([write(".env", SECRET), write("beside.txt", "after\n")], request_id="once")


@pytest.mark.timeout(3600)
def test_wherever_it_is_killed_the_edit_is_whole_or_not_there_and_can_be_undone(
    place: Workplace, tmp_path: Path, is_long: bool
) -> None:
    with place.start() as client:
        client.apply([write(".env", BEFORE), write("beside.txt", "before\n")])
    place.stop()
    kept = Kept(place, tmp_path / "kept")
    kept.keep()
    calls = recorded(place)
    steps = steps_of(calls)
    chosen = steps if is_long else [*steps[seed() % EVERY : -1 : EVERY], steps[-1]]
    outcomes = [killed_at(place, kept, call) for call in chosen]
    assert set(outcomes) == {True, False}, "neither before nor after was met"
    print(f"{len(chosen)} kills of {len(steps)} steps: {outcomes.count(True)} edits are whole")


def recorded(place: Workplace) -> list[Call]:
    """Return the calls that change a file, from the request to its answer."""
    with place.start() as client:
        client.settle()
        wait_until(
            partial(has_empty_segment, place), "no segment is ready"
        )  # its calls would be among the edit's
        assert place.process is not None
        with attached(place.process.pid) as trace:
            edit(client)
            calls = trace.calls()
    place.kill()
    return calls


def steps_of(calls: list[Call]) -> list[Call]:
    """Return the calls of the edit that change a file: all of them come before the answer."""
    replied = next(at for at, call in enumerate(calls) if call.name == REPLY)
    steps = injection.changing(calls[:replied])
    named = " ".join(call.text for call in steps)
    assert "excluded" in named, "the edit keeps no content"
    return steps


def killed_at(place: Workplace, kept: Kept, call: Call) -> bool:
    """Kill the daemon at a call of the edit; return whether the next daemon has the edit."""
    kept.again()
    with place.start() as client:
        client.settle()
        wait_until(partial(has_empty_segment, place), "no segment is ready")
        assert place.process is not None
        process = place.process
        with attached(process.pid, [call.struck(KILL)]), contextlib.suppress(Unreachable):
            edit(client)
            pytest.fail(f"not struck: {call}")
        assert process.wait(30) == -signal.SIGKILL
    with place.start() as client:
        client.settle()
        files = place.files()
        is_whole = files == {".env": SECRET.encode(), "beside.txt": b"after\n"}
        assert is_whole or files == {".env": BEFORE.encode(), "beside.txt": b"before\n"}, call
        assert client.status().head == (2 if is_whole else 1)
        assert client.check().problems == []
        wait_until(partial(is_only_kept, place), f"the secret is in a record, after a kill at {call}")
        edit(client)
        assert client.status().head == 2
        assert client.undo().transaction is not None
        assert place.files() == {".env": BEFORE.encode(), "beside.txt": b"before\n"}
        client.gc()
        assert client.check().problems == []
        wait_until(partial(is_only_kept, place), f"the secret is in a record, after a kill at {call}")
    place.stop()
    return is_whole


def is_only_kept(place: Workplace) -> bool:
    """Return whether only the kept contents have the secret."""
    return all(name.startswith("excluded/") for name in holders(place.state, SECRET.strip().encode()))
