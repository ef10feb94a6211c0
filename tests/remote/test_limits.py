"""The limit of pushes, the age of waiting edits, and a process of the exchange that is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.crash_checks import children
from support.hosts import exchange, hosts, name_host, until
from support.log_checker import log_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from support.workplace import Workplace

FILES = {"a.txt": "a\n"}
PER_MINUTE = 30
HOOK = """#!/bin/sh
echo push >> {pushes}
"""


def test_a_name_of_a_host_that_is_too_long_for_a_ref_is_refused(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (_, (one,), server):
        one.remote_leave()
        with pytest.raises(EditdError, match="has 101 bytes; 100 are the most") as caught:
            one.remote_join(str(server), host="h" * 101)
        assert "--host" in (caught.value.hint or "")
        with pytest.raises(EditdError, match="has 102 bytes; 100 are the most"):
            one.remote_init(str(server), host="ä" * 51)
        assert one.remote_join(str(server), host="h" * 100).host == "h" * 100


def test_no_more_pushes_than_the_limit_reach_the_server(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        name_host(places[0], "host0", f"pushes_per_minute = {PER_MINUTE}\n")
        one.config_reload()
        exchange(one, other)
        pushes = tmp_path / "pushes"
        hook = server / "hooks" / "pre-receive"
        hook.write_text(HOOK.format(pushes=pushes))
        hook.chmod(0o755)
        begun = time.monotonic()
        for number in range(30):
            one.apply([write(f"{number}.txt", f"{number}\n")])
            until(lambda: bool(one.remote_status().state), "no answer")
            time.sleep(0.1)  # so that without a limit each edit has a push of its own
        status = one.remote_status()
        until(lambda: one.remote_status().tentative == 0, "the rest does not land")
        seconds = time.monotonic() - begun
        counted = len(pushes.read_text().splitlines())
        assert counted <= 1 + seconds / 60 * PER_MINUTE, f"{counted} pushes in {seconds:.1f} s"
        assert (status.tentative > 0, status.oldest is not None) == (True, True)
        assert len(log_of(server)) == 31


def test_the_oldest_edit_of_a_paused_host_has_an_age(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (_, (one,), _):
        exchange(one)
        one.remote_pause()
        assert one.remote_status().oldest is None
        one.apply([write("b.txt", "b\n")])
        first = one.remote_status().oldest
        assert first is not None
        one.apply([write("c.txt", "c\n")])
        later = one.remote_status()
        assert later.tentative == 2
        assert later.oldest is not None
        assert later.oldest >= first
        one.remote_resume()
        exchange(one)
        assert one.remote_status().oldest is None


def workers(place: Workplace) -> list[int]:
    return [pid for pid in children(place) if b"exchange_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_killed_process_of_the_log_is_started_again(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), _):
        one.apply([replace("a.txt", "a\n", "A\n")])
        exchange(one)
        for _ in range(3):
            assert [file.path for file in one.diff("@0").files] == ["a.txt"]
            until(lambda: len(workers(places[0])) == 2, "the exchange, and the reader of the log")
            for pid in workers(places[0]):
                os.kill(pid, signal.SIGKILL)
            assert one.blame("a.txt").lines[0].number == 1
        one.apply([write("b.txt", "b\n")])
        exchange(one)


def test_a_host_that_leaves_names_the_work_that_the_log_lacks(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), server):
        one.apply([write("b.txt", "b\n")])
        exchange(one)
        one.remote_pause()
        one.apply([write("c.txt", "c\n")], actor="ann", message="Add c\n\nfor good")
        one.apply([write("d.txt", "d\n")], actor="bob")
        with pytest.raises(EditdError) as refused:
            one.remote_leave()
        assert refused.value.name == "conflict"
        assert [(made["seq"], made["actor"]) for made in refused.value.data["transactions"]] == [
            (2, "ann"),
            (3, "bob"),
        ]
        assert "lacks transaction 2 by ann (Add c) and 1 more" in refused.value.message
        asked = places[0].editctl("remote", "leave")
        assert (asked.returncode, "--yes" in asked.stderr) == (1, True)
        assert one.remote_status().state == "paused"
        one.close()
        server.rename(server.with_name("away.git"))
        places[0].stop()
        with places[0].start() as again:  # nothing was exchanged since the start
            with pytest.raises(EditdError, match="lacks transaction 2 by ann"):
                again.remote_leave()
            left = places[0].editctl("remote", "leave", "--yes")
            assert left.returncode == 0, left.stderr
            assert again.remote_status().state == "none"
            assert sorted(places[0].files()) == ["a.txt", "b.txt", "c.txt", "d.txt"]
