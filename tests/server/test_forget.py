"""`forget`: contents go from everything in the state folder, and the history says so."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Move, ProposedResult
from editd_client.errors import EditdError
from support.state_search import holders
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client
    from support.workplace import Workplace


EDIT_SECONDS = 0.02  # between two edits beside a niced process, which would end much later without it


def refused(call: Callable[[], object]) -> EditdError:
    with pytest.raises(EditdError) as caught:
        call()
    return caught.value


def with_secret(client: Client, secret: str) -> None:
    """Make five transactions: the secret is written in 2, changed around in 3, and taken out in 4."""
    client.apply([write("app.conf", "host = db\n")])
    client.apply([write("app.conf", f"host = db\npassword = {secret}\n")])
    client.apply([replace("app.conf", "host = db", "host = database")])
    client.apply([replace("app.conf", secret, "$PASSWORD"), write("b.txt", "beside\n")])
    client.apply([write("other.txt", "x\n")])


def test_a_text_is_gone_from_every_file_and_the_rest_is_as_it_was(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        with_secret(client, secret)
        files, log = place.files(), client.log().transactions
        planned = client.forget(text=secret, dry_run=True)
        assert [sorted(one.transactions) for one in planned.removed] in ([[2, 3], [3, 4]], [[3, 4], [2, 3]])
        assert (planned.searched, holders(place.state, secret.encode()) != []) == (0, True)

        done = client.forget(text=secret)
        assert done.removed == planned.removed
        assert [one.paths for one in done.removed] == [["app.conf"], ["app.conf"]]
        assert done.remaining == []
        assert done.searched > 0
        assert holders(place.state, secret.encode()) == []
        assert place.files() == files
        for seen, known in zip(client.log().transactions, log, strict=True):
            assert (seen.seq, seen.id, seen.files) == (known.seq, known.id, known.files)
        assert client.check().problems == []
        assert client.forget(text=secret).removed == []
        place.stop()
    assert holders(place.state, secret.encode()) == []
    place.git("log", "--format=%H", "history", store=True)
    (place.state / "index.db").unlink()
    with place.start() as client:
        assert client.check().problems == []
        assert [one.id for one in client.log().transactions] == [one.id for one in log]


def test_a_secret_in_utf_16_is_gone_too(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    encoded = f"password = {secret}\r\n".encode("utf-16")
    place.write({"settings.reg": encoded})
    with place.start() as client:
        client.apply([write("settings.reg", "gone\n")])
        done = client.forget(text=secret)
        assert ([one.paths for one in done.removed], done.remaining) == ([["settings.reg"]], [])
        assert holders(place.state, secret.encode("utf-16-le")) == []


def test_the_history_names_what_was_forgotten_and_an_undo_of_it_says_so(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.hello("ana")
        with_secret(client, secret)
        client.forget(text=secret)
        for shown in (client.show(3).transaction, client.log(path="app.conf").transactions[1]):
            assert isinstance(shown.forgotten, list)
            assert {gap.actor for gap in shown.forgotten} == {"ana"}
            assert {gap.version for gap in shown.forgotten} == {shown.files[0].base, shown.files[0].version}
            assert {gap.size for gap in shown.forgotten} == {62, 68}
        assert "was forgotten at" in (client.show(2).diff or "")
        for diff in (client.show(2).diff or "", client.diff(1, 3).diff):
            assert "\n(The content " in diff
            assert "\n+(" not in diff
        assert not client.show(5).transaction.forgotten

        for call in (
            lambda: client.undo(4),
            lambda: client.undo(3),
            lambda: client.read("app.conf", at=2),
            lambda: client.restore(2),
        ):
            refusal = refused(call)
            assert refusal.name == "content_forgotten"
            assert "was forgotten at" in refusal.message
            assert refusal.data["actor"] == "ana"
        assert client.undo(4, paths=["b.txt"]).transaction is not None
        assert client.restore(1, paths=["app.conf"]).transaction is not None
        assert place.files()["app.conf"] == b"host = db\n"
        assert client.check().problems == []


def test_blame_goes_over_the_gap_and_names_it(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        with_secret(client, secret)
        assert [line.seq for line in client.blame("app.conf").lines] == [3, 4]
        client.apply([write("app.conf", "host = db\npassword = $PASSWORD\nport = 1\n")])
        client.forget(text=secret)
        blamed = client.blame("app.conf")
        assert [line.seq for line in blamed.lines] == [6, 4, 6]
        assert blamed.gaps == [4]


def test_of_a_path_all_but_the_present_content_goes(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.apply([write("old.conf", f"first {secret}\n")])
        client.apply([Move(path="old.conf", to="app.conf")])
        client.apply([write("app.conf", f"second {secret}\n")])
        client.apply([write("app.conf", "clean\n")])
        client.apply([write("copy.conf", "stays\n")])
        done = client.forget(["app.conf"])
        assert done.kept == ["app.conf"]
        assert {path for one in done.removed for path in one.paths} == {"old.conf", "app.conf"}
        assert holders(place.state, secret.encode()) == []
        assert client.read("app.conf", at=4).content == "clean\n"
        client.apply([write("app.conf", "later\n")])
        assert client.undo().transaction is not None
        assert place.files()["app.conf"] == b"clean\n"
        assert client.check().problems == []
        assert refused(lambda: client.forget(["nothing.conf"])).name == "file_missing"


def test_globs_and_versions_name_contents_too(place: Workplace) -> None:
    one, other = secrets.token_hex(20), secrets.token_hex(20)
    with place.start() as client:
        client.apply([write("keys/a.pass", one), write("keys/b.pass", other)])
        version = client.stat(["keys/a.pass"]).files[0].version
        client.apply([write("keys/a.pass", "-"), write("keys/b.pass", "+")])
        assert version is not None
        assert [gone.version for gone in client.forget(content=[version]).removed] == [version]
        assert (holders(place.state, one.encode()), holders(place.state, other.encode()) != []) == ([], True)
        assert len(client.forget(matching=["**/*.pass"]).removed) == 1
        assert holders(place.state, other.encode()) == []
        assert client.check().problems == []


def test_a_content_that_a_file_has_now_is_not_forgotten(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("app.conf", "password = swordfish\n")])
        version = client.stat(["app.conf"]).files[0].version
        for call in (
            lambda: client.forget(text="swordfish"),
            lambda: client.forget(content=[str(version)]),
        ):
            refusal = refused(call)
            assert refusal.name == "conflict"
            assert "app.conf" in refusal.message
        assert client.show(1).diff is not None


def test_proposals_with_it_go_once_they_are_settled(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        proposed = client.apply([write("app.conf", f"password = {secret}\n")], propose=True)
        assert isinstance(proposed.proposal, ProposedResult)
        number = proposed.proposal.proposal
        assert number is not None
        refusal = refused(lambda: client.forget(text=secret))
        assert (refusal.name, refusal.data["proposals"]) == ("conflict", [number])
        client.proposal_comment(number, f"is {secret} right?")
        client.proposal_withdraw(number)
        assert holders(place.state, secret.encode()) != []
        done = client.forget(text=secret)
        assert (done.proposals, done.remaining) == ([number], [])
        assert holders(place.state, secret.encode()) == []
        assert refused(lambda: client.proposal_get(number)).name == "unknown_proposal"


def test_refusals_lost_and_found_and_the_log_lose_it_too(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.apply([write("app.conf", "a = 1\n")])
        refused(lambda: client.apply([replace(f"{secret}.conf", "a", "b")]))
        assert secret in client.log_refusals().refusals[0].message
        (place.state / "strays").mkdir(exist_ok=True)
        (place.state / "strays" / "1").write_text(f"left by a crash: {secret}")
        with (place.state / "log").open("a") as log:
            log.write(f"a line with {secret}\nanother line\n")
        done = client.forget(text=secret)
        assert (done.others, done.remaining) == (3, [])
        assert client.log_refusals().refusals == []
        assert holders(place.state, secret.encode()) == []
        assert "another line" in place.log()
        place.stop()
    assert "ended" in place.log(), "the daemon goes on logging"


def test_the_text_that_a_refused_edit_would_have_put_into_a_file_goes_too(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.apply([write("a", "one\n")])
        refused(lambda: client.apply([replace("a", "two", secret)]))
        refused(lambda: client.apply([replace("a", "two", "three")]))
        assert secret in client.log_refusals().refusals[1].attempt
        assert secret not in client.log_refusals().refusals[1].message
        client.forget(text=secret)
        left = client.log_refusals().refusals
        assert [entry.number for entry in left] == [2]


def test_a_text_in_a_message_or_a_name_is_named_because_it_stays(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.apply([write(f"{secret}.txt", "x\n")], message=f"the key is {secret}")
        done = client.forget(text=secret)
        assert done.removed == []
        assert any("the message of transaction 1" in sentence for sentence in done.remaining)
        assert any("the name of a file" in sentence for sentence in done.remaining)
        assert {sentence.split(" ")[0] for sentence in done.remaining} >= {"index.db"}


def test_what_was_forgotten_may_be_written_again(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a.txt", "password = swordfish\n")])
        client.apply([write("a.txt", "clean\n")])
        client.forget(text="swordfish")
        assert refused(lambda: client.read("a.txt", at=1)).name == "content_forgotten"
        client.apply([write("a.txt", "password = swordfish\n")])
        client.apply([write("a.txt", "clean again\n")])
        client.gc()
        assert client.read("a.txt", at=3).content == "password = swordfish\n"
        assert client.undo(4).transaction is not None
        assert client.check().problems == []
        place.stop()
    with place.start() as client:
        assert client.read("a.txt", at=3).content == "password = swordfish\n"
        client.apply([write("a.txt", "clean\n")])
        client.forget(text="swordfish")
        assert refused(lambda: client.read("a.txt", at=3)).name == "content_forgotten"
        assert client.check().problems == []


def test_a_rollback_may_leave_out_what_was_forgotten(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a.txt", "password = swordfish\n"), write("b.txt", "before\n")])
        client.session_open("worker")
        client.apply([write("a.txt", "clean\n"), write("b.txt", "after\n")], session="worker")
        client.forget(text="swordfish")
        assert refused(lambda: client.rollback("worker")).name == "content_forgotten"
        done = client.rollback("worker", on_conflict="skip")
        assert done.warnings == ["Not undone, because the content was forgotten: a.txt (2)."]
        assert place.files() == {"a.txt": b"clean\n", "b.txt": b"before\n"}
        assert refused(lambda: client.rollback("worker", on_conflict="skip")).name == "content_forgotten"


def test_a_retry_of_an_edit_that_wrote_it_finds_its_answer(place: Workplace) -> None:
    with place.start() as client:
        edit = [write("a.txt", "password = swordfish\n")]
        first = client.apply(edit, request_id="once").transaction
        client.apply([write("a.txt", "clean\n")])
        client.forget(text="swordfish")
        again = client.apply(edit, request_id="once").transaction
        assert first is not None
        assert again is not None
        assert (again.seq, again.id) == (first.seq, first.id)
        assert place.files() == {"a.txt": b"clean\n"}


def test_a_content_of_the_users_own_git_is_counted_and_not_served_either(place: Workplace) -> None:
    place.git("init", "-q")
    place.write({"app.conf": "password = swordfish\n"})
    place.git("add", "app.conf")
    place.git("commit", "-qm", "with a secret")
    with place.start() as client:
        version = client.stat(["app.conf"]).files[0].version
        assert version is not None
        client.apply([write("app.conf", "clean\n")])
        assert client.show(1).diff is not None
        done = client.forget(content=[version])
        assert [one.version for one in done.removed] == done.borrowed == [version]
        assert refused(lambda: client.undo(1)).name == "content_forgotten"
        assert "swordfish" not in (client.show(1).diff or "")
        assert client.check().problems == []
    assert place.git("cat-file", "-p", version) == "password = swordfish\n"


def test_a_repair_does_not_bring_it_back(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a.txt", "password = swordfish\n")])
        client.apply([write("a.txt", "clean\n")])
        client.forget(text="swordfish")
        place.stop()
    record = place.store / "forgotten"
    record.write_bytes(b"-" + record.read_bytes()[1:])  # a digit of the first line's checksum
    (place.root / "a.txt").write_text("password = swordfish\n")
    with place.start() as client:
        assert any("forgotten" in problem for problem in client.check().problems)
        repaired = client.check(repair=True)
        assert repaired.lost == []
        assert any("forgotten is rebuilt" in sentence for sentence in repaired.repaired)
    assert place.process is not None
    place.process.wait(30)
    (place.root / "a.txt").write_text("clean\n")
    with place.start() as client:
        client.settle()
        assert client.check().problems == []
        assert client.status().history["forgotten"] == 1
        assert refused(lambda: client.read("a.txt", at=1)).name == "content_forgotten"
        assert holders(place.state, b"swordfish") == []


def test_edits_go_on_while_contents_are_forgotten(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client, place.client() as other, ThreadPoolExecutor(1) as beside:
        with_secret(client, secret)
        asked = beside.submit(lambda: other.forget(text=secret))
        made = 0
        while not wait([asked], EDIT_SECONDS).done:
            client.apply([write("b.txt", f"{made}\n")])
            made += 1
        assert asked.result().remaining == []
        assert made > 1
        assert client.read("b.txt").content == f"{made - 1}\n"
        assert client.check().problems == []
        assert holders(place.state, secret.encode()) == []


@pytest.mark.parametrize(
    "params",
    [{}, {"text": "abc"}, {"paths": []}, {"text": "long enough", "paths": ["a"]}, {"content": ["12"]}],
)
def test_a_request_that_names_nothing_or_nearly_everything_is_refused(
    place: Workplace, params: dict[str, object]
) -> None:
    with place.start() as client:
        assert refused(lambda: client.forget(**params)).name == "invalid_params"  # type: ignore[arg-type]
