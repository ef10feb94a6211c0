"""`editctl mcp` over its standard input and output, asked by the SDK's own client, on a real daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from support.agent import LEGACY, Agent, agent, text_of
from support.distributions import HELLO_DIALECT, HELLO_ENTRY_POINTS, install
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace

DIALECTS = ("claude", "cline", "codex", "gemini", "roo", "serena", "wcgw")


@pytest.fixture(scope="module")
def modern(shared: Workplace) -> Iterator[Agent]:
    """An agent of the modern era, with every dialect's tools; its session is `agent`."""
    words = [word for name in DIALECTS for word in ("--dialect", name)]
    with agent(shared, "--workspace", str(shared.root), *words) as made:
        made.does("log")
        yield made


@pytest.fixture(scope="module")
def legacy(shared: Workplace, modern: Agent) -> Iterator[Agent]:
    """One of the handshake era, of the same name, elsewhere, that tells where by its root: `agent-2`."""
    home = shared.folder / "home"
    with agent(shared, mode=LEGACY, roots=[shared.root.as_uri()], folder=home) as made:
        yield made


def write(path: str, content: str) -> dict[str, Any]:
    return {"op": "write", "path": path, "content": content}


def swap(path: str, old: str, new: str) -> dict[str, Any]:
    return {"op": "replace", "path": path, "old": old, "new": new}


@pytest.fixture(params=["modern", "legacy"])
def either(request: pytest.FixtureRequest, modern: Agent, legacy: Agent) -> Agent:
    return modern if request.param == "modern" else legacy


# ── editd's own tools ─────────────────────────────────────────────────────────────────────────


def test_every_tool_of_editd_s_own_works_in_both_eras(shared: Workplace, either: Agent) -> None:
    made = either.does(
        "apply_edits", edits=[write("own/a.txt", "one\ntwo\n"), write("own/b.txt", "b\n")], message="Begin"
    )
    assert [(file["path"], file["change"]) for file in made["files"]] == [
        ("own/a.txt", "added"),
        ("own/b.txt", "added"),
    ]
    read = either.call("read_file", path=str(shared.root / "own/a.txt"), start_line=2)
    assert text_of(read).endswith("\ntwo\n")
    assert read.structured_content["content"] == "two\n"
    shown = either.call("apply_edits", edits=[swap("own/a.txt", "one", "1")], dry_run=True)
    assert "-one\n+1\n" in text_of(shown)
    assert shown.structured_content["transaction"] is None
    change = either.does("apply_edits", edits=[swap("own/a.txt", "one", "1")])["transaction"]
    assert [line["seq"] for line in either.does("blame", path="own/a.txt")["lines"]] == [
        change,
        made["transaction"],
    ]
    assert "\n-one\n+1\n" in either.does("diff", **{"from": made["transaction"], "paths": ["own"]})["diff"]
    assert [entry["message"] for entry in either.does("log", path="own", limit=2)["transactions"]] == [
        "",
        "Begin",
    ]
    undone = either.does("undo")
    assert undone["files"] == [
        {"path": "own/a.txt", "change": "modified", "version": undone["files"][0]["version"]}
    ]
    assert shared.files()["own/a.txt"] == b"one\ntwo\n"
    either.does("redo")
    assert shared.files()["own/a.txt"] == b"1\ntwo\n"
    lease = either.does("lease", action="acquire", paths=["own/**"], ttl=60)["lease"]
    assert [one["lease"] for one in either.does("lease", action="list")["leases"]] == [lease]
    assert either.does("lease", action="renew", lease=lease)["lease"] == lease
    either.does("lease", action="release", lease=lease)
    either.does("rollback_session")
    assert "own/a.txt" not in shared.files()


def test_undo_takes_one_s_own_newest_any_transaction_or_one_file_of_it(modern: Agent, legacy: Agent) -> None:
    first = modern.does("apply_edits", edits=[write("u.txt", "u\n"), write("v.txt", "v\n")])["transaction"]
    legacy.does("apply_edits", edits=[write("w.txt", "w\n")])
    assert [file["path"] for file in modern.does("undo", dry_run=True)["files"]] == ["u.txt", "v.txt"]
    part = modern.does("undo", tx=first, paths=["v.txt"])
    assert [(file["path"], file["change"]) for file in part["files"]] == [("v.txt", "deleted")]
    modern.does("redo")
    modern.does("rollback_session")
    legacy.does("rollback_session")


