"""Every method and every refusal of this version of the protocol, through a real daemon's socket.

One daemon serves the whole file, and each test has a folder of the workspace and a connection to itself;
the tests that end the daemon, or break something, have one of their own.
"""

from __future__ import annotations

import base64
import errno
import itertools
import json
import os
import socket
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from editd.values.content import version_of
from editd.wire.limits import LIMITS
from editd.wire.messages import (
    REQUESTS,
    AnyEdit,
    ApplyResult,
    Chmod,
    Delete,
    EditText,
    Move,
    Patch,
    Position,
    Symlink,
    TextEdit,
    Write,
)
from editd_client.errors import EditdError
from support.workplace import Workplace, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client

LINES = "".join(f"{number}\n" for number in range(1, 21))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("dispatch") / "place") as made:
        made.start().close()
        yield made


@dataclass
class Here:
    """A folder of the shared workspace that is one test's own, and that test's connection."""

    place: Workplace
    client: Client
    name: str

    def at(self, path: str) -> str:
        return f"{self.name}/{path}"

    def holds(self, path: str) -> str:
        return (self.place.root / self.at(path)).read_text()

    def put(self, path: str, content: bytes | str) -> str:
        """Write from outside; return the path in the workspace."""
        self.place.write({self.at(path): content})
        return self.at(path)

    def names(self) -> list[str]:
        """What is in the folder: nothing of the daemon's own."""
        return sorted(os.listdir(self.place.root / self.name))

    def apply(self, *edits: AnyEdit, **more: Any) -> ApplyResult:
        return self.client.apply(edits, **more)


@pytest.fixture
def here(shared: Workplace, request: pytest.FixtureRequest) -> Iterator[Here]:
    with shared.client() as client:
        yield Here(shared, client, request.node.name.removeprefix("test_")[:100].replace("[", "-"))


def seq_of(answer: ApplyResult) -> int:
    assert answer.transaction is not None
    return answer.transaction.seq


def refusal(ask: Callable[..., object], *given: Any, **more: Any) -> EditdError:
    with pytest.raises(EditdError) as refused:
        ask(*given, **more)
    return refused.value


# ── Connection ─────────────────────────────────────────────────────────────────────────────────


def test_hello_tells_the_workspace_the_head_and_the_limits(here: Here) -> None:
    said = here.client.hello("a test")
    assert said.workspace.root == str(here.place.root)
    assert said.workspace.id == here.place.id
    assert said.protocol == 1
    assert said.limits["message_bytes_max"] == LIMITS.message_bytes_max
    assert said.head == here.client.status().head


def test_hello_of_another_protocol_is_refused(here: Here) -> None:
    answer = exchange(here.place, {"id": 1, "method": "hello", "params": {"protocol": 2}})
    assert answer["error"]["data"]["name"] == "invalid_params"


def test_who_said_hello_is_the_actor_and_the_session_of_what_it_does(here: Here) -> None:
    here.client.hello("bot", session="s1")
    made = here.apply(write(here.at("a"), "x")).transaction
    assert made is not None
    assert (made.actor, made.session) == ("bot", "s1")


def test_a_session_knows_on_one_connection_what_it_read_on_another(here: Here) -> None:
    here.put("a", "one")
    here.client.read(here.at("a"), session=here.name)
    with here.place.client() as other:
        other.hello(session=here.name)
        other.apply([Write(path=here.at("a"), content="two")])
    assert here.holds("a") == "two"


def test_errors_as_text_are_name_and_message_and_then_the_data(here: Here) -> None:
    asked = [{"id": 1, "method": "hello", "params": {"errors": "text"}},
             {"id": 2, "method": "read", "params": {"path": here.at("missing")}}]  # fmt: skip
    _, answer = speak_msgpack(here.place, asked)
    code, text = answer[2]
    first, second = text.splitlines()
    assert code == 0
    assert first.startswith("file_missing: ")
    assert json.loads(second)["path"] == here.at("missing")


def test_status_tells_what_is_there(here: Here) -> None:
    status = here.client.status()
    assert status.root == str(here.place.root)
    assert status.state == "ready"
    assert status.history["transactions"] == status.head
    assert here.place.process is not None
    assert status.pid == here.place.process.pid


def test_check_finds_nothing_wrong(here: Here) -> None:
    here.apply(write(here.at("a"), "x"))
    assert here.client.check().ok


def test_a_history_that_is_damaged_is_told_by_check_and_by_what_needs_it(place: Workplace) -> None:
    with place.start() as client:
        for content in ("one\n", "two\n", "three\n"):
            client.apply([write("a", content)])
    place.stop()
    damage_objects(place, "blob")
    segment = max((place.state / "journal").glob("*.segment"))
    segment.write_bytes(segment.read_bytes().replace(b"one\n", b"odd\n"))
    with place.start() as client:
        assert client.status().state == "broken"
        assert not client.check().ok
        for what in (client.undo, lambda: client.apply([write("a", "mine\n")])):
            refused = refusal(what)
            assert refused.name == "history_damaged"
            assert refused.hint
        assert client.read("a").content == "three\n"
        assert refusal(client.read, "a", at=1).name == "history_damaged"
        assert client.read("a", at=2).content == "two\n", "the journal has it still"
    assert place.files() == {"a": b"three\n"}


def test_a_history_without_a_readable_head_is_opened_for_reading_alone(place: Workplace) -> None:
    place.write({"a": "there\n"})
    with place.start() as client:
        client.settle()
    place.stop()
    damage_objects(place, "commit")
    with place.start() as client:
        status = client.status()
        assert status.state == "broken"
        assert "The history is damaged" in (status.reason or "")
        assert client.read("a").content == "there\n"
        assert refusal(client.apply, [write("a", "mine\n")]).name == "history_damaged"


def damage_objects(place: Workplace, kind: str) -> None:
    """Spoil every object of this kind, as a disk may: the sum that ends its compressed bytes."""
    spoilt = 0
    for index in (place.store / "objects" / "pack").glob("*.idx"):
        pack = index.with_suffix(".pack")
        content = bytearray(pack.read_bytes())
        for line in place.git("verify-pack", "--verbose", str(index), store=True).splitlines():
            words = line.split()
            if len(words) >= 5 and words[1] == kind:
                end = int(words[4]) + int(words[3])
                content[end - 4 : end] = bytes(255 - byte for byte in content[end - 4 : end])
                spoilt += 1
        pack.chmod(0o600)
        pack.write_bytes(content)
    assert spoilt


