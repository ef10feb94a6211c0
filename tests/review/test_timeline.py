"""The rows of the timeline: unreviewed work, and the refusals between the transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from editd_client.review.query import TransactionQuery
from editd_client.review.timeline import RefusalRow, TimelineRow, matching_refusals, with_refusals
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd_client.client import Client
    from support.workplace import Workplace


def refuse(client: Client, path: str) -> None:
    with pytest.raises(EditdError):
        client.apply([replace(path, "nowhere", "x")])


def names(rows: Sequence[TimelineRow | RefusalRow]) -> list[str]:
    return [f"r{row.number}" if isinstance(row, RefusalRow) else f"t{row.seq}" for row in rows]


def test_refusals_are_between_the_transactions_of_their_time(place: Workplace) -> None:
    place.write({"a": "x\n", "src/b": "x\n"})
    with place.start() as client:
        client.settle()
        client.session_open("agent", actor="claude")
        refuse(client, "a")
        client.apply([write("c", "x\n")])
        refuse(client, "src/b")
        refuse(client, "a")
        client.apply([write("d", "x\n")])
        rows = [TimelineRow.of(one) for one in client.log(brief=True).transactions]
        refusals = [RefusalRow.of(one) for one in client.log_refusals().refusals]
        assert names(with_refusals(rows, refusals, is_end=True)) == ["t2", "r3", "r2", "t1", "r1", "t0"]
        assert names(with_refusals(rows[:2], refusals, is_end=False)) == ["t2", "r3", "r2", "t1"]
        assert names(with_refusals(rows[:2], refusals, is_end=True)) == ["t2", "r3", "r2", "t1", "r1"]
        for text, numbers in {
            "": [3, 2, 1], "session:agent": [3, 2, 1], "session:b": [], "path:src": [2],
            "path:a path:src": [3, 2, 1], "kind:edit": [], "is:unreviewed": [], "word": [],
        }.items():  # fmt: skip
            found = matching_refusals(refusals, TransactionQuery.parse(text))
            assert [one.number for one in found] == numbers, text


def test_work_of_an_agent_is_unreviewed_until_a_person_has_seen_it(place: Workplace) -> None:
    place.write({"a": "x\n"})
    with place.start() as client, place.client() as ann:
        client.settle()
        ann.hello("ann")
        ann.apply([write("own", "x\n")])
        client.session_open("agent", actor="claude")
        client.apply([write("c", "x\n")])
        client.apply([write("d", "x\n")])
        client.undo(3)
        rows = {row.seq: row for row in map(TimelineRow.of, client.log(brief=True).transactions)}
        listed = client.log(**TransactionQuery.parse("is:unreviewed").params, brief=True).transactions
        assert [seq for seq, row in rows.items() if row.is_unreviewed] == [one.seq for one in listed]
        assert rows[2].is_unreviewed
