"""Excluded files: no content of them is in the history, and an edit of one can be undone for a while."""

from __future__ import annotations

import os
import secrets
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import AnyEdit, ApplyResult, MadeText, Move, Patch, Replace, Tool
from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.state_search import holders
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.workplace import Workplace


AUTHOR = "Ana <ana@example.com>"


def refused(call: Callable[[], object]) -> EditdError:
    with pytest.raises(EditdError) as caught:
        call()
    return caught.value


def check_only_kept(place: Workplace, *searched: str) -> None:
    """Check that only the kept contents have each secret, once the files that were replaced are emptied."""
    for secret in searched:
        wait_until(partial(is_only_kept, place, secret), f"the secret is in {found(place, secret)}")
        assert found(place, secret) != []


def is_only_kept(place: Workplace, secret: str) -> bool:
    return all(name.startswith("excluded/") for name in found(place, secret))


def found(place: Workplace, secret: str) -> list[str]:
    return holders(place.state, secret.encode())


def is_nowhere(place: Workplace, secret: str) -> bool:
    return not found(place, secret)


def configure(place: Workplace, text: str) -> None:
    """Write the configuration that the next daemon reads."""
    folder = place.folder / "config/editd"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text)


def test_blame_of_a_file_whose_content_is_not_kept_is_refused_with_the_reason(place: Workplace) -> None:
    """The fault: `history_damaged`, with the hint to restore a repository from a backup."""
    with place.start() as client:
        client.settle()
        client.apply([write(".env", "KEY=1\n")])
        assert len(client.blame(".env").lines) == 1
        place.write({".env": "KEY=2\n"})
        client.settle()
        refusal = refused(lambda: client.blame(".env"))
        assert (refusal.name, refusal.data["path"]) == ("content_excluded", ".env")
        assert client.check().problems == []


def test_an_edit_can_be_undone_and_its_contents_are_only_beside_the_history(place: Workplace) -> None:
    first, second = secrets.token_hex(20), secrets.token_hex(20)
    place.write({".env": f"KEY={first}\n"})
    with place.start() as client:
        client.settle()
        assert holders(place.state, first.encode()) == []
        client.apply([write(".env", f"KEY={second}\n"), write("a.txt", "a\n")])
        check_only_kept(place, first, second)
        assert second in (client.show(1).diff or "")
        assert client.read(".env", at=1).content == f"KEY={second}\n"
        assert client.undo().transaction is not None
        assert place.files() == {".env": f"KEY={first}\n".encode()}
        client.gc()
        check_only_kept(place, first, second)
        client.redo()
        assert place.files()[".env"] == f"KEY={second}\n".encode()
        assert client.check().problems == []
        place.stop()
    check_only_kept(place, first, second)
    with place.start() as client:
        assert client.undo().transaction is not None
        assert client.check().problems == []


def test_after_its_time_a_content_is_nowhere_and_an_undo_says_so(place: Workplace) -> None:
    first, second = secrets.token_hex(20), secrets.token_hex(20)
    configure(place, '[history]\nexclude_keep = "2s"\n')
    place.write({".env": f"KEY={first}\n", "a.txt": "a\n"})
    with place.start() as client:
        client.settle()
        done = client.apply([write(".env", f"KEY={second}\n"), write("a.txt", "b\n")])
        assert any(warning.startswith("Excluded from the history: .env.") for warning in done.warnings)
        for secret in (first, second):
            wait_until(partial(is_nowhere, place, secret), "it is still there")
        for call in (
            lambda: client.undo(1),
            lambda: client.read(".env", at=1),
            partial(client.undo, 1, paths=[".env"], on_conflict="skip"),
        ):
            refusal = refused(call)
            assert (refusal.name, refusal.data["path"]) == ("content_excluded", ".env")
            assert "is excluded" in refusal.message
        assert "is excluded" in (client.show(1).diff or "")
        assert client.show(1).transaction.excluded == [".env"]
        assert [one.excluded for one in client.log(limit=1).transactions] == [[".env"]]
        assert client.undo(1, on_conflict="skip").warnings == [
            "Not undone, because the file is excluded: .env (1)."
        ]
        assert place.files() == {".env": f"KEY={second}\n".encode(), "a.txt": b"a\n"}
        assert client.check().problems == []
        client.gc()
        assert client.check().problems == []
        excluded = client.status().history["excluded"]
        assert excluded == {"files": [".env"], "count": 1, "kept": 0, "bytes": 0}
        place.stop()
    with place.start() as client:
        assert refused(lambda: client.undo(1)).name == "content_excluded"
        assert client.check().problems == []
    for secret in (first, second):
        assert holders(place.state, secret.encode()) == []


