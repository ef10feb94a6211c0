"""methods.blame and store.line_blame: each line has the transaction that it came with."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.messages import Delete, Move
from editd_client.errors import EditdError
from support.workplace import Workplace, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    files: dict[str, bytes | str] = {
        "base.txt": "one\ntwo\nthree\n", ".gitignore": "ignored\n", "ignored": "x\n", "nul": b"a\0b\n",
    }  # fmt: skip
    with workplace(tmp_path_factory.mktemp("blaming") / "place", files) as made:
        made.git("init", "-q")
        made.start().close()
        yield made


@pytest.fixture
def client(shared: Workplace) -> Iterator[Client]:
    with shared.client() as made:
        made.hello("blamer")
        yield made


def make(client: Client, *edits: Any, **more: Any) -> int:
    transaction = client.apply(list(edits), **more).transaction
    assert transaction is not None
    return transaction.seq


def undo(client: Client, **more: Any) -> int:
    transaction = client.undo(**more).transaction
    assert transaction is not None
    return transaction.seq


def seqs(client: Client, path: str) -> list[int]:
    result = client.blame(path)
    assert [line.line for line in result.lines] == list(range(1, len(result.lines) + 1))
    assert result.version == client.stat([path]).files[0].version
    return [line.seq for line in result.lines]


def test_lines_are_those_of_who_wrote_them_and_the_baselines(client: Client) -> None:
    first = make(client, replace("base.txt", "two\n", "2\n"), actor="ann", session="s")
    second = make(client, replace("base.txt", "three\n", "three\nfour\n"), actor="bob")
    found = client.blame("base.txt").lines
    assert [(line.seq, line.session) for line in found] == [
        (0, None),
        (first, "s"),
        (0, None),
        (second, None),
    ]
    assert [found[1].actor, found[3].actor] == ["ann", "bob"]
    assert found[1].time == client.show(first).transaction.time


def test_a_file_is_followed_through_its_moves(client: Client) -> None:
    one = make(client, write("moved/a", "1\n2\n3\n"))
    two = make(client, Move(path="moved/a", to="moved/b"), replace("moved/b", "2\n", "two\n"))
    make(client, Move(path="moved/b", to="moved/c"))
    three = make(client, replace("moved/c", "3\n", "three\n"))
    other = make(client, write("moved/a", "1\n2\n3\n"))
    assert seqs(client, "moved/c") == [one, two, three]
    assert seqs(client, "moved/a") == [other] * 3


def test_a_file_that_was_deleted_and_made_again_is_a_new_one(client: Client) -> None:
    make(client, write("again", "1\n"))
    make(client, Delete(path="again"))
    last = make(client, write("again", "1\n2\n"))
    assert seqs(client, "again") == [last, last]


def test_a_file_that_returns_to_a_version_it_had_keeps_its_authors(shared: Workplace, client: Client) -> None:
    one = make(client, write("stashed", "1\n2\n3\n"))
    two = make(client, replace("stashed", "2\n", "two\n"))
    text = (shared.root / "stashed").read_text()
    for other in ("1\n2\n3\n", "another\n", None):
        if other is None:
            (shared.root / "stashed").unlink()
        else:
            shared.write({"stashed": other})
        client.settle()
        if other == "1\n2\n3\n":
            assert seqs(client, "stashed") == [one, one, one]
        shared.write({"stashed": text})
        client.settle()
        assert seqs(client, "stashed") == [one, two, one]
    make(client, replace("stashed", "3\n", "three\n"))
    client.restore(two)
    assert seqs(client, "stashed") == [one, two, one]


def test_git_stash_and_pop_and_a_checkout_there_and_back_keep_the_authors(tmp_path: Path) -> None:
    with workplace(tmp_path / "place", {"a": "one\ntwo\n"}) as place:
        place.git("init", "-q")
        place.git("add", "a")
        place.git("commit", "-q", "-m", "first")
        with place.start() as client:
            mine = make(client, replace("a", "two\n", "2\n"))
            place.git("stash")
            client.settle()
            assert seqs(client, "a") == [0, 0]
            place.git("stash", "pop")
            client.settle()
            assert seqs(client, "a") == [0, mine]
            place.git("checkout", "-q", "-b", "other")
            place.git("commit", "-q", "-a", "-m", "mine")
            place.git("checkout", "-q", "-")
            client.settle()
            assert seqs(client, "a") == [0, 0]
            place.git("checkout", "-q", "-")
            client.settle()
            assert seqs(client, "a") == [0, mine]


def test_what_an_undo_brings_back_stays_with_who_wrote_it(client: Client) -> None:
    one = make(client, write("undone", "1\n2\n3\n"))
    two = make(client, replace("undone", "2\n", "two\n"))
    undo(client, tx=two)
    assert seqs(client, "undone") == [one, one, one]
    redo = client.redo().transaction
    assert redo is not None
    assert seqs(client, "undone") == [one, two, one]
    gone = make(client, Delete(path="undone"))
    undo(client, tx=gone)
    assert seqs(client, "undone") == [one, two, one]


def test_what_an_undo_brings_back_into_a_moved_file_stays_with_who_wrote_it(client: Client) -> None:
    one = make(client, write("was/here", "1\n2\n3\n"))
    two = make(client, replace("was/here", "2\n", "two\n"))
    make(client, Move(path="was/here", to="is/here"))
    make(client, Move(path="is/here", to="is/there"))
    undo(client, tx=two)
    assert seqs(client, "is/there") == [one, one, one]


def test_what_an_undo_takes_back_from_where_it_had_overwritten_stays_with_who_wrote_it(
    client: Client,
) -> None:
    one = make(client, write("over", "1\n2\n"), write("under", "x\n"))
    moved = make(client, Move(path="over", to="under", overwrite=True))
    two = make(client, replace("under", "2\n", "two\n"))
    undo(client, tx=moved)
    assert seqs(client, "over") == [one, two]
    assert seqs(client, "under") == [one]


def test_lines_that_a_file_had_before_another_was_moved_over_it_stay_with_who_wrote_them(
    client: Client,
) -> None:
    one = make(client, write("kept", "1\n2\n3\n"))
    two = make(client, write("kept.new", "1\ntwo\n3\n"))
    make(client, Move(path="kept.new", to="kept", overwrite=True))
    assert seqs(client, "kept") == [one, two, one]


def test_an_undo_among_later_edits_gives_each_line_to_its_own(client: Client) -> None:
    one = make(client, write("among", "".join(f"{n}\n" for n in range(8))))
    two = make(client, replace("among", "1\n", "one\n"))
    three = make(client, replace("among", "6\n", "six\n"))
    undo(client, tx=two)
    assert seqs(client, "among") == [one, one, one, one, one, one, three, one]


def test_what_was_written_from_outside_is_the_outside_transactions(shared: Workplace, client: Client) -> None:
    one = make(client, write("hand", "1\n2\n"))
    shared.write({"hand": "1\nby hand\n2\n"})
    found = client.blame("hand").lines
    assert [line.seq for line in found] == [one, one + 1, one]
    assert found[1].actor == "outside"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("not-there", "file_missing"), ("ignored", "path_ignored"), ("nul", "not_text"),
        (".", "invalid_params"), ("../x", "path_outside"),
    ],
)  # fmt: skip
def test_what_has_no_lines_or_no_history_is_refused(client: Client, path: str, name: str) -> None:
    with pytest.raises(EditdError) as refused:
        client.blame(path)
    assert refused.value.name == name


def test_a_folder_has_no_lines(client: Client) -> None:
    make(client, write("folder/file", "1\n"))
    with pytest.raises(EditdError) as refused:
        client.blame("folder")
    assert refused.value.name == "not_a_file"


def test_an_empty_file_has_no_lines_to_blame_for(client: Client) -> None:
    make(client, write("empty", ""))
    assert client.blame("empty").lines == []


def test_it_is_what_git_blame_says_of_the_history(shared: Workplace, client: Client) -> None:
    """Of random edits with no undo among them: there git and we mean the same."""
    chance = random.Random(4)
    lines = [f"line {n}\n" for n in range(30)]
    by_id = {}
    for step in range(60):
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(lines))
            lines[place : place + chance.randint(0, 2)] = [f"{step}-{chance.random()}\n"]
        transaction = client.apply([write("random", "".join(lines))]).transaction
        assert transaction is not None
        by_id[transaction.id] = transaction.seq
    assert client.check().ok  # packs all there is, for git to read
    told = shared.git("blame", "--porcelain", "history", "--", "random", store=True).splitlines()
    heads = [line.split() for line in told if len(line.split()[0]) == 40 and line.count(" ") in (2, 3)]
    by_git = {int(head[2]): by_id[head[0]] for head in heads}
    assert seqs(client, "random") == [by_git[number] for number in range(1, len(lines) + 1)]


def test_a_thousand_versions_are_gone_through_while_others_edit(tmp_path: Path) -> None:
    with workplace(tmp_path / "place") as place, place.start() as client:
        lines = [f"{n}\n" for n in range(200)]
        wrote = [0] * 200
        for step in range(1, 1001):
            lines[step % 199] = f"{step % 199} in {step}\n"
            wrote[step % 199] = step
            make(client, write("much", "".join(lines)))
        wrote[199] = 1
        edits = 0
        is_over = threading.Event()

        def edit() -> None:
            nonlocal edits
            with place.client() as mine:
                while not is_over.is_set():
                    make(mine, write("other", f"{edits}\n"))
                    edits += 1

        thread = threading.Thread(target=edit)
        thread.start()
        try:
            while not edits:
                time.sleep(0.001)
            before = edits
            assert seqs(client, "much") == wrote
            assert edits > before + 2, "one in each slice of 20 ms"
        finally:
            is_over.set()
            thread.join()
