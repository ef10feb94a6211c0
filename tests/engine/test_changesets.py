"""Tests of `engine.changesets`: staged edits are in memory, and have a limit."""

from __future__ import annotations

import pytest

from editd.engine.changesets import BYTES_MAX, BYTES_OF_ONE_MAX, EDIT_BYTES, Changesets, bytes_of
from editd.engine.commands import reader_of
from editd.engine.open_items import OPEN_OF_ONE_MAX
from editd.errors import Overloaded
from editd.values.transaction import Authorship
from editd.wire.messages import Tool, Write

NOBODY = Authorship("nobody", None)
TEXT = "x" * (BYTES_OF_ONE_MAX // 4 - 10_000)  # one and the same: only its length counts


def test_one_connection_leaves_changesets_for_the_others() -> None:
    changesets = Changesets()
    for _ in range(OPEN_OF_ONE_MAX):
        changesets.begin(1, reader_of("one"), NOBODY)
    with pytest.raises(Overloaded):
        changesets.begin(1, reader_of("one"), NOBODY)
    changesets.begin(2, reader_of("other"), NOBODY)
    changesets.end_all(1)
    changesets.begin(1, reader_of("one"), NOBODY)


def test_the_bytes_of_one_connection_and_of_all_of_them_have_a_limit() -> None:
    changesets = Changesets()
    edits = (Write(path="a", content=TEXT),)
    for owner in range(BYTES_MAX // BYTES_OF_ONE_MAX):
        for _ in range(4):
            changesets.check_room(owner, edits)
            changesets.add(changesets.begin(owner, reader_of("s"), NOBODY), owner, edits)
        with pytest.raises(Overloaded):
            changesets.check_room(owner, edits)
    with pytest.raises(Overloaded):
        changesets.check_room(99, edits)
    changesets.end_all(0)
    changesets.check_room(99, edits)


def test_the_text_in_a_tools_arguments_counts() -> None:
    call = Tool(dialect="claude", tool="Edit", args={"edits": [{"old_string": "x" * 5000}]})
    assert 5000 < bytes_of((call,)) < 5000 + 4 * EDIT_BYTES