def test_no_answer_has_a_sentence_as_the_content_that_is_not_kept(place: Workplace) -> None:
    """The fault: a repeated request got the reason as `content`, and a diff had it as a line to apply."""
    configure(place, '[history]\nexclude_keep = "1s"\n')
    with place.start() as client:
        client.settle()

        def edit() -> ApplyResult:
            edits = [write(".env", "KEY=1\n"), write("a.txt", "a\n")]
            return client.apply(edits, request_id="one", return_content=True, diff=True)

        assert [file.content for file in edit().files] == ["KEY=1\n", "a\n"]
        wait_until(partial(is_nowhere, place, "KEY=1"), "it is still there")
        again = edit()
        excluded, kept = again.files
        assert (excluded.content, kept.content, kept.warnings) == (None, "a\n", [])
        assert [warning for warning in excluded.warnings if "because its file is excluded" in warning]
        client.undo(1, on_conflict="skip")
        for diff in (excluded.diff, client.show(1).diff, client.diff(0, 1).diff):
            text = str(diff)
            assert "is excluded" in text
            assert "\n+(" not in text
            only = text[: text.find("diff --git a/a.txt")] if "a/a.txt" in text else text
            reply = subprocess.run(
                ["git", "apply"], input=only, cwd=place.folder, capture_output=True, text=True, check=False
            )
            assert reply.returncode != 0
            place.root.joinpath(".env").unlink(missing_ok=True)
            client.settle()
            assert refused(partial(client.apply, [Patch(patch=only)])).name == "malformed_edit"
            assert not place.root.joinpath(".env").exists()


def test_an_unchanged_file_of_a_repeated_request_has_no_content_either(place: Workplace) -> None:
    place.write({".env": "KEY=1\n"})
    with place.start() as client:
        client.settle()
        edits = [write(".env", "KEY=1\n"), write("a.txt", "a\n")]
        contents = []
        for _ in range(2):
            reply = client.apply(edits, request_id="one", return_content=True)
            contents += [file.content for file in reply.files if file.path == ".env"]
        assert contents == ["KEY=1\n", None]