def test_a_rollback_takes_exactly_the_session_s_work(shared: Workplace, modern: Agent, legacy: Agent) -> None:
    shared.write({"r.txt": "a\nb\nc\nd\ne\nf\ng\n"})
    for one in (modern, legacy):
        one.does("read_file", path="r.txt")
    modern.does("apply_edits", edits=[swap("r.txt", "a\n", "A\n")])
    legacy.does("read_file", path="r.txt")
    legacy.does("apply_edits", edits=[swap("r.txt", "g\n", "G\n"), write("r2.txt", "x\n")])
    modern.does("rollback_session")
    assert shared.files()["r.txt"] == b"a\nb\nc\nd\ne\nf\nG\n"
    assert modern.is_refused("rollback_session")[1]["error"] == "nothing_to_undo"
    legacy.does("rollback_session")
    assert shared.files()["r.txt"] == b"a\nb\nc\nd\ne\nf\ng\n"
    assert "r2.txt" not in shared.files()


def test_undo_of_others_work_needs_the_leave_of_whoever_started_the_server(
    shared: Workplace, modern: Agent, legacy: Agent
) -> None:
    theirs = legacy.does("apply_edits", edits=[write("o.txt", "1\n2\n3\n4\n5\n")])["transaction"]
    mine = modern.does("apply_edits", edits=[swap("o.txt", "1", "one")])["transaction"]
    shared.write({"o.txt": "uno\n2\n3\n4\n5\n"})
    with shared.client() as client:
        client.settle()
        outside = client.log(path="o.txt").transactions[0].seq
    for arguments in ({"tx": theirs}, {"tx": outside}, {"tx": mine, "force": True}):
        text, data = modern.is_refused("undo", **arguments)
        assert data["error"] == "permission_denied"
        assert "--may-undo-others" in text
        assert "own_only" not in text
    assert "`session`" in modern.is_refused("rollback_session", session="agent-2")[0]
    with agent(shared, "--may-undo-others", name="free") as free:
        free.does("undo", tx=outside)
        free.does("undo", tx=mine)
        free.does("rollback_session", session="agent-2")
    assert "o.txt" not in shared.files()


def test_a_new_connection_of_the_same_client_does_not_take_over_the_last_ones_work(shared: Workplace) -> None:
    for name, text in (("again", "monday\n"), ("again-2", "tuesday\n")):
        with agent(shared, name="again") as made:
            assert made.is_refused("rollback_session")[1]["error"] == "nothing_to_undo"
            made.does("read_file", path="own/again.txt") if name == "again-2" else None
            made.does("apply_edits", edits=[write("own/again.txt", text)])
            assert made.does("log", limit=1)["transactions"][0]["session"] == name
            if name == "again-2":
                made.does("rollback_session")
    assert shared.files()["own/again.txt"] == b"monday\n"


def test_a_rollback_over_mcp_leaves_published_work_alone(place: Workplace) -> None:
    place.git("init", "-q", "-b", "main")
    place.git("config", "user.name", "Ann")
    place.git("config", "user.email", "ann@example.org")
    with place.start() as client, agent(place) as made:
        first = made.does("apply_edits", edits=[write("p.txt", "p\n")])["transaction"]
        commit = client.publish("P", session="agent").commit
        second = made.does("apply_edits", edits=[write("q.txt", "q\n")])["transaction"]
        done = made.call("rollback_session")
        assert f"Published work was left alone: {first} as {commit[:7]} on main." in text_of(done)
        assert place.files() == {"p.txt": b"p\n"}
        data = made.is_refused("rollback_session")[1]
        assert (data["error"], data["data"]["published"]) == ("nothing_to_undo", [first])
        assert second > first
        made.does("rollback_session", include_published=True)
        assert place.files() == {}


def test_bytes_that_are_no_text_are_not_read_and_can_be_written(shared: Workplace, either: Agent) -> None:
    shared.write({"latin.bin": b"\xff\xfe\x00caf\xe9"})
    text, refusal = either.is_refused("read_file", path="latin.bin")
    assert refusal["error"] == "not_text"
    assert "`encoding`" in text + refusal["data"]["hint"]
    whole = {**write("latin.bin", ""), "content": {"base64": "6Q=="}}
    _, refusal = either.is_refused("apply_edits", edits=[whole])
    assert refusal["error"] == "base_required", "a refused read does not count"
    either.does("apply_edits", edits=[{**whole, "force": True}])
    assert shared.files()["latin.bin"] == b"\xe9"


def test_the_model_is_told_what_an_editor_has_not_saved(shared: Workplace, either: Agent) -> None:
    shared.write({"held.txt": "one\ntwo\nthree\n"})
    with shared.client() as editor:
        editor.hello("nvim")
        editor.document_hold("held.txt", editor.read("held.txt").version, "one\n2\n3\n")
        read = either.call("read_file", path="held.txt")
        assert "\nThere are unsaved changes in nvim (lines 2-3); this is the file." in text_of(read)
        assert read.structured_content["content"] == "one\ntwo\nthree\n"
        assert read.structured_content["unsaved"][0]["lines"] == [{"start_line": 2, "end_line": 3}]
        text, data = either.is_refused("apply_edits", edits=[swap("held.txt", "two", "zwei")])
        assert data["error"] == "unsaved"
        assert "held.txt has unsaved changes in nvim, in line 2," in text


