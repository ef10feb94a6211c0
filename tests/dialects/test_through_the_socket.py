"""What the seam promises of every tool's call, with the real daemon and its real worker."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import to_builtins

from editd.wire.codec import convert
from editd.wire.messages import Patch, Replace, Tool, Write
from editd_client.errors import EditdError
from recorded import rooted
from support.crash_checks import in_company

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

CATASTROPHE = "(a+)+$"  # 2^28 steps on what follows
LONG = "a" * 28 + "!\n"
LIMIT_SECONDS = 0.5


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    folder = place.folder / "config" / "editd"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f"regex_seconds = {LIMIT_SECONDS}\n")
    place.write({"a.txt": "one\ntwo\nthree\n", "long.txt": LONG})
    with place.start() as found:
        yield found
    place.stop()


def serena(path: str, needle: str, repl: str, mode: str = "regex") -> Tool:
    args: dict[str, Any] = {"relative_path": path, "needle": needle, "repl": repl, "mode": mode}
    return Tool(dialect="serena", tool="replace_content", args=args)


def roo(path: str, search: str, replace: str, **more: str) -> Tool:
    args: dict[str, Any] = {"path": path, "search": search, "replace": replace, "use_regex": "true", **more}
    return Tool(dialect="roo", tool="search_and_replace", args=args)


def cline(path: str, old: str, new: str) -> Tool:
    diff = f"------- SEARCH\n{old}\n=======\n{new}\n+++++++ REPLACE"
    return Tool(dialect="cline", tool="replace_in_file", args={"path": path, "diff": diff})


def refused(client: Client, *edits: Any, **more: Any) -> EditdError:
    with pytest.raises(EditdError) as caught:
        client.apply(edits, **more)
    return caught.value


def edits_already_made() -> dict[str, Any]:
    """One edit by each way of naming old and new lines; `a.txt` has had `two` replaced by `the second`."""
    diff = "------- SEARCH\ntwo\n=======\nthe second\n+++++++ REPLACE"
    blocks = "<<<<<<< SEARCH\ntwo\n=======\nthe second\n>>>>>>> REPLACE"
    codex = "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+the second\n*** End Patch"
    replace = {"old_string": "two", "new_string": "the second"}
    called = {
        ("serena", "replace_content"): serena("a.txt", "two", "the second", "literal").args,
        ("roo", "search_and_replace"): {"path": "./a.txt", "search": "two", "replace": "the second"},
        ("cline", "replace_in_file"): {"path": "a.txt", "diff": diff},
        ("claude", "str_replace_based_edit_tool"): {
            "command": "str_replace", "path": "a.txt", "old_str": "two", "new_str": "the second",
        },
        ("gemini", "replace"): {"file_path": "{ROOT}/a.txt", "instruction": "x", **replace},
        ("codex", "apply_patch"): {"input": codex},
        ("wcgw", "FileWriteOrEdit"): {
            "file_path": "{ROOT}/a.txt", "percentage_to_change": 1,
            "text_or_search_replace_blocks": blocks, "thread_id": "t1",
        },
    }  # fmt: skip
    tools = {dialect: Tool(dialect=dialect, tool=tool, args=args) for (dialect, tool), args in called.items()}
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+the second\n three\n"
    plain = {"replace": Replace(path="a.txt", old="two", new="the second"), "patch": Patch(patch=patch)}
    return {**plain, **tools}


@pytest.mark.parametrize("name", edits_already_made())
def test_a_refusal_says_since_which_transaction_the_new_text_is_there(
    place: Workplace, client: Client, name: str
) -> None:
    client.apply([Write(path="b.txt", content="b\n")])
    client.apply([Replace(path="a.txt", old="two", new="the second")], session="bob", actor="ann")
    client.apply([Replace(path="a.txt", old="three", new="the third")])
    edit = edits_already_made()[name]
    if isinstance(edit, Tool):
        edit = convert(rooted(to_builtins(edit), str(place.root.resolve())), Tool)
    elif isinstance(edit, Patch):
        edit = Patch(patch=edit.patch.replace(" three", " the third"))
    client.read("a.txt", session="t1")
    refusal = refused(client, edit)
    assert refusal.name == "no_match", refusal.message
    assert refusal.data["already_applied"] is True
    assert refusal.data["applied_by"]["seq"] == 2
    assert refusal.message.endswith(" Transaction 2 wrote the new text, edit by ann in bob.")


def test_calls_of_several_dialects_and_other_edits_are_one_transaction(
    place: Workplace, client: Client
) -> None:
    done = client.apply(
        [
            serena("a.txt", "o(n)e", "O$!1E"),
            Write(path="b.txt", content="b = 1\n"),
            roo("a.txt", "t(w)o", "T$1O"),
            Replace(path="a.txt", old="three", new="THREE"),
            roo("b.txt", r"(\w) = (\d)", "$2 = $1"),
        ]
    )
    assert place.files()["a.txt"] == b"OnE\nTwO\nTHREE\n"
    assert place.files()["b.txt"] == b"1 = b\n"
    assert done.transaction is not None
    assert done.transaction.seq == 1
    assert isinstance(done.answers, list)
    assert [answer is None for answer in done.answers] == [False, True, False, True, False]
    client.undo()
    assert place.files()["a.txt"] == b"one\ntwo\nthree\n"


def test_one_call_that_fails_leaves_nothing_of_the_others(place: Workplace, client: Client) -> None:
    before = place.files()
    assert refused(client, serena("a.txt", "one", "ONE"), serena("a.txt", "nowhere", "x")).name == "no_match"
    assert place.files() == before


@pytest.mark.parametrize("call", [serena, roo])
def test_an_expression_without_end_is_ended_and_others_are_served_meanwhile(
    place: Workplace, client: Client, call: Any
) -> None:
    client.apply([call("a.txt", "one", "1")])  # the process for expressions is warm by now
    served: list[float] = []
    stop = threading.Event()

    def others() -> None:
        with place.client() as another:
            number = 0
            while not stop.is_set():
                start = time.monotonic()
                another.apply([Write(path="other.txt", content=f"{number}\n", force=True)])
                served.append(time.monotonic() - start)
                number += 1

    thread = threading.Thread(target=others)
    thread.start()
    time.sleep(LIMIT_SECONDS)
    undisturbed = len(served)
    start = time.monotonic()
    error = refused(client, call("long.txt", CATASTROPHE, "x"))
    took = time.monotonic() - start
    meanwhile = len(served) - undisturbed
    stop.set()
    thread.join()
    assert error.name == "timeout"
    assert LIMIT_SECONDS <= took < LIMIT_SECONDS + in_company(0.1)
    assert meanwhile > min(20, undisturbed / 4)  # twenty, but for a machine that is too busy for that anyway
    assert max(served) < in_company(LIMIT_SECONDS / 2)
    assert client.apply([call("a.txt", "two", "2")]).transaction is not None


def test_a_file_that_changes_while_it_is_searched_is_searched_again(place: Workplace, client: Client) -> None:
    place.write({"a.txt": "aaaaaaaaaaaaaaaaaaaaaa!\n"})  # a search of some hundredths of a second

    def change() -> None:
        time.sleep(0.01)
        place.write({"a.txt": "one\nb\n"})

    thread = threading.Thread(target=change)
    thread.start()
    client.apply([serena("a.txt", r"(a+)+$|b", "c")])
    thread.join()
    assert place.files()["a.txt"] == b"one\nc\n"


def test_an_expression_works_in_a_dry_run_and_in_a_changeset(place: Workplace, client: Client) -> None:
    shown = client.apply([serena("a.txt", "t(w)o", "$!1")], dry_run=True)
    assert "+w" in str(shown.files[0].diff)
    changeset = client.begin().changeset
    client.stage(changeset, [serena("a.txt", "t(w)o", "$!1")])
    client.stage(changeset, [roo("a.txt", "^one", "1")])
    assert client.read("a.txt", changeset=changeset).content == "1\nw\nthree\n"
    assert place.files()["a.txt"] == b"one\ntwo\nthree\n"
    client.commit(changeset)
    assert place.files()["a.txt"] == b"1\nw\nthree\n"


def test_the_answer_to_cline_holds_the_final_content_after_merging(place: Workplace, client: Client) -> None:
    base = client.read("a.txt").version
    place.write({"a.txt": "zero\none\ntwo\nthree\n"})
    call = Tool(
        dialect="cline", tool="replace_in_file", args=cline("a.txt", "three", "THREE").args, base=base
    )
    done = client.apply([call], on_stale="merge")
    assert done.files[0].content == "zero\none\ntwo\nTHREE\n"
    assert done.merged == ["a.txt"]
    assert place.files()["a.txt"] == b"zero\none\ntwo\nTHREE\n"


def test_a_call_without_a_base_is_for_what_is_there_and_with_on_stale_it_is_judged(
    place: Workplace, client: Client
) -> None:
    client.read("a.txt")
    place.write({"a.txt": "other\ntwo\n"})
    assert refused(client, cline("a.txt", "two", "2"), on_stale="reject").name == "stale"
    assert client.apply([cline("a.txt", "two", "2")]).transaction is not None
    assert place.files()["a.txt"] == b"other\n2\n"


def test_a_base_that_is_given_and_not_current_makes_a_call_stale(place: Workplace, client: Client) -> None:
    base = client.read("a.txt").version
    place.write({"a.txt": "other\ntwo\n"})
    call = Tool(dialect="cline", tool="replace_in_file", args=cline("a.txt", "two", "2").args, base=base)
    assert refused(client, call).name == "stale"


def test_a_retry_gets_the_tool_s_first_answer(client: Client) -> None:
    first = client.apply([serena("a.txt", "one", "1")], request_id="k")
    assert client.apply([serena("a.txt", "one", "1")], request_id="k").answers == first.answers == ["OK"]


def test_lines_that_were_read_count_for_the_thread_of_that_name(place: Workplace, client: Client) -> None:
    place.write({"long.txt": "".join(f"line {number}\n" for number in range(1, 201))})

    def write(thread: str) -> Tool:
        args = {
            "file_path": str(place.root.resolve() / "long.txt"), "percentage_to_change": 100,
            "text_or_search_replace_blocks": "new\n", "thread_id": thread,
        }  # fmt: skip
        return Tool(dialect="wcgw", tool="FileWriteOrEdit", args=args)

    client.read("long.txt", session="t1", start_line=1, end_line=100)
    error = refused(client, write("t1"))
    assert error.name == "unread"
    assert error.data["unread"] == [[101, 201]]
    assert refused(client, write("t2")).data["reason"] == "never_read"
    assert client.apply([write("t1")]).transaction is not None  # the refusal has shown the rest
    assert place.files()["long.txt"] == b"new\n"


def test_a_worker_that_is_killed_is_started_again(place: Workplace, client: Client) -> None:
    import subprocess

    assert place.process is not None
    client.apply([serena("a.txt", "one", "1")])
    subprocess.run(["pkill", "-9", "-P", str(place.process.pid), "-f", "engine.regex_worker"], check=True)
    assert client.apply([serena("a.txt", "two", "2")]).transaction is not None
    assert place.files()["a.txt"] == b"1\n2\nthree\n"


def test_what_was_viewed_is_never_stale_and_counts_as_seen(place: Workplace, client: Client) -> None:
    def claude(**args: Any) -> Tool:
        return Tool(dialect="claude", tool="str_replace_based_edit_tool", args={"path": "a.txt", **args})

    client.read("a.txt")
    place.write({"a.txt": "one\nelse\n"})
    edit = claude(command="str_replace", old_str="one", new_str="1")
    assert refused(client, edit, on_stale="reject").name == "stale"
    done = client.apply([claude(command="view", view_range=[2, 2])], on_stale="reject")
    assert isinstance(done.answers, list)
    assert "else" in str(done.answers[0])
    assert done.transaction is None
    assert client.apply([edit], on_stale="reject").transaction is not None
    assert place.files()["a.txt"] == b"1\nelse\n"


def test_a_path_by_another_name_of_the_workspace_is_the_same_file(place: Workplace, client: Client) -> None:
    alias = place.folder / "alias"
    alias.symlink_to(place.root)
    args = {"file_path": f"{alias}/a.txt", "old_string": "one", "new_string": "1"}
    client.apply([Tool(dialect="gemini", tool="replace", args=args)])
    assert place.files()["a.txt"] == b"1\ntwo\nthree\n"
    beside = {**args, "file_path": f"{alias}/../beside.txt"}
    assert refused(client, Tool(dialect="gemini", tool="replace", args=beside)).name == "path_outside"


def test_a_call_on_a_file_that_is_not_utf8_is_made_once_however_often_it_is_asked_for(
    place: Workplace,
) -> None:
    name = os.fsdecode(b"caf\xe9.c")
    place.write({name: "one\ntwo\n"})
    args = {"file_path": str(place.root / name), "old_string": "two", "new_string": "three"}
    call = Tool(dialect="gemini", tool="replace", args=args)
    with place.start() as client:
        client.read(name)
        first = client.apply([call], request_id="r2")
        assert first.transaction is not None
        assert client.apply([call], request_id="r2").answers == first.answers
    place.stop()
    with place.start() as client:
        again = client.apply([call], request_id="r2")
        assert (again.answers, again.transaction) == (first.answers, first.transaction)
        assert client.status().head == 1
    place.stop()
    assert place.files()[name] == b"one\nthree\n"