def test_shutdown_answers_finishes_and_ends(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "x")])
        client.shutdown()
    assert place.process is not None
    assert place.process.wait(30) == 0
    assert not os.path.exists(place.socket)
    with place.start() as client:
        assert client.status().head == 1


def test_what_comes_after_shutdown_is_refused_or_not_heard(place: Workplace) -> None:
    place.start().close()
    asked = [{"id": 1, "method": "shutdown"}, {"id": 2, "method": "read", "params": {"path": "a"}}]
    answers = speak_lines(place, asked)
    assert answers[0]["result"] == {}
    assert [answer["error"]["data"]["name"] for answer in answers[1:]] in ([], ["shutting_down"])


# ── Reading ────────────────────────────────────────────────────────────────────────────────────


def test_read_gives_the_text_and_all_that_is_known_of_it(here: Here) -> None:
    here.put("a", b"\xef\xbb\xbfone\r\ntwo\r\n")
    (here.place.root / here.at("a")).chmod(0o755)
    read = here.client.read(here.at("a"))
    assert read.version == version_of(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert (read.mode, read.kind, read.encoding) == ("100755", "file", "utf-8")
    assert (read.bom, read.eol, read.size) == (True, "crlf", 13)


@pytest.mark.parametrize(
    ("content", "eol"), [("a\n", "lf"), ("a\r", "cr"), ("a\nb\r\n", "mixed"), ("a", "none"), ("", "none")]
)
def test_read_tells_the_line_ends(here: Here, content: str, eol: str) -> None:
    here.put("a", content)
    assert here.client.read(here.at("a")).eol == eol


def test_a_part_of_a_long_file_has_its_lines_alone_and_the_count_of_all(here: Here) -> None:
    """The daemon divides a long content in parts, and only some of them have the requested lines."""
    lines = [f"line {number}\n" for number in range(1, 20_001)]
    path = here.put("long", "".join(lines))
    ranges = [
        (1, 1),
        (3, 5),
        (5_000, 6_500),
        (6_500, 13_500),
        (1, 20_000),
        (20_000, 20_000),
        (20_001, 20_002),
    ]
    for first, last in ranges:
        read = here.client.read(path, start_line=first, end_line=last)
        assert read.content == "".join(lines[first - 1 : last])
        assert read.lines == 20_000


def test_read_back_gives_what_was_there_right_after_a_transaction(here: Here) -> None:
    first = here.apply(write(here.at("a"), "one")).transaction
    second = here.apply(write(here.at("a"), "two")).transaction
    assert first is not None
    assert second is not None
    assert here.client.read(here.at("a"), at=first.seq).content == "one"
    assert here.client.read(here.at("a"), at=first.id[:12]).content == "one"
    assert here.client.read(here.at("a"), at=second.id).content == "two"
    assert refusal(here.client.read, here.at("a"), at=first.seq - 1).name == "file_missing"


def test_stat_tells_files_links_and_nothing(here: Here) -> None:
    here.put("a", "x")
    (here.place.root / here.at("link")).symlink_to("a")
    file, link, nothing, folder = here.client.stat(
        [here.at("a"), here.at("link"), here.at("b"), here.name]
    ).files
    assert (file.version, file.kind, file.size) == (version_of(b"x"), "file", 1)
    assert (link.mode, link.kind) == ("120000", "symlink")
    assert (nothing.version, nothing.kind) == (None, None)
    assert folder.kind is None


def test_after_settle_the_log_has_what_was_written_outside(here: Here) -> None:
    before = here.client.settle().head
    here.put("a", "x")
    here.put("b/c", "y")
    assert here.client.settle().head == before + 1
    made = here.client.log(limit=1).transactions[0]
    assert (made.kind, made.actor) == ("outside", "outside")
    assert [change.path for change in made.files] == [here.at("a"), here.at("b/c")]


def test_a_reader_of_the_repository_sees_everything_after_settle(here: Here) -> None:
    here.put("settled", "1\n")
    (here.place.root / here.at("outside")).write_text("2\n")
    head = here.client.settle().head
    assert here.client.status().journal["unpacked"] == 0
    log = here.place.git("log", "-1", "--format=%(trailers:key=Seq,valueonly)", store=True)
    assert int(log) == head


def test_settle_that_may_take_no_time_times_out(here: Here) -> None:
    assert refusal(here.client.settle, timeout=0).name == "timeout"


# ── Applying ───────────────────────────────────────────────────────────────────────────────────


def test_every_kind_of_edit_in_one_transaction(here: Here) -> None:
    for name in ("write", "replace", "text", "patch", "delete", "move", "chmod"):
        here.put(name, LINES)
    path = here.at("patch")
    at = Position(line=0, character=0)
    edits: list[AnyEdit] = [
        write(here.at("write"), "new\n"),
        replace(here.at("replace"), "12\n", "twelve\n"),
        EditText(
            path=here.at("text"),
            base=version_of(LINES.encode()),
            edits=[TextEdit(start=at, end=at, text="0\n")],
        ),
        Patch(patch=f"--- a/{path}\n+++ b/{path}\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n"),
        Delete(path=here.at("delete")),
        Move(path=here.at("move"), to=here.at("moved")),
        Chmod(path=here.at("chmod"), executable=True),
        Symlink(path=here.at("symlink"), target="chmod"),
    ]
    made = here.apply(*edits).transaction
    assert made is not None
    assert {change.path.rpartition("/")[2]: change.change for change in made.files} == {
        "write": "modified", "replace": "modified", "text": "modified", "patch": "modified",
        "delete": "deleted", "moved": "renamed", "chmod": "mode", "symlink": "added",
    }  # fmt: skip
    assert here.holds("write") == "new\n"
    assert here.holds("replace") == LINES.replace("12\n", "twelve\n", 1)
    assert here.holds("text") == "0\n" + LINES
    assert here.holds("patch") == LINES.replace("1\n", "one\n", 1)
    assert here.holds("moved") == LINES
    assert os.access(here.place.root / here.at("chmod"), os.X_OK)
    assert os.readlink(here.place.root / here.at("symlink")) == "chmod"
    assert not {"delete", "move"} & set(here.names())


def test_one_edit_that_is_refused_takes_the_others_with_it(here: Here) -> None:
    here.put("a", "x")
    head = here.client.settle().head
    edits: list[AnyEdit] = [write(here.at("b"), "y"), replace(here.at("a"), "nowhere", "z")]
    assert refusal(here.apply, *edits).name == "no_match"
    assert not (here.place.root / here.at("b")).exists()
    assert here.client.settle().head == head


def test_an_answer_holds_versions_and_what_was_asked_for(here: Here) -> None:
    path = here.put("a", "one\ntwo\n")
    answer = here.apply(replace(path, "two", "2"), return_content=True, diff=True)
    (file,) = answer.files
    assert (file.base, file.version) == (version_of(b"one\ntwo\n"), version_of(b"one\n2\n"))
    assert file.content == "one\n2\n"
    assert isinstance(file.diff, str)
    assert "-two\n+2\n" in file.diff
    assert file.replacements == 1


def test_an_apply_that_changes_nothing_is_no_transaction(here: Here) -> None:
    path = here.put("a", "x")
    head = here.client.settle().head
    answer = here.apply(write(path, "x"))
    assert answer.transaction is None
    assert [(file.path, file.change) for file in answer.files] == [(path, None)]
    assert here.client.status().head == head


def test_a_dry_run_gives_the_diff_and_writes_nothing(here: Here) -> None:
    path = here.put("a", "one\n")
    answer = here.apply(replace(path, "one", "two"), write(here.at("b"), "x"), dry_run=True)
    assert answer.transaction is None
    assert [file.change for file in answer.files] == ["modified", "added"]
    assert "-one\n+two\n" in str(answer.files[0].diff)
    assert here.holds("a") == "one\n"
    assert not (here.place.root / here.at("b")).exists()
    assert not here.client.log(path=here.at("a"), kind="edit").transactions
    assert refusal(here.apply, Write(path=path, content="x")).name == "base_required", "nothing is noted"


def test_a_dry_run_is_refused_where_the_edit_would_be(here: Here) -> None:
    path = here.put("a", "one\n")
    (here.place.root / path).chmod(0o444)
    assert refusal(here.apply, write(path, "x"), dry_run=True).name == "permission_denied"


# ── Exactly once ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_request_is_done_once_also_across_a_restart(place: Workplace, is_killed: bool) -> None:
    place.write({"a": "x\n"})
    edits: list[AnyEdit] = [replace("a", "x", "x\nx"), write("b", "new")]
    with place.start() as client:
        first = client.apply(edits, request_id="r1")
    place.kill() if is_killed else place.stop()
    with place.start() as client:
        assert client.apply(edits, request_id="r1") == first
        assert client.status().head == seq_of(first)
        with pytest.raises(EditdError, match="r1") as refused:
            client.apply([write("b", "other")], request_id="r1")
        assert refused.value.name == "invalid_params"
        assert client.undo(request_id="u1") == client.undo(request_id="u1")
    assert place.files() == {"a": b"x\n"}


def test_one_request_sent_ten_times_at_once_is_done_once(here: Here) -> None:
    """All in one write, so that they share a turn."""
    path = here.put("a", "")
    start = {"line": 0, "character": 0}
    edit: dict[str, Any] = {"op": "text", "path": path, "base": version_of(b"")}
    edit["edits"] = [{"start": start, "end": start, "text": "x"}]
    params = {"edits": [edit], "request_id": here.name}
    requests = [{"id": number, "method": "apply", "params": params} for number in range(10)]
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(30)
        stream.connect(here.place.socket)
        stream.sendall(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        answers = [json.loads(line) for line in itertools.islice(stream.makefile("rb"), len(requests))]
    assert len({answer["result"]["transaction"]["seq"] for answer in answers}) == 1
    assert here.holds("a") == "x"


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_request_id_belongs_to_its_session(place: Workplace, is_killed: bool) -> None:
    place.write({"a": "x\n"})
    with place.start() as client:
        made = {
            name: client.apply([write(str(name), "new")], request_id="r", session=name)
            for name in ("s", "t", None)
        }
        assert len({seq_of(one) for one in made.values()}) == 3
        undone = []
        for name in ("s", "t"):
            client.hello(session=name)
            undone.append(client.undo(seq_of(made[name]), request_id="u"))
    place.kill() if is_killed else place.stop()
    with place.start() as client:
        for owner, first in made.items():
            again = client.apply([write(str(owner), "new")], request_id="r", session=owner)
            assert seq_of(again) == seq_of(first)
        for name, before in zip(("s", "t"), undone, strict=True):
            client.hello(session=name)
            assert client.undo(seq_of(made[name]), request_id="u") == before
        with pytest.raises(EditdError, match="was used for a different request"):
            client.apply([write("t", "other")], request_id="r", session="s")
    assert place.files() == {"a": b"x\n", "None": b"new"}


def test_a_request_id_of_two_sessions_in_one_turn_is_two_requests(here: Here) -> None:
    requests = [
        {
            "id": number,
            "method": "apply",
            "params": {
                "edits": [{"op": "write", "path": here.at(name), "content": name, "force": True}],
                "session": f"{here.name} {name}",
                "request_id": here.name,
            },
        }
        for number, name in enumerate("ab")
    ]
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(30)
        stream.connect(here.place.socket)
        stream.sendall(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        answers = [json.loads(line) for line in itertools.islice(stream.makefile("rb"), len(requests))]
    assert len({answer["result"]["transaction"]["seq"] for answer in answers}) == 2
    assert (here.holds("a"), here.holds("b")) == ("a", "b")


def test_a_refused_request_may_be_sent_again_with_its_id(here: Here) -> None:
    path = here.put("a", "x")
    assert refusal(here.apply, replace(path, "y", "z"), request_id=here.name).name == "no_match"
    here.put("a", "y")
    here.apply(replace(path, "y", "z"), request_id=here.name)
    assert here.holds("a") == "z"


def test_who_is_answered_by_a_retry_has_seen_what_the_answer_holds(here: Here) -> None:
    edit = write(here.at("a"), "one")
    here.apply(edit, request_id=here.name)
    with here.place.client() as again:
        again.apply([edit], request_id=here.name)
        again.apply([Write(path=here.at("a"), content="two")])
    assert here.holds("a") == "two"


def test_a_retry_does_not_take_back_what_was_seen_since(here: Here) -> None:
    edit = write(here.at("a"), "one")
    here.apply(edit, request_id=here.name)
    here.apply(Write(path=here.at("a"), content="two"))
    here.apply(edit, request_id=here.name)
    here.apply(Write(path=here.at("a"), content="three"))
    assert here.holds("a") == "three"


# ── Staleness ──────────────────────────────────────────────────────────────────────────────────


def test_a_stale_edit_is_told_what_happened_since_and_by_whom(here: Here) -> None:
    path = here.put("a", "one\n")
    base = here.client.read(path).version
    with here.place.client() as other:
        made = seq_of(other.apply([replace(path, "one", "two")], actor="somebody"))
    refused = refusal(here.apply, Write(path=path, content="mine\n", base=base))
    assert (refused.name, refused.code) == ("stale", 1)
    assert refused.data["base"] == base
    assert refused.data["current"] == version_of(b"two\n")
    assert "-one\n+two\n" in refused.data["diff"]
    assert [(by["seq"], by["actor"]) for by in refused.data["changed_by"]] == [(made, "somebody")]
    assert refused.hint
    assert here.holds("a") == "two\n"


def test_what_is_written_outside_makes_stale_and_is_named(here: Here) -> None:
    path = here.put("a", "one\n")
    here.client.read(path)
    here.put("a", "two\n")
    refused = refusal(here.apply, Write(path=path, content="mine\n"))
    assert refused.name == "stale"
    assert [by["kind"] for by in refused.data["changed_by"]] == ["outside"]
    assert here.holds("a") == "two\n"


def test_a_whole_write_over_a_file_that_was_deleted_since_it_was_read_is_stale(here: Here) -> None:
    path = here.put("a", "one\n")
    base = here.client.read(path).version
    (here.place.root / path).unlink()
    for edit in (Write(path=path, content="mine\n"), Write(path=path, content="mine\n", base=base)):
        refused = refusal(here.apply, edit)
        assert (refused.name, refused.data["base"], refused.data["current"]) == ("stale", base, None)
    assert here.names() == [], "it is not made again"


def test_a_session_never_makes_itself_stale(here: Here) -> None:
    path = here.put("a", "one\n")
    here.client.read(path)
    for content in ("two\n", "three\n"):
        here.apply(Write(path=path, content=content))
    here.client.undo()
    here.apply(Write(path=path, content="four\n"))
    assert here.holds("a") == "four\n"


def test_a_stale_edit_is_merged_where_that_is_asked_for(here: Here) -> None:
    path = here.put("a", LINES)
    base = here.client.read(path).version
    here.put("a", LINES.replace("2\n", "two\n", 1))
    answer = here.apply(
        Write(path=path, content=LINES.replace("19\n", "nineteen\n"), base=base), on_stale="merge"
    )
    assert answer.merged == [path]
    assert here.holds("a") == LINES.replace("2\n", "two\n", 1).replace("19\n", "nineteen\n")


def test_a_merge_that_overlaps_is_a_conflict_and_changes_nothing(here: Here) -> None:
    path = here.put("a", LINES)
    base = here.client.read(path).version
    theirs = LINES.replace("5\n", "five\n", 1)
    here.put("a", theirs)
    edit = Write(path=path, content=LINES.replace("5\n", "V\n", 1), base=base)
    refused = refusal(here.apply, edit, on_stale="merge")
    assert refused.name == "conflict"
    assert [file["path"] for file in refused.data["files"]] == [path]
    assert here.holds("a") == theirs


def test_nothing_is_written_over_blindly(here: Here) -> None:
    path = here.put("a", "x")
    assert refusal(here.apply, Write(path=path, content="y")).name == "base_required"
    assert refusal(here.apply, Write(path=path, content="y", base=None)).name == "file_exists"
    here.apply(Write(path=path, content="y", force=True))
    assert here.holds("a") == "y"
    assert here.client.log(path=path, kind="outside").transactions, "what was there is in the history first"


# ── Undo ───────────────────────────────────────────────────────────────────────────────────────


def test_undo_of_a_middle_transaction_keeps_a_later_one(here: Here) -> None:
    path = here.put("a", LINES)
    first = seq_of(here.apply(replace(path, "3\n4\n", "three\n4\n")))
    here.apply(replace(path, "18\n", "eighteen\n"))
    undone = here.client.undo(first)
    assert undone.transaction is not None
    assert (undone.transaction.kind, undone.transaction.undoes) == ("undo", [first])
    assert here.holds("a") == LINES.replace("18\n", "eighteen\n")
    assert here.client.show(first).transaction.undone_by == seq_of(undone)


def test_an_undo_in_the_way_of_later_changes_is_a_conflict_that_names_them(here: Here) -> None:
    path = here.put("a", LINES)
    first = seq_of(here.apply(replace(path, "3\n4\n", "three\n4\n")))
    here.apply(replace(path, "18\n", "eighteen\n"))
    blocking = seq_of(here.apply(replace(path, "three\n", "III\n")))
    before, head = here.holds("a"), here.client.status().head
    refused = refusal(here.client.undo, first)
    assert refused.name == "conflict"
    assert refused.data["files"][0]["path"] == path
    assert blocking in refused.data["files"][0]["blocking"]
    assert (here.holds("a"), here.client.status().head) == (before, head)
    here.client.undo(first, on_conflict="force")
    assert here.holds("a") == LINES.replace("18\n", "eighteen\n"), "only the lines that collide go back"


def test_an_undo_is_undone_and_redone(here: Here) -> None:
    path = here.put("a", "one\n")
    here.apply(replace(path, "one", "two"))
    undone = seq_of(here.client.undo())
    assert here.holds("a") == "one\n"
    here.client.undo(undone)
    assert here.holds("a") == "two\n"
    here.client.undo()
    redone = here.client.redo()
    assert redone.transaction is not None
    assert redone.transaction.kind == "redo"
    assert here.holds("a") == "two\n"


def test_undo_takes_the_newest_that_are_not_undone(here: Here) -> None:
    made = [seq_of(here.apply(write(here.at(name), "x"), session=here.name)) for name in "abcd"]
    seqs = [here.client.undo(last=1, session=here.name), here.client.undo(last=2, session=here.name)]
    assert [answer.transaction and answer.transaction.undoes for answer in seqs] == [
        [made[3]],
        [made[2], made[1]],
    ]
    assert here.names() == ["a"]


def test_undo_takes_only_its_own_sessions_edits(here: Here) -> None:
    here.client.hello(session=here.name)
    here.apply(write(here.at("mine"), "x"))
    with here.place.client() as other:
        other.apply([write(here.at("theirs"), "x")])
    here.client.undo()
    assert here.names() == ["theirs"]
    assert refusal(here.client.undo).name == "nothing_to_undo"
    here.client.redo()
    assert refusal(here.client.redo).name == "nothing_to_undo"


def test_an_undo_that_is_a_dry_run_shows_what_it_would_do(here: Here) -> None:
    here.apply(write(here.at("a"), "x\n"))
    shown = here.client.undo(dry_run=True)
    assert shown.transaction is None
    assert "-x\n" in str(shown.files[0].diff)
    assert here.holds("a") == "x\n"


def test_what_is_undone_already_is_not_undone_again(here: Here) -> None:
    made = seq_of(here.apply(write(here.at("a"), "x")))
    by = seq_of(here.client.undo(made))
    refused = refusal(here.client.undo, made)
    assert refused.name == "nothing_to_undo"
    assert refused.data["undone_by"] == by
    assert refusal(here.client.undo, 0).name == "nothing_to_undo", "the baseline"
    assert refusal(here.client.undo, 10**9).name == "unknown_transaction"
    assert refusal(here.client.undo, "f" * 40).name == "unknown_transaction"


def test_what_was_written_outside_is_undone_like_anything(here: Here) -> None:
    here.put("a", "one\n")
    here.client.settle()
    (here.place.root / here.at("a")).unlink()
    here.client.settle()
    here.client.undo(here.client.log(limit=1).transactions[0].seq)
    assert here.holds("a") == "one\n"


# ── Changesets ─────────────────────────────────────────────────────────────────────────────────


def test_a_stale_edit_is_told_as_much_when_it_is_staged(here: Here) -> None:
    path = here.put("a", LINES)
    base = here.client.read(path).version
    seq = seq_of(here.apply(write(path, "other\n")))
    name = here.client.begin().changeset
    with pytest.raises(EditdError, match="stale") as refusal:
        here.client.stage(name, [replace(path, "3\n", "three\n", base=base)])
    data = refusal.value.data
    assert "-3" in data["diff"]
    assert [made["seq"] for made in data["changed_by"]] == [seq]
    here.client.stage(name, [write(here.at("b"), "b\n"), write(here.at("sub/c"), "c\n")])
    shown = here.client.diff(changeset=name, paths=[here.at("sub")])
    assert [file.path for file in shown.files] == [here.at("sub/c")]
    with pytest.raises(EditdError, match="Leave out `from` and `to`"):
        here.client.diff(from_=0, changeset=name)
    here.client.abort(name)


def test_positions_in_what_an_edit_before_has_changed_are_stale(here: Here) -> None:
    path = here.put("a", LINES)
    base = here.client.read(path).version
    lines = [Position(line=line, character=0) for line in range(7)]
    first = EditText(path=path, base=base, edits=[TextEdit(start=lines[0], end=lines[1], text="")])
    five = [TextEdit(start=lines[5], end=lines[6], text="FIVE\n")]
    with pytest.raises(EditdError, match="stale"):
        here.apply(first, EditText(path=path, base=base, edits=five))
    here.apply(first, EditText(path=path, base=version_of(LINES[2:].encode()), edits=five))
    assert here.holds("a").splitlines()[5] == "FIVE"


def test_what_is_staged_is_seen_by_nobody_else_until_it_is_committed(here: Here) -> None:
    path = here.put("a", "one\n")
    changeset = here.client.begin(actor="me", message="both").changeset
    here.client.stage(changeset, [replace(path, "one", "two")])
    staged = here.client.stage(changeset, [replace(path, "two", "three"), write(here.at("b"), "x")])
    assert staged.transaction is None
    assert here.client.read(path, changeset=changeset).content == "three\n"
    assert here.client.read(path).content == here.holds("a") == "one\n"
    assert {file.path for file in here.client.diff(changeset=changeset).files} == {path, here.at("b")}
    with here.place.client() as other:
        assert refusal(other.read, path, changeset=changeset).name == "invalid_params"
        assert refusal(other.commit, changeset).name == "invalid_params"
    made = here.client.commit(changeset).transaction
    assert made is not None
    assert (made.actor, made.message, len(made.files)) == ("me", "both", 2)
    assert here.holds("a") == "three\n"
    assert refusal(here.client.commit, changeset).name == "invalid_params"


def test_what_cannot_be_written_is_refused_when_it_is_staged_and_the_changeset_goes_on(here: Here) -> None:
    path = here.put("a", "one\n")
    os.link(here.place.root / path, here.place.root / here.at("twin"))
    here.put("folder/b", "x\n")
    changeset = here.client.begin().changeset
    for edit, name in (
        (replace(path, "one", "two"), "permission_denied"),
        (write(here.at("folder"), "x\n"), "not_a_file"),
    ):
        assert refusal(here.client.apply, [edit]).name == name
        assert refusal(here.client.stage, changeset, [edit]).name == name
    here.client.stage(changeset, [write(here.at("c"), "x\n")])
    made = here.client.commit(changeset).transaction
    assert made is not None
    assert [file.path for file in made.files] == [here.at("c")]


def test_a_changeset_that_is_aborted_leaves_nothing(here: Here) -> None:
    changeset = here.client.begin().changeset
    here.client.stage(changeset, [write(here.at("a"), "x")])
    here.client.abort(changeset)
    assert refusal(here.client.commit, changeset).name == "invalid_params"
    assert not (here.place.root / here.name).exists()


def test_a_changeset_ends_with_its_connection(here: Here) -> None:
    with here.place.client() as gone:
        changeset = gone.begin(session=here.name).changeset
        gone.stage(changeset, [write(here.at("a"), "x")])
    assert refusal(here.client.commit, changeset).name == "invalid_params"
    assert not (here.place.root / here.name).exists()


def test_a_stale_changeset_is_refused_and_can_be_committed_with_a_merge(here: Here) -> None:
    path = here.put("a", LINES)
    base = here.client.read(path).version
    changeset = here.client.begin().changeset
    here.client.stage(changeset, [Write(path=path, content=LINES + "end\n", base=base)])
    here.put("a", "start\n" + LINES)
    assert refusal(here.client.commit, changeset).name == "stale"
    assert here.client.commit(changeset, on_stale="merge").merged == [path]
    assert here.holds("a") == "start\n" + LINES + "end\n"


def test_a_commit_is_done_once_also_from_a_new_connection(here: Here) -> None:
    changesets = [here.client.begin(session=f"{here.name} {name}").changeset for name in "ab"]
    for changeset, name in zip(changesets, "ab", strict=True):
        here.client.stage(changeset, [write(here.at(name), "x")])
    first = [here.client.commit(changeset, request_id=here.name) for changeset in changesets]
    assert seq_of(first[0]) != seq_of(first[1])
    with here.place.client() as again:
        assert [again.commit(changeset, request_id=here.name) for changeset in changesets] == first


# ── History ────────────────────────────────────────────────────────────────────────────────────


def test_the_log_is_narrowed_by_whatever_is_named(here: Here) -> None:
    for name in "abc":
        here.apply(write(here.at(name), name), session=here.name, actor=f"actor {name}", message=name)
    outside = here.put("d", "x")
    here.client.settle()

    def messages(**wanted: Any) -> list[str]:
        return [made.message for made in here.client.log(**wanted).transactions]

    assert messages(session=here.name) == ["c", "b", "a"]
    assert messages(path=here.at("b")) == ["b"]
    assert messages(actor="actor a") == ["a"]
    assert len(messages(path=here.name)) == 4, "a folder is all that lies below it"
    (found,) = here.client.log(
        kind="outside", limit=1
    ).transactions  # other tests' leftovers may be in it, too
    assert outside in [file.path for file in found.files]
    newest, middle, oldest = here.client.log(session=here.name).transactions
    assert messages(session=here.name, before=newest.seq) == ["b", "a"]
    assert messages(session=here.name, after=oldest.seq) == ["c", "b"]
    assert messages(before=newest.seq, after=oldest.seq) == [middle.message]
    part = here.client.log(session=here.name, limit=2)
    assert (len(part.transactions), part.more) == (2, True)
    assert refusal(here.client.log, limit=0).name == "invalid_params"


def test_show_gives_a_transaction_and_its_diff(here: Here) -> None:
    path = here.put("a", "one\n")
    made = here.apply(replace(path, "one", "two"), message="Why", actor="me").transaction
    assert made is not None
    shown = here.client.show(made.id[:10])
    assert shown.transaction == made
    assert f"--- a/{path}\n+++ b/{path}\n" in str(shown.diff)
    assert here.client.show(made.seq, diff=False).diff is None
    assert refusal(here.client.show, "0000000").name == "unknown_transaction"


def test_diff_compares_any_two_moments_and_the_files_as_they_are(here: Here) -> None:
    path = here.at("a")
    first = seq_of(here.apply(write(path, "one\n")))
    second = seq_of(here.apply(write(path, "two\n")))
    here.apply(write(path, "three\n"))
    assert "-one\n+two\n" in here.client.diff(first, second).diff
    assert "-two\n+one\n" in here.client.diff(second, first).diff
    assert "-two\n+three\n" in here.client.diff(second, paths=[here.name]).diff
    here.put("a", "four\n")
    new = here.put("new", "five\n")
    assert "-three\n+four\n" in here.client.diff(second + 1, paths=[path]).diff
    assert new in [file.path for file in here.client.diff(second + 1).files]
    assert here.client.diff(second + 1, second + 1).diff == ""


def test_diff_shows_as_deleted_what_lay_in_a_folder_that_is_a_symlink_now(here: Here) -> None:
    path, there = here.at("folder/a"), here.place.root / here.name
    made = seq_of(here.apply(write(path, "one\n")))
    here.apply(Delete(path=path), Symlink(path=here.at("folder"), target="elsewhere"))
    assert os.readlink(there / "folder") == "elsewhere"
    files = {file.path: file.change for file in here.client.diff(made, paths=[here.name]).files}
    assert files == {path: "deleted", here.at("folder"): "added"}


def test_a_move_shows_what_it_writes_over(here: Here) -> None:
    path, to = here.at("a"), here.at("b")
    start = seq_of(here.apply(write(path, "one\n"), write(to, "destroyed\n")))
    events = here.client.subscribe(events=["transaction"])
    edits: list[AnyEdit] = [Move(path=path, to=to, overwrite=True)]
    planned = here.client.apply(edits, dry_run=True)
    made = here.client.apply(edits, diff=True)
    seq = seq_of(made)
    told = next(one.transaction for one in events if one.transaction and one.transaction.seq == seq)
    for files in (planned.files, made.files, here.client.diff(start, seq).files, told.files):
        kinds = {file.path: (file.change, file.base is None, file.version is None) for file in files}
        assert kinds == {path: ("deleted", False, True), to: ("modified", False, False)}
    shown = ["".join(str(file.diff) for file in answer.files) for answer in (planned, made)]
    shown += [here.client.show(seq).diff or "", here.client.diff(start, seq).diff]
    assert all("-destroyed\n+one\n" in diff for diff in shown)


def test_a_diff_is_a_patch_that_git_takes(here: Here, tmp_path: Path) -> None:
    start = seq_of(here.apply(write(here.at("a"), LINES), write(here.at("gone"), "x\n")))
    end = seq_of(here.apply(
        replace(here.at("a"), "3\n4\n", "4\n"), Delete(path=here.at("gone")), write(here.at("new"), "x"),
        Chmod(path=here.at("a"), executable=True), Symlink(path=here.at("link"), target="a"),
    ))  # fmt: skip
    patch = here.client.diff(start, end, paths=[here.name]).diff  # beside what is noticed of other tests
    for name, content in (("a", LINES), ("gone", "x\n")):
        (tmp_path / here.name).mkdir(exist_ok=True)
        (tmp_path / here.at(name)).write_text(content)
    subprocess.run(
        ["git", "apply", "-"], cwd=tmp_path, input=patch.encode("utf-8", "surrogateescape"), check=True
    )
    made, real = tmp_path / here.name, here.place.root / here.name
    assert sorted(os.listdir(made)) == ["a", "link", "new"]
    assert all((made / name).read_bytes() == (real / name).read_bytes() for name in ("a", "new"))
    assert os.access(made / "a", os.X_OK)
    assert os.readlink(made / "link") == "a"


# ── Paths and files that are not plain ─────────────────────────────────────────────────────────


def test_a_symlinks_target_is_edited_and_the_link_kept(here: Here) -> None:
    here.put("a", "one\n")
    (here.place.root / here.at("link")).symlink_to("a")
    answer = here.apply(replace(here.at("link"), "one", "two"))
    assert [file.path for file in answer.files] == [here.at("a")]
    assert answer.files[0].warnings
    assert here.holds("a") == "two\n"
    assert os.readlink(here.place.root / here.at("link")) == "a"


def test_a_symlink_that_leads_out_is_not_followed(here: Here) -> None:
    outside = here.place.folder / here.name
    outside.write_text("theirs")
    (here.place.root / here.name).mkdir()
    (here.place.root / here.at("link")).symlink_to(outside)
    (here.place.root / here.at("folder")).symlink_to(here.place.folder)
    for path in (here.at("link"), here.at(f"folder/{here.name}")):
        assert refusal(here.apply, write(path, "mine")).name == "path_outside"
        assert refusal(here.client.read, path).name == "path_outside"
    assert outside.read_text() == "theirs"


def test_hard_linked_and_read_only_files_are_refused_with_a_hint(here: Here) -> None:
    linked, fixed = here.put("linked", "x"), here.put("fixed", "x")
    os.link(here.place.root / linked, here.place.root / here.at("twin"))
    (here.place.root / fixed).chmod(0o444)
    for path in (linked, fixed):
        refused = refusal(here.apply, write(path, "y"))
        assert refused.name == "permission_denied"
        assert refused.hint
        assert (here.place.root / path).read_text() == "x"


@pytest.mark.parametrize("path", [".git/config", ".GIT/hooks/x", "a/.Git/x", ".git", "git~1/x", ".git./x"])
def test_gits_own_folder_is_refused_however_it_is_written(here: Here, path: str) -> None:
    assert refusal(here.apply, write(path, "x")).name == "path_protected"
    assert refusal(here.apply, Symlink(path=path, target="x")).name == "path_protected"
    assert not (here.place.root / path).exists()


def test_names_and_texts_that_are_not_utf8_come_through(here: Here) -> None:
    path, text = here.at("\udcff\udcfe.txt"), "caf\udce9\n"
    here.apply(write(path, text))
    raw = os.fsencode(here.place.root) + b"/" + os.fsencode(here.name) + b"/\xff\xfe.txt"
    with open(raw, "rb") as file:
        assert file.read() == b"caf\xe9\n"
    assert here.client.read(path).content == text
    assert here.client.read(path).encoding is None
    assert here.client.log(path=path).transactions[0].files[0].path == path
    here.client.undo()
    assert not os.path.exists(raw)


def test_permissions_that_git_does_not_know_are_kept(here: Here) -> None:
    path = here.put("a", "one\n")
    (here.place.root / path).chmod(0o640)
    here.apply(replace(path, "one", "two"))
    assert (here.place.root / path).stat().st_mode & 0o7777 == 0o640
    here.client.undo()
    assert (here.place.root / path).stat().st_mode & 0o7777 == 0o640


# ── Refusals ───────────────────────────────────────────────────────────────────────────────────


def edit_at(path: str, line: int) -> EditText:
    at = Position(line=line, character=0)
    return EditText(path=path, base=None, edits=[TextEdit(start=at, end=at, text="x")])


@pytest.mark.parametrize(
    ("name", "edits"),
    [
        ("no_match", [replace("a", "nowhere", "x")]),
        ("ambiguous", [replace("a", "x", "y")]),
        ("count_mismatch", [replace("a", "x", "y", count=5)]),
        ("invalid_params", [replace("a", "x", "y", count=0)]),
        ("invalid_params", [replace("a", "", "y")]),
        ("invalid_params", [Write(path="a", content="x", base="main")]),
        ("invalid_params", [write("", "x")]),
        ("invalid_params", [write("a//b", "x")]),
        ("invalid_params", [write("a\0b", "x")]),
        ("invalid_params", [write("n" * 256, "x")]),
        ("invalid_params", [Move(path="a", to="a")]),
        ("invalid_params", [Symlink(path="s", target="")]),
        ("malformed_edit", [Patch(patch="nothing like a diff")]),
        ("malformed_edit", [Patch(patch="--- a/a\n+++ b/a\n@@ -1,9 +1,9 @@\n-x\n")]),
        ("path_outside", [write("../x", "x")]),
        ("path_outside", [write("/etc/passwd", "x")]),
        ("path_protected", [write(".editd-x", "x")]),
        ("file_missing", [replace("b", "x", "y")]),
        ("file_missing", [Delete(path="b")]),
        ("file_missing", [Move(path="b", to="c")]),
        ("file_missing", [Chmod(path="b", executable=True)]),
        ("file_exists", [Move(path="a", to="binary")]),
        ("file_exists", [Symlink(path="a", target="b")]),
        ("not_a_file", [write("folder", "x")]),
        ("not_a_file", [write("a/below", "x")]),
        ("not_a_file", [write("fifo", "x")]),
        ("not_text", [replace("binary", "x", "y")]),
        ("stale", [Delete(path="a", base="0" * 40)]),
        ("stale", [edit_at("a", 0)]),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(here: Here, name: str, edits: list[AnyEdit]) -> None:
    here.place.write({"a": "x\nx\n", "binary": b"\0x", "folder/file": "x"})
    if not (here.place.root / "fifo").exists():
        os.mkfifo(here.place.root / "fifo")
    before = here.place.files()
    refused = refusal(here.client.apply, edits)
    assert refused.name == name
    assert refused.message
    assert here.place.files() == before


def test_a_message_over_the_limit_is_refused(here: Here) -> None:
    with pytest.raises(EditdError, match="67108864"):
        here.client.apply([write(here.at("a"), "x" * (LIMITS.message_bytes_max + 1))])
    with here.place.client() as other:
        other.settle()
        assert other.status().state == "ready"


def test_an_os_error_is_told_with_its_number(place: Workplace) -> None:
    with place.start() as client:
        client.settle()
        place.root.rename(place.folder / "elsewhere")
        refused = refusal(client.apply, [write("a", "x")])
        assert refused.name == "io_error"
        assert refused.data["errno"] == errno.ENOENT
        assert client.log().transactions, "reading goes on"
        (place.folder / "elsewhere").rename(place.root)
        client.apply([write("a", "x")])


def test_another_folder_where_the_workspace_was_is_not_taken_for_it(place: Workplace) -> None:
    place.write({"a": "0\n"})
    with place.start() as client, place.client() as other:
        client.settle()
        head = client.apply([write("a", "1\n", force=True)]).transaction
        assert head is not None
        running = other.exec_begin("make")
        place.root.rename(place.folder / "away")
        place.root.mkdir()
        (place.root / "a").write_text("another's\n")
        asked: list[Callable[[], object]] = [
            lambda: client.read("a"),
            lambda: client.stat(["a"]),
            client.diff,
            lambda: client.blame("a"),
            lambda: client.hooks_run(["a"]),
            lambda: client.apply([write("b", "2\n")], dry_run=True),
            lambda: client.undo(dry_run=True),
            lambda: client.stage(client.begin().changeset, [write("b", "2\n")]),
            client.settle,
            client.check,
            lambda: client.exec_begin("make"),
            lambda: other.exec_end(running.exec, 0),
        ]
        for ask in asked:
            refused = refusal(ask)
            assert (refused.name, refused.data["errno"]) == ("io_error", errno.ENOENT)
            assert "moved or removed" in refused.message
        status = client.status()
        assert status.state == "broken"
        assert "moved or removed" in str(status.reason)
        assert client.read("a", at=head.seq).content == "1\n"
        assert "-0\n+1\n" in client.diff(0, head.seq).diff


def test_a_file_that_somebody_is_writing_is_waited_for_and_then_refused(here: Here) -> None:
    path = here.put("a", "one\n")
    with open(here.place.root / path, "a") as file:
        file.write("tw")
        file.flush()
        refused = refusal(here.apply, replace(path, "one", "1"))
        assert refused.name == "io_error"
        assert refused.data["errno"] == errno.EBUSY
        file.write("o\n")
    here.apply(replace(path, "one", "1"))
    assert here.holds("a") == "1\ntwo\n"


@pytest.mark.parametrize(
    ("asked", "name", "code"),
    [
        ({"id": 1, "method": "nonsense"}, "method_not_found", -32601),
        ({"id": 1, "method": "read"}, "invalid_params", -32602),
        ({"id": 1, "method": "read", "params": {"path": 7}}, "invalid_params", -32602),
        ({"id": 1, "method": "read", "params": {"path": "a", "pth": "b"}}, "invalid_params", -32602),
        ({"id": 1, "method": "apply", "params": {"edits": [{"op": "tool"}]}}, "invalid_params", -32602),
        ({"id": 1, "method": "apply", "params": {"edits": [{}]}}, "invalid_params", -32602),
        ({"id": 1, "nothing": 1}, "invalid_request", -32600),
    ],
)
def test_what_is_no_request_of_the_protocol_is_told_why(
    here: Here, asked: dict[str, Any], name: str, code: int
) -> None:
    error = exchange(here.place, asked)["error"]
    assert (error["data"]["name"], error["code"]) == (name, code)


def test_what_is_no_json_is_a_parse_error(here: Here) -> None:
    with connected(here.place) as stream:
        stream.sendall(b'{"id": 1, \n')
        assert json.loads(stream.makefile("rb").readline())["error"]["code"] == -32700


# ── The three encodings ────────────────────────────────────────────────────────────────────────


def test_each_encoding_gives_the_same_answers(here: Here) -> None:
    path = here.put("a", b"caf\xe9\n")
    text = {"base64": base64.b64encode(b"caf\xe9\n").decode()}
    asked = [
        {"id": 1, "method": "read", "params": {"path": path}},
        {"id": 2, "method": "apply", "params": {"edits": [
            {"op": "write", "path": here.at("b"), "content": text}], "dry_run": True}},
        {"id": 3, "method": "stat", "params": {"paths": [path, here.at("b")]}},
        {"id": 4, "method": "read", "params": {"path": here.at("missing")}},
        {"id": 5, "method": "apply", "params": {"edits": [{"op": "delete", "path": path, "base": "0" * 40}]}},
        {"id": 6, "method": "nonsense", "params": {}},
        {"id": 7, "method": "log", "params": {"path": path}},
    ]  # fmt: skip
    by_line, by_header = speak_lines(here.place, asked), speak_headers(here.place, asked)
    assert by_line == by_header
    packed = {answer[1]: (answer[2], answer[3]) for answer in speak_msgpack(here.place, asked)}
    assert by_line[0]["result"]["content"] == text
    for answer in by_line:
        error, result = packed[answer["id"]]
        assert as_json(result) == answer.get("result")
        if "error" in answer:
            assert as_json(error) == {**answer["error"], **answer["error"]["data"]}
        else:
            assert error is None


def test_every_method_can_be_asked_for_by_its_name(here: Here) -> None:
    """Without its parameters each says what it lacks, or answers: none is unknown."""
    names = [name for name in REQUESTS if name != "shutdown"]
    asked = [{"id": number, "method": name, "params": {"no such": 1}} for number, name in enumerate(names)]
    answers = speak_lines(here.place, asked)
    assert [answer["error"]["data"]["name"] for answer in answers] == ["invalid_params"] * len(names)


def connected(place: Workplace) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(30)
    stream.connect(place.socket)
    return stream


def exchange(place: Workplace, asked: dict[str, Any]) -> dict[str, Any]:
    return speak_lines(place, [asked])[0]


def speak(place: Workplace, requests: list[bytes]) -> bytes:
    """Say it all, hang up, and hear it all."""
    with connected(place) as stream:
        stream.sendall(b"".join(requests))
        stream.shutdown(socket.SHUT_WR)
        heard = stream.makefile("rb").read()
        assert isinstance(heard, bytes)
        return heard


def by_id(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(answers, key=lambda answer: answer["id"])


def speak_lines(place: Workplace, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    heard = speak(place, [json.dumps(one).encode() + b"\n" for one in asked])
    return by_id([json.loads(line) for line in heard.splitlines()])


def speak_headers(place: Workplace, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    bodies = [json.dumps({"jsonrpc": "2.0", **one}).encode() for one in asked]
    heard = speak(place, [b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies])
    answers = []
    while heard:
        header, _, rest = heard.partition(b"\r\n\r\n")
        length = int(header.removeprefix(b"Content-Length: "))
        answers.append(json.loads(rest[:length]))
        heard = rest[length:]
    return by_id(answers)


def speak_msgpack(place: Workplace, asked: list[dict[str, Any]]) -> list[list[Any]]:
    packer, unpacker = msgpack.Packer(), msgpack.Unpacker()
    packed = [bytes(packer.pack([0, one["id"], one["method"], [as_msgpack(one["params"])]])) for one in asked]
    unpacker.feed(speak(place, packed))
    return sorted(unpacker, key=lambda answer: answer[1])


def as_msgpack(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"base64"}:
            return base64.b64decode(value["base64"])
        return {name: as_msgpack(item) for name, item in value.items()}
    return [as_msgpack(item) for item in value] if isinstance(value, list) else value


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value