def test_a_large_file_is_read_by_its_lines(shared: Workplace, modern: Agent) -> None:
    shared.write({"large.txt": "line\n" * 100_000})
    text, data = modern.is_refused("read_file", path="large.txt")
    assert data["error"] == "too_large"
    assert "start_line" in text
    assert modern.does("read_file", path="large.txt", start_line=7, end_line=8)["content"] == "line\nline\n"


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────


def test_an_edit_over_another_agent_s_is_stale_and_says_what_changed(modern: Agent, legacy: Agent) -> None:
    modern.does("apply_edits", edits=[write("s.txt", "one\ntwo\nthree\nfour\nfive\n")])
    legacy.does("read_file", path="s.txt")
    modern.does("apply_edits", edits=[swap("s.txt", "one", "1")])
    new = write("s.txt", "one\ntwo\nthree\nfour\n5\n")
    text, data = legacy.is_refused("apply_edits", edits=[new])
    assert (data["error"], data["code"]) == ("stale", 1)
    assert "-one\n+1\n" in text
    assert "edit by agent in agent" in text
    assert data["data"]["path"] == "s.txt"
    assert legacy.is_refused("apply_edits", edits=[swap("s.txt", "five", "5"), new])[1]["error"] == "stale"
    merged = legacy.does("apply_edits", edits=[new], on_stale="merge")
    assert merged["merged"] == ["s.txt"]
    legacy.does("rollback_session")
    modern.does("rollback_session")


def test_a_replacement_needs_no_second_call_after_an_unrelated_change_and_says_whose_it_was(
    modern: Agent, legacy: Agent, shared: Workplace
) -> None:
    shared.write({"g.txt": "one\ntwo\nthree\nfour\nfive\n"})
    legacy.does("read_file", path="g.txt")
    theirs = modern.does("apply_edits", edits=[swap("g.txt", "one", "1")], message="Digits")["transaction"]
    done = legacy.call("apply_edits", edits=[swap("g.txt", "five", "5")])
    assert shared.files()["g.txt"] == b"1\ntwo\nthree\nfour\n5\n"
    assert "g.txt was changed since you read it, by" in text_of(done)
    assert "edit by agent in agent: Digits" in text_of(done)
    (change,) = done.structured_content["changed_by"]
    assert (change["path"], change["seq"], change["session"]) == ("g.txt", theirs, "agent")
    assert "changed_by" not in legacy.does("apply_edits", edits=[swap("g.txt", "5", "V")])
    assert legacy.is_refused("apply_edits", edits=[swap("g.txt", "one", "uno")])[1]["error"] == "no_match"
    modern.does("read_file", path="g.txt")
    shared.write({"g.txt": "1\ntwo\n3\nfour\nV\n"})
    done = modern.call("replace", file_path=str(shared.root / "g.txt"), old_string="1", new_string="one")
    first, second = text_of(done).splitlines()
    assert first == f"Successfully modified file: {shared.root}/g.txt (1 replacements)."
    assert second.startswith("g.txt was changed since you read it, by")
    assert [(one["kind"], one["session"]) for one in done.structured_content["changed_by"]] == [
        ("outside", None)
    ]
    legacy.does("rollback_session")
    refused = modern.is_refused("rollback_session")[1]
    assert refused["error"] == "nothing_to_undo", "its second edit took back the first"


def test_an_edit_list_may_be_json_or_one_object_and_numbers_may_be_texts(either: Agent) -> None:
    either.does("apply_edits", edits=json.dumps([write("len.txt", "one\ntwo\n")]))
    either.does("apply_edits", edits=swap("len.txt", "one", "1") | {"count": "1"})
    either.does("apply_edits", edits=json.dumps(swap("len.txt", "two", "2")), dry_run="true")
    either.does("apply_edits", edits=[json.dumps(swap("len.txt", "two", "2"))])
    assert either.does("read_file", path="len.txt", start_line="2", end_line=2.0)["content"] == "2\n"
    assert either.does("diff", **{"from": 0}, paths="len.txt")["files"]
    either.does("apply_edits", edits={"op": "delete", "path": "len.txt"})


@pytest.mark.parametrize("code", [0xD83D, 0xDCFF])
def test_half_a_surrogate_pair_in_a_list_that_is_json_is_refused(either: Agent, code: int) -> None:
    half = chr(code)
    for edit in (write("half.txt", half), write(f"half{half}.txt", "x")):
        for edits in (json.dumps([edit]), json.dumps(edit), [json.dumps(edit)]):
            text, refusal = either.is_refused("apply_edits", edits=edits)
            assert refusal["error"] == "invalid_params"
            assert "half of a surrogate pair" in text
    assert either.is_refused("read_file", path="half.txt")[1]["error"] == "file_missing"


