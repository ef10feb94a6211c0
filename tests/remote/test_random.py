"""Three hosts at random, with kills, cuts and a lost server: nothing acknowledged is lost, and all agree.

Each edit has lines of its own in files that all hosts edit. At the end the log is walked, and compared with
what the clients were told: invariants L1 to L6 of docs/hosts.md.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError, Unreachable
from hosts import exchange, hosts
from log_checker import Acknowledged, check_log
from workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from editd.wire.messages import Replace, Write
    from editd_client.client import Client
    from workplace import Workplace

FILES = {f"f{number}": "".join(f"base {number} {line}\n" for line in range(40)) for number in range(8)}
SECONDS, LONG_SECONDS = 2.0, 120.0
# A git whose every tenth push succeeds without an answer, and whose every thirtieth call fails.
GIT = """#!/bin/sh
drawn=$(od -An -N1 -tu1 /dev/urandom)
[ $drawn -gt 8 ] || exit 1
{git} "$@"
status=$?
case "$*" in *" push "*) [ $drawn -gt 32 ] || exit 1;; esac
exit $status
"""


@dataclass
class Run:
    """The hosts of one run, and what their clients were told."""

    places: list[Workplace]
    clients: list[Client]
    server: Path
    drawn: random.Random
    acknowledged: list[Acknowledged] = field(default_factory=list)
    unanswered: int = 0
    deeds: dict[str, int] = field(default_factory=dict)

    def edit(self, host: int) -> None:
        """Replace or add a line in some files, as one transaction."""
        client, drawn = self.clients[host], self.drawn
        edits: list[Replace | Write] = []
        added, removed = {}, {}
        for path in drawn.sample(sorted(FILES), drawn.choice((1, 1, 2, 3))):
            lines = (self.places[host].root / path).read_text().splitlines()
            line, token = drawn.choice(lines), f"{host} {drawn.getrandbits(48):x}"
            is_replaced = drawn.random() < 0.5
            new = token if is_replaced else f"{line}\n{token}"
            edits.append(replace(path, f"{line}\n", f"{new}\n"))
            added[path] = token
            if is_replaced:
                removed[path] = line
        if drawn.random() < 0.1:
            path, token = f"new/{host}/{drawn.getrandbits(32):x}", f"{host} {drawn.getrandbits(48):x}"
            edits.append(write(path, f"{token}\n"))
            added[path] = token
        try:
            made = client.apply(edits).transaction
        except EditdError:
            return  # an arrival has changed the line meanwhile
        except Unreachable:
            self.unanswered += 1
            return
        assert made is not None
        self.acknowledged.append(Acknowledged(f"host{host}", made.id, made.seq, added, removed))

    def disturb(self, host: int) -> None:
        """Kill a daemon, cut a host off or let it come back, or take the server away."""
        deed = self.drawn.choice(("kill", "kill", "cut", "cut", "no server"))
        self.deeds[deed] = self.deeds.get(deed, 0) + 1
        if deed == "kill":
            self.places[host].kill()
            self.clients[host].close()
            self.clients[host] = self.places[host].start()
        elif deed == "cut":
            client = self.clients[host]
            if client.remote_status().state == "paused":
                client.remote_resume()
            else:
                client.remote_pause()
        else:
            gone = self.server.with_name("gone.git")
            os.rename(self.server, gone)
            time.sleep(self.drawn.random() * 0.5)
            os.rename(gone, self.server)


def use_faulty_git(places: Iterable[Workplace]) -> None:
    """Use the git with faults from the next start of each daemon on."""
    for place in places:
        folder = place.folder / "bin"
        folder.mkdir()
        program = folder / "git"
        program.write_text(GIT.format(git=shutil.which("git")))
        program.chmod(0o755)
        place.variables["PATH"] = f"{folder}:{os.environ['PATH']}"


def run(folder: Path, seed: int, number: int, seconds: float) -> Run:
    with hosts(folder, number, FILES) as (places, clients, server):
        use_faulty_git(places)
        made = Run(places, clients, server, random.Random(seed))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            host = made.drawn.randrange(number)
            if made.drawn.random() < 0.05:
                made.disturb(host)
            else:
                made.edit(host)
            time.sleep(made.drawn.random() * 0.04)
        for client in made.clients:
            client.remote_resume()
        exchange(*made.clients)
        baseline = {path: content.encode() for path, content in FILES.items()}
        entries = check_log(server, made.acknowledged, baseline, [place.files() for place in places])
        for client in made.clients:
            assert client.check().problems == []
            with suppress(Unreachable):
                client.close()
        aside = sum(not entry.is_applied for entry in entries[1:])
        print(
            f"seed {seed}: {len(made.acknowledged)} acknowledged, {made.unanswered} unanswered, "
            f"{len(entries) - 1} entries, {aside} set aside, {made.deeds}"
        )
        return made


def test_three_hosts_agree_and_lose_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, random.SystemRandom().getrandbits(32), 3, SECONDS)
    assert len(made.acknowledged) > 10


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_hosts_agree_and_lose_nothing(tmp_path: Path) -> None:
    for number in (3, 5):
        made = run(tmp_path / str(number), random.SystemRandom().getrandbits(32), number, LONG_SECONDS)
        assert len(made.acknowledged) > 100
