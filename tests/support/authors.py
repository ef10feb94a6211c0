"""Authors who write while a daemon dies: what each asked for, what was told, and what must then stand."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd.values.content import Version, version_of
from editd.wire.messages import AnyEdit, Delete
from editd_client.client import Client
from editd_client.errors import Unreachable
from support.crash_checks import held, replayed, transactions, versions
from support.workplace import write

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from editd.wire.messages import Transaction
    from support.workplace import Workplace

WRITERS = 4
SHARED = [f"shared/{number}.txt" for number in range(8)]


@dataclass
class Writer:
    """One author: its transactions all write one serial number into several files, shared and its own."""

    name: str
    chance: random.Random
    padding_bytes_max: int = 0  # of what a file holds beyond the serial number
    number: int = 0
    own: list[str] = field(default_factory=list)
    asked: dict[str, dict[str, Version | None]] = field(default_factory=dict)  # serial → what it is to make
    acknowledged: dict[str, int] = field(default_factory=dict)  # serial → seq
    answered_at: dict[str, float] = field(default_factory=dict)  # serial → time.monotonic()
    unsure: tuple[str, list[AnyEdit]] | None = None  # asked for, and no answer came

    def run(self, socket: str) -> None:
        """Ask for one transaction after another until the daemon dies."""
        try:
            with Client(socket, reconnect=False) as client:
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
        content = f"{serial}\n" * (1 + self.chance.randint(0, self.padding_bytes_max) // len(serial))
        edits: list[AnyEdit] = [write(path, content) for path in written]
        made: dict[str, Version | None] = dict.fromkeys(written, version_of(content.encode()))
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
        self.answered_at[serial] = time.monotonic()
        self.unsure = None


def load(place: Workplace, writers: list[Writer], seconds: float, kill: Callable[[], None]) -> None:
    """Let all writers write for so long, then kill the daemon under them."""
    threads = [threading.Thread(target=writer.run, args=(place.socket,)) for writer in writers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    kill()
    for thread in threads:
        thread.join()


def verify(place: Workplace, client: Client, writers: list[Writer]) -> None:
    """All that was acknowledged is there, once and whole, and the files hold what the history says."""
    verify_history(transactions(client), versions(held(place)), writers, place.log)


def verify_history(
    made: Sequence[Transaction],
    there: Mapping[str, Version],
    writers: Sequence[Writer],
    log: Callable[[], str],
    *,
    start: Mapping[str, Version] | None = None,
    is_known: Callable[[Transaction], bool] = lambda _made: False,
    is_there: Callable[[str], bool] = lambda _version: False,
) -> None:
    """Verify a history of these writers, from the files at its `start`, against the files that are there.

    `is_known` returns whether a transaction is of somebody else, who is known to have made it. `is_there`
    returns whether a content may have been in its file before the transaction, which then lacks the file.
    """
    assert [transaction.seq for transaction in made] == list(range(1, len(made) + 1))
    asked = {serial: what for writer in writers for serial, what in writer.asked.items()}
    by_writers = [transaction for transaction in made if not is_known(transaction)]
    for transaction in by_writers:
        assert transaction.kind == "edit", f"nobody else has written here: {transaction}\n{log()}"
        whole = {change.path: change.version for change in transaction.files}
        wanted = asked[transaction.message]
        is_whole = whole.keys() <= wanted.keys() and all(
            whole[path] == version if path in whole else version is not None and is_there(version)
            for path, version in wanted.items()
        )
        assert is_whole, f"{transaction.message} is half there"
    seqs = {transaction.message: transaction.seq for transaction in by_writers}
    assert len(seqs) == len(by_writers), "a request took effect twice"
    for writer in writers:
        assert writer.acknowledged.items() <= seqs.items()
        lacking = asked.keys() & writer.asked.keys() - seqs.keys()
        assert lacking <= ({writer.unsure[0]} if writer.unsure is not None else set())
    told = replayed(made, dict(start or {}))
    wrong = {path: (there.get(path), told.get(path)) for path in there.keys() | told.keys()}
    wrong = {path: both for path, both in wrong.items() if both[0] != both[1]}
    assert not wrong, f"{wrong}\n{log()}"