@pytest.mark.parametrize(
    ("edit", "field", "said"),
    [
        ({"op": "rewrite"}, "edits[0].op", "Did you mean `write`? The operations are replace, write, patch"),
        ({"op": "create"}, "edits[0].op", "Did you mean `write`?"),
        ({"path": "a"}, "edits[0].op", "has no `op`"),
        ("nonsense", "edits[0]", "The operations are"),
        (
            {"op": "replace", "path": "a", "old_string": "x", "new": "y"},
            "edits[0].old_string",
            "Did you mean `old`? The operation replace takes path, old, new, count.",
        ),
        ({"op": "write", "path": "a"}, "edits[0].content", "needs `content`"),
    ],
)
def test_a_wrong_operation_or_field_is_refused_with_the_valid_ones_and_the_nearest(
    legacy: Agent, edit: object, field: str, said: str
) -> None:
    text, data = legacy.is_refused("apply_edits", edits=[edit])
    assert data["data"]["field"] == field
    assert said in text


def test_a_wrong_name_of_a_tool_or_an_argument_is_refused_with_the_nearest(legacy: Agent) -> None:
    assert "Did you mean `read_file`?" in legacy.is_refused("readfile", path="x")[0]
    assert "Did you mean `path`?" in legacy.is_refused("read_file", file_path="x")[0]


def test_a_read_past_the_end_says_how_many_lines_there_are(either: Agent, shared: Workplace) -> None:
    shared.write({"three.txt": "1\n2\n3\n"})
    past = either.call("read_file", path="three.txt", start_line=9)
    assert "line 9 is past the end: it has 3 lines" in text_of(past)
    assert past.structured_content["lines"] == 3
    assert "lines 2-3 of 3" in text_of(either.call("read_file", path="three.txt", start_line=2, end_line=9))


def test_a_misspelt_path_is_refused_with_the_nearest(either: Agent, shared: Workplace) -> None:
    shared.write({"deep/source/parser.py": "x\n"})
    for path in ("deep/source/parsr.py", "deep/sorce/parser.py"):
        text, data = either.is_refused("read_file", path=path)
        assert "Did you mean deep/source/parser.py?" in text
        assert data["data"]["similar"] == ["deep/source/parser.py"]
        assert "deep/source/parser.py?" in either.is_refused("apply_edits", edits=[swap(path, "x", "y")])[0]


def test_every_tool_has_a_title_and_says_what_it_answers(modern: Agent) -> None:
    for tool in modern.tools():
        assert tool.title
        assert tool.output_schema is not None
        assert {"error", "message", "data"} < set(tool.output_schema["properties"])


def test_a_server_may_offer_some_tools_only_or_those_that_change_nothing(shared: Workplace) -> None:
    with agent(shared, "--read-only", "--dialect", "wcgw") as made:
        assert {tool.name for tool in made.tools()} == {
            "read_file", "log", "diff", "blame", "proposal_status", "ReadFiles",
        }  # fmt: skip
        assert "There is no tool 'apply_edits'" in made.is_refused("apply_edits", edits=[])[0]
    with agent(shared, "--tools", "undo,replace", "--tools", "log", "--dialect", "gemini") as made:
        assert [tool.name for tool in made.tools()] == ["undo", "log", "replace"]


def test_a_refusal_has_the_text_that_helps(either: Agent, shared: Workplace) -> None:
    shared.write({"h.txt": "def area(w, h):\n    return w * h\n"})
    text, data = either.is_refused("apply_edits", edits=[swap("h.txt", "    return w*h", "x")])
    assert data["error"] == "no_match"
    assert "    return w * h" in text
    shared.write({"never.txt": "x\n"})
    assert either.is_refused("apply_edits", edits=[write("never.txt", "y\n")])[1]["error"] == "base_required"
    assert either.is_refused("read_file", path="../x")[1]["error"] == "path_outside"
    assert either.is_refused("read_file", path="none.txt")[1]["error"] == "file_missing"


