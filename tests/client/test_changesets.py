"""editd_client.changesets: what a transaction reads is what its edits are made for."""

# ruff: noqa: PT012  # the end of the block is what raises

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd_client.client import Client
from editd_client.errors import EditdError

if TYPE_CHECKING:
    from support.workplace import Workplace


def test_a_transaction_is_made_for_what_was_read_in_it_or_not_made_at_all(place: Workplace) -> None:
    place.write({"a": "1\n", "b": "1\n"})
    with place.start() as other, Client(place.socket) as client:
        with pytest.raises(EditdError) as raised, client.transaction("stale at the end") as t:
            t.read("a")
            t.replace("a", "1", "2")
            assert t.read("a").content == "2\n"
            other.read("a")
            place.write({"a": "1\ntheirs\n"})
        assert raised.value.name == "stale"
        assert t.result.transaction is None
        with pytest.raises(EditdError) as raised, client.transaction("it was not there") as t:
            with pytest.raises(EditdError):
                t.read("new")
            place.write({"new": "theirs\n"})
            t.write("new", "mine\n")
        assert raised.value.name == "file_exists"
        with client.transaction("merged", on_stale="merge") as t:
            t.read("a")
            place.write({"a": "1\ntheirs\nmore\n"})
            t.patch("--- a/b\n+++ b/b\n@@ -1,1 +1,1 @@\n-1\n+2\n")
            t.replace("a", "1\n", "2\n")
        assert (t.result.merged, client.read("a").content) == (["a"], "2\ntheirs\nmore\n")
        client.settle()  # `new` may not be recorded yet
        head = client.status().head
        with pytest.raises(ZeroDivisionError), client.transaction("given up") as t:
            t.delete("a")
            t.chmod("b", executable=True)
            raise ZeroDivisionError
        with client.transaction("empty") as t:
            t.read("a")
        assert t.result.transaction is None
        assert client.status().head == head
