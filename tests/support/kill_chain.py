"""A workspace whose daemon is killed again and again, with the checks after each crash."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd_client.errors import Unreachable
from support.crash_checks import fsck, strays, transactions, wait_until
from support.injection import Call, attached
from support.scenarios import Expected, Scenario, Standing, differing, standing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

KEPT = ("workspace", "state")  # folders of a Workplace
KILL = "signal=SIGKILL"
PACKED_SECONDS = 0.6  # after the reply, until packing is done
BACKGROUND_SECONDS = 2.2  # after the reply, until files are synced and replaced files are removed
ALIKE_MAX = 20  # kills at calls of one kind: an edit of ten files makes fewer such calls
NUMBER = re.compile(r"[0-9a-f]{6,}|\d+")
OUTCOME = re.compile(r"\)? +(= |<unfinished).*$", re.DOTALL)
ROUNDS_OF_A_HISTORY = 40  # each round verifies the whole history, so an endless one would take minutes
MISSED_SHARE = 0.05  # of the calls: a notice or a write of the index may occur or not


@dataclass
class Chain:
    """One workspace with many crashes: each daemon recovers, and is killed next."""

    place: Workplace
    is_long: bool
    client: Client | None = None
    rounds: int = 0
    killed: int = 0
    missed: list[Call] = field(default_factory=list)
    packing: list[Call] = field(default_factory=list)  # recorded once

    def start(self) -> Client:
        """Return a client. Start the daemon if it does not run."""
        if self.client is None or self.place.process is None or self.place.process.poll() is not None:
            if self.client is not None:
                self.client.close()
            self.client = self.place.start()
        return self.client

    def restart(self) -> Client:
        """Stop the daemon cleanly, and start another one."""
        self.place.stop()
        return self.start()

    def begin(self, scenario: Scenario) -> tuple[Client, str, Expected, int]:
        """Prepare a request, pack and settle. Return the client, a new tag, the expectation, and head."""
        if self.rounds and self.rounds % ROUNDS_OF_A_HISTORY == 0:
            self._begin_anew(scenario)
        client, tag, expected = self._prepare(scenario)
        client.settle()
        assert client.check().problems == []  # a check packs
        return client, tag, expected, client.status().head

    def _prepare(self, scenario: Scenario) -> tuple[Client, str, Expected]:
        client = self.start()
        self.rounds += 1
        tag = f"round-{self.rounds}-{os.getpid()}"
        return client, tag, scenario.prepare(self.place, client, tag)

    def _begin_anew(self, scenario: Scenario) -> None:
        """Start a new history, and play the scenario once: the first time differs from later ones."""
        self.start()
        self.place.stop()
        for name in KEPT:
            shutil.rmtree(self.place.folder / name)
        self.place.root.mkdir()
        client, tag, _ = self._prepare(scenario)
        scenario.meddle(self.place, tag)
        scenario.ask(client, tag)

    def record(self, scenario: Scenario, *, is_following: bool = False) -> list[Call]:
        """Return the calls of one run, from the request to the background work."""
        self.start()
        self.place.kill()  # later daemons start after a kill, too
        client, tag, expected, head = self.begin(scenario)
        assert self.place.process is not None
        with attached(self.place.process.pid, is_following=is_following) as trace:
            scenario.meddle(self.place, tag)
            scenario.ask(client, tag)
            time.sleep(BACKGROUND_SECONDS if self.is_long else PACKED_SECONDS)
            calls = trace.calls()
        verify_whole(self, scenario, tag, expected, head)
        return calls

    def kill_at(
        self,
        scenario: Scenario,
        call: Call,
        *,
        is_following: bool = False,
        within_seconds: float = BACKGROUND_SECONDS,
    ) -> None:
        client, tag, expected, head = self.begin(scenario)
        is_acknowledged = False
        process = self.place.process
        assert process is not None
        with attached(process.pid, [call.struck(KILL)], is_following=is_following):
            scenario.meddle(self.place, tag)
            with contextlib.suppress(Unreachable):
                is_acknowledged = scenario.ask(client, tag).transaction is not None
            try:
                process.wait(within_seconds)
                self.killed += 1
            except subprocess.TimeoutExpired:
                self.missed.append(call)
                self.place.kill()
        self.verify(scenario, tag, expected, head, is_acknowledged=is_acknowledged)

    def verify(
        self, scenario: Scenario, tag: str, expected: Expected, head: int, *, is_acknowledged: bool
    ) -> None:
        """Verify that the next daemon has all of it or nothing, and that a retry takes effect once."""
        client = self.start()
        client.settle()
        made = transactions(client, after=head)
        is_whole = tuple(one.kind for one in made) == expected.kinds_after
        assert is_whole or (
            not is_acknowledged and tuple(one.kind for one in made) == expected.kinds_before
        ), made
        wrong = differing(standing(self.place), expected.after if is_whole else expected.before)
        assert not wrong, wrong
        assert strays(self.place.root) == []
        again = scenario.ask(client, tag).transaction
        assert again is not None
        if is_whole:
            assert again == made[-1]
        verify_whole(self, scenario, tag, expected, head)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()


@dataclass
class Kept:
    """A saved copy of a workspace and of its daemon's state."""

    place: Workplace
    copy: Path

    def keep(self) -> None:
        """Save the state while no daemon runs. `again` restores it."""
        for name in KEPT:
            if (self.place.folder / name).exists():
                shutil.copytree(self.place.folder / name, self.copy / name, symlinks=True)

    def again(self) -> None:
        for name in KEPT:
            shutil.rmtree(self.place.folder / name, ignore_errors=True)
            if (self.copy / name).exists():
                shutil.copytree(self.copy / name, self.place.folder / name, symlinks=True)


