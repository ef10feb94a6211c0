"""One workspace in which a daemon is killed again and again, and what must hold after each crash."""

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
from injection import Call, attached
from scenarios import Expected, Scenario, Standing, differing, standing
from torment import fsck, strays, transactions, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from editd_client.client import Client
    from workplace import Workplace

KEPT = ("workspace", "state")  # folders of a Workplace
KILL = "signal=SIGKILL"
PACKED_SECONDS = 0.6  # after the reply, until packing is done
BACKGROUND_SECONDS = 2.2  # after the reply, until files are synced and what was replaced is removed
ALIKE_MAX = 20  # calls of one kind that are struck: an edit of ten files makes fewer
NUMBER = re.compile(r"[0-9a-f]{6,}|\d+")
OUTCOME = re.compile(r"\)? +(= |<unfinished).*$", re.DOTALL)
ROUNDS_OF_A_HISTORY = 40  # all of it is proven in each round: of an endless one the later would take minutes
MISSED_SHARE = 0.05  # of the calls: a notice, or the index being written, is one more or less


@dataclass
class Chain:
    """One workspace in which crash follows crash; each daemon that recovers is the next to be killed."""

    place: Workplace
    is_long: bool
    client: Client | None = None
    rounds: int = 0
    killed: int = 0
    missed: list[Call] = field(default_factory=list)
    packing: list[Call] = field(default_factory=list)  # recorded once

    def start(self) -> Client:
        """The daemon, started if it does not run."""
        if self.client is None or self.place.process is None or self.place.process.poll() is not None:
            if self.client is not None:
                self.client.close()
            self.client = self.place.start()
        return self.client

    def restart(self) -> Client:
        """Another daemon, after a clean end of the one that runs."""
        self.place.stop()
        return self.start()

    def begin(self, scenario: Scenario) -> tuple[Client, str, Expected, int]:
        """What comes before the request, packed and settled: the client, a new tag, what to expect, head."""
        if self.rounds and self.rounds % ROUNDS_OF_A_HISTORY == 0:
            self._begin_anew(scenario)
        client, tag, expected = self._prepare(scenario)
        client.settle()
        assert client.check().problems == []  # which packs
        return client, tag, expected, client.status().head

    def _prepare(self, scenario: Scenario) -> tuple[Client, str, Expected]:
        client = self.start()
        self.rounds += 1
        tag = f"round-{self.rounds}-{os.getpid()}"
        return client, tag, scenario.prepare(self.place, client, tag)

    def _begin_anew(self, scenario: Scenario) -> None:
        """Another history, in which this scenario was played: the first time makes what later ones find."""
        self.start()
        self.place.stop()
        for name in KEPT:
            shutil.rmtree(self.place.folder / name)
        self.place.root.mkdir()
        client, tag, _ = self._prepare(scenario)
        scenario.meddle(self.place, tag)
        scenario.ask(client, tag)

    def record(self, scenario: Scenario, *, is_following: bool = False) -> list[Call]:
        """The calls of one run, from the request on, and on to the background work."""
        self.start()
        self.place.kill()  # each daemon that is killed later has found something, too
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
        """The next daemon finds it whole or not at all, and does it once when it is asked again."""
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
    """A workspace and all that its daemon keeps, to be brought back as they were."""

    place: Workplace
    copy: Path

    def keep(self) -> None:
        """Take note of how it all stands, with no daemon there: each `again` brings that back."""
        for name in KEPT:
            if (self.place.folder / name).exists():
                shutil.copytree(self.place.folder / name, self.copy / name, symlinks=True)

    def again(self) -> None:
        for name in KEPT:
            shutil.rmtree(self.place.folder / name, ignore_errors=True)
            if (self.copy / name).exists():
                shutil.copytree(self.copy / name, self.place.folder / name, symlinks=True)


def verify_whole(chain: Chain, scenario: Scenario, tag: str, expected: Expected, head: int) -> None:
    """It is there, once; nobody else has done anything; all agree; and nothing is left lying about."""
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
    """Until no packs are put together, and what a killed packing process had left of its own is gone."""
    packs = place.store / "objects" / "pack"
    wait_until(lambda: not [*packs.glob("tmp_*"), *packs.glob("*.keep")], "there is no end to the packing")


def leftovers(place: Workplace, known: Standing) -> list[str]:
    """What lies in the state folder that docs/architecture.md does not have, and temporaries."""
    found = strays(place.root)
    for path in place.store.rglob("*"):
        if path.name.startswith("tmp_") or path.suffix in (".tmp", ".keep", ".lock"):
            found.append(str(path.relative_to(place.state)))
    unfinished = [path.name for path in (place.state / "journal").glob("*.new")]
    found += unfinished[1:]  # one is made ahead
    contents = [content for _, content in known.values()]
    for path in (place.state / "strays").glob("*"):
        if not any(content.startswith(path.read_bytes()) for content in contents):
            found.append(f"strays/{path.name}")
        path.unlink()
    return found


def worth_killing_at(calls: Sequence[Call], count: int, *, is_long: bool) -> list[Call]:
    """The calls that stand for all of these; but in the long form so many of them, evenly spread.

    What changes nothing leaves what the next call finds: to be killed at it is to be killed at the next that
    changes something. Of calls that are alike but for their numbers, as those that make hundreds of files
    ahead, the first stand for all.
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
    """Of the calls of all threads those of the one that publishes."""
    thread = next(call.thread for call in calls if call.name.startswith("rename"))
    return [call for call in calls if call.thread == thread]
