"""Undo is the same everywhere: its links survive a leave, and a part that stays on a host is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET

from hosts import exchange, hosts
from workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd.wire.messages import Transaction
    from editd_client.client import Client

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES, "b.txt": LINES}


def made(client: Client, path: str, old: str, new: str) -> Transaction:
    transaction = client.apply([replace(path, old, new, guard="text")]).transaction
    assert transaction is not None
    return transaction


def shown(client: Client) -> list[tuple[object, ...]]:
    """Return the history of a host, with the links of its undos and its numbers in the log."""
    log = client.log(limit=100).transactions
    return [(one.seq, one.kind, one.number, one.host, one.undone_by, tuple(one.undoes)) for one in log]


def is_undone(client: Client, reference: int | str) -> bool:
    return client.show(reference).transaction.undone_by is not None


def test_the_links_of_undos_survive_a_leave_and_a_join_of_the_same_log(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        mine = made(one, "a.txt", "line 1\n", "1\n")
        undone = made(one, "a.txt", "line 3\n", "3\n")
        exchange(one, other)
        theirs = made(other, "b.txt", "line 1\n", "1\n")
        exchange(one, other)
        back = one.undo(undone.seq).transaction
        assert back is not None
        exchange(one, other)
        before = shown(one)
        one.remote_leave()
        one.remote_join(str(server))
        exchange(one, other)
        assert shown(one) == before

        other.undo(f"@{one.show(mine.seq).transaction.number}")
        exchange(one, other)
        assert is_undone(one, mine.seq), "an undo elsewhere does not reach the transaction"
        one.undo(one.show(theirs.id).transaction.seq)
        exchange(one, other)
        assert is_undone(other, theirs.seq), "an undo here does not reach the others"
        other.undo(back.id)
        exchange(one, other)
        assert not is_undone(one, undone.seq), "a redo elsewhere does not reach the transaction"
        assert places[0].files() == places[1].files()

        one.close()
        places[0].stop()
        with places[0].start() as again:
            other.undo(other.show(mine.id).transaction.undone_by)
            exchange(again, other)
            assert not is_undone(again, mine.seq), "a restart has lost the links"
            assert again.check().problems == []