def verify_whole(chain: Chain, scenario: Scenario, tag: str, expected: Expected, head: int) -> None:
    """Verify that it occurs once, no other was added, `check` passes, and nothing is left over."""
    client = chain.start()
    client.settle()
    made = transactions(client, after=head)
    assert tuple(one.kind for one in made) == expected.kinds_after
    assert [one.request_id for one in made if one.request_id is not None] == [tag]
    wrong = differing(standing(chain.place), expected.after)
    assert not wrong, wrong
    problems = client.check().problems
    assert not problems, problems
    wait_until_tidy(chain.place)
    left = leftovers(chain.place, expected.after)
    assert not left, left
    fsck(chain.place)


def wait_until_tidy(place: Workplace) -> None:
    """Wait until packs are merged and the files of a killed packing process are removed."""
    packs = place.store / "objects" / "pack"
    wait_until(lambda: not [*packs.glob("tmp_*"), *packs.glob("*.keep")], "there is no end to the packing")


def leftovers(place: Workplace, known: Standing) -> list[str]:
    """Return temporary files, and files of the state folder that docs/architecture.md does not list."""
    found = strays(place.root)
    for path in place.store.rglob("*"):
        if path.name.startswith("tmp_") or path.suffix in (".tmp", ".keep", ".lock"):
            found.append(str(path.relative_to(place.state)))
    unfinished = [path.name for path in (place.state / "journal").glob("*.new")]
    found += unfinished[1:]  # one segment is made ahead
    contents = [content for _, content in known.values()]
    for path in (place.state / "strays").glob("*"):
        if not any(content.startswith(path.read_bytes()) for content in contents):
            found.append(f"strays/{path.name}")
        path.unlink()
    return found


def worth_killing_at(calls: Sequence[Call], count: int, *, is_long: bool) -> list[Call]:
    """Return a representative selection of the calls. The long form has more of them, evenly spread.

    A call that changes nothing is left out: a kill at it has the same effect as one at the next change. Of
    calls that differ in numbers only, such as those that make hundreds of files ahead, the first are kept.
    """
    seen: Counter[tuple[str, str]] = Counter()
    changing: list[Call] = []
    for call in calls:
        alike = call.name, NUMBER.sub("#", OUTCOME.sub("", call.text))
        seen[alike] += call.is_change
        if (call.is_change and seen[alike] <= ALIKE_MAX) or call is calls[-1]:
            changing.append(call)
    if is_long or len(changing) <= count:
        return changing
    return [changing[(2 * step + 1) * len(changing) // (2 * count)] for step in range(count)]


def of_the_engine(calls: Sequence[Call]) -> list[Call]:
    """Return the calls of the thread that publishes. Others rename, too: they check replaced files."""
    thread = next(call.thread for call in calls if "RENAME_EXCHANGE" in call.text)
    return [call for call in calls if call.thread == thread]
