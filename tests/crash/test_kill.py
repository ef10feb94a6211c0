"""SIGKILL at any moment: each transaction is whole or not there, and there where it was acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import pytest

from editd.values.content import Version, version_of
from editd.wire.messages import AnyEdit, Delete
from editd_client.client import Client
from editd_client.errors import Unreachable
from torment import fsck, held, replayed, strays, transactions, versions
from workplace import Workplace, write

WRITERS = 4
SHARED = [f"shared/{number}.txt" for number in range(8)]
KILLS, KILLS_LONG = 12, 200
LOAD_SECONDS_MAX = 0.25  # under load, before the kill
START_SECONDS_MAX = 0.3  # of a start that is itself killed


@dataclass
class Writer:
    """One author: its transactions all write one serial number into several files, shared and its own."""

    name: str
    chance: random.Random
    number: int = 0
    own: list[str] = field(default_factory=list)
    asked: dict[str, dict[str, Version | None]] = field(default_factory=dict)  # serial → what it is to make
    acknowledged: dict[str, int] = field(default_factory=dict)  # serial → seq
    unsure: tuple[str, list[AnyEdit]] | None = None  # asked for, and no answer came

    def run(self, socket: str) -> None:
        """Ask for one transaction after another until the daemon dies."""
        try:
            with Client(socket) as client:
                if self.unsure is not None:
                    self.ask(client, *self.unsure)
                while True:
                    self.ask(client, *self.make())
        except Unreachable:
            return

    def make(self) -> tuple[str, list[AnyEdit]]:
        self.number += 1
        serial = f"{self.name}-{self.number}"
        created = f"{self.name}/{self.number}.txt"
        written = [*self.chance.sample(SHARED, self.chance.randint(2, 4)), created]
        edits: list[AnyEdit] = [write(path, f"{serial}\n") for path in written]
        made: dict[str, Version | None] = dict.fromkeys(written, version_of(f"{serial}\n".encode()))
        if len(self.own) > 3:
            deleted = self.own.pop(self.chance.randrange(len(self.own)))
            edits.append(Delete(path=deleted))
            made[deleted] = None
        self.own.append(created)
        self.asked[serial] = made
        self.unsure = serial, edits
        return serial, edits

    def ask(self, client: Client, serial: str, edits: list[AnyEdit]) -> None:
        done = client.apply(edits, message=serial, request_id=serial).transaction
        assert done is not None
        self.acknowledged[serial] = done.seq
        self.unsure = None


def load(place: Workplace, writers: list[Writer], seconds: float) -> None:
    """Let all writers write for so long, then kill the daemon under them."""
    threads = [threading.Thread(target=writer.run, args=(place.socket,)) for writer in writers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    place.kill()
    for thread in threads:
        thread.join()


def start_and_kill(place: Workplace, seconds: float) -> None:
    """A daemon that is killed while it starts, perhaps while it recovers."""
    argv = [sys.executable, "-m", "editd", "--foreground", "-C", str(place.root)]
    place.process = subprocess.Popen(argv, env=place.environment, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    place.kill()


def verify(place: Workplace, client: Client, writers: list[Writer]) -> None:
    made = transactions(client)
    assert [transaction.seq for transaction in made] == list(range(1, len(made) + 1))
    asked = {serial: what for writer in writers for serial, what in writer.asked.items()}
    for transaction in made:
        assert transaction.kind == "edit", f"nobody else has written here: {transaction}\n{place.log()}"
        whole = {change.path: change.version for change in transaction.files}
        assert whole == asked[transaction.message], f"{transaction.message} is half there"
    seqs = {transaction.message: transaction.seq for transaction in made}
    assert len(seqs) == len(made), "a request took effect twice"
    for writer in writers:
        assert writer.acknowledged.items() <= seqs.items()
        lacking = asked.keys() & writer.asked.keys() - seqs.keys()
        assert lacking <= ({writer.unsure[0]} if writer.unsure is not None else set())
    assert versions(held(place)) == replayed(made, {})


@pytest.mark.timeout(3600)
def test_200_kills_under_load_leave_every_transaction_whole_or_not_there(
    place: Workplace, is_long: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    writers = [Writer(f"w{number}", random.Random(chance.random())) for number in range(WRITERS)]
    for kill in range(KILLS_LONG if is_long else KILLS):
        if chance.random() < 0.3:
            start_and_kill(place, chance.uniform(0, START_SECONDS_MAX))
        with place.start() as client:
            client.settle()
            assert strays(place.root) == []
            verify(place, client, writers)
            if not is_long or kill % 10 == 0:
                assert client.check().problems == []
        load(place, writers, chance.uniform(0, LOAD_SECONDS_MAX))
    with place.start() as client:
        verify(place, client, writers)
        for writer in writers:
            if writer.unsure is not None:
                writer.ask(client, *writer.unsure)
        client.settle()
        verify(place, client, writers)
        assert client.check().problems == []
        made = client.status().head
    place.stop()
    fsck(place)
    assert strays(place.root) == []
    assert made > (KILLS_LONG if is_long else KILLS), "there must have been a load"
    assert int(place.git("rev-list", "--count", "history", store=True)) == made + 1
