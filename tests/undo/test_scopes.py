"""Undo by any scope, through the socket: in part, by filter, by rollback, and what stands in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Filter, Move, Replace, Scope, Tool, UndoResult
from editd_client.errors import EditdError
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"#{n}\n" for n in range(1, 21))


@pytest.fixture
def client(place: Workplace) -> Client:
    place.write({"a": LINES, "b": LINES, "src/c": LINES, "src/d": LINES})
    return place.start()


def change(client: Client, *edits: object, session: str | None = None, actor: str | None = None) -> int:
    made = client.apply(list(edits), session=session, actor=actor).transaction  # type: ignore[arg-type]
    assert made is not None
    return made.seq


def swap(path: str, number: int, text: str) -> Replace:
    """Put a text in place of one of the lines."""
    return replace(path, f"#{number}\n", f"{text}\n")


def seq_of(result: UndoResult) -> int:
    assert result.transaction is not None
    return result.transaction.seq


def refusal(error: pytest.ExceptionInfo[EditdError]) -> tuple[str, str]:
    return error.value.name, error.value.message


def marks(client: Client, seq: int) -> dict[str, int]:
    """Return the undone paths of a transaction that is not undone as a whole, with the undo of each."""
    files = client.show(seq).transaction.files
    return {file.path: file.undone_by for file in files if isinstance(file.undone_by, int)}


def line(place: Workplace, path: str, number: int) -> str:
    return (place.root / path).read_text().split("\n")[number - 1]


# ── One path of a transaction ──────────────────────────────────────────────────────────────────


def test_one_path_of_a_transaction_is_undone_and_the_rest_of_it_stays(
    place: Workplace, client: Client
) -> None:
    both = change(client, swap("a", 3, "A"), swap("b", 3, "B"))
    undone = client.undo(both, paths=["a"])
    assert (line(place, "a", 3), line(place, "b", 3)) == ("#3", "B")
    assert undone.transaction is not None
    assert undone.transaction.undoes == [both]
    assert [(part.seq, part.path) for part in undone.transaction.parts] == [(both, "a")]  # type: ignore[union-attr]
    shown = client.show(both).transaction
    assert shown.undone_by is None
    assert {file.path: file.undone_by for file in shown.files if isinstance(file.undone_by, int)} == {
        "a": undone.transaction.seq
    }


def test_the_rest_is_undone_later_and_only_then_the_transaction_counts_as_undone(
    place: Workplace, client: Client
) -> None:
    both = change(client, swap("a", 3, "A"), swap("b", 3, "B"))
    client.undo(both, paths=["a"])
    change(client, swap("a", 3, "again"), session="other")
    rest = client.undo(both)
    assert [file.path for file in rest.files] == ["b"], "what is undone already is left alone"
    assert line(place, "a", 3) == "again"
    assert client.show(both).transaction.undone_by == seq_of(rest)
    with pytest.raises(EditdError) as refused:
        client.undo(both, paths=["a"])
    assert refused.value.name == "nothing_to_undo"


def test_redo_in_a_session_takes_back_its_own_undo_and_not_the_newer_one_of_another(
    place: Workplace, client: Client
) -> None:
    with place.client() as other:
        client.hello(session="one")
        other.hello(session="two")
        for one, path in ((client, "a"), (other, "b")):
            change(one, swap(path, 3, "new"))
        client.undo()
        other.undo()
        client.redo()
    assert (line(place, "a", 3), line(place, "b", 3)) == ("new", "#3")


def test_an_undo_in_part_is_undone_and_redone_in_part(place: Workplace, client: Client) -> None:
    both = change(client, swap("a", 3, "A"), swap("b", 3, "B"))
    first = client.undo(both, paths=["a"])
    rest = client.undo(both)
    client.undo(seq_of(first))
    assert (line(place, "a", 3), line(place, "b", 3)) == ("A", "#3")
    assert client.show(both).transaction.undone_by is None
    with pytest.raises(EditdError):
        client.undo(both, paths=["b"])
    client.undo(seq_of(rest))
    assert (line(place, "a", 3), line(place, "b", 3)) == ("A", "B")
    assert seq_of(client.undo(both)) > 0, "all of it is in force again"
    client.redo()
    assert (line(place, "a", 3), line(place, "b", 3)) == ("A", "B")


def test_one_path_of_an_undo_is_taken_back(place: Workplace, client: Client) -> None:
    both = change(client, swap("a", 3, "A"), swap("b", 3, "B"))
    undone = seq_of(client.undo(both))
    client.undo(undone, paths=["b"])
    assert (line(place, "a", 3), line(place, "b", 3)) == ("#3", "B")
    shown = client.show(both).transaction
    assert shown.undone_by is None
    assert [file.path for file in shown.files if file.undone_by == undone] == ["a"]
    client.undo(both)
    assert (line(place, "a", 3), line(place, "b", 3)) == ("#3", "#3")


def test_a_folder_of_a_transaction_is_undone(place: Workplace, client: Client) -> None:
    made = change(client, *(swap(path, 3, "X") for path in ("a", "src/c", "src/d")))
    client.undo(made, paths=["src"])
    assert [line(place, path, 3) for path in ("a", "src/c", "src/d")] == ["X", "#3", "#3"]


def test_the_rest_of_a_folder_is_undone_when_one_of_its_files_is_undone_already(
    place: Workplace, client: Client
) -> None:
    made = change(client, swap("src/c", 3, "C"), swap("src/d", 3, "D"))
    client.undo(made, paths=["src/c"])
    undone = client.undo(made, paths=["src"]).transaction
    assert undone is not None
    assert [(part.seq, part.path) for part in undone.parts] == [(made, "src/d")]  # type: ignore[union-attr]
    assert (line(place, "src/c", 3), line(place, "src/d", 3)) == ("#3", "#3")
    with pytest.raises(EditdError) as refused:
        client.undo(made, paths=["src"])
    assert refused.value.name == "nothing_to_undo"


def test_a_move_is_taken_back_at_both_its_ends(place: Workplace, client: Client) -> None:
    made = change(client, Move(path="a", to="moved"), swap("b", 3, "B"))
    client.undo(made, paths=["moved"])
    assert ("a" in place.files(), "moved" in place.files(), line(place, "b", 3)) == (True, False, "B")


def test_a_path_stays_undone_though_its_file_once_was_moved_onto_another_and_back(client: Client) -> None:
    both = change(client, write("a", "new\n"), write("made", "made\n"))
    client.undo(change(client, Move(path="made", to="a", overwrite=True)))
    undone = seq_of(client.undo(both))
    client.undo(undone, paths=["a"])
    assert marks(client, both) == {"made": undone}


def test_a_path_stays_undone_though_its_file_once_was_moved_onto_two_others_and_back_at_once(
    client: Client,
) -> None:
    both = change(client, write("a", "new\n"), write("made", "made\n"))
    change(client, Move(path="made", to="a", overwrite=True), session="s")
    change(client, Move(path="a", to="b", overwrite=True), session="s")
    client.rollback("s")
    undone = seq_of(client.undo(both))
    client.undo(undone, paths=["a"])
    assert marks(client, both) == {"made": undone}


def test_a_path_stays_undone_though_its_file_once_was_moved_onto_another_and_elsewhere_and_back(
    client: Client,
) -> None:
    both = change(client, write("a", "new\n"), write("made", "made\n"))
    onto = change(client, Move(path="made", to="a", overwrite=True))
    client.undo(change(client, Move(path="a", to="elsewhere")))
    client.undo(onto)
    undone = seq_of(client.undo(both))
    client.undo(undone, paths=["a"])
    assert marks(client, both) == {"made": undone}


def test_a_path_is_in_force_where_its_file_was_moved_onto_another_and_back_and_there_again(
    client: Client,
) -> None:
    both = change(client, write("made", "made\n"), write("other", "other\n"))
    back = seq_of(client.undo(change(client, Move(path="made", to="a", overwrite=True))))
    client.undo(back)
    undone = seq_of(client.undo(both))
    client.undo(undone, paths=["a"])
    assert marks(client, both) == {"other": undone}


def test_a_path_that_the_transaction_did_not_change_is_refused(client: Client) -> None:
    made = change(client, swap("a", 3, "A"))
    with pytest.raises(EditdError) as refused:
        client.undo(made, paths=["a", "b"])
    assert refusal(refused) == (
        "nothing_to_undo",
        f"Transaction {made} did not change b. Use `show` with tx {made} to list its changes.",
    )


def test_what_is_undone_in_part_is_known_again_from_the_commits_alone(
    place: Workplace, client: Client
) -> None:
    both = change(client, swap("a", 3, "A"), swap("b", 3, "B"))
    undone = seq_of(client.undo(both, paths=["a"]))
    odd = "with space and \u00e9.txt"
    more = change(client, write(odd, "x"), write("plain", "x"))
    client.undo(more, paths=[odd])
    before = client.log().transactions
    client.shutdown()
    assert place.process is not None
    place.process.wait(30)
    for file in place.state.glob("index.db*"):
        file.unlink()
    again = place.start()
    assert again.log().transactions == before
    assert f"Undoes: {both} a" in place.git("log", "--format=%B", store=True).splitlines()
    again.undo(undone)
    assert line(place, "a", 3) == "A"
    assert again.check().ok


def test_an_undo_in_part_survives_a_crash(place: Workplace, client: Client) -> None:
    both = change(client, swap("a", 3, "A"), swap("b", 3, "B"))
    client.undo(both, paths=["a"])
    before = client.log().transactions
    place.kill()
    again = place.start()
    assert again.log().transactions == before
    assert again.check().ok


# ── Filters ────────────────────────────────────────────────────────────────────────────────────


def test_all_that_an_actor_did_below_a_path_since_a_transaction_is_undone_at_once(
    place: Workplace, client: Client
) -> None:
    change(client, swap("src/c", 1, "before"), actor="ann")
    since = change(client, swap("src/c", 3, "ann"), swap("a", 3, "ann"), actor="ann")
    change(client, swap("src/c", 8, "bob"), actor="bob")
    change(client, swap("src/d", 3, "ann"), actor="ann")
    undone = client.undo(filter=Filter(actor="ann", since=since, paths=["src"]))
    assert [file.path for file in undone.files] == ["src/c", "src/d"]
    assert [line(place, "src/c", n) for n in (1, 3, 8)] == ["before", "#3", "bob"]
    assert (line(place, "src/d", 3), line(place, "a", 3)) == ("#3", "ann")


def test_a_filter_takes_times_globs_and_kinds(place: Workplace, client: Client) -> None:
    first = change(client, swap("src/c", 3, "X"))
    second = change(client, swap("src/d", 3, "X"), swap("a", 3, "X"))
    third = change(client, swap("b", 3, "X"))
    change(client, swap("src/c", 9, "X"))
    time = {made.seq: made.time for made in client.log().transactions}
    shown = client.undo(filter=Filter(since=time[second], until=time[third]), dry_run=True)
    assert [file.path for file in shown.files] == ["a", "b", "src/d"]
    shown = client.undo(filter=Filter(until=first), dry_run=True)
    assert [file.path for file in shown.files] == ["src/c"]
    shown = client.undo(filter=Filter(paths=["**/[cd]"]), dry_run=True)
    assert [file.path for file in shown.files] == ["src/c", "src/d"]
    place.write({"a": "outside\n"})
    client.settle()
    client.undo(filter=Filter(kind="outside"))
    assert line(place, "a", 3) == "X"


def test_a_filter_takes_several_sessions_actors_and_kinds(place: Workplace, client: Client) -> None:
    change(client, swap("a", 1, "ann"), actor="ann", session="one")
    change(client, swap("a", 5, "bob"), actor="bob", session="two")
    change(client, swap("a", 9, "cid"), actor="cid", session="three")
    client.undo(filter=Filter(session=["one", "three"], actor=["ann", "bob", "cid"], kind=["edit", "exec"]))
    assert [line(place, "a", n) for n in (1, 5, 9)] == ["#1", "bob", "#9"]


def test_last_takes_the_newest_of_those_that_fit_a_filter(place: Workplace, client: Client) -> None:
    for number in range(1, 6):
        change(client, swap("a", 2 * number, f"a{number}"), swap("b", 2 * number, f"b{number}"))
    change(client, swap("b", 14, "b7"))
    client.undo(filter=Filter(paths=["a"]), last=2)
    assert [line(place, "a", 2 * n) for n in (3, 4, 5)] == ["a3", "#8", "#10"]
    assert [line(place, "b", 2 * n) for n in (4, 5, 7)] == ["b4", "b5", "b7"]
    client.undo(filter=Filter(paths=["a"]), last=1)
    assert line(place, "a", 6) == "#6", "what is undone in part does not count again"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"filter": Filter()}, "invalid_params"),
        ({"filter": Filter(paths=[])}, "invalid_params"),
        ({"filter": Filter(since="2026-13-45")}, "invalid_params"),
        ({"filter": Filter(since=10**6)}, "unknown_transaction"),
        ({"filter": Filter(kind="baseline")}, "nothing_to_undo"),
        ({"filter": Filter(actor="nobody")}, "nothing_to_undo"),
        ({"filter": Filter(actor="x"), "last": 0}, "invalid_params"),
        ({"filter": Filter(actor=[])}, "invalid_params"),
        ({"tx": 1, "filter": Filter(actor="x"), "last": 1}, "invalid_params"),
        ({"filter": Filter(actor="x"), "session": "x"}, "invalid_params"),
        ({"tx": 1, "last": 1}, "invalid_params"),
        ({"tx": 1, "paths": []}, "invalid_params"),
        ({"paths": ["a"]}, "invalid_params"),
        ({"last": 0}, "invalid_params"),
    ],
)
def test_a_scope_that_makes_no_sense_is_refused(client: Client, asked: dict[str, object], name: str) -> None:
    change(client, swap("a", 3, "X"))
    with pytest.raises(EditdError) as refused:
        client.undo(**asked)  # type: ignore[arg-type]
    assert refused.value.name == name


# ── Rollback ───────────────────────────────────────────────────────────────────────────────────


def test_a_session_is_rolled_back_and_everyone_elses_work_stays_in_the_same_files_too(
    place: Workplace, client: Client
) -> None:
    mine = [
        change(client, swap("a", 3, "agent"), write("new", "agent\n"), session="agent"),
        change(client, swap("a", 18, "agent"), session="agent"),
    ]
    change(client, swap("a", 10, "human"), session="human")
    place.write({"b": LINES.replace("#7\n", "outside\n")})
    rolled = client.rollback("agent")
    assert rolled.transaction is not None
    made = rolled.transaction
    assert (made.kind, made.undoes, made.session) == ("rollback", [mine[1], mine[0]], None)
    assert made.message == "Roll back session agent"
    files = place.files()
    assert files["a"].decode() == LINES.replace("#10\n", "human\n")
    assert files["b"].decode() == LINES.replace("#7\n", "outside\n")
    assert "new" not in files
    client.undo(made.seq)
    assert line(place, "a", 3) == "agent"
    client.redo()
    assert line(place, "a", 3) == "#3"


def test_a_rollback_leaves_what_the_session_undid_itself_and_what_was_before_since(
    place: Workplace, client: Client
) -> None:
    first = change(client, swap("a", 1, "one"), session="agent")
    second = change(client, swap("a", 8, "eight"), session="agent")
    third = change(client, swap("a", 15, "fifteen"), session="agent")
    client.undo(second, message="by itself")
    rolled = client.rollback("agent", since=second)
    assert rolled.transaction is not None
    assert rolled.transaction.undoes == [third]
    assert [line(place, "a", n) for n in (1, 8, 15)] == ["one", "#8", "#15"]
    rest = client.rollback("agent")
    assert rest.transaction is not None
    assert rest.transaction.undoes == [first]
    with pytest.raises(EditdError) as refused:
        client.rollback("agent")
    assert refusal(refused)[0] == "nothing_to_undo"


def test_a_rollback_where_others_built_on_it_is_a_conflict_and_changes_nothing(
    place: Workplace, client: Client
) -> None:
    change(client, swap("a", 3, "agent"), swap("b", 3, "agent"), session="agent")
    human = change(client, replace("a", "agent\n", "agent and human\n"), session="human")
    before = place.files()
    with pytest.raises(EditdError) as refused:
        client.rollback("agent")
    assert refused.value.data["files"] == [
        {
            "path": "a",
            "blocking": [human],
            "needs": [human],
            "reason": "lines",
            "lines": [{"start_line": 3, "end_line": 3}],
            "hunks": ["@@ -3,1 +3,1 @@\n-agent\n+agent and human\n"],
        }
    ]
    assert refused.value.message == (
        f"Transaction {human} changed the same lines of a. Nothing was changed. Undo {human} first, or use "
        "on_conflict: force to put the earlier lines back anyway, or use on_conflict: skip to undo "
        "only what fits."
    )
    assert place.files() == before
    client.rollback("agent", on_conflict="force")
    assert (line(place, "a", 3), line(place, "b", 3)) == ("#3", "#3")


# ── What stands in the way ─────────────────────────────────────────────────────────────────────


def test_a_dry_run_tells_who_is_in_the_way_and_who_depends_on_it(place: Workplace, client: Client) -> None:
    first = change(client, swap("a", 3, "X"), swap("b", 3, "X"))
    far = change(client, swap("a", 18, "far"))
    near = change(client, replace("a", "X\n", "XX\n"))
    before = place.files()
    shown = client.undo(first, dry_run=True)
    assert shown.transaction is None
    assert isinstance(shown.conflicts, list)
    assert [(one.path, one.blocking, one.needs) for one in shown.conflicts] == [("a", [far, near], [near])]
    assert [file.path for file in shown.files] == ["b"], "what merges is shown"
    assert place.files() == before
    client.undo(near)
    assert client.undo(first, dry_run=True).conflicts == []
    client.undo(first)
    assert place.files()["a"].decode() == LINES.replace("#18\n", "far\n")


def test_what_is_needed_is_followed_into_other_files(client: Client) -> None:
    first = change(client, swap("a", 3, "X"))
    second = change(client, replace("a", "X\n", "XX\n"), swap("b", 3, "Y"))
    third = change(client, replace("b", "Y\n", "YY\n"))
    change(client, swap("b", 15, "free"))
    shown = client.undo(first, dry_run=True)
    assert isinstance(shown.conflicts, list)
    assert [(one.path, one.blocking, one.needs) for one in shown.conflicts] == [
        ("a", [second], [second, third])
    ]
    for seq in (third, second, first):
        client.undo(seq)


def test_what_is_in_the_way_is_found_under_a_later_name(client: Client) -> None:
    first = change(client, swap("a", 3, "X"))
    moved = change(client, Move(path="a", to="elsewhere"))
    near = change(client, replace("elsewhere", "X\n", "XX\n"))
    shown = client.undo(first, dry_run=True)
    assert isinstance(shown.conflicts, list)
    assert [(one.path, one.blocking, one.needs) for one in shown.conflicts] == [
        ("elsewhere", [moved, near], [near])
    ]
    client.undo(near)
    client.undo(first)


def test_a_session_that_was_opened_undoes_under_its_own_actor_and_only_within_its_scope(
    place: Workplace, client: Client
) -> None:
    inside = change(client, swap("src/c", 3, "X"))
    outside = change(client, swap("a", 3, "X"))
    opened = client.session_open("narrow", actor="ann", scope=Scope(write=["src/**"]))
    with place.client() as narrow:
        narrow.hello("x", session="narrow", token=opened.token)
        undone = narrow.undo(inside).transaction
        assert undone is not None
        assert (undone.actor, undone.session) == ("ann", "narrow")
        attempts: list[Callable[[], object]] = [
            lambda: narrow.undo(outside),
            lambda: narrow.undo(outside, dry_run=True),
            lambda: narrow.restore(0),
        ]
        for attempt in attempts:
            with pytest.raises(EditdError) as refused:
                attempt()
            assert refused.value.name == "permission_denied"
    assert line(place, "a", 3) == "X"


def test_claude_s_undo_edit_takes_one_file_out_of_a_larger_transaction(
    place: Workplace, client: Client
) -> None:
    made = change(client, swap("a", 3, "X"), swap("b", 3, "X"), session="s")
    call = {"command": "undo_edit", "path": "a"}
    answer = client.apply(
        [Tool(dialect="claude", tool="str_replace_based_edit_tool", args=call)], session="s"
    )
    assert answer.transaction is not None
    assert answer.transaction.undoes == [made]
    assert (line(place, "a", 3), line(place, "b", 3)) == ("#3", "X")


@pytest.mark.parametrize("session", ["s", None])
def test_claude_s_undo_edit_goes_back_over_its_own_undos_and_over_the_edits_of_others(
    place: Workplace, client: Client, session: str | None
) -> None:
    mine = [change(client, swap("a", number, "X"), session=session) for number in (3, 5)]
    change(client, swap("a", 7, "other"), session="another")
    call = {"command": "undo_edit", "path": "a"}
    tool = Tool(dialect="claude", tool="str_replace_based_edit_tool", args=call)
    for seq in reversed(mine):
        answer = client.apply([tool], session=session)
        assert answer.transaction is not None
        assert answer.transaction.undoes == [seq]
    assert [line(place, "a", number) for number in (3, 5, 7)] == ["#3", "#5", "other"]


def test_a_rename_is_taken_back_at_both_ends_by_its_old_name_too(place: Workplace, client: Client) -> None:
    seq = change(client, Move(path="a", to="z"), swap("b", 3, "B"))
    client.undo(seq, paths=["a"])
    assert (place.root / "a").read_text() == LINES
    assert not (place.root / "z").exists()
    assert line(place, "b", 3) == "B"


def test_an_undo_of_what_a_session_may_not_read_is_refused(place: Workplace, client: Client) -> None:
    seq = change(client, swap("a", 3, "X"))
    opened = client.session_open("narrow", scope=Scope(write=["**"], read=["src/**"]))
    with place.client() as narrow:
        narrow.hello("x", session="narrow", token=opened.token)
        with pytest.raises(EditdError) as refused:
            narrow.undo(seq)
    assert refused.value.name == "permission_denied"
    assert line(place, "a", 3) == "X"


def test_a_redo_that_names_a_session_takes_back_the_undo_of_its_work(
    place: Workplace, client: Client
) -> None:
    change(client, swap("a", 3, "A"), session="bot")
    change(client, swap("b", 5, "B"), session="other")
    client.undo(session="bot")
    client.undo(session="other")
    assert client.redo(session="bot", dry_run=True).files[0].path == "a"
    redone = client.redo(session="bot").transaction
    assert redone is not None
    assert (redone.session, line(place, "a", 3)) == ("bot", "A")
    with pytest.raises(EditdError) as refused:
        client.redo(session="bot")
    assert refused.value.name == "nothing_to_undo"


def test_an_agent_does_not_redo_the_undo_that_a_person_made_of_its_work(
    place: Workplace, client: Client
) -> None:
    change(client, swap("a", 3, "A"), session="bot")
    client.undo(session="bot")
    client.hello(session="bot")
    for named in (None, "bot"):
        with pytest.raises(EditdError) as refused:
            client.redo(session=named)
        assert refused.value.name == "nothing_to_undo"
    assert line(place, "a", 3) != "A"


def test_an_undo_of_another_sessions_work_names_that_session(place: Workplace, client: Client) -> None:
    change(client, swap("a", 3, "A"), session="bot")
    undone = client.undo(session="bot").transaction
    assert undone is not None
    assert (undone.session, undone.message) == (None, "Undo of session bot")
    client.hello(session="bot")
    change(client, swap("b", 5, "B"))
    own = client.undo().transaction
    assert own is not None
    assert (own.session, own.message) == ("bot", "")