def test_what_another_agent_has_leased_is_refused(modern: Agent, legacy: Agent) -> None:
    lease = modern.does("lease", action="acquire", paths=["leased/**"])["lease"]
    text, data = legacy.is_refused("apply_edits", edits=[write("leased/a", "")])
    assert data["error"] == "leased"
    assert data["data"]["holder"] == "agent"
    assert "agent" in text
    modern.does("lease", action="release", lease=lease)


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("read_file", {}, "path"),
        ("read_file", {"path": 5}, "path"),
        ("undo", {"txx": 5}, "txx"),
        ("undo", {"force": "yes"}, "force"),
        ("undo", {"session": "another"}, "session"),
        ("apply_edits", {"edits": [{"op": "replace", "path": "a", "old": 5, "new": ""}]}, "edits[0].old"),
        ("apply_edits", {"edits": [{"op": "rewrite"}]}, "edits[0].op"),
        ("apply_edits", {"edits": [{"op": "delete", "path": "a", "pth": "b"}]}, "edits[0].pth"),
        ("lease", {"action": "steal"}, "action"),
        ("lease", {"action": "acquire"}, None),
        ("lease", {"action": "acquire", "paths": ["a"], "wait": 1e12}, "wait"),
        ("blame", {"path": "a", "start_line": 0}, "start_line"),
        ("log", {"limit": "many"}, "limit"),
    ],
)
def test_wrong_arguments_are_refused_by_the_field(
    either: Agent, tool: str, arguments: dict[str, Any], field: str | None
) -> None:
    text, data = either.is_refused(tool, **arguments)
    assert data["error"] == "invalid_params"
    assert data["data"].get("field") == field
    assert (field or "paths").rpartition(".")[2] in text


def test_null_for_what_may_be_left_out_of_an_edit_is_as_good_as_nothing(either: Agent) -> None:
    nothing = dict.fromkeys(("count", "content", "patch", "to", "executable"))
    either.does("apply_edits", edits=[write("null.txt", "one\n") | {"old": None, "new": None}])
    either.does("apply_edits", edits=[nothing | swap("null.txt", "one", "two")])
    swapped = swap("null.txt", "two", "3")
    assert either.is_refused("apply_edits", edits=[swapped | {"base": None}])[1]["error"] == "stale"
    assert "`new`" in either.is_refused("apply_edits", edits=[swapped | {"new": None}])[0]
    either.does("apply_edits", edits=[{"op": "delete", "path": "null.txt", "to": None}])


def test_an_unknown_tool_is_refused_with_those_that_there_are(either: Agent) -> None:
    assert "rollback_session" in either.is_refused("nonsense")[0]


# ── Dialects ──────────────────────────────────────────────────────────────────────────────────


def test_a_dialect_s_tools_are_listed_as_the_daemon_has_them(shared: Workplace, modern: Agent) -> None:
    with shared.client() as client:
        entries = {tool.name: tool for entry in client.dialects().dialects for tool in entry.tools}
    listed = {tool.name: tool for tool in modern.tools()}
    assert set(listed) == set(entries) | OWN_NAMES
    for name, entry in entries.items():
        assert listed[name].input_schema == entry.schema
        assert listed[name].description == entry.description
        annotations = listed[name].annotations
        assert annotations is not None
        assert annotations.read_only_hint is entry.read_only
        assert annotations.destructive_hint is (None if entry.read_only else entry.destructive)
        assert annotations.idempotent_hint is entry.idempotent


def test_each_dialect_s_tools_answer_in_their_own_words(shared: Workplace, modern: Agent) -> None:
    root = str(shared.root.resolve())
    shared.write({"d.txt": "one\ntwo\nthree\n"})
    swapped = "Successfully modified file: {root}/d.txt (1 replacements)."
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("str_replace_based_edit_tool", {"command": "view", "path": "d.txt"}, "     1\tone\n     2\ttwo"),
        (
            "str_replace_based_edit_tool",
            {"command": "str_replace", "path": "d.txt", "old_str": "one", "new_str": "1"},
            "edited",
        ),
        (
            "replace_in_file",
            {"path": "d.txt", "diff": "------- SEARCH\n1\n=======\none\n+++++++ REPLACE"},
            "d.txt",
        ),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Update File: d.txt\n@@\n-one\n+1\n*** End Patch"},
            "Success. Updated the following files:\nM d.txt\n",
        ),
        ("replace", {"file_path": f"{root}/d.txt", "old_string": "1", "new_string": "one"}, swapped),
        (
            "search_and_replace",
            {"path": "d.txt", "search": "t(w)o", "replace": "T$1O", "use_regex": True},
            "d.txt",
        ),
        (
            "replace_content",
            {"relative_path": "d.txt", "needle": "TwO", "repl": "two", "mode": "literal"},
            "OK",
        ),
        ("ReadFiles", {"file_paths": [f"{root}/d.txt"], "thread_id": "t"}, "1 one\n2 two"),
        (
            "FileWriteOrEdit",
            {
                "file_path": f"{root}/d.txt",
                "percentage_to_change": 100,
                "text_or_search_replace_blocks": "new\n",
                "thread_id": "t",
            },
            "Success",
        ),
    ]
    assert {name for name, _, _ in calls} == {tool.name for tool in modern.tools()} - OWN_NAMES
    for name, arguments, expected in calls:
        found = modern.call(name, **arguments)
        said = text_of(found)
        assert not found.is_error, (name, said)
        assert expected.format(root=root) in said, (name, said)
        assert found.structured_content["answer"] == said
    assert shared.files()["d.txt"] == b"new\n"
    modern.does("rollback_session")
    assert shared.files()["d.txt"] == b"one\ntwo\nthree\n"


