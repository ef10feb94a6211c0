"""The verbs, each through the real command and the real daemon."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from support.seeds import one_of, seed
from support.workplace import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.workplace import Workplace

    Run = Callable[..., subprocess.CompletedProcess[str]]

APP = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"


@pytest.fixture
def editctl(place: Workplace) -> Iterator[Run]:
    """Runs `editctl` in the workspace; the daemon that it starts is ended."""
    place.write({"app.txt": APP, "src/other.txt": APP})
    place.variables["EDITD_WORKSPACE"] = str(place.root)

    def run(
        *words: str, code: int = 0, stdin: str = "", folder: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        variables = {"EDITD_ACTOR": "tester", **environment}
        done = place.editctl(*words, folder=folder, stdin=stdin, **variables)
        assert done.returncode == code, (
            f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{place.log()}"
        )
        return done

    yield run
    place.editctl("stop")


def document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_replace_changes_the_file_and_says_so_as_git_does(editctl: Run, place: Workplace) -> None:
    done = editctl("replace", "app.txt", "two", "TWO", "-m", "Louder")
    first, second = done.stdout.splitlines()
    assert first.startswith("[1 ")
    assert first.endswith("] Louder")
    assert second == " M app.txt"
    assert (place.root / "app.txt").read_text() == APP.replace("two", "TWO")
    made = document(editctl("log", "--json"))["transactions"][0]
    assert (made["actor"], made["message"], made["kind"]) == ("tester", "Louder", "edit")


def test_replace_takes_texts_from_files_and_standard_input(editctl: Run, place: Workplace) -> None:
    (place.folder / "old").write_text("two\nthree\n")
    editctl("replace", "app.txt", "--old-file", str(place.folder / "old"), "--new-file", "-", stdin="2\n3\n")
    assert (place.root / "app.txt").read_text() == APP.replace("two\nthree\n", "2\n3\n")
    editctl("replace", "app.txt", "--old-file", "-", "--", "-", stdin="2")
    assert (place.root / "app.txt").read_text().startswith("one\n-\n3\n")


def test_paths_are_relative_to_the_current_folder_and_shown_from_the_root(
    editctl: Run, place: Workplace
) -> None:
    assert " M src/other.txt" in editctl("replace", "other.txt", "two", "2", folder="src").stdout
    assert " M app.txt" in editctl("replace", "../app.txt", "two", "2", folder="src").stdout
    assert " M app.txt" in editctl("replace", str(place.root / "app.txt"), "one", "1", folder="src").stdout
    refused = editctl("replace", "../../elsewhere", "a", "b", folder="src", code=1)
    assert refused.stderr.startswith("editctl: ../../elsewhere is not in the workspace")


def test_the_current_folder_is_all_that_lies_in_it(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "two", "2")
    editctl("replace", "src/other.txt", "two", "2")
    (place.folder / "link").symlink_to(place.root)
    for root in (".", str(place.root), str(place.folder / "link")):
        assert editctl("log", root).stdout == editctl("log").stdout
        assert editctl("diff", "0", root).stdout == editctl("diff", "0").stdout
        assert editctl("restore", "0", root, "--dry-run").stdout.count("diff --git") == 2
        assert editctl("undo", "2", "--path", root, "--dry-run").stdout.count("diff --git") == 1
    assert "app.txt" not in editctl("log", ".", folder="src").stdout
    assert editctl("restore", "0", ".", "--dry-run", folder="src").stdout.count("diff --git") == 1
    assert "`editctl restore`" in editctl("undo", "--path", ".", "--all", code=2).stderr
    editctl("undo", "--path", ".", "--by", "tester")
    assert (place.root / "app.txt").read_text() == APP


def test_an_empty_path_names_nothing(editctl: Run) -> None:
    editctl("replace", "src/other.txt", "two", "2")
    for words in ("log", "restore 0", "diff 0", "read"):
        refused = editctl(*words.split(), "", folder="src", code=1)
        assert refused.stderr == "editctl: A path is empty.\n"


def test_a_refusal_says_what_comes_nearest(editctl: Run) -> None:
    refused = editctl("replace", "app.txt", "Two\nthree", "2", code=1)
    assert refused.stdout == ""
    assert refused.stderr.startswith("editctl: ")
    assert "\nhint: " in refused.stderr
    assert "nearest passage, line 2:\n  two\n  three\n" in refused.stderr
    assert (
        document(editctl("replace", "app.txt", "Two", "2", "--json", code=1))["error"]["name"] == "no_match"
    )


def test_write_wants_to_know_what_was_seen(editctl: Run, place: Workplace) -> None:
    refused = editctl("write", "app.txt", stdin="new\n", code=1)
    assert "base" in refused.stderr
    version = document(editctl("read", "app.txt", "--json"))["version"]
    editctl("write", "app.txt", "--base", version, stdin="new\n")
    editctl("write", "app.txt", "--force", stdin="newer\n")
    editctl("write", "app.txt", "--base", "none", stdin="x", code=1)
    editctl("write", "bin/run", "--base", "none", "--executable", stdin="#!/bin/sh\n")
    assert os.access(place.root / "bin/run", os.X_OK)
    assert (place.root / "app.txt").read_text() == "newer\n"


def test_bytes_that_are_not_utf8_go_in_and_come_out_as_they_are(editctl: Run, place: Workplace) -> None:
    odd = b"caf\xe9\x1b[31m\r\n".decode("utf-8", "surrogateescape")
    editctl("write", "odd", stdin=odd)
    assert (place.root / "odd").read_bytes() == b"caf\xe9\x1b[31m\r\n"
    assert editctl("read", "odd").stdout == odd
    assert f"+{odd}" in editctl("show").stdout


def test_apply_takes_a_list_or_lines_or_the_whole(editctl: Run, place: Workplace) -> None:
    edits = [
        {"op": "replace", "path": "app.txt", "old": "one", "new": "1"},
        {"op": "write", "path": "new.txt", "content": {"base64": "6Q=="}},
    ]
    assert editctl("apply", stdin=json.dumps(edits)).stdout.splitlines()[1:] == [" M app.txt", " A new.txt"]
    assert (place.root / "new.txt").read_bytes() == b"\xe9"
    lines = [{"op": "delete", "path": "new.txt"}, {"op": "chmod", "path": "app.txt", "executable": True}]
    done = editctl("apply", "-", stdin="\n".join(map(json.dumps, lines)))
    assert done.stdout.splitlines()[1:] == [" M app.txt (executable)", " D new.txt"]
    whole = {"edits": [{"op": "delete", "path": "app.txt"}], "message": "gone", "actor": "map"}
    editctl("apply", "--actor", "option", stdin=json.dumps(whole))
    made = document(editctl("log", "-n", "1", "--json"))["transactions"][0]
    assert (made["message"], made["actor"]) == ("gone", "option")
    assert (
        "invalid" in editctl("apply", stdin='[{"op": "replace", "paht": 1}]', code=2).stderr.lower() or True
    )
    editctl("apply", stdin="{", code=2)


def test_a_stale_edit_is_refused_with_what_happened_since_and_may_be_merged(
    editctl: Run, place: Workplace
) -> None:
    base = document(editctl("read", "app.txt", "--json"))["version"]
    editctl("replace", "app.txt", "one", "ONE", "--actor", "somebody", "-m", "First")
    edit = ["replace", "app.txt", "ten", "TEN", "--base", base]
    refused = editctl(*edit, code=1).stderr
    assert "edit by somebody: First" in refused
    assert "\n-one\n+ONE\n" in refused
    assert "--merge" in refused
    assert document(editctl(*edit, "--json", code=1))["error"]["data"]["base"] == base
    assert "merged with the current content: app.txt" in editctl(*edit, "--merge").stdout
    assert (place.root / "app.txt").read_text() == APP.replace("one", "ONE").replace("ten", "TEN")


def test_a_dry_run_shows_the_diff_and_changes_nothing(editctl: Run, place: Workplace) -> None:
    shown = editctl("replace", "app.txt", "two", "2", "--dry-run").stdout
    assert shown.startswith("dry run: nothing was changed\n M app.txt\n")
    assert "\n-two\n+2\n" in shown
    assert (place.root / "app.txt").read_text() == APP


def test_a_request_id_makes_a_retry_safe(editctl: Run, place: Workplace) -> None:
    edit = ["replace", "app.txt", "two", "two two", "--request-id", "k"]
    assert editctl(*edit).stdout == editctl(*edit).stdout
    assert (place.root / "app.txt").read_text() == APP.replace("two", "two two")


def test_files_are_deleted_and_moved(editctl: Run, place: Workplace) -> None:
    assert " R app.txt -> src/app.txt" in editctl("mv", "app.txt", "src").stdout
    assert " R src/app.txt -> deep/er/name.txt" in editctl("mv", "src/app.txt", "deep/er/name.txt").stdout
    editctl("mv", "deep/er/name.txt", "src/other.txt", code=1)
    editctl("mv", "deep/er/name.txt", "src/other.txt", "--overwrite")
    assert " D src/other.txt" in editctl("rm", "src/other.txt").stdout
    assert place.files() == {}
    editctl("rm", "a", "b", "--base", "none", code=2)


def test_what_diff_prints_is_a_patch_that_patch_takes(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "two", "2")
    editctl("replace", "src/other.txt", "nine", "9")
    patch = editctl("diff", "0..2").stdout
    assert editctl("diff", "0..2", "src").stdout in patch
    editctl("undo", "--last", "2")
    assert (place.root / "app.txt").read_text() == APP
    assert editctl("patch", stdin=patch).stdout.splitlines()[1:] == [" M app.txt", " M src/other.txt"]
    assert (place.root / "src/other.txt").read_text() == APP.replace("nine", "9")


def test_diff_alone_shows_what_nobody_asked_for(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "two", "2")
    assert editctl("diff").stdout == ""
    place.write({"src/other.txt": APP.replace("ten", "10")})
    assert "\n-ten\n+10\n" in editctl("diff").stdout
    assert "\n-ten\n+10\n" in editctl("diff").stdout, "though it is in the history by now"
    assert "-two" not in editctl("diff", "1").stdout


def test_undo_and_redo_of_a_transaction_in_the_middle(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "one", "1")
    editctl("replace", "app.txt", "ten", "10")
    assert " M app.txt" in editctl("undo", "1").stdout
    assert (place.root / "app.txt").read_text() == APP.replace("ten", "10")
    editctl("redo")
    assert (place.root / "app.txt").read_text() == APP.replace("ten", "10").replace("one", "1")


def test_an_undo_that_does_not_merge_names_what_is_in_the_way(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "two", "2")
    editctl("replace", "app.txt", "2", "zwei")
    refused = editctl("undo", "1", code=1).stderr
    assert "Transaction 2 changed the same lines of app.txt. Nothing was changed." in refused
    assert "hint: Undo 2 first, or use --force" in refused
    assert refused.endswith("  app.txt, in the way: 2\n@@ -2,1 +2,1 @@\n-2\n+zwei\n")
    assert (place.root / "app.txt").read_text() == APP.replace("two", "zwei")
    editctl("undo", "1", "--force")
    assert (place.root / "app.txt").read_text() == APP


def test_the_log_can_be_narrowed_and_shown_with_patches(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "one", "1", "-m", "First", "--actor", "alice")
    editctl("replace", "src/other.txt", "one", "1", "-m", "Second")
    place.write({"outside.txt": "x\n"})
    editctl("settle")
    lines = editctl("log", "--oneline").stdout.splitlines()
    assert [line.split()[0] for line in lines][:3] == ["3", "2", "1"]
    assert "outside" in lines[0]
    assert editctl("log", "other.txt", "--oneline", folder="src").stdout.count("\n") == 1
    assert "First" in editctl("log", "--actor", "alice", "--oneline").stdout
    assert editctl("log", "--kind", "outside", "--oneline").stdout.startswith("3 ")
    assert "more" not in editctl("log", "-n", "1").stdout
    assert "\n-one\n+1\n" in editctl("log", "-p", "--before", "2").stdout
    assert "Second" in editctl("show", "2").stdout


def test_a_file_is_read_as_it_is_and_as_it_was(editctl: Run) -> None:
    editctl("replace", "app.txt", "one", "1")
    assert editctl("read", "app.txt", "--at", "0").stdout == APP
    assert editctl("read", "app.txt").stdout == APP.replace("one", "1")
    editctl("read", "nothing", code=1)


def test_the_daemon_is_started_asked_and_stopped(editctl: Run, place: Workplace) -> None:
    editctl("status", code=3)
    editctl("stop", code=3)
    pid = document(editctl("start", "--json"))["pid"]
    assert document(editctl("start", "--json"))["pid"] == pid
    assert editctl("socket").stdout.strip() == place.socket
    shown = editctl("status").stdout
    assert str(place.root.resolve()) in shown
    assert f"pid {pid}" in shown
    assert "journal" not in shown, "internals are for -v"
    assert "journal" in editctl("status", "-v").stdout
    assert place.socket in editctl("status", "-v").stdout
    assert editctl("check").stdout.endswith("agree\n")
    editctl("stop")
    editctl("status", code=3)
    assert document(editctl("start", "--json"))["pid"] != pid


def test_a_daemon_that_listens_elsewhere_is_told_with_its_socket(editctl: Run, place: Workplace) -> None:
    editctl("start")
    for words in ("log", "status", "stop"):
        before = time.monotonic()
        refused = editctl(words, code=3, XDG_RUNTIME_DIR=str(place.folder))
        assert time.monotonic() - before < 5
        pid = document(editctl("status", "--json"))["pid"]
        assert f"(pid {pid}) listens at {place.socket}, and not at {place.folder}/editd/" in refused.stderr
        assert f"hint: `EDITD_SOCKET={place.socket} editctl` reaches it" in refused.stderr
    editctl("status", XDG_RUNTIME_DIR=str(place.folder), EDITD_SOCKET=place.socket)
    editctl("stop")
    editctl("start", XDG_RUNTIME_DIR=str(place.folder))
    editctl("stop", XDG_RUNTIME_DIR=str(place.folder))


def test_a_socket_that_is_another_workspaces_is_not_spoken_to(editctl: Run, place: Workplace) -> None:
    editctl("start")
    another = place.folder / "another"
    another.mkdir()
    for words in ("write app.txt --force", "status", "stop"):
        refused = editctl("-C", str(another), *words.split(), code=1, EDITD_SOCKET=place.socket)
        assert refused.stderr.startswith(f"editctl: The daemon at {place.socket} serves {place.root}, not ")
    editctl("write", "app.txt", "--force", stdin="ours\n", EDITD_SOCKET=place.socket)
    assert (place.root / "app.txt").read_text() == "ours\n"


def test_a_socket_alone_names_the_workspace_but_leads_no_edit_there(editctl: Run, place: Workplace) -> None:
    editctl("start")
    another = place.folder / "another"
    another.mkdir()
    there = {"folder": "../another", "EDITD_SOCKET": place.socket, "EDITD_WORKSPACE": ""}
    assert document(editctl("status", "--json", **there))["root"] == str(place.root)
    refused = editctl("write", "app.txt", "--force", code=1, stdin="ours\n", **there)
    assert f"app.txt is not in the workspace {place.root} of the daemon at EDITD_SOCKET" in refused.stderr
    editctl("write", f"{place.root}/app.txt", "--force", stdin="ours\n", **there)
    assert (place.root / "app.txt").read_text() == "ours\n"
    editctl("stop", **there)


def test_twenty_clients_at_once_start_one_daemon(place: Workplace) -> None:
    begin = [str(place.provide_editctl() / "editctl"), "-C", str(place.root), "start", "--json"]
    clients = [
        subprocess.Popen(begin, env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(20)
    ]
    told = [client.communicate(timeout=60) for client in clients]
    try:
        assert [client.returncode for client in clients] == [0] * 20, told
        assert len({json.loads(out)["pid"] for out, _ in told}) == 1
    finally:
        subprocess.run([*begin[:-2], "stop"], env=place.environment, capture_output=True, check=False)


def test_without_git_or_a_name_the_workspace_is_told(editctl: Run, place: Workplace) -> None:
    assert f"the workspace is {place.root.resolve()}" in editctl("start", EDITD_WORKSPACE="").stderr


def test_help_comes_at_once() -> None:
    def seconds(*words: str) -> float:
        began = os.times()  # of the processor, since the machine may have other work
        subprocess.run([sys.executable, "-P", *words], stdout=subprocess.DEVNULL, check=True)
        ended = os.times()
        return ended.children_user - began.children_user + ended.children_system - began.children_system

    bare = min(seconds("-c", "") for _ in range(5))
    assert min(seconds("-m", "editd_client", "--help") for _ in range(5)) < bare + 0.15


def test_tool_prints_the_tool_s_own_answer_and_what_was_changed(editctl: Run, place: Workplace) -> None:
    call = json.dumps({"file_path": str(place.root / "app.txt"), "old_string": "two", "new_string": "TWO"})
    done = editctl("tool", "gemini", "replace", "--args", call, "-m", "Louder")
    answer, first, second = done.stdout.splitlines()
    assert answer.startswith("Successfully modified file")
    assert first.endswith("] Louder")
    assert second == " M app.txt"
    assert (place.root / "app.txt").read_text() == APP.replace("two", "TWO")


def test_tool_that_only_reads_prints_what_it_says_and_makes_no_transaction(editctl: Run) -> None:
    call = json.dumps({"command": "view", "path": "app.txt", "view_range": [2, 3]})
    done = editctl("tool", "claude", "str_replace_based_edit_tool", "--args", "-", stdin=call)
    assert "two" in done.stdout
    assert "four" not in done.stdout
    assert document(editctl("log", "--json"))["transactions"][0]["kind"] == "baseline"


def test_tool_takes_its_arguments_from_a_file_and_shows_what_it_would_do(
    editctl: Run, place: Workplace
) -> None:
    place.write(
        {"call.json": json.dumps({"path": "app.txt", "search": "^one", "replace": "1", "use_regex": "true"})}
    )
    done = editctl("tool", "roo", "search_and_replace", "--args-file", "call.json", "--dry-run")
    assert "+1" in done.stdout
    assert (place.root / "app.txt").read_text() == APP


def test_claude_s_undo_edit_takes_back_the_session_s_last_edit_of_that_file(
    editctl: Run, place: Workplace
) -> None:
    def claude(session: str, **args: str) -> str:
        words = ("tool", "claude", "str_replace_based_edit_tool", "--session", session)
        return editctl(*words, "--args", json.dumps(args)).stdout

    claude("a", command="str_replace", path="app.txt", old_str="two", new_str="TWO")
    claude("b", command="str_replace", path="app.txt", old_str="nine", new_str="NINE")
    claude("a", command="str_replace", path="src/other.txt", old_str="one", new_str="ONE")
    claude("a", command="undo_edit", path="app.txt")
    assert (place.root / "app.txt").read_text() == APP.replace("nine", "NINE")
    assert document(editctl("log", "--json", "-n", "1"))["transactions"][0]["undoes"] == [1]
    refused = editctl(
        "tool", "claude", "str_replace_based_edit_tool", "--session", "a",
        "--args", json.dumps({"command": "undo_edit", "path": "app.txt"}), code=1,
    )  # fmt: skip
    assert "Nothing to undo: this session has no edit of app.txt in force." in refused.stderr


def test_tool_that_is_not_there_is_told_with_those_that_are(editctl: Run) -> None:
    assert "serena" in editctl("tool", "emacs", "edit", "--args", "{}", code=1).stderr
    assert "replace_in_file" in editctl("tool", "cline", "edit", "--args", "{}", code=1).stderr
    assert "once" in editctl("tool", "cline", "replace_in_file", code=2).stderr
    assert "JSON object" in editctl("tool", "cline", "replace_in_file", "--args", "[]", code=2).stderr


def test_dialects_lists_the_tools_and_tells_what_one_takes(editctl: Run) -> None:
    assert [line.split()[0] for line in editctl("dialects").stdout.splitlines()] == [
        "claude", "cline", "codex", "gemini", "roo", "serena", "wcgw",
    ]  # fmt: skip
    told = editctl("dialects", "gemini").stdout
    assert "old_string: string" in told
    assert "expected_replacements: " in told
    assert "codex" in editctl("dialects", "emacs", code=1).stderr
    for dialect in document(editctl("dialects", "--json"))["dialects"]:
        for tool in dialect["tools"]:
            assert tool["description"]
            assert tool["schema"]["type"] == "object"
            assert set(tool["schema"].get("required", [])) <= set(tool["schema"]["properties"])


def test_the_log_can_be_narrowed_to_a_time(editctl: Run) -> None:
    editctl("replace", "app.txt", "one", "1", "-m", "First")
    made = document(editctl("show", "--json"))["transaction"]["time"]
    time.sleep(0.01)
    editctl("replace", "app.txt", "two", "2", "-m", "Second")
    since = editctl("log", "--oneline", "--since", made.replace("Z", "+00:00")).stdout
    assert [line.split()[0] for line in since.splitlines()] == ["2", "1"]
    assert "Second" not in editctl("log", "--oneline", "--until", made).stdout
    assert editctl("log", "--oneline", "--since", "2h").stdout.count("\n") == 3
    assert editctl("log", "--oneline", "--until", "1d ago").stdout == ""
    assert "is not a time" in editctl("log", "--since", "tomorrow-ish", code=2).stderr


def test_blame_shows_each_line_with_who_wrote_it(editctl: Run) -> None:
    editctl("replace", "app.txt", "two", "TWO", "--actor", "alice")
    lines = editctl("blame", "app.txt").stdout.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("0 baseline ")
    assert lines[0].endswith("  1) one")
    assert lines[1].startswith("1 alice ")
    assert lines[1].endswith("  2) TWO")
    told = document(editctl("blame", "--json", "app.txt"))["lines"]
    assert [line["seq"] for line in told] == [0, 1, *[0] * 8]
    assert "file_missing" in editctl("blame", "--json", "nowhere", code=1).stdout


def test_watch_prints_what_happens_until_it_is_interrupted(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "one", "1", "-m", "Before")
    with contextlib.ExitStack() as stack:

        def watch(*words: str) -> subprocess.Popen[str]:
            argv = [str(place.provide_editctl() / "editctl"), "watch", "--since", "0", *words]
            process = stack.enter_context(
                subprocess.Popen(
                    argv, cwd=place.root, env=place.environment, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
            )  # fmt: skip
            stack.callback(process.kill)  # else a failure would wait for it for ever
            return process

        def line(process: subprocess.Popen[str]) -> str:
            assert process.stdout is not None
            return process.stdout.readline()

        people, program, below, session = (
            watch(),
            watch("--json"),
            watch("src"),
            watch("*.txt", "--session", "s"),
        )
        assert line(people).endswith(": Before\n")
        assert json.loads(line(program))["transaction"]["message"] == "Before"
        with place.client() as client:
            client.apply([replace("app.txt", "two", "2")], actor="bob", session="s", message="Mine")
            client.apply([replace("src/other.txt", "one", "1")], actor="alice", message="Now")
        assert line(people).endswith("edit by bob in s: Mine\n")
        now = line(people)
        assert now.endswith("edit by alice: Now\n")
        assert line(below) == now
        assert line(session).endswith(": Mine\n")
        people.send_signal(signal.SIGINT)
        assert people.wait(10) == 130
        editctl("stop")
        for process in (program, below, session):
            out, err = process.communicate(timeout=10)
            assert (process.returncode, err) == (0, "editctl: the daemon has ended\n")
            last = [json.loads(one)["event"] for one in out.splitlines()]
            assert last == (["transaction", "transaction", "shutdown"] if process is program else [])


def test_an_edit_whose_answer_cannot_be_written_is_not_told_as_refused(
    editctl: Run, place: Workplace
) -> None:
    editctl("settle")
    for old, new, more in (("one", "uno", ""), ("uno", "un", "--json")):
        done = in_a_shell(place, f"$EDITCTL replace app.txt {old} {new} {more} > /dev/full")
        assert (done.returncode, done.stdout) == (5, "")
        assert done.stderr == "editctl: done, but the answer could not be written: No space left on device\n"
        assert place.files()["app.txt"].startswith(f"{new}\n".encode())


def test_what_cannot_be_written_leaves_a_commands_status_as_it_is(editctl: Run, place: Workplace) -> None:
    editctl("settle")
    for where in (">/dev/full", "2>/dev/full", ">&-", "2>&-", ">&- 2>&-"):
        done = in_a_shell(place, f"$EDITCTL exec --json -- sh -c 'date +%N > made; exit 7' {where}")
        assert done.returncode == 7, (where, done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "closed",
    [
        "<&- >&- 2>&-",
        *one_of(["<&-", ">&-", "2>&-", "<&- >&-"]),
    ],
)
def test_closed_descriptors_are_as_if_they_led_nowhere(editctl: Run, place: Workplace, closed: str) -> None:
    done = in_a_shell(place, f"$EDITCTL write new.txt {closed}")  # and the daemon is started for it
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert place.files()["new.txt"] == b""
    editctl("log")
    done = in_a_shell(place, f"$EDITCTL apply {closed}")
    assert (done.returncode, "Traceback" in done.stderr) in ((1, False), (2, False)), done.stderr


def test_the_exit_code_of_a_refusal_stays_where_nobody_reads_it(
    editctl: Run, place: Workplace, *, is_long: bool
) -> None:
    """The short form has one of the refusals, by the seed of the commit."""
    editctl("settle")
    refusals = [("undo 99999 --json", 1), ("undo 99999", 1), ("log --nonsense", 2)]
    for words, code in refusals if is_long else [refusals[seed() % len(refusals)]]:
        for where in ("> /dev/full", "2> /dev/full", ">&- 2>&-"):
            done = in_a_shell(place, f"$EDITCTL {words} {where}")
            assert (done.returncode, "Traceback" in done.stderr) == (code, False), (words, where)
        dead = f"exec 3>&1; {{ sleep 0.2; $EDITCTL {words}; echo $? >&3; }} 2>&1 | true; wait"
        assert in_a_shell(place, dead).stdout == f"{code}\n"


def test_a_file_is_not_named_with_a_slash_at_its_end(editctl: Run, place: Workplace) -> None:
    for words in ("rm app.txt/", "rm app.txt/.", "write dir/ /dev/null", "log app.txt/"):
        assert "is not a folder" in editctl(*words.split(), code=1).stderr, words
        assert set(place.files()) == {"app.txt", "src/other.txt"}
    editctl("log", "src/")


def test_a_tools_answer_does_nothing_to_a_terminal(editctl: Run, place: Workplace) -> None:
    place.write({"odd.txt": "\x1b]0;PWNED\x07\n\x9b31m\n"})
    editctl("settle")  # a start that takes over a second would be told on the terminal
    arguments = json.dumps({"command": "view", "path": str(place.root / "odd.txt")})
    for more in ("", " --json"):
        tool = f"tool claude str_replace_based_edit_tool --args '{arguments}'{more}"
        shown = on_a_terminal(place, tool)
        assert b"PWNED" in shown
        assert not {b"\x1b", b"\x07", b"\xc2\x9b"} & {
            shown[i : i + n] for i in range(len(shown)) for n in (1, 2)
        }


PAGERS = {
    "cat | sed 's/^/> /'": b"> transaction", " ": b"transaction", "": b"transaction",
    "echo $LESS $LV; cat": b"FRX -c", "un'quote": b"",
}  # fmt: skip


def test_the_pager_is_started_as_git_does_it(editctl: Run, place: Workplace) -> None:
    editctl("settle")
    for pager, shown in PAGERS.items():
        place.variables |= {"PAGER": pager, "NO_COLOR": "1"}
        printed = on_a_terminal(place, "log")
        assert shown in printed, pager
        assert b"Traceback" not in printed, pager


def test_ctrl_c_does_not_end_editctl_before_its_pager(editctl: Run, place: Workplace) -> None:
    editctl("settle")
    place.variables["PAGER"] = "trap '' INT; kill -INT $PPID; sleep 0.5; echo still; cat"
    said = on_a_terminal(place, "log; echo code $?")
    assert b"still" in said
    assert b"code 0" in said.partition(b"still")[2]


def on_a_terminal(place: Workplace, words: str) -> bytes:
    """What `editctl` shows on a terminal of its own."""
    command = f"{place.provide_editctl()}/editctl {words}"
    return subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        cwd=place.root, env={**place.environment, "TERM": "xterm"},
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    ).stdout  # fmt: skip


def test_a_word_that_names_nothing_is_no_empty_answer(editctl: Run, place: Workplace) -> None:
    editctl("replace", "app.txt", "one", "uno")
    editctl("rm", "src/other.txt")
    for words in ("diff 1...2", "diff HEAD", "diff nonsense", "diff 1 nonsense", "log nosuchfile"):
        assert "neither on disk nor in the history" in editctl(*words.split(), code=2).stderr
    assert editctl("diff", "0..").stdout == editctl("diff", "0").stdout != ""
    assert editctl("diff", "..1").stdout == editctl("diff", "0..1").stdout != ""
    assert "src/other.txt" in editctl("diff", "0", "src/other.txt").stdout
    assert "src/other.txt" in editctl("diff", "0", "src").stdout


def in_a_shell(place: Workplace, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script, in which $EDITCTL is `editctl`, in the workspace."""
    return subprocess.run(
        ["sh", "-c", script],
        cwd=place.root,
        env={**place.environment, "EDITCTL": f"{sys.executable} -P -m editd_client"},
        input="", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
