"""remote.waiting_list: which transactions depend on a path, and the order of those that wait."""

from __future__ import annotations

import pytest

from editd.remote.entries import Tentative
from editd.remote.waiting_list import WaitingList
from editd.values.content import Change, Entry, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId

FILE = Entry(0o100644, version_of(b""))


def waiting(seq: int, *paths: str) -> Tentative:
    changes = tuple(Change(WorkspacePath.parse(path), None, FILE) for path in paths)
    return Tentative(CommitId(str(seq)), "host", "edit", Authorship("ann"), 0, changes, seq=seq)


@pytest.fixture
def listed() -> WaitingList:
    made = WaitingList()
    for one in (waiting(1, "a"), waiting(2, "a", "b"), waiting(3, "b"), waiting(4, "d/e/f"), waiting(5, "c")):
        made.add(one)
    return made


@pytest.mark.parametrize(
    ("path", "seqs"),
    [("a", [1, 2, 3]), ("b", [1, 2, 3]), ("c", [5]), ("d", [4]), ("d/e/f", [4]), ("d/e/f/g", [4]), ("x", [])],
)
def test_a_transaction_depends_on_its_paths_and_on_those_of_connected_ones(
    listed: WaitingList, path: str, seqs: list[int]
) -> None:
    _, found = listed.connected([WorkspacePath.parse(path)])
    assert [one.seq for one in found] == seqs


def test_a_transaction_that_is_put_back_has_its_place_and_its_paths_again(listed: WaitingList) -> None:
    removed = [one for one in listed if one.seq in (2, 4)]
    for one in removed:
        listed.remove(one)
    assert [one.seq for one in listed] == [1, 3, 5]
    paths, found = listed.connected([WorkspacePath.parse("a")])
    assert ([path.text for path in paths], [one.seq for one in found]) == (["a"], [1])
    assert listed.connected([WorkspacePath.parse("d")])[1] == []
    listed.put_back(removed)
    assert [one.seq for one in listed] == [1, 2, 3, 4, 5]
    assert [one.seq for one in listed.connected([WorkspacePath.parse("d")])[1]] == [4]


@pytest.mark.parametrize(
    ("paths", "is_first"),
    [
        (["x"], True), (["a"], False), (["x", "b"], False), (["d/e/f"], False), (["d"], False),
        (["d/e"], False), (["d/e/f/g"], False), (["d/e/g"], True), (["x", "d"], False),
    ],
)  # fmt: skip
def test_a_transaction_is_first_unless_an_earlier_one_touches_its_files_or_leaves_no_room_for_them(
    listed: WaitingList, paths: list[str], is_first: bool
) -> None:
    newest = waiting(6, *paths)
    listed.add(newest)
    assert listed.is_first(newest) == is_first
    (first,) = [one for one in listed if one.seq == 1]
    assert listed.is_first(first), "a later one takes no place"