def test_a_dialect_s_refusal_has_its_own_words_too(modern: Agent, shared: Workplace) -> None:
    shared.write({"e.txt": "same\nsame\n"})
    text, data = modern.is_refused(
        "str_replace_based_edit_tool", command="str_replace", path="e.txt", old_str="same", new_str="x"
    )
    assert data["error"] == "ambiguous"
    assert "`old_str` is in e.txt 2 times, at lines 1, 2" in text
    wrong = modern.is_refused("replace", file_path="e.txt", old_string="same", nonsense=1)[1]
    assert wrong["error"] == "invalid_params"


OWN_NAMES = {
    "apply_edits", "read_file", "undo", "redo", "rollback_session", "log", "diff", "blame", "lease",
    "proposal_status", "withdraw_proposal",
}  # fmt: skip


# ── The connection ────────────────────────────────────────────────────────────────────────────


def test_a_session_is_named_after_the_client_and_a_second_one_has_a_number(
    shared: Workplace, modern: Agent, legacy: Agent
) -> None:
    for one, name in ((modern, "agent"), (legacy, "agent-2")):
        seq = one.does("apply_edits", edits=[write(f"{name}.txt", "")])["transaction"]
        entry = one.does("log", limit=1)["transactions"][0]
        assert (entry["seq"], entry["session"], entry["actor"]) == (seq, name, "agent")
    with shared.client() as client:
        assert {entry.session for entry in client.session_list().sessions} >= {"agent", "agent-2"}


def test_without_dialects_the_tools_are_few_and_their_description_is_cheap(legacy: Agent) -> None:
    tools = legacy.tools()
    assert {tool.name for tool in tools} == OWN_NAMES
    listed = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
    answers = [tool.pop("outputSchema") for tool in listed]  # for programs: models are not shown it
    assert len(json.dumps({"tools": listed}, separators=(",", ":"))) < 7_600  # some 1,900 tokens
    assert len(json.dumps(answers, separators=(",", ":"))) < 5_200


def test_a_long_call_tells_of_its_progress_and_another_passes_it(modern: Agent, legacy: Agent) -> None:
    lease = modern.does("lease", action="acquire", paths=["slow/**"])["lease"]
    heard: list[tuple[float, str | None]] = []

    async def wait_for_it() -> Any:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            assert total is None
            heard.append((progress, message))

        arguments = {"action": "acquire", "paths": ["slow/**"], "wait": 10}
        return await legacy.client.call_tool("lease", arguments, progress_callback=hear)

    waiting = legacy.portal.start_task_soon(wait_for_it)
    deadline = time.monotonic() + 20
    while not heard and time.monotonic() < deadline:
        legacy.does("log", limit=1)
        time.sleep(0.05)
    assert not waiting.done()
    modern.does("lease", action="release", lease=lease)
    assert waiting.result(20).structured_content["lease"] != lease
    assert heard[0][0] >= 1.0
    assert heard[0][1] == "lease: 1 s"
    legacy.does("lease", action="release", lease=waiting.result().structured_content["lease"])


def test_a_call_that_is_cancelled_waits_no_more(shared: Workplace, modern: Agent, either: Agent) -> None:
    with shared.client() as other:
        other.session_open("other")
        lease = other.lease_acquire(["cancelled/**"], 60).lease

        async def give_up() -> None:
            with anyio.move_on_after(0.3):
                await either.client.call_tool(
                    "lease", {"action": "acquire", "paths": ["cancelled/**"], "wait": 30}
                )

        either.portal.call(give_up)
        deadline = time.monotonic() + 10
        while other.lease_list().waiting and time.monotonic() < deadline:
            time.sleep(0.02)
        assert other.lease_list().waiting == 0
        other.lease_release(lease)
        other.session_close()
    assert either.does("lease", action="list")["leases"] == []


def test_many_calls_that_wait_keep_none_off_and_can_all_be_cancelled(
    shared: Workplace, modern: Agent, either: Agent
) -> None:
    modern.does("apply_edits", edits=[write("beside.txt", "beside\n")])
    arguments = {"action": "acquire", "paths": ["crowd/**"], "wait": 60}
    with shared.client() as other:
        other.session_open("other")
        other.lease_acquire(["crowd/**"], 60)

        said: list[Any] = []

        async def wait_in_a_crowd() -> Any:
            async with anyio.create_task_group() as crowd:
                for _ in range(60):
                    crowd.start_soon(either.client.call_tool, "lease", arguments)
                for _ in range(500):
                    if other.lease_list().waiting == 60:
                        break
                    await anyio.sleep(0.02)
                with anyio.fail_after(10):
                    said.append(await either.client.call_tool("read_file", {"path": "beside.txt"}))
                crowd.cancel_scope.cancel()
            return said.pop()

        assert not either.portal.call(wait_in_a_crowd).is_error
        deadline = time.monotonic() + 10
        while other.lease_list().waiting and time.monotonic() < deadline:
            time.sleep(0.02)
        assert other.lease_list().waiting == 0
        other.session_close()


