"""`editctl undo`, `redo`, `rollback` and `restore`, through the real command and the real daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from editd_client.cli.undo import parse_moment
from support.workplace import replace, write

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

    Run = Callable[..., subprocess.CompletedProcess[str]]

LINES = "".join(f"#{n}\n" for n in range(1, 21))


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    place.write({"a": LINES, "src/b": LINES, "src/c": LINES})
    with place.start() as client:
        client.settle()
        yield client


@pytest.fixture
def editctl(place: Workplace, client: Client) -> Run:
    def run(*words: str, code: int = 0, folder: str = "") -> subprocess.CompletedProcess[str]:
        done = place.editctl("-C", str(place.root), *words, folder=folder, EDITD_ACTOR="tester")
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


def change(client: Client, path: str, number: int, text: str, **by: str) -> int:
    made = client.apply([replace(path, f"#{number}\n", f"{text}\n")], **by).transaction  # type: ignore[arg-type]
    assert made is not None
    return made.seq


def line(place: Workplace, path: str, number: int) -> str:
    return (place.root / path).read_text().split("\n")[number - 1]


def document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_undo_takes_back_one_path_of_a_transaction_relative_to_where_one_is(
    editctl: Run, client: Client, place: Workplace
) -> None:
    client.apply([replace("src/b", "#3\n", "X\n"), replace("src/c", "#3\n", "X\n")])
    done = editctl("undo", "1", "--path", "b", folder="src")
    assert done.stdout.splitlines()[1:] == [" M src/b"]
    assert (line(place, "src/b", 3), line(place, "src/c", 3)) == ("#3", "X")


def test_undo_takes_all_that_fits(editctl: Run, client: Client, place: Workplace) -> None:
    change(client, "src/b", 3, "old", actor="ann")
    since = change(client, "src/b", 8, "new", actor="ann")
    change(client, "a", 8, "new", actor="ann")
    change(client, "src/b", 15, "new", actor="bob", session="s")
    made = document(editctl("undo", "--by", "ann", "--since", str(since), "--path", "src", "--json"))
    assert made["transaction"]["undoes"] == [since]
    assert [line(place, "src/b", n) for n in (3, 8, 15)] == ["old", "#8", "new"]
    editctl("undo", "--session", "s", "--since", "1h")
    assert line(place, "src/b", 15) == "#15"
    assert "not both" in editctl("undo", "3", "--by", "ann", code=2).stderr
    assert "--all or --last" in editctl("undo", "--all", "--last", "3", "--path", "a", code=2).stderr
    editctl("undo", "--last", "3", "--path", "a")
    assert line(place, "a", 8) == "#8"


def test_a_preview_says_who_is_in_the_way_and_what_to_undo_first(
    editctl: Run, client: Client, place: Workplace
) -> None:
    first = change(client, "a", 3, "X")
    far = change(client, "a", 18, "far")
    near = client.apply([replace("a", "X\n", "XX\n")]).transaction
    assert near is not None
    before = (place.root / "a").read_bytes()
    shown = editctl("undo", str(first), "--dry-run", code=1).stdout.splitlines()
    assert shown == [
        "dry run: nothing was changed",
        f" ! a does not merge, in the way: {far}, {near.seq}",
        "@@ -3,1 +3,1 @@",
        "-X",
        "+XX",
        f"it would be refused: undo {near.seq} first, or use --force",
    ]
    assert (place.root / "a").read_bytes() == before
    assert document(editctl("undo", str(first), "--dry-run", "--json", code=1))["conflicts"] == [
        {
            "path": "a",
            "blocking": [far, near.seq],
            "needs": [near.seq],
            "reason": "lines",
            "lines": [{"start_line": 3, "end_line": 3}],
            "hunks": ["@@ -3,1 +3,1 @@\n-X\n+XX\n"],
        }
    ]
    assert "-XX\n" in editctl("undo", str(first), "--dry-run", "--force").stdout
    editctl("undo", str(near.seq))
    assert "+#3" in editctl("undo", str(first), "--dry-run").stdout


def test_rollback_takes_back_what_a_session_did_and_undo_brings_it_back(
    editctl: Run, client: Client, place: Workplace
) -> None:
    change(client, "a", 3, "agent", session="agent")
    change(client, "a", 15, "human", session="human")
    client.apply([write("new", "agent\n")], session="agent")
    preview = editctl("rollback", "agent", "--dry-run").stdout
    assert preview.splitlines()[:3] == ["dry run: nothing was changed", " M a", " D new"]
    done = editctl("rollback", "agent").stdout
    assert "Roll back session agent" in done
    assert (line(place, "a", 3), line(place, "a", 15), "new" in place.files()) == ("#3", "human", False)
    assert "rollback by tester, of 3, 1" in editctl("log", "-n", "1", "--oneline").stdout
    editctl("undo")
    assert line(place, "a", 3) == "agent"
    editctl("redo")
    assert line(place, "a", 3) == "#3"
    assert "Nothing to undo of session nobody" in editctl("rollback", "nobody", code=1).stderr


def test_restore_puts_back_everything_or_some_paths(editctl: Run, client: Client, place: Workplace) -> None:
    then = change(client, "a", 3, "then")
    change(client, "a", 3 + 1, "later")
    change(client, "src/b", 3, "later")
    assert "-later" in editctl("restore", str(then), "--dry-run").stdout
    editctl("restore", str(then), "b", folder="src")
    assert (line(place, "a", 4), line(place, "src/b", 3)) == ("later", "#3")
    assert "Restore transaction 1" in editctl("restore", str(then)).stdout
    assert [line(place, "a", n) for n in (3, 4)] == ["then", "#4"]
    assert editctl("restore", str(then)).stdout == "nothing to change\n"
    assert "nowhere was never in the history" in editctl("restore", "1", "nowhere", code=1).stderr
    assert "does not go back" in editctl("restore", "2000-01-01", code=1).stderr
    assert "Name a path after `--`" in editctl("restore", "--", code=2).stderr


def test_help_teaches_by_example(editctl: Run) -> None:
    for verb in ("undo", "redo", "rollback", "restore"):
        assert f"editctl {verb} " in editctl(verb, "--help").stdout.split("Examples:")[1]


def test_a_moment_is_a_transaction_or_a_time() -> None:
    assert parse_moment("12") == 12
    assert parse_moment("abc4") == "abc4"
    assert parse_moment("100d") == "100d", "an id may begin so"
    assert str(parse_moment("2h")).endswith("Z")
    assert parse_moment("2026-03-01T14:30:00+00:00") == "2026-03-01T14:30:00.000000Z"


def test_undo_of_a_path_alone_takes_its_newest_edit_and_all_takes_each(
    editctl: Run, client: Client, place: Workplace
) -> None:
    """It took back everything that anyone had ever done to the path."""
    change(client, "a", 3, "old", actor="ann")
    change(client, "src/b", 3, "b", actor="ann")
    newest = change(client, "a", 9, "new", actor="bob")
    change(client, "src/b", 9, "b", actor="bob")
    made = document(editctl("undo", "--path", "a", "--json"))["transaction"]
    assert (made["undoes"], line(place, "a", 3), line(place, "a", 9)) == ([newest], "old", "#9")
    editctl("undo", "--path", "src", "--all")
    assert (line(place, "src/b", 3), line(place, "src/b", 9)) == ("#3", "#9")
    assert "restore" in editctl("undo", "--path", ".", "--all", code=2).stderr
    assert "not both" in editctl("undo", "1", "--all", code=2).stderr


def test_undo_takes_a_range_of_transactions_both_included(
    editctl: Run, client: Client, place: Workplace
) -> None:
    first = change(client, "a", 1, "X")
    for number in (5, 9, 13):
        change(client, "a", number, "X")
    editctl("undo", f"{first + 1}..{first + 2}")
    assert [line(place, "a", n) for n in (1, 5, 9, 13)] == ["X", "#5", "#9", "X"]


def test_undo_takes_several_sessions_and_actors(editctl: Run, client: Client, place: Workplace) -> None:
    """A repeated option kept its last value only."""
    change(client, "a", 1, "ann", actor="ann", session="one")
    change(client, "a", 5, "bob", actor="bob", session="two")
    change(client, "a", 9, "cid", actor="cid", session="three")
    editctl("undo", "--of", "one", "--of", "three")
    assert [line(place, "a", n) for n in (1, 5, 9)] == ["#1", "bob", "#9"]
    editctl("redo")
    editctl("undo", "--by", "ann", "--by", "bob")
    assert [line(place, "a", n) for n in (1, 5, 9)] == ["#1", "#5", "cid"]


def test_a_refused_undo_says_what_to_undo_first_and_shows_the_lines(editctl: Run, client: Client) -> None:
    first = change(client, "a", 3, "mine")
    later = client.apply([replace("a", "mine\n", "theirs\n")]).transaction
    assert later is not None
    done = editctl("undo", str(first), code=1)
    assert done.stderr.splitlines() == [
        f"editctl: Transaction {later.seq} changed the same lines of a. Nothing was changed.",
        f"hint: Undo {later.seq} first, or use --force to put the earlier lines back anyway.",
        f"  a, in the way: {later.seq}",
        "@@ -3,1 +3,1 @@",
        "-mine",
        "+theirs",
    ]


def test_a_rollback_of_what_fits_takes_back_the_rest_later(
    editctl: Run, client: Client, place: Workplace
) -> None:
    for number in (3, 9):
        change(client, "a", number, f"agent {number}", session="agent")
    change(client, "src/b", 3, "agent", session="agent")
    human = client.apply([replace("a", "agent 3\n", "human\n")]).transaction
    assert human is not None
    done = editctl("rollback", "agent", "--what-fits", code=1)
    assert f" ! a keeps the parts that do not merge, in the way: {human.seq}" in done.stdout
    assert f"to take back the rest: undo {human.seq} first" in done.stdout
    assert (line(place, "a", 3), line(place, "a", 9), line(place, "src/b", 3)) == ("human", "#9", "#3")
    editctl("rollback", "agent", "--what-fits", code=1)
    editctl("undo", str(human.seq))
    editctl("rollback", "agent")
    assert line(place, "a", 3) == "#3"
    assert client.check().ok


def test_undo_after_an_outside_change_names_it(editctl: Run, client: Client, place: Workplace) -> None:
    place.write({"a": "mine\n"})
    client.settle()
    refused = editctl("undo", code=1).stderr
    assert "the newest change is 1, by another program" in refused
    assert "editctl undo 1" in refused
    editctl("undo", "1")
    assert (place.root / "a").read_text() == LINES


def test_restore_of_a_path_alone_takes_back_its_newest_change(
    editctl: Run, client: Client, place: Workplace
) -> None:
    change(client, "a", 2, "older")
    change(client, "src/b", 3, "b")
    change(client, "a", 9, "newer")
    head = client.status().head
    refused = editctl("restore", "--", "a", "src/c", code=1).stderr
    assert "src/c has no change" in refused
    assert (client.status().head, line(place, "a", 9)) == (head, "newer"), "all or none"
    editctl("restore", "-m", "back", "--", "a", "src/b")
    assert line(place, "a", 2) == "older"
    assert (line(place, "a", 9), line(place, "src/b", 3)) == ("#9", "#3")
    assert client.status().head == head + 1, "one transaction"
    assert "has no change" in editctl("restore", "--", "src/c", code=1).stderr
    assert "WHEN" in editctl("restore", code=2).stderr