def test_a_change_by_another_program_is_recorded_without_its_content(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.settle()
        place.write({".env": f"KEY={secret}\n", "app/tls.KEY": secret, "tests/a.pem": "kept\n"})
        client.settle()
        assert holders(place.state, secret.encode()) == []
        shown = client.show(client.status().head or 0)
        assert {file.path for file in shown.transaction.files} == {".env", "app/tls.KEY", "tests/a.pem"}
        assert shown.transaction.excluded == [".env", "app/tls.KEY"]
        assert (shown.transaction.kind, shown.transaction.actor) == ("outside", "outside")
        assert secret not in (shown.diff or "")
        assert client.read("tests/a.pem", at=1).content == "kept\n"
        assert client.read(".env").content == f"KEY={secret}\n"
        assert refused(lambda: client.undo(1)).name == "content_excluded"
        assert client.undo(1, on_conflict="skip").transaction is not None
        assert client.check().problems == []
        assert holders(place.state, secret.encode()) == []


def test_a_tools_write_whose_beginning_was_missed_is_its_sessions_by_the_version(place: Workplace) -> None:
    """The fault: `exec.end` was refused, and the change stayed an outside one without a word."""
    with place.start() as client:
        client.settle()
        client.session_open("agent")
        place.write({".env": "KEY=1\r\n"})
        made = [MadeText(path=".env", new="KEY=1\n")]
        ended = client.exec_end(key="never", status=0, command="Write .env", made=made)
        assert ended.transaction is not None
        assert ended.transaction.session == "agent"
        assert client.show(1).transaction.excluded == [".env"]

        place.write({".env": "KEY=2\n"})
        other = [MadeText(path=".env", new="KEY=3\n")]
        edited = [MadeText(path=".env", old="KEY=1", new="KEY=2")]
        for texts in (other, edited):
            ended = client.exec_end(key="not", status=0, command="Edit .env", made=texts)
            assert ended.transaction is None
            assert ended.warnings
        kinds = [one.kind for one in client.log(limit=3).transactions]
        assert kinds == ["outside", "claim", "exec"]


def test_a_move_over_the_border_is_refused_and_one_within_is_not(place: Workplace) -> None:
    place.write({".env": "KEY=1\n", "a.txt": "a\n", "conf/x.pem": "p\n"})
    with place.start() as client:
        for source, target in ((".env", "env.txt"), ("a.txt", "a.key"), ("conf/x.pem", "tests/x.pem")):
            refusal = refused(partial(client.apply, [Move(path=source, to=target)]))
            assert refusal.name == "path_protected"
            assert "history.exclude" in refusal.message
        assert client.apply([Move(path=".env", to=".env.local")]).transaction is not None
        assert client.undo().transaction is not None
        assert place.files() == {".env": b"KEY=1\n", "a.txt": b"a\n", "conf/x.pem": b"p\n"}


def test_no_refusal_log_or_status_has_an_excluded_text(place: Workplace) -> None:
    """The attack: another client lists the refusals, or reads the log of a hook that printed its input."""
    secret = secrets.token_hex(20)
    configure(
        place,
        '[[hook]]\nname = "loud"\nglob = ["h/**"]\non_error = "skip"\n'
        'command = ["sh", "-c", "cat >&2; exit 3"]\n'
        '[[hook]]\nname = "check"\nglob = ["c/**"]\nkind = "check"\n'
        'command = ["sh", "-c", "cat >&2; exit 3"]\n'
        '[[review.rule]]\nname = "ask"\npaths = ["ask/**"]\n',
    )
    place.write({".env": "KEY=1\n", "a.txt": "a\n"})
    (place.root / "link").symlink_to(".env")
    whole = f"*** Begin Patch\n*** Update File: .env\n@@\n-KEY=2\n+KEY={secret}\n*** End Patch"
    patch = f"--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-KEY=2\n+KEY={secret}\n"
    requests: list[list[AnyEdit]] = [
        [write("ask/.env", secret)],
        [write("c/.env", secret)],
        [Replace(path=".env", old=secret, new="x")],
        [Replace(path="link", old=secret, new="x")],
        [Patch(patch=patch)],
        [Tool(dialect="codex", tool="apply_patch", args={"input": whole})],
        [Replace(path="a.txt", old="b", new="x"), write(".env", secret)],
    ]
    with place.start() as client:
        for edits in requests:
            refused(partial(client.apply, edits))
        refusals = client.log_refusals().refusals
        assert len(refusals) == len(requests)
        assert [entry for entry in refusals if secret in f"{entry.message}{entry.attempt}"] == []
        refused(partial(client.apply, [Replace(path="a.txt", old=secret, new="x")]))
        assert secret in client.log_refusals().refusals[0].attempt

        client.apply([write("h/.env", secret)])
        failures = [hook["failure"]["message"] for hook in client.status().hooks]
        assert failures == ["loud failed on h/.env: it ended with exit status 3.", "refused c/.env"]
    assert holders(place.state, secret.encode()) != []
    assert all(name.startswith(("excluded/", "replaced/")) for name in found(place, secret))


COPY = "diff --git a/{0} b/{1}\nsimilarity index 100%\ncopy from {0}\ncopy to {1}\n"


def test_no_edit_carries_an_excluded_content_to_a_kept_file(place: Workplace) -> None:
    """The attack: a patch copies `.env`, or its path gets a new file in the request that moves it away."""
    secret = secrets.token_hex(20)
    place.write({".env": f"KEY={secret}\n", ".env.example": "KEY=\n"})
    copy = Patch(patch=COPY.format(".env", "plain.txt"))
    attacks: tuple[list[AnyEdit], ...] = (
        [copy],
        [copy, Replace(path="plain.txt", old="KEY", new="key")],
        [Patch(patch=COPY.format(".env", "x.key")), Move(path="x.key", to="plain.txt")],
        [Move(path=".env", to="plain.txt"), write(".env", "KEY=\n")],
        [Move(path=".env", to="x.key"), Move(path="x.key", to="plain.txt"), write("x.key", "1")],
    )
    with place.start() as client:
        for edits in attacks:
            refusal = refused(partial(client.apply, edits))
            assert refusal.name == "path_protected", edits
            assert "history.exclude" in refusal.message
        assert holders(place.state, secret.encode()) == []
        assert place.files() == {".env": f"KEY={secret}\n".encode(), ".env.example": b"KEY=\n"}
        client.apply([Patch(patch=COPY.format(".env", ".env.local"))])
        client.apply([Patch(patch=COPY.format(".env.example", "app/.env"))])
        check_only_kept(place, secret)


def test_an_excluded_file_cannot_be_proposed(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    configure(place, '[review]\ndefault = "ask"\n')
    with place.start() as client:
        for propose in (True, None):  # on request, and by the rule
            edits = [write(".env", secret), write("a", "b")]
            refusal = refused(partial(client.apply, edits, propose=propose))
            assert refusal.name == "content_excluded"
        assert client.apply([write("a", "b")]).proposal is not None
        assert len(client.proposal_list().proposals) == 1
        assert holders(place.state, secret.encode()) == []
        assert place.files() == {}


def test_forget_removes_a_kept_content_too(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.apply([write(".env", f"KEY={secret}\n")])
        client.apply([write(".env", "KEY=\n")])
        done = client.forget(text=secret)
        assert (done.others, done.remaining) == (1, [])
        assert holders(place.state, secret.encode()) == []
        assert refused(lambda: client.undo(2)).name == "content_excluded"
        assert client.check().problems == []


def test_the_first_scan_borrows_no_content_of_an_excluded_file(place: Workplace) -> None:
    """The user's git has it, and the history serves it to nobody all the same."""
    secret, key = secrets.token_hex(20), "the same in both\n"
    place.git("init", "-q")
    place.write({".env": f"KEY={secret}\n", "a.txt": "a\n", "x.pem": key, "tests/x.pem": key})
    place.git("add", "-f", ".")
    place.git("commit", "-qm", "with secrets")
    _age(place)
    with place.start() as client:
        client.settle()
        assert client.read("a.txt", at=0).content == "a\n"
        assert refused(lambda: client.read(".env", at=0)).name == "content_excluded"
        assert client.read("tests/x.pem", at=0).content == key, "the history needs it for the other file"
        assert client.status().history["excluded"]["files"] == [".env"]
        client.apply([write(".env", "KEY=\n")])
        assert client.undo().transaction is not None
        assert place.files()[".env"] == f"KEY={secret}\n".encode()
        assert client.check().problems == []
        check_only_kept(place, secret)


def _age(place: Workplace) -> None:
    """Make the files older than git's index, so that git and the first scan trust that."""
    for path in place.root.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            os.utime(path, (1_700_000_000, 1_700_000_000))
    place.git("update-index", "-q", "--refresh")


def test_the_next_start_deletes_what_no_daemon_has_deleted(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.apply([write(".env", f"KEY={secret}\n")])
        place.stop()
    check_only_kept(place, secret)
    configure(place, '[history]\nexclude_keep = "1s"\n')
    with place.start() as client:
        wait_until(partial(is_nowhere, place, secret), "it is still there")
        assert refused(lambda: client.read(".env", at=1)).name == "content_excluded"


def test_publish_leaves_an_excluded_file_out(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    place.git("init", "-q")
    place.write({".env": "KEY=\n", "a.txt": "a\n"})
    place.git("add", "-f", ".")
    place.git("commit", "-qm", "first")
    with place.start() as client:
        client.settle()
        client.session_open("work")
        client.apply([write(".env", f"KEY={secret}\n"), write("a.txt", "b\n")], session="work")
        done = client.publish("second", session="work", author=AUTHOR)
        assert (done.left_out, [file.path for file in done.files]) == ([".env"], ["a.txt"])
        assert place.git("show", "HEAD:.env") == "KEY=\n"
        client.apply([write(".env", "KEY=other\n")], session="work")
        refusal = refused(lambda: client.publish("third", session="work", author=AUTHOR))
        assert (refusal.name, refusal.data["left_out"]) == ("no_change", [".env"])
        assert "history.exclude" in refusal.message


def test_an_ordinary_file_with_the_content_of_an_excluded_one_is_judged_by_its_path(place: Workplace) -> None:
    """The fault: while the content was kept for an undo, `log` and `publish` left the other file out."""
    place.git("init", "-q")
    with place.start() as client:
        client.session_open("work")
        client.apply([write("a.pem", "SAME\n"), write("b.pem", "SAME\n")], session="work")
        client.apply([write("a.txt", "SAME\n")], session="work")
        client.apply([write("a.txt", "two\n"), write("c.pem", "SAME\n")], session="work")
        named = [one.excluded or [] for one in client.log().transactions]
        assert named[:3] == [["c.pem"], [], ["a.pem", "b.pem"]]
        assert client.publish("all", session="work", author=AUTHOR).left_out == ["a.pem", "b.pem", "c.pem"]
        place.stop()
    with place.start() as client:
        again = [one.excluded or [] for one in client.log().transactions]
        assert again == named
        assert client.check().problems == []


def test_an_unsaved_text_and_a_refused_edit_leave_no_content(place: Workplace) -> None:
    unsaved, stale = secrets.token_hex(20), secrets.token_hex(20)
    place.write({".env": "KEY=\n"})
    with place.start() as client, place.client() as other:
        client.settle()
        base = client.read(".env").version
        client.document_hold(".env", base, f"KEY={unsaved}\n")
        assert refused(lambda: other.apply([write(".env", "KEY=theirs\n")])).name == "unsaved"
        client.document_release(".env")
        other.apply([write(".env", "KEY=2\n", base=base)])
        edit = write(".env", f"KEY={stale}\n", base=base)
        assert refused(lambda: client.apply([edit])).name == "stale"
        assert refused(lambda: client.apply([edit], on_stale="merge")).name == "conflict"
        assert client.log_refusals().refusals != []
        for secret in (unsaved, stale):
            assert is_nowhere(place, secret)
        place.stop()
    for secret in (unsaved, stale):
        assert is_nowhere(place, secret)


def test_a_damaged_record_is_named_and_a_repair_keeps_its_lines(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    place.write({".env": f"KEY={secret}\n"})
    with place.start() as client:
        client.settle()
        client.apply([write(".env", "KEY=2\n")])
        client.apply([write(".env", "KEY=3\n"), write("a.txt", "a\n")])
        client.check()
        place.stop()
    record = place.store / "excluded"
    record.write_bytes(b"damage\n" + record.read_bytes())
    with place.start() as client:
        assert any("excluded" in problem for problem in client.check().problems)
        assert refused(lambda: client.apply([write("a.txt", "b\n")])).name == "history_damaged"
        repaired = client.check(repair=True)
        assert repaired.lost == []
        assert any("excluded is rebuilt" in sentence for sentence in repaired.repaired)
    assert place.process is not None
    place.process.wait(30)
    with place.start() as client:
        assert client.check().problems == []
        assert client.undo(2).transaction is not None
        check_only_kept(place, secret)


def test_the_author_is_warned_once_in_each_session(place: Workplace) -> None:
    with place.start() as client:

        def warned(session: str | None, *paths: str) -> list[str]:
            content = secrets.token_hex(20)  # the same one in all of them
            done = client.apply([write(path, content) for path in paths], session=session)
            return [warning.partition(". ")[0] for warning in done.warnings]

        assert warned(None, ".env") == ["Excluded from the history: .env"]
        assert warned(None, ".env") == []
        client.session_open("one")
        client.session_open("two")
        assert warned("one", ".env") == ["Excluded from the history: .env"]
        assert warned("one", ".env", "a.txt") == []
        assert warned("one", ".env", "b.pem") == ["Excluded from the history: b.pem"]
        assert warned("two", ".env", "b.pem") == ["Excluded from the history: .env, b.pem"]


def test_status_and_log_name_the_file_on_a_terminal_too(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write(".env", "KEY=1\n")])
        assert "excluded    .env: their contents are not in the history" in place.editctl("status").stdout
        assert "contents not kept (history.exclude): .env" in place.editctl("log").stdout
        done = place.editctl("write", "b.pem", "--force", stdin="KEY=2\n")
        assert "Excluded from the history: b.pem." in done.stdout


def test_a_compacted_history_with_such_files_is_whole(place: Workplace) -> None:
    secret = secrets.token_hex(20)
    place.write({"keep.pem": "as first seen\n"})
    configure(place, "[history.keep]\ncount = 1\n")
    with place.start() as client:
        client.settle()
        client.apply([write(".env", f"KEY={secret}\n")])
        client.apply([write("a.txt", "1\n")])
        client.apply([write("a.txt", "2\n")])
        assert client.gc().compacted > 0
        assert client.check().problems == []
        place.stop()
    with place.start() as client:
        assert client.check().problems == []
        client.apply([write(".env", "KEY=\n"), write("keep.pem", "changed\n")])
        assert client.undo().transaction is not None
        assert place.files()[".env"] == f"KEY={secret}\n".encode()
        check_only_kept(place, secret)
        assert client.check().problems == []