def test_a_daemon_that_is_killed_or_stopped_in_between_is_started_and_the_session_goes_on(
    shared: Workplace, modern: Agent, legacy: Agent
) -> None:
    modern.does("apply_edits", edits=[write("k.txt", "k\n")])
    time.sleep(1.1)  # what a session has seen is written a second behind
    shared.kill()
    seq = modern.does("apply_edits", edits=[swap("k.txt", "k", "K")])["transaction"]
    assert legacy.does("read_file", path="k.txt")["content"] == "K\n"
    entry = legacy.does("log", limit=1)["transactions"][0]
    assert (entry["seq"], entry["session"]) == (seq, "agent")
    shared.terminate()
    assert modern.does("apply_edits", edits=[swap("k.txt", "K", "k")])["transaction"] == seq + 1
    assert legacy.does("log", limit=1)["transactions"][0]["session"] == "agent"


def test_a_session_that_was_ended_from_outside_is_opened_anew(shared: Workplace, modern: Agent) -> None:
    with shared.client() as client:
        client.session_close("agent", force=True)
    lease = modern.does("lease", action="acquire", paths=["anew/**"])["lease"]
    with shared.client() as client:
        assert [one.session for one in client.lease_list().leases] == ["agent"]
    modern.does("lease", action="release", lease=lease)


def test_a_session_that_was_ended_while_the_daemon_was_started_anew_is_opened_anew(place: Workplace) -> None:
    with place.start(), agent(place, "--session", "named") as made:
        made.does("log")
        place.kill()
        with place.start() as client:
            client.session_close("named", force=True)
        assert made.does("lease", action="acquire", paths=["anew/**"])["lease"]


# ── How it begins and ends ────────────────────────────────────────────────────────────────────


def test_a_session_by_name_ends_with_its_connection_and_leaves_its_edits(shared: Workplace) -> None:
    with agent(shared, "--session", "named") as made:
        made.does("apply_edits", edits=[write("n.txt", "n\n")])
        made.does("lease", action="acquire", paths=["n/**"])
        with agent(shared, "--session", "named", mode=LEGACY) as second:
            text, data = second.is_refused("log")
            assert data["error"] == "unknown_session"
            assert "'named' is open already" in text
    with shared.client() as client:
        assert "named" not in {entry.session for entry in client.session_list().sessions}
        assert not [one for one in client.lease_list().leases if one.session == "named"]
        assert client.log(session="named").transactions[0].files[0].path == "n.txt"
    assert shared.files()["n.txt"] == b"n\n"


def test_a_session_that_the_environment_holds_is_joined_and_left_open(shared: Workplace) -> None:
    with shared.client() as client:
        token = client.session_open("held", actor="Ann").token
    with agent(shared, EDITD_SESSION="held", EDITD_TOKEN=token) as made:
        made.does("apply_edits", edits=[write("by-held.txt", "")])
        entry = made.does("log", limit=1)["transactions"][0]
        assert (entry["session"], entry["actor"]) == ("held", "Ann")
    with shared.client() as client:
        assert "held" in {entry.session for entry in client.session_list().sessions}
        client.session_close("held", force=True)


def test_clines_answer_warns_how_many_other_places_its_first_match_had(
    shared: Workplace, modern: Agent
) -> None:
    shared.write({"twins.txt": "x\nmiddle\nx\nx\n"})
    diff = "------- SEARCH\nx\n=======\ny\n+++++++ REPLACE\n"
    done = modern.call("replace_in_file", path="twins.txt", diff=diff)
    assert shared.files()["twins.txt"] == b"y\nmiddle\nx\nx\n"
    warning = (
        "first_match: block 1 (line 1 of the diff) matches 2 other places of twins.txt as well, "
        "at lines 3, 4; only line 1 changed."
    )
    assert text_of(done).endswith(f"Warning: {warning}")
    assert done.structured_content["warnings"] == [warning]


def test_standard_output_is_the_protocol_s_alone_and_a_signal_ends_the_session(shared: Workplace) -> None:
    command = [sys.executable, "-P", "-W", "always", "-m", "editd_client", "mcp", "--dialect", "claude"]
    info = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    edit = {"name": "apply_edits", "arguments": {"edits": [write("raw.txt", "é\n")]}}
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": info},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": edit},
        {"id": 4, "method": "tools/call", "params": {"name": "log", "arguments": {"limit": "x"}}},
    ]
    with subprocess.Popen(
        command, env=shared.environment, cwd=shared.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in asked:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for message in asked if "id" in message]
        assert {one["id"] for one in answers} == {1, 2, 3, 4}
        assert all(one["jsonrpc"] == "2.0" and "result" in one for one in answers)
        with shared.client() as client:
            assert "raw" in {entry.session for entry in client.session_list().sessions}
            server.send_signal(signal.SIGTERM)
            assert server.wait(10) == 128 + signal.SIGTERM
            assert "raw" not in {entry.session for entry in client.session_list().sessions}
        assert server.stdout.read() == b""


