"""Many hands on the same files: clients, half of which merge, an outside writer, and git now and then.

Whatever comes of it: there is one order and its replay gives the files; what was acknowledged is in it;
what the outside writer wrote, and did not replace itself, is in it; and `check` finds nothing.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest

from editd.values.content import version_of
from editd_client.errors import EditdError
from support.crash_checks import held, replayed, strays, transactions, versions, wait_until
from support.outsider import exchange
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from editd.wire.messages import AnyEdit, OnStale, Transaction
    from support.workplace import Workplace

CLIENTS = 16
FILES = [f"shared/{number:02}.txt" for number in range(50)]
GITS = FILES[40:]  # what git checks out, by removing and writing; it tells nobody what it loses
OTHERS = FILES[:40]  # what the outside writer writes to
LINES = 60
SECONDS_LONG = 60
MAY_BE_SAID = {"stale", "conflict", "no_match", "ambiguous", "io_error", "file_missing"}


@dataclass
class Told:
    """What happened, as those say who did it."""

    acknowledged: list[tuple[int, str, str, str]] = field(default_factory=list)  # seq, path, version, mark
    merged: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    outside: set[str] = field(default_factory=set)  # versions
    replaced: set[str] = field(default_factory=set)  # by the outside writer itself
    checkouts: int = 0
    faults: list[BaseException] = field(default_factory=list)

    def is_enough(self) -> bool:
        """Return whether each hand has met the others some times: the end of the short form."""
        return (
            self.merged >= 100
            and self.refused["stale"] >= 50
            and len(self.outside) >= 20
            and self.checkouts >= 2
        )


@pytest.mark.timeout(600)
def test_of_many_hands_on_the_same_files_nothing_is_lost(place: Workplace, is_long: bool) -> None:
    first = {path: "".join(f"{path} {line}\n" for line in range(LINES)).encode() for path in FILES}
    place.write(first)
    place.git("init", "-q", "-b", "main")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "first")
    told, stop = Told(), threading.Event()
    with place.start() as client:
        client.settle()
        hands: list[Callable[[], None]] = [
            partial(edit, place, number, told, stop) for number in range(CLIENTS)
        ]
        hands += [lambda: save(place, told, stop), lambda: check_out(place, told, stop)]
        run(hands, told, stop, is_long)
        head = client.settle().head
        log = list(transactions(client))
        assert [made.seq for made in log] == list(range(1, head + 1))
        assert replayed(log, versions(first)) == versions(held(place))
        acknowledged_are_in(log, told)
        said = client.check()
        assert said.ok, said.problems
    place.stop()
    assert strays(place.root) == []
    known = {change.version for made in log for change in made.files}
    assert told.outside <= known | told.replaced
    marks_are_in(place, told)
    assert told.merged
    assert told.refused["stale"]
    assert told.checkouts
    assert len(told.outside - told.replaced) > len(told.outside) // 2, "the daemon saw too few"


def run(hands: Iterable[Callable[[], None]], told: Told, stop: threading.Event, is_long: bool) -> None:
    """Let all work at once: for a minute in the long form, otherwise until each has met the others."""

    def guarded(hand: Callable[[], None]) -> None:
        try:
            hand()
        except BaseException as error:  # noqa: BLE001  # told to the test
            told.faults.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(hand,)) for hand in hands]
    for thread in threads:
        thread.start()
    try:
        if is_long:
            stop.wait(SECONDS_LONG)
        else:
            wait_until(lambda: stop.is_set() or told.is_enough(), "they hardly meet")
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    assert not told.faults, told.faults


def edit(place: Workplace, number: int, told: Told, stop: threading.Event) -> None:
    """One client: it reads, waits as one does who thinks, and edits what it has read."""
    chance = random.Random(number)
    is_merging = number % 2 == 0
    with place.client() as client:
        client.hello(f"hand {number}")
        for count in range(1_000_000):
            if stop.is_set():
                return
            path, mark = chance.choice(FILES), f"hand {number} mark {count}"
            try:
                read = client.read(path)
                time.sleep(chance.uniform(0, 0.01))
                if not read.content:
                    assert path in GITS, path  # git has just made it, and not written it yet
                    continue
                line = chance.choice(read.content.splitlines())
                edits: list[AnyEdit] = [replace(path, f"{line}\n", f"{mark}\n", base=read.version)]
                if chance.random() < 0.2:
                    edits.append(write(f"own/{number}.txt", f"{mark}\n"))
                on_stale: OnStale = "merge" if is_merging else "reject"
                answer = client.apply(edits, session=f"s{number}", on_stale=on_stale)
            except EditdError as refusal:
                if refusal.name not in MAY_BE_SAID:
                    raise
                told.refused[refusal.name] += 1
                continue
            assert answer.transaction is not None
            told.merged += bool(answer.merged)
            for file in answer.files:
                assert file.version is not None
                told.acknowledged.append((answer.transaction.seq, file.path, file.version, mark))


def save(place: Workplace, told: Told, stop: threading.Event) -> None:
    """An editor: it changes a line and lets a temporary take the file's place, and looks what that was."""
    chance, temporary = random.Random(-1), place.folder / "temporary"
    for count in range(1_000_000):
        if stop.is_set():
            return
        file = place.root / chance.choice(OTHERS)
        lines = file.read_bytes().splitlines(keepends=True)
        lines[chance.randrange(len(lines))] = b"outside mark %d\n" % count
        content = b"".join(lines)
        temporary.write_bytes(content)
        told.outside.add(version_of(content))
        exchange(os.fspath(temporary), os.fspath(file))
        told.replaced.add(version_of(temporary.read_bytes()))
        temporary.unlink()
        time.sleep(chance.uniform(0, 0.05))


def check_out(place: Workplace, told: Told, stop: threading.Event) -> None:
    """Somebody who wants the committed files back, by git."""
    chance = random.Random(-2)
    while not stop.wait(chance.uniform(0.2, 1)):
        place.git("checkout", "-q", "main", "--", *chance.sample(GITS, 5))
        told.checkouts += 1


def acknowledged_are_in(log: Iterable[Transaction], told: Told) -> None:
    made = {(tx.seq, change.path): change.version for tx in log for change in tx.files}
    for seq, path, version, _ in told.acknowledged:
        assert made.get((seq, path)) == version


def marks_are_in(place: Workplace, told: Told) -> None:
    """Each version that was acknowledged is in the store, and holds what the client wrote."""
    asked = "".join(f"{version}\n" for _, _, version, _ in told.acknowledged)
    done = subprocess.run(
        ["git", "--git-dir", str(place.store), "cat-file", "--batch"],
        input=asked.encode(), capture_output=True, check=True,
    )  # fmt: skip
    at = 0
    for _, path, version, mark in told.acknowledged:
        head, at = done.stdout[at : done.stdout.index(b"\n", at)], done.stdout.index(b"\n", at) + 1
        assert head.startswith(version.encode() + b" blob "), f"{path}: {head!r}"
        size = int(head.rpartition(b" ")[2])
        assert mark.encode() + b"\n" in done.stdout[at : at + size]
        at += size + 1
