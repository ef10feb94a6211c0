"""`log` in brief, with lines and with text, `log.count`, and events in brief, through the real socket."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET

from editd.wire import messages
from editd_client.errors import EditdError
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    with place.start() as made:
        made.settle()
        made.apply([write("a", "1\n2\n3\n"), write("b", "1\n")], message="Add A and b")
        made.apply([replace("a", "2\n", "two\nand a half\n")], message="add to a: 100%")
        made.apply([messages.Move(path="a", to="z"), write("c", "1\n")], message="move")
        yield made
    place.stop()


def test_a_brief_log_counts_the_files_and_names_the_first(client: Client) -> None:
    whole = client.log().transactions
    brief = client.log(brief=True).transactions
    assert [tx.seq for tx in brief] == [tx.seq for tx in whole]
    assert [tx.files_count for tx in brief] == [len(tx.files) for tx in whole]
    assert [tx.path for tx in brief] == [tx.files[0].path if tx.files else None for tx in whole]
    assert not any(tx.files for tx in brief)
    assert {tx.files_count for tx in whole} == {UNSET}


def test_a_brief_log_has_no_files_on_the_wire(place: Workplace, client: Client) -> None:
    assert client.log_count().count == 4
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(place.socket)
        stream.sendall(b'{"id": 1, "method": "log", "params": {"brief": true, "limit": 1}}\n')
        with stream.makefile() as answers:
            (said,) = json.loads(answers.readline())["result"]["transactions"]
    assert "files" not in said
    assert (said["files_count"], said["path"]) == (2, "c")


def test_the_first_path_is_not_that_of_a_file_that_was_moved_away(client: Client) -> None:
    client.apply([write("m", "1\n")])
    client.apply([messages.Move(path="b", to="n"), replace("m", "1", "2")])
    (newest,) = client.log(limit=1, brief=True).transactions
    assert (newest.files_count, newest.path) == (2, "m")


def test_stat_counts_the_lines_also_of_what_was_undone(client: Client) -> None:
    client.undo(2)
    counted = {tx.seq: (tx.added, tx.deleted) for tx in client.log(stat=True).transactions}
    assert counted == {0: (0, 0), 1: (4, 0), 2: (2, 1), 3: (1, 0), 4: (1, 2)}
    brief = client.log(stat=True, brief=True, limit=1).transactions[0]
    assert (brief.added, brief.deleted, brief.files_count) == (1, 2, 1)


def test_stat_of_too_many_transactions_is_refused(client: Client) -> None:
    with pytest.raises(EditdError, match="at most 200") as refused:
        client.log(stat=True, limit=201)
    assert refused.value.name == "invalid_params"


@pytest.mark.parametrize(
    ("text", "found"),
    [("add", [2, 1]), ("ADD a", [1]), ("100%", [2]), ("%", [2]), ("_", []), ("", [3, 2, 1, 0])],
)
def test_grep_finds_text_in_messages(client: Client, text: str, found: list[int]) -> None:
    assert [tx.seq for tx in client.log(grep=text).transactions if tx.seq or not text] == found


def test_a_count_is_that_of_the_log(client: Client) -> None:
    client.apply([write("d", "1\n")], actor="ann")
    wanted: list[dict[str, Any]] = [
        {}, {"actor": "ann"}, {"path": "a"}, {"grep": "add"}, {"before": 3, "after": 1}, {"kind": "edit"},
    ]  # fmt: skip
    for asked in wanted:
        count = client.log_count(**asked)
        assert (count.count, count.head) == (len(client.log(**asked).transactions), 4)


def test_a_brief_subscriber_gets_transactions_without_files(place: Workplace, client: Client) -> None:
    with (
        place.client() as other,
        other.subscribe(since=2, brief=True) as brief,
        client.subscribe(since=2) as whole,
    ):
        client.apply([write("d", "1\n"), write("e", "1\n")])
        for _ in range(2):
            short, long = brief.wait(10), whole.wait(10)
            assert short is not None
            assert short.transaction is not None
            assert long is not None
            assert long.transaction is not None
            assert short.transaction.seq == long.transaction.seq
            assert short.transaction.files == []
            assert short.transaction.files_count == len(long.transaction.files) == 2
            assert short.transaction.path == long.transaction.files[0].path