def test_gemini_gets_a_refusal_once_and_its_session_a_short_name(shared: Workplace) -> None:
    info = {"name": "gemini-cli-mcp-client", "version": "1"}
    asked: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info},
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "no.txt"}}},
        {"id": 3, "method": "tools/call", "params": {"name": "log", "arguments": {}}},
    ]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "editd_client", "mcp"],
        env=shared.environment, cwd=shared.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        for message in asked:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for message in asked if "id" in message]
        results = {one["id"]: one["result"] for one in answers}
        assert results[2]["isError"]
        assert results[2]["content"][0]["text"]
        assert "structuredContent" not in results[2]
        assert "structuredContent" in results[3]
        with shared.client() as client:
            assert "gemini-cli" in {entry.session for entry in client.session_list().sessions}
        server.stdin.close()
        assert server.wait(10) == 0


def test_the_descriptions_have_the_words_that_an_agent_searches_for(modern: Agent) -> None:
    text = " ".join(str(tool.description) for tool in modern.tools()).lower()
    assert [
        w for w in ("edit file", "read file", "undo", "rollback", "blame", "lease") if w not in text
    ] == []


def test_without_the_sdk_it_says_what_to_install(shared: Workplace) -> None:
    program = (
        "import sys; sys.modules['mcp'] = None; sys.modules['mcp_types'] = None;"
        "from editd_client.cli import run; sys.exit(run(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=shared.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "pipx install --force '.[mcp]'" in done.stderr
    assert done.stdout == ""


def test_a_wrong_dialect_or_tool_fails_at_the_start_with_the_nearest(shared: Workplace) -> None:
    for words, said in (
        (["--dialect", "gemni"], "There is no dialect 'gemni'"),
        (["--tools", "read"], "There is no tool 'read'"),
        (["--dialect", "cline", "--tools", "replace"], "There is no tool 'replace'"),
    ):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "editd_client", "mcp", *words],
            env=shared.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stdout == ""
        assert said in done.stderr
        assert "Did you mean `" in done.stderr


def test_where_no_workspace_can_be_the_tools_are_listed_and_a_call_says_why(shared: Workplace) -> None:
    home = shared.folder / "home"
    with agent(shared, folder=home) as made:
        assert {tool.name for tool in made.tools()} == OWN_NAMES
        text, data = made.is_refused("log")
        assert data["error"] == "permission_denied"
        assert "--workspace DIR" in text
    assert os.listdir(home) == []


@pytest.mark.parametrize("is_named", [False, True])
def test_a_socket_of_another_workspace_leads_no_edit_there(
    shared: Workplace, modern: Agent, is_named: bool
) -> None:
    another = shared.folder / "another"
    another.mkdir(exist_ok=True)
    words = ["--workspace", str(another)] if is_named else []
    there: dict[str, Any] = {"EDITD_SOCKET": shared.socket, "EDITD_WORKSPACE": ""}
    with agent(shared, *words, name="stray", folder=another, **there) as stray:
        said, told = stray.is_refused("apply_edits", edits=[write("stray.txt", "x\n")])
    assert told["error"] == "path_outside"
    assert f"serves {shared.root}, not {another}" in said
    assert "stray.txt" not in shared.files()


def test_a_socket_of_the_workspace_that_the_agent_is_in_is_good(shared: Workplace, modern: Agent) -> None:
    below = shared.root / "below"
    below.mkdir(exist_ok=True)
    there: dict[str, Any] = {"EDITD_SOCKET": shared.socket, "EDITD_WORKSPACE": ""}
    with agent(shared, name="inside", folder=below, **there) as inside:
        inside.does("apply_edits", edits=[write("inside.txt", "x\n")])
    assert "inside.txt" in shared.files()


def test_a_dialect_of_another_package_is_offered(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "greetings", HELLO_ENTRY_POINTS, {"greetings": HELLO_DIALECT})
    with workplace(tmp_path / "place", {"a.txt": "a\n"}) as place:
        place.is_forked = False
        place.variables["PYTHONPATH"] = str(site)
        words = ("--dialect", "hello", "--dialect", "roo", "--tools", "greet,search_and_replace")
        with place.start(), agent(place, "--workspace", str(place.root), *words) as made:
            assert made.does("greet", path="a.txt")["answer"] == "Greeted."
            assert (place.root / "a.txt").read_text() == "a\nhello\n"
