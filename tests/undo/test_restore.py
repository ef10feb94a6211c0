"""Restore, through the socket: back to a transaction or a time, of everything or of some paths."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Chmod, Delete, Move, Symlink
from editd_client.errors import EditdError
from support.workplace import replace, write

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace

FIRST = {"a": "one\n", "b": "one\n", "src/c": "one\n"}


@pytest.fixture
def client(place: Workplace) -> Client:
    place.write(FIRST)
    (place.root / "exists").mkdir()
    client = place.start()
    client.settle()  # the baseline is taken
    return client


def change(client: Client, *edits: object) -> int:
    made = client.apply(list(edits)).transaction  # type: ignore[arg-type]
    assert made is not None
    return made.seq


def texts(place: Workplace) -> dict[str, str]:
    return {path: content.decode() for path, content in place.files().items()}


def test_the_workspace_is_put_back_to_what_it_held_after_a_transaction(
    place: Workplace, client: Client
) -> None:
    then = change(client, replace("a", "one", "two"), write("made", "x\n"))
    expected = texts(place)
    change(client, replace("a", "two", "three"), Delete(path="b"), Move(path="src/c", to="src/moved"))
    change(client, write("later", "x\n"), replace("made", "x", "y"))
    restored = client.restore(then)
    assert restored.transaction is not None
    assert restored.transaction.kind == "restore"
    assert restored.transaction.message == f"Restore transaction {then}"
    assert texts(place) == expected
    assert [made.seq for made in client.log(kind="restore").transactions] == [restored.transaction.seq]
    assert client.check().ok


def test_a_restore_is_undone_and_redone(place: Workplace, client: Client) -> None:
    change(client, replace("a", "one", "two"), Delete(path="b"), write("new", "x\n"))
    later = texts(place)
    client.restore(0)
    assert texts(place) == FIRST
    client.undo()
    assert texts(place) == later
    client.redo()
    assert texts(place) == FIRST


def test_some_paths_are_restored_and_the_others_stay(place: Workplace, client: Client) -> None:
    change(client, *(replace(path, "one", "two") for path in FIRST), write("src/new", "x\n"))
    client.restore(0, paths=["src", "a"])
    assert texts(place) == FIRST | {"b": "two\n"}


def test_a_time_stands_for_the_newest_transaction_until_then(place: Workplace, client: Client) -> None:
    first = change(client, replace("a", "one", "two"))
    when = client.show(first).transaction.time
    change(client, replace("a", "two", "three"))
    client.restore(when)
    assert texts(place)["a"] == "two\n"
    with pytest.raises(EditdError) as refused:
        client.restore("1999-12-31T23:59:59Z")
    assert refused.value.name == "unknown_transaction"


def test_a_file_that_the_history_never_saw_stays_and_so_does_what_git_ignores(
    place: Workplace, client: Client
) -> None:
    change(client, write(".gitignore", "*.log\n"))
    place.git("init", "-q")
    place.write({"build.log": "mine\n"})
    client.settle()
    then = client.status().head
    change(client, replace("build.log", "mine", "ours"), replace("a", "one", "two"))
    place.write({"other.log": "never seen\n"})
    client.restore(then)
    assert texts(place)["build.log"] == "mine\n", "it came into the history later, as it was"
    assert texts(place)["other.log"] == "never seen\n"
    client.restore(0, paths=["build.log"])
    assert texts(place)["build.log"] == "mine\n"


def test_what_others_wrote_just_before_is_recorded_first_and_put_back(
    place: Workplace, client: Client
) -> None:
    then = client.status().head
    place.write({"a": "outside\n", "fresh": "outside\n"})
    (place.root / "b").unlink()
    restored = client.restore(then)
    assert restored.transaction is not None
    assert texts(place) == FIRST
    client.undo(restored.transaction.seq)
    assert texts(place) == {"a": "outside\n", "fresh": "outside\n", "src/c": "one\n"}


def test_files_that_do_not_change_keep_their_times_and_their_inodes(place: Workplace, client: Client) -> None:
    change(client, replace("a", "one", "two"))
    change(client, replace("b", "one", "two"))
    change(client, replace("b", "two", "one"))
    before = {path: os.stat(place.root / path) for path in ("b", "src/c")}
    client.restore(0)
    for path, was in before.items():
        now = os.stat(place.root / path)
        assert (now.st_mtime_ns, now.st_ino) == (was.st_mtime_ns, was.st_ino), path
    assert client.restore(0).transaction is None, "nothing to change"


def test_modes_and_links_are_restored(place: Workplace, client: Client) -> None:
    then = change(client, Chmod(path="a", executable=True), Symlink(path="link", target="a"))
    change(client, Chmod(path="a", executable=False), Delete(path="link"))
    client.restore(then)
    assert os.access(place.root / "a", os.X_OK)
    assert os.readlink(place.root / "link") == "a"


def test_a_dry_run_shows_the_diff_and_changes_nothing(place: Workplace, client: Client) -> None:
    change(client, replace("a", "one", "two"))
    head = client.status().head
    shown = client.restore(0, dry_run=True)
    assert shown.transaction is None
    assert "-two\n+one\n" in str(shown.files[0].diff)
    assert (texts(place)["a"], client.status().head) == ("two\n", head)


def test_a_path_that_never_was_is_refused_and_a_known_one_without_changes_is_not(client: Client) -> None:
    change(client, replace("a", "one", "two"))
    for path in ("nowhere", "exists"):
        with pytest.raises(EditdError) as refused:
            client.restore(0, paths=["a", path])
        assert (refused.value.name, refused.value.data["path"]) == ("file_missing", path)
    assert client.restore(0, paths=["b", "src"]).transaction is None


def test_a_retry_of_a_restore_gives_the_first_answer(client: Client) -> None:
    change(client, replace("a", "one", "two"))
    first = client.restore(0, request_id="r")
    assert client.restore(0, request_id="r") == first
    assert client.status().head == (first.transaction.seq if first.transaction else None)


def test_folders_where_files_were_and_files_where_folders_were(place: Workplace, client: Client) -> None:
    then = client.status().head
    (place.root / "a").unlink()
    (place.root / "src/c").unlink()
    (place.root / "src").rmdir()
    place.write({"a/inside": "x\n", "src": "a file\n"})
    client.restore(then)
    assert texts(place) == FIRST
    client.undo()
    assert texts(place) == {"a/inside": "x\n", "src": "a file\n", "b": "one\n"}
