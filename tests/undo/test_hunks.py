"""An undo of some hunks of a transaction, through the real socket."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.codec import encode_json
from editd.wire.messages import Chmod, Delete, Move
from editd_client.errors import EditdError
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from editd.wire.messages import ShowResult
    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"line {n}\n" for n in range(1, 31))


@pytest.fixture
def client(place: Workplace) -> Client:
    place.write({"a": LINES, "src/b": LINES})
    return place.start()


def change(client: Client, *edits: object) -> int:
    made = client.apply(list(edits)).transaction  # type: ignore[arg-type]
    assert made is not None
    return made.seq


def three_hunks(client: Client, path: str = "a") -> int:
    """Change the lines 5, 15 and 25 of a file."""
    return change(client, *(replace(path, f"line {n}\n", f"changed {n}\n") for n in (5, 15, 25)))


def changed(place: Workplace, path: str = "a") -> list[int]:
    """Return the numbers of the lines that `three_hunks` changed and that nobody has undone."""
    lines = (place.root / path).read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line == f"changed {number}"]


def refused(attempt: Callable[[], object]) -> EditdError:
    with pytest.raises(EditdError) as error:
        attempt()
    return error.value


def parts(result: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(encode_json(result.transaction)).get("parts", [])
    return found


def hunks(shown: ShowResult) -> list[tuple[str, int, str]]:
    assert isinstance(shown.hunks, list)
    return [(hunk.path, hunk.hunk, hunk.diff) for hunk in shown.hunks]


# ── The list ───────────────────────────────────────────────────────────────────────────────────


def test_show_numbers_the_hunks_of_each_file_and_gives_each_as_a_hunk_of_a_diff(client: Client) -> None:
    seq = change(
        client,
        replace("a", "line 1\n", "one\n"),
        replace("a", "line 3\n", ""),
        replace("src/b", "line 30\n", "line 30\nlast"),
        write("new", "N\n"),
    )
    assert hunks(client.show(seq, hunks=True)) == [
        ("a", 1, "@@ -1,2 +1,2 @@\n-line 1\n+one\n line 2\n"),
        ("a", 2, "@@ -2,5 +2,4 @@\n line 2\n-line 3\n line 4\n line 5\n line 6\n"),
        (
            "src/b", 1,
            "@@ -28,3 +28,4 @@\n line 28\n line 29\n line 30\n+last\n\\ No newline at end of file\n",
        ),
    ]  # fmt: skip
    assert "hunks" not in encode_json(client.show(seq)).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "1\n2\n"), ("1\n2\n", ""), (LINES, LINES.replace("line 9\n", "")), ("1", "1\n2"),
        (LINES, "0\n" + LINES + "31\n"),
        (LINES, LINES.replace("line 9\n", "x\ny\n").replace("line 11\n", "")),
        ("\r\n1\n", "\r\n2\n"),
    ],
)  # fmt: skip
def test_each_hunk_is_one_that_git_apply_takes_by_itself(
    place: Workplace, client: Client, tmp_path: Path, before: str, after: str
) -> None:
    change(client, write("f", before))
    seq = change(client, write("f", after))
    shown = hunks(client.show(seq, hunks=True))
    copy = tmp_path / "copy"
    for path, number, diff in shown:
        copy.mkdir()
        (copy / "f").write_bytes(after.encode())
        (tmp_path / "patch").write_bytes(f"--- a/f\n+++ b/f\n{diff}".encode())
        place.git("-C", str(copy), "apply", "--reverse", "--unidiff-zero", str(tmp_path / "patch"))
        client.undo(seq, hunks={path: [number]})
        assert (copy / "f").read_bytes() == place.files()["f"]
        client.redo()
        assert place.files()["f"] == after.encode()
        (copy / "f").unlink()
        copy.rmdir()
    assert shown


# ── The undo ───────────────────────────────────────────────────────────────────────────────────


def test_hunks_that_are_named_are_undone_and_the_others_stay(place: Workplace, client: Client) -> None:
    seq = three_hunks(client)
    result = client.undo(seq, hunks={"a": [3, 1, 3]})
    assert changed(place) == [15]
    assert parts(result) == [{"seq": seq, "path": "a", "hunks": [1, 3]}]
    assert client.show(seq).transaction.undone_by is None


def test_the_undo_of_hunks_is_undone_itself_and_redone(place: Workplace, client: Client) -> None:
    seq = three_hunks(client)
    undone = client.undo(seq, hunks={"a": [2]}).transaction
    assert undone is not None
    client.undo(undone.seq)
    assert changed(place) == [5, 15, 25]
    client.redo()
    assert changed(place) == [5, 25]
    assert client.show(seq).transaction.undone_by is None


def test_what_is_left_is_undone_later_as_a_whole_or_by_hunks(place: Workplace, client: Client) -> None:
    seq = three_hunks(client)
    client.undo(seq, hunks={"a": [2]})
    client.undo(seq, hunks={"a": [1]})
    assert changed(place) == [25]
    rest = client.undo(seq).transaction
    assert rest is not None
    assert client.show(seq).transaction.undone_by == rest.seq
    assert place.files()["a"].decode() == LINES
    client.redo()
    assert changed(place) == [25]


def test_all_hunks_of_a_file_are_the_whole_file(client: Client, place: Workplace) -> None:
    seq = three_hunks(client)
    result = client.undo(seq, hunks={"a": [1, 2, 3]})
    assert result.transaction is not None
    assert parts(result) == []
    assert client.show(seq).transaction.undone_by == result.transaction.seq
    assert place.files()["a"].decode() == LINES


def test_a_hunk_that_is_undone_already_is_nothing_to_undo(client: Client) -> None:
    seq = three_hunks(client)
    client.undo(seq, hunks={"a": [2]})
    assert refused(lambda: client.undo(seq, hunks={"a": [2]})).name == "nothing_to_undo"


@pytest.mark.parametrize("with_index", [True, False])
def test_hunks_stay_undone_across_a_restart_and_an_index_made_anew(
    place: Workplace, client: Client, with_index: bool
) -> None:
    seq = three_hunks(client)
    undone = client.undo(seq, hunks={"a": [2]}).transaction
    assert undone is not None
    client.close()
    place.stop()
    if not with_index:
        (place.state / "index.db").unlink()
    again = place.start()
    shown = again.show(undone.seq)
    assert parts(shown) == [{"seq": seq, "path": "a", "hunks": [2]}]
    assert again.show(seq).transaction.undone_by is None
    again.undo(seq, hunks={"a": [1]})
    assert changed(place) == [25]
    again.undo(undone.seq)
    assert changed(place) == [15, 25]
    again.undo(seq)
    assert changed(place) == []
    assert again.check().ok


def test_hunks_survive_a_kill(place: Workplace, client: Client) -> None:
    seq = three_hunks(client)
    result = client.undo(seq, hunks={"a": [2]})
    place.kill()
    again = place.start()
    assert result.transaction is not None
    assert parts(again.show(result.transaction.seq)) == [{"seq": seq, "path": "a", "hunks": [2]}]
    assert changed(place) == [5, 25]


def test_whole_paths_go_with_hunks_of_others(place: Workplace, client: Client) -> None:
    edits = [replace(path, f"line {n}\n", f"changed {n}\n") for path in ("a", "src/b") for n in (5, 15)]
    seq = change(client, *edits, write("new", "N\n"))
    result = client.undo(seq, paths=["src", "new"], hunks={"a": [1]})
    assert (changed(place), changed(place, "src/b")) == ([15], [])
    assert "new" not in place.files()
    assert parts(result) == [
        {"seq": seq, "path": "a", "hunks": [1]}, {"seq": seq, "path": "new"}, {"seq": seq, "path": "src/b"}
    ]  # fmt: skip
    assert [f.path for f in client.show(seq).transaction.files if f.undone_by == result.transaction.seq] == [  # type: ignore[union-attr]
        "new", "src/b"
    ]  # fmt: skip


def test_a_hunk_is_undone_where_the_file_is_now(place: Workplace, client: Client) -> None:
    seq = three_hunks(client)
    change(client, Move(path="a", to="moved"))
    change(client, write("a", "another\n"))
    client.undo(seq, hunks={"a": [2]})
    assert changed(place, "moved") == [5, 25]
    assert place.files()["a"] == b"another\n"


def test_a_hunk_of_a_file_that_was_moved_with_it_leaves_the_file_there(
    place: Workplace, client: Client
) -> None:
    edits = [replace("moved", f"line {n}\n", f"changed {n}\n") for n in (5, 15)]
    seq = change(client, Move(path="a", to="moved"), *edits)
    client.undo(seq, hunks={"moved": [1]})
    assert changed(place, "moved") == [15]
    client.undo(seq, hunks={"moved": [1, 2]})
    assert place.files()["moved"].decode() == LINES
    client.undo(seq)
    assert place.files()["a"].decode() == LINES
    assert "moved" not in place.files()


def test_a_hunk_does_not_undo_the_mode(place: Workplace, client: Client) -> None:
    seq = change(client, replace("a", "line 5\n", "changed 5\n"), Chmod(path="a", executable=True))
    client.undo(seq, hunks={"a": [1]})
    assert place.files()["a"].decode() == LINES
    assert (place.root / "a").stat().st_mode & 0o100
    client.undo(seq)
    assert not (place.root / "a").stat().st_mode & 0o100


def test_only_the_hunk_that_collides_is_a_conflict(place: Workplace, client: Client) -> None:
    seq = three_hunks(client)
    later = change(client, replace("a", "changed 15\n", "later\n"))
    client.undo(seq, hunks={"a": [1]})
    error = refused(lambda: client.undo(seq, hunks={"a": [2, 3]}))
    assert (error.name, error.data["files"][0]["needs"]) == ("conflict", [later])
    dry = client.undo(seq, hunks={"a": [2, 3]}, dry_run=True)
    assert [one.needs for one in dry.conflicts or ()] == [[later]]
    skipped = client.undo(seq, hunks={"a": [2, 3]}, on_conflict="skip")
    assert parts(skipped) == [{"seq": seq, "path": "a", "hunks": [3]}]
    assert changed(place) == []
    assert "later\n" in (place.root / "a").read_text()
    client.undo(seq, hunks={"a": [2]}, on_conflict="force")
    assert place.files()["a"].decode() == LINES


def test_an_undo_of_all_that_skips_a_hunk_names_only_the_hunks_that_it_took_back(
    place: Workplace, client: Client
) -> None:
    seq = three_hunks(client)
    later = change(client, replace("a", "changed 15\n", "later\n"))
    skipped = client.undo(seq, on_conflict="skip")
    assert parts(skipped) == [{"seq": seq, "path": "a", "hunks": [1, 3]}]
    assert client.show(seq).transaction.undone_by is None
    client.undo(later)
    assert changed(place) == [15]
    client.undo(seq)
    assert place.files()["a"].decode() == LINES


# ── What is refused ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("more", "name", "message"),
    [
        ({"hunks": {"a": [4]}}, "invalid_params", "has 3 hunks in a, and no hunk 4."),
        ({"hunks": {"a": [0]}}, "invalid_params", "has 3 hunks in a, and no hunk 0."),
        ({"hunks": {"a": [-1, 1]}}, "invalid_params", "and no hunk -1."),
        ({"hunks": {"a": [2**40]}}, "invalid_params", "and no hunk"),
        ({"hunks": {}}, "invalid_params", "`hunks` names no hunk."),
        ({"hunks": {"a": []}}, "invalid_params", "`hunks` names no hunk."),
        ({"hunks": {"new": [1]}}, "invalid_params", "The change of new by transaction"),
        ({"hunks": {"src/b": [1]}}, "invalid_params", "The change of src/b by transaction"),
        ({"hunks": {"src": [1]}}, "nothing_to_undo", "did not change src."),
        ({"hunks": {"other": [1]}}, "nothing_to_undo", "did not change other."),
        ({"hunks": {"../a": [1]}}, "path_outside", ""),
        ({"paths": ["a"], "hunks": {"a": [1]}}, "invalid_params", "`paths` and `hunks` both name a."),
    ],
)
def test_hunks_that_are_not_there_are_refused_and_nothing_changes(
    place: Workplace, client: Client, more: dict[str, Any], name: str, message: str
) -> None:
    edits = [replace("a", f"line {n}\n", f"changed {n}\n") for n in (5, 15, 25)]
    seq = change(client, *edits, write("new", "N\n"), Delete(path="src/b"))
    before, head = place.files(), client.status().head
    for dry_run in (True, False):
        error = refused(lambda: client.undo(seq, dry_run=dry_run, **more))  # noqa: B023
        assert error.name == name
        assert message in error.message
    assert (place.files(), client.status().head) == (before, head)


def test_hunks_need_a_transaction(client: Client) -> None:
    three_hunks(client)
    error = refused(lambda: client.undo(hunks={"a": [1]}))
    assert error.message.startswith("`hunks` goes with `tx`.")


def test_hunks_of_a_file_that_is_undone_are_undone_already(client: Client) -> None:
    seq = change(client, replace("a", "line 5\n", "x\n"), replace("src/b", "line 5\n", "x\n"))
    client.undo(seq, paths=["a"])
    error = refused(lambda: client.undo(seq, hunks={"a": [1]}))
    assert "is already undone" in error.message


def test_a_link_that_became_a_file_has_no_hunks_and_a_file_that_became_a_link_none_either(
    place: Workplace, client: Client
) -> None:
    (place.root / "link").symlink_to("target")
    client.settle()
    (place.root / "link").unlink()
    place.write({"link": "targets\n"})
    client.settle()
    to_file = client.log(limit=1).transactions[0].seq
    (place.root / "link").unlink()
    (place.root / "link").symlink_to("target")
    client.settle()
    for seq in (to_file, client.log(limit=1).transactions[0].seq):
        assert [file.path for file in client.show(seq).transaction.files] == ["link"]
        assert hunks(client.show(seq, hunks=True)) == []
        attempt = partial(client.undo, seq, hunks={"link": [1]})
        assert "has no hunks" in refused(attempt).message


def test_hunks_of_a_binary_file_are_none(client: Client, place: Workplace) -> None:
    place.write({"bin": b"\0one"})
    client.settle()
    seq = change(client, write("bin", "\0two"))
    assert hunks(client.show(seq, hunks=True)) == []
    assert "has no hunks" in refused(lambda: client.undo(seq, hunks={"bin": [1]})).message
