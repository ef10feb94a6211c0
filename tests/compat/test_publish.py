"""publish: one ordinary commit in the user's own git, and nothing else of it touched. By real git."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pygit2
import pytest
from msgspec import UNSET
from pygit2.enums import Option

from editd.engine import publish_worker
from editd.wire.messages import Chmod, Delete, Move, Published, ReviewedFile, Symlink
from support.repositories import LINES, edit, names, refused, repository, shown, sound
from support.reviewers import config_folder, reviewer_of, set_pin
from support.workplace import Workplace, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with repository(tmp_path / "place") as made:
        yield made


def test_a_sessions_work_is_one_commit_on_the_branch_that_is_checked_out(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"))
        edit(client, "other", replace("a.txt", "line 15\n", "LINE 15\n"), write("theirs.txt", "theirs\n"))
        edit(client, "bot", write("new/deep.txt", "new\n"), Delete(path="b.txt"))
        edit(client, "bot", Chmod(path="sub/c.txt", executable=True), Symlink(path="link", target="a.txt"))
        parent = place.git("rev-parse", "HEAD").strip()
        made = client.publish("Capitals\n\nBecause they are large.", session="bot")
    assert made.branch == "main"
    assert place.git("rev-parse", "HEAD").strip() == made.commit
    assert place.git("rev-parse", "HEAD^").strip() == parent
    assert names(place, "HEAD") == ["M\ta.txt", "D\tb.txt", "A\tlink", "A\tnew/deep.txt", "M\tsub/c.txt"]
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "LINE 3\n")
    assert place.git("ls-tree", "HEAD", "sub/c.txt", "link").split()[::4] == ["120000", "100755"]
    assert place.git("log", "-1", "--format=%an <%ae>|%cn <%ce>|%s|%b").split("|") == [
        "Ann Example <ann@example.org>",
        "Ann Example <ann@example.org>",
        "Capitals",
        (
            "Because they are large.\n\nCo-authored-by: bot <bot@editd.invalid>\n"
            "Editd-Session: bot\nEditd-Transactions: 1, 3-4\n\n"
        ),
    ]
    trailers = place.git("log", "-1", "--format=%(trailers:key=Editd-Transactions,valueonly)")
    assert trailers.strip() == "1, 3-4"
    sound(place)


@pytest.mark.parametrize(
    ("message", "subject", "gap"),
    [
        ("Fix: the bug", "Fix: the bug", "\n\n"),
        ("Fix: the bug\nSee: the report", "Fix: the bug See: the report", "\n\n"),
        ("Fix: the bug\n\nIt was: old, and\nit went away.", "Fix: the bug", "\n\n"),
        ("Fix: the bug\n\nFixes: 7\nSee-also: 8", "Fix: the bug", "\n"),
    ],
)
def test_the_trailers_of_a_commit_are_a_block_below_any_message(
    place: Workplace, message: str, subject: str, gap: str
) -> None:
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        client.publish(message, session="bot")
    own = "Co-authored-by: bot <bot@editd.invalid>\nEditd-Session: bot\nEditd-Transactions: 1"
    assert place.git("log", "-1", "--format=%B").strip() == message + gap + own
    assert place.git("log", "-1", "--format=%s").strip() == subject
    trailers = place.git("log", "-1", "--format=%(trailers:key=Editd-Transactions,valueonly)")
    assert trailers.strip() == "1"


def test_git_status_shows_only_what_else_is_in_the_working_tree(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"), Move(path="b.txt", to="moved.txt"))
        edit(client, "ann", replace("a.txt", "line 15\n", "mine\n"), write("mine.txt", "mine\n"))
        before = place.files()
        client.publish("x", session="bot")
    assert place.git("status", "--porcelain") == " M a.txt\n?? mine.txt\n"
    assert place.git("diff", "--numstat") == "1\t1\ta.txt\n"
    assert place.git("diff", "--cached") == ""
    assert place.files() == before
    assert names(place, "HEAD") == ["M\ta.txt", "D\tb.txt", "A\tmoved.txt"]
    assert place.git("reflog", "-1", "--format=%gs", "main") == "publish: x\n"
    assert place.git("reflog", "-1", "--format=%gs", "HEAD") == "publish: x\n"
    sound(place)


def test_a_move_without_a_change_is_named_in_the_commit_and_left_alone_by_a_rollback(
    place: Workplace,
) -> None:
    with place.start() as client:
        moved = edit(client, "bot", Move(path="b.txt", to="moved.txt"))
        assert client.publish("x", session="bot").transactions == [moved]
        trailers = place.git("log", "-1", "--format=%(trailers:key=Editd-Transactions,valueonly)")
        assert trailers.strip() == str(moved)
        assert client.show(moved).transaction.published is not UNSET
        assert refused(client.rollback, "bot").name == "nothing_to_undo"
    assert "moved.txt" in place.files()
    sound(place)


def test_a_new_branch_begins_at_head_and_touches_neither_head_nor_index(place: Workplace) -> None:
    place.write({"b.txt": "staged\n"})
    place.git("add", "b.txt")
    index = (place.root / ".git/index").read_bytes()
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        made = client.publish("x", session="bot", branch="bot/work")
    assert made.branch == "bot/work"
    assert place.git("rev-parse", "bot/work^", "main").split() == [place.git("rev-parse", "HEAD").strip()] * 2
    assert (place.root / ".git/index").read_bytes() == index
    assert place.git("symbolic-ref", "HEAD") == "refs/heads/main\n"
    assert names(place, "bot/work") == ["A\tnew.txt"]
    sound(place)


def test_another_branch_that_is_there_gets_the_work_merged_in(place: Workplace) -> None:
    place.git("checkout", "-q", "-b", "release")
    place.write({"a.txt": LINES.replace("line 20\n", "released\n")})
    place.git("commit", "-q", "-a", "-m", "release")
    place.git("checkout", "-q", "main")
    place.git("pack-refs", "--all")
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"))
        client.publish("Backport", session="bot", branch="release")
    both = LINES.replace("line 20\n", "released\n").replace("line 3\n", "LINE 3\n")
    assert shown(place, "release:a.txt") == both
    assert shown(place, "main:a.txt") == LINES
    assert place.git("status", "--porcelain") == " M a.txt\n"
    sound(place)


def test_what_does_not_merge_is_a_conflict_and_nothing_is_written(place: Workplace) -> None:
    place.git("checkout", "-q", "-b", "release")
    place.write({"a.txt": LINES.replace("line 3\n", "released\n")})
    place.git("commit", "-q", "-a", "-m", "release")
    place.git("checkout", "-q", "main")
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"))
        refusal = refused(client.publish, "x", session="bot", branch="release")
    assert refusal.name == "conflict"
    assert refusal.data["files"][0]["path"] == "a.txt"
    assert place.git("log", "--format=%s", "release") == "release\nfirst\n"


def test_a_session_can_be_published_every_now_and_then(place: Workplace) -> None:
    place.write({"a.txt": LINES.replace("line 12\n", "a user's own\n")})
    with place.start() as client:
        client.settle()
        edit(client, "bot", replace("a.txt", "line 3\n", "second 3\n"))
        client.publish("one", session="bot")
        edit(client, "bot", replace("a.txt", "second 3\n", "third 3\n"), write("more.txt", "more\n"))
        client.publish("two", session="bot")
        assert refused(client.publish, "three", session="bot").name == "no_change"
    assert place.git("log", "--format=%s") == "two\none\nfirst\n"
    assert names(place, "HEAD") == ["M\ta.txt", "A\tmore.txt"]
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "third 3\n")
    assert place.git("diff", "--numstat") == "1\t1\ta.txt\n"


def test_what_is_undone_is_not_published_and_neither_is_its_undo(place: Workplace) -> None:
    with place.start() as client:
        first = edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"))
        edit(client, "bot", replace("a.txt", "line 15\n", "LINE 15\n"))
        client.undo(first, session=None)
        client.publish("x", session="bot")
        assert shown(place, "HEAD:a.txt") == LINES.replace("line 15\n", "LINE 15\n")
        client.redo()
        client.publish("y", session="bot")
    both = LINES.replace("line 15\n", "LINE 15\n").replace("line 3\n", "LINE 3\n")
    assert shown(place, "HEAD:a.txt") == both
    assert place.git("status", "--porcelain") == ""


def test_a_range_is_published_with_all_who_had_a_hand_in_it(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "s0", write("zero.txt", "0\n"))
        first = edit(client, "s1", write("one.txt", "1\n"), actor="claude")
        last = edit(client, "s2", write("two.txt", "2\n"), actor="codex")
        edit(client, "s3", write("three.txt", "3\n"))
        made = client.publish("Two\n\nSigned-off-by: x <y@z>", from_=first, to=last, author="Bob B <b@b>")
    assert names(place, made.commit) == ["A\tone.txt", "A\ttwo.txt"]
    assert place.git("log", "-1", "--format=%an <%ae>|%cn|%(trailers)").split("|") == [
        "Bob B <b@b>",
        "Ann Example",
        (
            "Signed-off-by: x <y@z>\nCo-authored-by: claude <claude@editd.invalid>\n"
            f"Co-authored-by: codex <codex@editd.invalid>\nEditd-Transactions: {first}-{last}\n\n"
        ),
    ]


def test_the_author_is_no_co_author(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "s1", write("one.txt", "1\n"), actor="Ann Example")
        client.publish("x", session="s1")
    assert "Co-authored-by" not in place.git("log", "-1", "--format=%b")


def test_a_file_that_another_only_changed_in_the_tree_cannot_be_published_alone(place: Workplace) -> None:
    place.write({"draft.txt": "a draft\n"})
    with place.start() as client:
        edit(client, "bot", replace("draft.txt", "draft", "text"))
        refusal = refused(client.publish, "x", session="bot")
    assert refusal.name == "conflict"
    assert "main has no such file" in refusal.message


def test_an_index_that_holds_something_is_left_alone(place: Workplace) -> None:
    place.write({"b.txt": "staged\n"})
    place.git("add", "b.txt")
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        refusal = refused(client.publish, "x", session="bot")
    assert refusal.name == "conflict"
    assert refusal.data["files"] == [{"path": "b.txt"}]
    assert "new branch" in refusal.data["hint"]
    assert place.git("status", "--porcelain") == "M  b.txt\n?? new.txt\n"
    assert not (place.root / ".git/index.lock").exists()


def test_an_index_that_git_has_locked_is_waited_for_and_then_left_alone(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        (place.root / ".git/index.lock").touch()
        refusal = refused(client.publish, "x", session="bot")
    assert refusal.name == "io_error"
    assert (place.root / ".git/index.lock").exists()
    assert place.git("log", "--format=%s") == "first\n"


def test_without_a_commit_the_first_one_is_made(tmp_path: Path) -> None:
    with workplace(tmp_path / "place") as place:
        place.git("init", "-q", "-b", "trunk")
        place.git("config", "user.name", "Ann")
        place.git("config", "user.email", "ann@example.org")
        with place.start() as client:
            edit(client, "bot", write("new.txt", "new\n"))
            assert client.publish("The first", session="bot").branch == "trunk"
        assert place.git("log", "--format=%s%d") == "The first (HEAD -> trunk)\n"
        assert place.git("status", "--porcelain") == ""
        sound(place)


def test_a_linked_worktree_has_its_branch_and_index_followed_and_no_other(place: Workplace) -> None:
    with workplace(place.folder / "linked") as linked:
        os.rmdir(linked.root)
        place.git("worktree", "add", "-q", "-b", "side", str(linked.root))
        with linked.start() as client:
            edit(client, "bot", write("new.txt", "new\n"))
            assert client.publish("x", session="bot").branch == "side"
            edit(client, "bot", write("newer.txt", "newer\n"))
            refusals = [
                refused(client.publish, "x", session="bot", branch="main", dry_run=dry_run)
                for dry_run in (False, True)
            ]
        assert all("another worktree" in refusal.message for refusal in refusals)
        assert linked.git("status", "--porcelain") == "?? newer.txt\n"
        assert place.git("status", "--porcelain") == ""
        assert place.git("log", "--format=%s", "side") == "x\nfirst\n"
        sound(place)


def test_with_a_detached_head_a_branch_is_to_be_named(place: Workplace) -> None:
    place.git("checkout", "-q", "--detach")
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        assert "detached" in refused(client.publish, "x", session="bot").message
        assert client.publish("x", session="bot", branch="found").branch == "found"
    assert place.git("log", "--format=%s", "found") == "x\nfirst\n"
    assert place.git("rev-parse", "HEAD") == place.git("rev-parse", "main")


def test_during_a_merge_the_branch_is_left_alone(place: Workplace) -> None:
    place.git("branch", "side")
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        (place.root / ".git/MERGE_HEAD").write_text(place.git("rev-parse", "HEAD"))
        assert "merge is under way" in refused(client.publish, "x", session="bot").message


def test_there_is_nothing_to_publish_to_without_a_repository(tmp_path: Path) -> None:
    with workplace(tmp_path / "place") as place, place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        refusal = refused(client.publish, "x", session="bot")
    assert refusal.name == "invalid_params"
    assert "no git repository" in refusal.message


def test_a_repository_that_is_named_by_sha_256_is_refused_with_the_reason(tmp_path: Path) -> None:
    with workplace(tmp_path / "place") as place:
        place.git("init", "-q", "--object-format=sha256")
        with place.start() as client:
            edit(client, "bot", write("new.txt", "new\n"))
            refusal = refused(client.publish, "x", session="bot")
    assert refusal.name == "invalid_params"
    assert "sha256" in refusal.message


def test_who_the_user_is_must_be_known(place: Workplace) -> None:
    place.git("config", "--unset", "user.email")
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        refusal = refused(client.publish, "x", session="bot")
        assert "user.email" in refusal.message
        assert "git config" in refusal.data["hint"]
        assert refused(client.publish, "x", session="bot", author="Bob").name == "invalid_params"
        client.publish("x", session="bot", author="Bob <b@b>")
    assert place.git("log", "-1", "--format=%an %cn") == "Bob Bob\n"


def test_the_blobs_are_what_git_add_would_make_of_the_line_ends(place: Workplace) -> None:
    dos = LINES.replace("\n", "\r\n")
    place.write({"dos.txt": dos, ".gitattributes": "*.txt text\n*.raw -text\n"})
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "attributes")
    with place.start() as client:
        edit(client, "bot", replace("dos.txt", "line 3", "LINE 3"))
        edit(client, "bot", write("new.txt", "1\r\n2\r\n"), write("new.raw", "1\r\n2\r\n"))
        client.publish("x", session="bot")
    assert place.git("status", "--porcelain") == ""
    assert shown(place, "HEAD:dos.txt") == LINES.replace("line 3", "LINE 3")
    assert shown(place, "HEAD:new.txt") == "1\n2\n"
    assert shown(place, "HEAD:new.raw") == "1\r\n2\r\n"
    assert place.files()["dos.txt"].decode() == dos.replace("line 3\r", "LINE 3\r")


def test_without_attributes_autocrlf_decides_as_it_does_for_git(place: Workplace) -> None:
    contents = ["1\r\n2\r\n", "1\r\n\0\r\n", "1\r2\r\n", "1\r\n2\n\x1a", "\x01\r\n"]
    settings = ("true", "input", "false")
    place.write({f"{setting}/old.txt": "c\n" for setting in settings})
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "old")
    with place.start() as client:
        for setting in settings:
            place.git("config", "core.autocrlf", setting)
            news = [write(f"{setting}{number}", content) for number, content in enumerate(contents)]
            edit(client, setting, *news, write(f"{setting}/old.txt", "c\r\n"))
            client.publish("x", session=setting)
            for path in [new.path for new in news]:
                as_git = place.git("hash-object", f"--path={path}", path)
                assert place.git("rev-parse", f"HEAD:{path}") == as_git, (setting, path)


def test_a_file_that_a_filter_would_convert_is_refused_by_name(place: Workplace) -> None:
    place.write({".gitattributes": "*.bin filter=lfs\n"})
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "attributes")
    with place.start() as client:
        edit(client, "bot", write("large.bin", "large\n"))
        refusal = refused(client.publish, "x", session="bot")
    assert refusal.name == "permission_denied"
    assert "large.bin has the attribute `filter=lfs`" in refusal.message


def test_what_git_ignores_and_what_another_repository_has_is_left_out(place: Workplace) -> None:
    place.write({".gitignore": "*.log\n.env\n", "inner/file.txt": "inner\n"})
    place.git("add", ".gitignore")
    place.git("commit", "-q", "-m", "ignore")
    subprocess.run(["git", "init", "-q", str(place.root / "inner")], check=True)
    with place.start() as client:
        edit(client, "bot", write(".env", "SECRET=1\n"), write("inner/file.txt", "changed\n"))
        assert refused(client.publish, "x", session="bot").data["left_out"] == [".env", "inner/file.txt"]
        edit(client, "bot", write("new.txt", "new\n"))
        assert client.publish("x", session="bot").left_out == [".env", "inner/file.txt"]
    assert names(place, "HEAD") == ["A\tnew.txt"]


def test_a_workspace_below_the_top_of_the_repository_publishes_its_paths(place: Workplace) -> None:
    with workplace(place.folder / "below") as below:
        os.rmdir(below.root)
        below.root.symlink_to(place.root / "sub")
        below.options = ("--nested",)
        with below.start() as client:
            edit(client, "bot", write("c.txt", "C\n"), write("d.txt", "d\n"))
            client.publish("x", session="bot")
    assert names(place, "HEAD") == ["M\tsub/c.txt", "A\tsub/d.txt"]
    assert place.git("status", "--porcelain") == ""


def test_a_moved_file_takes_what_the_session_changed_in_it_and_nothing_else(place: Workplace) -> None:
    place.write({"a.txt": LINES.replace("line 12\n", "a user's own\n")})
    with place.start() as client:
        client.settle()
        edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"))
        edit(client, "bot", Move(path="a.txt", to="z.txt"))
        edit(client, "bot", replace("z.txt", "line 19\n", "LINE 19\n"))
        client.publish("x", session="bot")
    assert names(place, "HEAD") == ["D\ta.txt", "A\tz.txt"]
    expected = LINES.replace("line 3\n", "LINE 3\n").replace("line 19\n", "LINE 19\n")
    assert shown(place, "HEAD:z.txt") == expected


def test_a_name_that_is_not_utf_8_is_published_as_its_bytes(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", write("caf\udce9/x", "x\n"))
        client.publish("x", session="bot")
    assert place.git("-c", "core.quotepath=false", "ls-files", "-z").split("\0")[2] == "caf\udce9/x"
    assert place.git("status", "--porcelain") == ""


def test_a_file_where_a_folder_was_and_the_other_way_round(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", Delete(path="sub/c.txt"))
        edit(client, "bot", Delete(path="b.txt"))
        edit(client, "bot", write("sub", "a file\n"), write("b.txt/x", "below\n"))
        client.publish("x", session="bot")
    assert sorted(names(place, "HEAD")) == ["A\tb.txt/x", "A\tsub", "D\tb.txt", "D\tsub/c.txt"]
    assert place.git("status", "--porcelain") == ""
    sound(place)


def test_hooks_are_not_run(place: Workplace) -> None:
    for hook in ("pre-commit", "commit-msg", "post-commit", "reference-transaction"):
        file = place.root / ".git/hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text("#!/bin/sh\ntouch ran\nexit 1\n")
        file.chmod(0o755)
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        client.publish("x", session="bot")
    assert place.git("log", "--format=%s") == "x\nfirst\n"
    assert not (place.root / "ran").exists()


def test_what_makes_no_sense_is_refused(place: Workplace) -> None:
    senseless: list[tuple[dict[str, Any], str]] = [
        ({}, "Nothing to publish is named."),
        ({"session": "s", "from_": 1}, "already names"),
        ({"session": "nobody"}, "in force"),
        ({"from_": 1, "branch": "-f"}, "not a valid branch name"),
        ({"from_": 1, "branch": "a..b"}, "not a valid branch name"),
        ({"from_": 77}, "no transaction 77"),
        ({"to": 1, "author": "x"}, "not a valid author"),
    ]
    with place.start() as client:
        edit(client, "s", write("new.txt", "new\n"))
        for params, reason in senseless:
            assert reason in refused(client.publish, "x", **params).message
        assert refused(client.publish, "  ", session="s").name == "invalid_params"


def test_others_are_served_while_a_commit_waits_for_gits_lock(place: Workplace) -> None:
    lock = place.root / ".git/index.lock"
    with place.start() as client, place.client() as other, ThreadPoolExecutor() as apart:
        edit(client, "bot", write("new.txt", "new\n"))
        lock.touch()
        publishing = apart.submit(client.publish, "x", session="bot")
        for number in range(20):
            edit(other, "other", write("other.txt", f"{number}\n"))
        assert not publishing.done()
        lock.unlink()
        assert publishing.result(10).commit == place.git("rev-parse", "HEAD").strip()
    assert place.git("status", "--porcelain") == "?? other.txt\n"


def test_two_that_publish_at_once_both_get_their_commit(place: Workplace) -> None:
    with place.start() as client, place.client() as other, ThreadPoolExecutor() as apart:
        edit(client, "s1", replace("a.txt", "line 3\n", "LINE 3\n"))
        edit(client, "s2", replace("a.txt", "line 15\n", "LINE 15\n"))
        first = apart.submit(client.publish, "one", session="s1")
        second = apart.submit(other.publish, "two", session="s2")
        first.result(20)
        second.result(20)
    assert sorted(place.git("log", "--format=%s").split()) == ["first", "one", "two"]
    assert place.git("status", "--porcelain") == ""
    sound(place)


def index_of_version_4(place: Workplace) -> None:
    place.git("update-index", "--index-version", "4")


def untracked_cache(place: Workplace) -> None:
    place.git("update-index", "--untracked-cache")


def sparse_checkout(place: Workplace) -> None:
    place.git("sparse-checkout", "set", "--no-cone", "/*", "!/sub")


def worktree_config(place: Workplace) -> None:
    place.git("config", "extensions.worktreeConfig", "true")


def packed(place: Workplace) -> None:
    place.git("gc", "-q", "--prune=now")


def executable_bits_that_git_passes_over(place: Workplace) -> None:
    place.git("config", "core.fileMode", "false")


ARRANGEMENTS = (
    index_of_version_4, untracked_cache, sparse_checkout, worktree_config, packed,
    executable_bits_that_git_passes_over,
)  # fmt: skip


@pytest.mark.parametrize("arrange", ARRANGEMENTS, ids=lambda arrange: arrange.__name__)
def test_however_git_is_arranged_it_is_sound_afterwards_or_untouched(
    place: Workplace, arrange: Callable[[Workplace], None]
) -> None:
    arrange(place)
    parent = place.git("rev-parse", "HEAD")
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"), write("new.txt", "new\n"))
        client.publish("x", session="bot")
    assert names(place, "HEAD") == ["M\ta.txt", "A\tnew.txt"]
    assert place.git("status", "--porcelain") == ""
    assert place.git("rev-parse", "HEAD^") == parent
    sound(place)


def test_a_submodule_is_published_in_its_own_repository_only(place: Workplace) -> None:
    with workplace(place.folder / "inner", {"x.txt": "x\n"}) as inner:
        inner.git("init", "-q", "-b", "main")
        inner.git("add", "-A")
        inner.git("commit", "-q", "-m", "inner")
        place.git("-c", "protocol.file.allow=always", "submodule", "-q", "add", str(inner.root), "module")
        place.git("commit", "-q", "-m", "module")
    with place.start() as client:
        edit(client, "bot", write("module/x.txt", "changed\n"), write("b.txt", "changed\n"))
        assert client.publish("x", session="bot").left_out == ["module/x.txt"]
    assert names(place, "HEAD") == ["M\tb.txt"]
    assert place.git("status", "--porcelain") == " M module\n"


def test_a_tip_that_was_committed_with_crlf_keeps_it_where_git_only_guesses(place: Workplace) -> None:
    place.write({"dos.txt": LINES.replace("\n", "\r\n")})
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "dos")
    place.git("config", "core.autocrlf", "true")
    with place.start() as client:
        edit(client, "bot", replace("dos.txt", "line 3\r\n", "LINE 3\r\n"))
        client.publish("x", session="bot")
    assert place.git("status", "--porcelain") == ""
    assert shown(place, "HEAD:dos.txt") == LINES.replace("\n", "\r\n").replace("line 3\r", "LINE 3\r")


def test_a_session_that_is_rolled_back_has_nothing_to_publish(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"))
        edit(client, "bot", write("new.txt", "new\n"))
        client.rollback("bot")
        assert refused(client.publish, "x", session="bot").name == "no_change"
        client.undo(client.log(limit=1).transactions[0].seq)
        client.publish("x", session="bot")
    assert names(place, "HEAD") == ["M\ta.txt", "A\tnew.txt"]


@pytest.mark.parametrize("by", ["another", "bot"])
def test_what_is_undone_in_part_is_published_in_part(place: Workplace, by: str) -> None:
    with place.start() as client:
        made = edit(client, "bot", write("one.txt", "1\n"), write("two.txt", "2\n"))
        client.hello(by, session=by)
        client.undo(made, paths=["two.txt"])
        client.publish("x", session="bot")
        assert names(place, "HEAD") == ["A\tone.txt"]
        client.redo()
        client.publish("y", session="bot")
    assert names(place, "HEAD") == ["A\ttwo.txt"]


def test_who_approved_work_is_named_and_who_changed_it_is_a_co_author(place: Workplace) -> None:
    set_pin(place)
    with place.start() as author, reviewer_of(place) as ann, reviewer_of(place, "bob") as bob:
        author.session_open("bot", actor="claude")
        for old, new in (("line 3\n", "LINE 3\n"), ("line 15\n", "LINE 15\n")):
            author.apply([replace("a.txt", old, new)], propose=True)
        ann.proposal_approve(1, view=ann.proposal_get(1).view)
        proposed = bob.proposal_get(2, content=True).files[0]
        assert isinstance(proposed.new, str)
        text = proposed.new.replace("LINE 15", "Line 15")
        own = ReviewedFile(path=proposed.path, content=text, base=proposed.now)
        bob.proposal_approve(2, files=[own])
        author.apply([write("by-itself.txt", "not reviewed\n")])
        author.publish("x", session="bot")
    assert place.git("log", "-1", "--format=%b").splitlines() == [
        "Co-authored-by: claude <claude@editd.invalid>",
        "Co-authored-by: bob <bob@editd.invalid>",
        "Reviewed-by: ann <ann@editd.invalid>",
        "Reviewed-by: bob <bob@editd.invalid>",
        "Editd-Session: bot",
        "Editd-Transactions: 1-3",
        "",
    ]


def test_a_rule_is_no_reviewer_and_who_publishes_own_approval_has_the_name_of_git(place: Workplace) -> None:
    set_pin(place)
    rule = '[[review.rule]]\nname = "small"\npaths = ["*"]\naction = "land"\n'
    (config_folder(place) / "config.toml").write_text(rule)
    with place.start() as author, reviewer_of(place, "Ann Example") as ann:
        author.session_open("bot", actor="claude")
        author.apply([write("one.txt", "1\n")])
        author.publish("by a rule", session="bot")
        assert "Reviewed-by" not in place.git("log", "-1", "--format=%b")
        author.apply([write("two.txt", "2\n")], propose=True)
        ann.proposal_approve(1, view=ann.proposal_get(1).view)
        author.publish("by a person", session="bot")
    assert "Reviewed-by: Ann Example <ann@example.org>\n" in place.git("log", "-1", "--format=%b")


def test_what_a_command_did_in_a_session_is_published_with_it(place: Workplace) -> None:
    with place.start() as client:
        client.session_open("bot", actor="claude")
        bracket = client.exec_begin("sed").exec
        place.write({"a.txt": LINES.replace("line 3\n", "LINE 3\n")})
        client.exec_end(bracket, 0)
        client.publish("x")  # the connection's own session
    assert names(place, "HEAD") == ["M\ta.txt"]
    assert "Co-authored-by: claude" in place.git("log", "-1", "--format=%b")


def test_another_repository_where_the_workspace_was_is_not_published_to(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "agent", replace("a.txt", "line 1\n", "line one\n"))
        place.root.rename(place.folder / "away")
        subprocess.run(["git", "clone", "-q", place.folder / "away", place.root], check=True)
        place.git("config", "user.name", "Ann Example")
        place.git("config", "user.email", "ann@example.org")
        failure = refused(client.publish, "work", session="agent")
        assert failure.name == "io_error"
        assert place.git("log", "--format=%s") == "first\n"


def test_an_ignored_file_that_the_branch_has_is_published(place: Workplace) -> None:
    place.write({"gen": "1\n", ".gitignore": "gen\n"})
    place.git("add", "-f", "gen", ".gitignore")
    place.git("commit", "-qm", "generated")
    with place.start() as client:
        client.settle()
        edit(client, "bot", write("gen", "2\n"))
        client.publish("Generated anew", session="bot")
    assert shown(place, "HEAD:gen") == "2\n"


def test_a_rollback_leaves_published_work_alone(place: Workplace) -> None:
    with place.start() as client:
        first = edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"))
        commit = client.publish("Capitals", session="bot").commit
        second = edit(client, "bot", replace("a.txt", "line 9\n", "LINE 9\n"))
        shown = client.rollback("bot", dry_run=True)
        assert shown.warnings == [f"Published work was left alone: {first} as {commit[:7]} on main."]
        done = client.rollback("bot")
        assert done.transaction is not None
        assert done.transaction.undoes == [second]
        assert place.files()["a.txt"].decode() == LINES.replace("line 3\n", "LINE 3\n")
        nothing = refused(client.rollback, "bot")
        assert nothing.name == "nothing_to_undo"
        assert f"{first} as {commit[:7]} on main" in nothing.message
        all_of_it = client.rollback("bot", include_published=True)
        assert all_of_it.warnings == [
            f"This was published, and the commit stays: {first} as {commit[:7]} on main."
        ]
        assert place.files()["a.txt"].decode() == LINES


def test_the_log_says_in_which_commit_a_transaction_was_published(place: Workplace) -> None:
    with place.start() as client:
        first = edit(client, "bot", write("new.txt", "new\n"))
        commit = client.publish("New", session="bot", branch="side").commit
        second = edit(client, "bot", write("new.txt", "newer\n"))
    place.stop()
    with place.start() as client:
        for found in (client.log(session="bot").transactions[1], client.show(first).transaction):
            assert found.published == Published(commit=commit, branch="side")
        assert client.show(second).transaction.published is UNSET


def test_what_was_left_out_of_a_commit_was_not_published(place: Workplace) -> None:
    place.write({".git/info/exclude": "*.log\n"})
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        only_ignored = edit(client, "bot", write("x.log", "x\n"))
        client.publish("New", session="bot")
        done = client.rollback("bot").transaction
        assert done is not None
        assert done.undoes == [only_ignored]


def published_as(client: Client, seq: int) -> str | None:
    return getattr(client.show(seq).transaction.published, "commit", None)


def test_a_session_is_published_again_after_somebody_built_on_its_lines(place: Workplace) -> None:
    with place.start() as client:
        first = edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        one = client.publish("one", session="bot")
        edit(client, "ann", replace("a.txt", "bot 3\n", "ann 3\n"))
        client.publish("ann's", session="ann")
        client.read("a.txt", session="bot")
        last = edit(client, "bot", replace("a.txt", "line 15\n", "bot 15\n"))
        made = client.publish("two", session="bot")
        assert (one.transactions, made.transactions) == ([first], [last])
        assert published_as(client, first) == one.commit
        assert published_as(client, last) == made.commit
    assert shown(place, "HEAD:a.txt") == place.files()["a.txt"].decode()
    trailers = place.git("log", "-1", "--format=%(trailers:key=Editd-Transactions,valueonly)")
    assert trailers.strip() == str(last)
    assert place.git("status", "--porcelain") == ""
    sound(place)


def test_what_somebody_took_out_of_the_branch_again_is_not_published_again(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "line 3\nadded\n"))
        client.publish("one", session="bot")
        edit(client, "ann", replace("a.txt", "added\n", ""))
        client.publish("ann's", session="ann")
        edit(client, "bot", write("new.txt", "new\n"))
        client.publish("two", session="bot")
        assert refused(client.publish, "three", session="bot").name == "no_change"
    assert shown(place, "HEAD:a.txt") == LINES
    assert names(place, "HEAD") == ["A\tnew.txt"]


def test_a_moved_file_is_published_again_after_somebody_moved_it_on(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", Move(path="b.txt", to="c.txt"))
        client.publish("one", session="bot")
        edit(client, "ann", Move(path="c.txt", to="d.txt"))
        client.publish("ann's", session="ann")
        edit(client, "bot", write("new.txt", "new\n"))
        client.publish("two", session="bot")
    assert names(place, "HEAD") == ["A\tnew.txt"]
    assert place.git("status", "--porcelain") == ""


def test_a_trailer_alone_does_not_make_work_published(place: Workplace) -> None:
    """Of another history, or by hand: the content decides."""
    place.git(
        "commit", "-q", "--allow-empty", "-m", "other\n\nEditd-Transactions: 1-99999999999999999999999, 1-7"
    )
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot")
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "bot 3\n")


@pytest.mark.parametrize("way", [("reset", "--keep", "HEAD~"), ("revert", "--no-edit", "HEAD")])
def test_a_publish_that_was_taken_back_can_be_made_again(place: Workplace, way: tuple[str, ...]) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot", branch="work")
        place.git("stash", "-q")
        place.git("checkout", "-q", "work")
        place.git(*way)
        place.git("checkout", "-q", "main")
        place.git("stash", "pop", "-q")
        client.settle()
        client.publish("again", session="bot", branch="work")
    assert place.git("log", "-1", "--format=%s", "work") == "again\n"
    assert shown(place, "work:a.txt") == LINES.replace("line 3\n", "bot 3\n")


def test_a_publish_is_taken_back_by_a_reset_that_leaves_the_files(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        first = client.publish("one", session="bot")
        files = place.files()
        place.git("reset", "-q", "HEAD~")
        assert place.git("status", "--porcelain") == " M a.txt\n"
        again = client.publish("two", session="bot")
    assert place.files() == files
    assert first.files == again.files
    assert place.git("log", "--format=%s") == "two\nfirst\n"
    assert place.git("status", "--porcelain") == ""


def test_a_refusal_names_the_session_that_the_work_builds_on(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "far", replace("a.txt", "line 18\n", "far\n"))
        needed = edit(client, "types", replace("a.txt", "line 3\n", "types 3\n"))
        edit(client, "bot", replace("a.txt", "types 3\n", "bot 3\n"))
        refusal = refused(client.publish, "x", session="bot")
        assert refusal.name == "conflict"
        assert f"a.txt builds on transaction {needed} by the session 'types'" in refusal.message
        assert refusal.data["hint"] == "Publish 'types' with it, or first."
        assert refusal.data["needs"] == [{"seq": needed, "session": "types", "actor": "types"}]
        made = client.publish("both", session=["types", "bot"])
        assert made.transactions == [needed, needed + 1]
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "bot 3\n")
    body = place.git("log", "-1", "--format=%(trailers:key=Editd-Session,valueonly)")
    assert body.split() == ["types", "bot"]


def test_a_refusal_names_no_session_whose_work_was_replaced_by_others(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "first", replace("a.txt", "line 3\n", "first 3\n"))
        edit(client, "second", replace("a.txt", "first 3\n", "second 3\n"))
        needed = edit(client, "types", replace("a.txt", "line 12\n", "types 12\n"))
        edit(client, "bot", replace("a.txt", "types 12\n", "bot 12\n"))
        refusal = refused(client.publish, "x", session="bot")
        assert f"a.txt builds on transaction {needed} by the session 'types'" in refusal.message
        client.publish("both", session=["types", "bot"])
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 12\n", "bot 12\n")


def test_a_refusal_names_the_session_that_made_the_file(place: Workplace) -> None:
    with place.start() as client:
        needed = edit(client, "types", write("new.txt", LINES))
        edit(client, "bot", replace("new.txt", "line 3\n", "bot 3\n"))
        refusal = refused(client.publish, "x", session="bot")
        assert f"new.txt builds on transaction {needed} by the session 'types'" in refusal.message
        place.write({"out.txt": "out\n"})
        client.settle()
        edit(client, "bot2", replace("out.txt", "out", "in"))
        refusal = refused(client.publish, "x", session="bot2")
        assert "out.txt builds on transaction 3 by no session" in refusal.message
        assert refusal.data["hint"] == "Publish a range that includes 3, or commit out.txt first."


def test_a_dry_run_says_what_the_commit_would_hold_and_changes_nothing(place: Workplace) -> None:
    with place.start() as client:
        one = edit(client, "s", replace("a.txt", "line 3\n", "LINE 3\nmore\n"), Delete(path="b.txt"))
        two = edit(client, "t", write("new.txt", "new\n"), write("x.bin", "\0\n"))
        before = {path: path.read_bytes() for path in (place.root / ".git").rglob("*") if path.is_file()}
        dry = client.publish("Both", session=["s", "t"], dry_run=True)
        after = {path: path.read_bytes() for path in (place.root / ".git").rglob("*") if path.is_file()}
        assert before == after
        assert dry.commit == ""
        assert published_as(client, one) is None
        made = client.publish("Both", session=["s", "t"])
        assert published_as(client, one) == made.commit
    assert (dry.branch, dry.transactions) == ("main", [one, two])
    assert (dry.files, dry.message, dry.left_out) == (made.files, made.message, made.left_out)
    stat = place.git("show", "--format=", "--numstat", "--no-renames", "HEAD")
    lines = [["-" if n is None else n for n in (file.added, file.removed)] for file in made.files]
    paths = [file.path for file in made.files]
    assert stat == "".join(f"{a}\t{b}\t{path}\n" for (a, b), path in zip(lines, paths, strict=True))
    assert place.git("log", "-1", "--format=%B").strip() == dry.message.strip()


def test_a_dry_run_is_refused_as_the_real_one(place: Workplace) -> None:
    place.write({"b.txt": "staged\n"})
    place.git("add", "b.txt")
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        dry = refused(client.publish, "x", session="bot", dry_run=True)
        assert dry.message == refused(client.publish, "x", session="bot").message
        assert refused(client.publish, "x", session=["bot", "nobody"]).name == "no_change"


def test_a_publishing_process_syncs_what_git_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut can then not leave a branch that names a commit without its objects."""
    options: list[tuple[object, ...]] = []
    monkeypatch.setattr(pygit2, "option", lambda *words: options.append(words))
    monkeypatch.setattr(sys, "argv", ["publish_worker", str(tmp_path), str(tmp_path)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    publish_worker.main()
    assert (Option.ENABLE_FSYNC_GITDIR, True) in options
