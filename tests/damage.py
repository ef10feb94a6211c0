"""A prepared history to be damaged: made once, copied for each case; and what must hold of every case."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from editd.wire.messages import Delete, Move
from editd_client.errors import EditdError
from torment import history_files, packer, wait_until
from workplace import Workplace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import Transaction
    from editd_client.client import Client

BASELINE = {"tracked.txt": "as first seen\n", "folder/deep/tracked.txt": "deep\n"}
PACKED = 5  # transactions that are in the store
HOT = 4  # and those that are only in the journal


@dataclass(frozen=True, slots=True)
class Prepared:
    """A history with a baseline, packed transactions and a hot journal; nobody has it open."""

    folder: Path
    transactions: list[Transaction]
    contents: dict[tuple[int, str], str]  # what a path held after a transaction that touched it

    def contents_of(self, seq: int) -> dict[str, str]:
        """What the paths that a transaction touched held after it."""
        return {path: content for (at, path), content in self.contents.items() if at == seq}


def prepare(folder: Path) -> Prepared:
    """Make it. The daemon is killed, and its packing process before, so that the journal stays hot."""
    with workplace(folder, BASELINE) as place:
        with place.start() as client:
            client.settle()
            stopped = _edit(place, client)
            transactions = client.log(limit=1000).transactions[::-1]
            contents = {
                (tx.seq, change.path): client.read(change.path, at=tx.seq).content
                for tx in transactions
                for change in tx.files
                if change.version is not None
            }
        place.kill()
        os.kill(stopped, signal.SIGKILL)
    return Prepared(folder, transactions, contents)


def _edit(place: Workplace, client: Client) -> int:
    client.apply([write("a", "a1\n"), write("folder/b", "b1\n")], message="first")
    client.apply([write("a", "a2\n" * 40)], session="s", request_id="r")
    wait_until(lambda: client.status().journal["unpacked"] == 0, "not packed")
    client.apply([Move(path="folder/b", to="moved")])
    client.apply([write("tracked.txt", "changed\n")])
    client.undo()
    wait_until(lambda: client.status().journal["unpacked"] == 0, "not packed")
    stopped = packer(place)
    os.kill(stopped, signal.SIGSTOP)
    client.apply([write("a", "a3\n"), write("new", "new1\n")])
    client.apply([write("new", "new2\n" * 100)])
    client.apply([Delete(path="moved")])
    client.apply([write("a", "a4\n")])
    client.log(limit=1)  # so that the index is written
    return stopped


@contextlib.contextmanager
def copy(prepared: Prepared) -> Iterator[Workplace]:
    """The prepared history to do with as one likes; afterwards it is as it was."""
    kept = prepared.folder.with_name(prepared.folder.name + ".kept")
    shutil.copytree(prepared.folder, kept, symlinks=True)
    with tempfile.TemporaryDirectory(prefix="editd-run-") as runtime:
        place = Workplace(prepared.folder, Path(runtime))
        try:
            yield place
        finally:
            place.end()
            shutil.rmtree(prepared.folder)
            kept.rename(prepared.folder)


def state_files(place: Workplace) -> dict[str, bytes]:
    """Journal and store, byte by byte."""
    return history_files(place)


def readable(client: Client, prepared: Prepared) -> dict[int, str]:
    """Which transactions cannot be shown or read, by seq, with why."""
    failed: dict[int, str] = {}
    for tx in prepared.transactions:
        try:
            client.show(tx.seq, diff=True)
            for change in tx.files:
                if change.version is not None:
                    found = client.read(change.path, at=tx.seq).content
                    if found != prepared.contents[tx.seq, change.path]:
                        failed[tx.seq] = f"{change.path} is not what it was"
        except EditdError as error:
            failed[tx.seq] = f"{error.name}: {error.message}"
    return failed
