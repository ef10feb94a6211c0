"""The branch that publish moves: git's own rules for it, by real git."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from support.crash_checks import wait_until
from support.repositories import LINES, edit, refused, repository, shown, sound
from support.workplace import Workplace, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with repository(tmp_path / "place") as made:
        yield made


def fails(place: Workplace, *argv: str) -> None:
    """Run a git command that is to stop half-way."""
    with pytest.raises(subprocess.CalledProcessError):
        place.git(*argv)


def diverge(place: Workplace) -> None:
    """Make `side` and `main` change the same line, and leave `side` checked out."""
    place.git("checkout", "-q", "-b", "side")
    place.write({"a.txt": LINES.replace("line 3\n", "side\n")})
    place.git("commit", "-q", "-a", "-m", "side")
    place.git("branch", "below")
    place.write({"a.txt": LINES.replace("line 3\n", "side again\n")})
    place.git("commit", "-q", "-a", "-m", "side again")
    place.git("checkout", "-q", "main")
    place.write({"a.txt": LINES.replace("line 3\n", "main\n")})
    place.git("commit", "-q", "-a", "-m", "main")
    place.git("checkout", "-q", "side")


def rebase(place: Workplace) -> None:
    fails(place, "rebase", "main")


def rebase_by_patches(place: Workplace) -> None:
    fails(place, "rebase", "--apply", "main")


def bisect(place: Workplace) -> None:
    place.git("bisect", "start", "HEAD", "HEAD~2")


def rebase_of_a_stack(place: Workplace) -> None:
    fails(place, "rebase", "--update-refs", "main")


HELD = [
    (rebase, "side", "rebase", ("rebase", "--abort")),
    (rebase_by_patches, "side", "rebase", ("rebase", "--abort")),
    (rebase_of_a_stack, "below", "rebase", ("rebase", "--abort")),
    (bisect, "side", "bisect", ("bisect", "reset")),
]


@pytest.mark.parametrize("where", ["here", "in another worktree"])
@pytest.mark.parametrize(
    ("begin", "name", "word", "end"), HELD, ids=lambda part: getattr(part, "__name__", "")
)
def test_a_branch_that_is_being_rebased_or_bisected_is_refused_as_git_refuses_it(
    place: Workplace,
    begin: Callable[[Workplace], None],
    name: str,
    word: str,
    end: tuple[str, ...],
    where: str,
) -> None:
    diverge(place)
    with workplace(place.folder / "linked") as linked:
        held = place
        if where != "here":
            place.git("checkout", "-q", "main")
            os.rmdir(linked.root)
            place.git("worktree", "add", "-q", str(linked.root), "side")
            held = linked
        begin(held)
        tip = place.git("rev-parse", name)
        if word == "rebase" and name == "side":
            fails(place, "branch", "-f", name, "main")  # git's own answer
        with place.start() as client:
            edit(client, "bot", write("new.txt", "new\n"))
            refusal = refused(client.publish, "x", session="bot", branch=name)
            assert refusal.name == "conflict"
            assert f"A {word} of {name} is under way in {held.root}" in refusal.message
            assert f"git -C {held.root} {' '.join(end)}" in refusal.data["hint"]
            assert place.git("rev-parse", name) == tip
            held.git(*end)
            if where == "here":
                held.git("checkout", "-q", "main")
            else:
                held.git("checkout", "-q", "--detach")
            client.publish("x", session="bot", branch=name)
        assert place.git("log", "-1", "--format=%s", name) == "x\n"
        sound(place)


def test_a_head_that_a_rebase_has_detached_is_refused_with_that_reason(place: Workplace) -> None:
    diverge(place)
    rebase(place)
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        assert "rebase is under way" in refused(client.publish, "x", session="bot").message


def test_a_bisect_that_has_only_begun_is_refused(place: Workplace) -> None:
    place.git("bisect", "start")
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        assert "bisect is under way" in refused(client.publish, "x", session="bot").message


NAMES = (
    "HEAD", "-f", "", "a..b", "a.lock", ".a", "a/", "/a", "a//b", "a b", "a~", "a^", "a:", "a?", "a*", "a[",
    "a\\", "@{-1}", "a@{", "a.", "a/.b", "a\x7f", "a\nb", "x/HEAD", "heads/x", "refs/heads/x", "@", "ä",
    "FETCH_HEAD",
)  # fmt: skip


def test_a_name_that_git_check_ref_format_refuses_is_refused(place: Workplace) -> None:
    place.git("checkout", "-q", "-b", "x")  # so that `@{-1}` names a branch
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        for name in NAMES:
            try:
                is_fine = place.git("check-ref-format", "--branch", name) == f"{name}\n"
            except subprocess.CalledProcessError:
                is_fine = False
            if is_fine and name != "x/HEAD":
                assert client.publish("x", session="bot", branch=name).branch == name
                place.git("update-ref", "-d", f"refs/heads/{name}")
            else:
                refusal = refused(client.publish, "x", session="bot", branch=name)
                assert refusal.name == "invalid_params", name
    assert place.git("for-each-ref", "--format=%(refname)") == "refs/heads/main\nrefs/heads/x\n"


def test_a_name_that_git_would_take_for_something_else_is_refused(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        for name in ("0123456789abcdef0123456789ABCDEF01234567", "main\0x", "a\udc80"):
            refusal = refused(client.publish, "x", session="bot", branch=name)
            assert refusal.name == "invalid_params", name
    assert place.git("for-each-ref", "--format=%(refname)") == "refs/heads/main\n"


def test_a_branch_cannot_be_a_folder_of_branches_and_the_refusal_says_so(place: Workplace) -> None:
    names = (("agents", "agents/bot"), ("work/bot", "work"))
    for old, _ in names:
        place.git("branch", old)
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        for is_packed in (False, True):
            if is_packed:
                place.git("pack-refs", "--all")
            for old, new in names:
                refusal = refused(client.publish, "x", session="bot", branch=new)
                assert refusal.name == "invalid_params"
                assert f"The branch {old} exists, so the branch {new} cannot be created." in refusal.message
                assert refusal.data["hint"] == "Choose another name."


def test_a_branch_that_stands_for_another_moves_that_one_as_git_commit_does(place: Workplace) -> None:
    place.git("branch", "real")
    place.git("symbolic-ref", "refs/heads/alias", "refs/heads/real")
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        assert client.publish("x", session="bot", branch="alias").branch == "real"
        place.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
        place.git("symbolic-ref", "HEAD", "refs/heads/alias")
        assert client.publish("x", session="bot").branch == "main"
    assert place.git("log", "--format=%s", "real") == "x\nfirst\n"
    assert place.git("status", "--porcelain") == ""
    sound(place)


def test_a_branch_that_git_has_locked_is_waited_for(place: Workplace) -> None:
    lock = place.root / ".git/refs/heads/main.lock"
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        lock.touch()
        timer = threading.Timer(0.5, lock.unlink)
        timer.start()
        client.publish("x", session="bot")
        timer.join()
    assert place.git("log", "--format=%s") == "x\nfirst\n"


def test_a_branch_that_git_keeps_locked_is_named_with_its_lock(place: Workplace) -> None:
    lock = place.root / ".git/refs/heads/main.lock"
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        lock.touch()
        refusal = refused(client.publish, "x", session="bot")
    assert refusal.name == "io_error"
    assert "Another git command has locked the branch main" in refusal.message
    assert str(lock) in refusal.data["hint"]
    assert place.git("status", "--porcelain") == "?? new.txt\n"
    assert not (place.root / ".git/index.lock").exists()


def split(place: Workplace) -> None:
    place.git("update-index", "--split-index")


def sparse(place: Workplace) -> None:
    place.git("sparse-checkout", "set", "--cone", "--sparse-index", "other")


@pytest.mark.parametrize(
    ("arrange", "message"), [(split, "The index is split"), (sparse, "The index is sparse")]
)
def test_an_index_that_is_split_or_sparse_is_named_and_the_hint_undoes_it(
    place: Workplace, arrange: Callable[[Workplace], None], message: str
) -> None:
    place.write({"other/d.txt": "d\n"})
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "other")
    arrange(place)
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "LINE 3\n"))
        refusal = refused(client.publish, "x", session="bot")
        assert refusal.name == "invalid_params"
        assert message in refusal.message
        command = refusal.data["hint"].split("`")[1]
        place.git(*command.split()[1:])
        client.publish("x", session="bot")
    assert place.git("log", "-1", "--format=%s") == "x\n"
    assert place.git("status", "--porcelain") == ""
    sound(place)


def test_an_author_without_a_name_or_an_address_is_refused_by_name(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        for setting in ("user.email", "user.name"):
            before = place.git("config", setting).strip()
            place.git("config", setting, "")
            refusal = refused(client.publish, "x", session="bot")
            assert refusal.name == "invalid_params"
            assert f"{setting} is empty" in refusal.message
            assert f"git config {setting}" in refusal.data["hint"]
            place.git("config", setting, before)


def test_an_author_that_git_could_not_write_is_refused(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        for author in ("Bob <>", "<b@b>", "Bob"):
            refusal = refused(client.publish, "x", session="bot", author=author)
            assert refusal.name == "invalid_params", author
            assert "NAME <MAIL>" in refusal.data["hint"], author


def test_a_repository_that_may_not_be_written_is_permission_denied_with_its_file(place: Workplace) -> None:
    refs = place.root / ".git/refs/heads"
    if os.geteuid() == 0:
        place.launcher = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        refs.chmod(0o500)
        try:
            refusal = refused(client.publish, "x", session="bot")
        finally:
            refs.chmod(0o700)
    assert refusal.name == "permission_denied"
    assert "refs/heads" in refusal.message


def test_a_repository_that_is_damaged_is_no_matter_of_permission(place: Workplace) -> None:
    blob = place.git("rev-parse", "HEAD^{tree}").strip()
    with place.start() as client:
        edit(client, "bot", write("sub/d.txt", "new\n"))
        (place.root / ".git/objects" / blob[:2] / blob[2:]).unlink()
        refusal = refused(client.publish, "x", session="bot", branch="new")
    assert refusal.name == "io_error"
    assert "git fsck" in refusal.data["hint"]


def test_what_git_ignores_alone_is_said_to_be_ignored(place: Workplace) -> None:
    place.write({".gitignore": "*.log\n"})
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "ignore")
    with place.start() as client:
        edit(client, "bot", write("x.log", "x\n"), write("y.log", "y\n"))
        refusal = refused(client.publish, "x", session="bot")
        edit(client, "bot", write("b.txt", "B\n"))
        client.publish("x", session="bot")
        again = refused(client.publish, "x", session="bot")
    assert refusal.name == "no_change"
    assert refusal.data["hint"].startswith("Add an ignored file with `git add -f`")
    assert "git ignores all changed files: x.log, y.log." in refusal.message
    assert refusal.data["left_out"] == ["x.log", "y.log"]
    assert "main already has all other changes" in again.message
    assert again.data["left_out"] == ["x.log", "y.log"]


def test_the_index_keeps_its_mode(place: Workplace) -> None:
    index = place.root / ".git/index"
    index.chmod(0o640)
    with place.start() as client:
        edit(client, "bot", write("new.txt", "new\n"))
        client.publish("x", session="bot")
    assert stat.S_IMODE(index.stat().st_mode) == 0o640


def switch(place: Workplace) -> None:
    place.git("branch", "side")
    place.git("symbolic-ref", "HEAD", "refs/heads/side")


def merge(place: Workplace) -> None:
    (place.root / ".git/MERGE_HEAD").write_text(place.git("rev-parse", "HEAD"))


@pytest.mark.parametrize("meanwhile", [switch, merge])
def test_what_git_does_while_publish_waits_for_the_index_is_noticed(
    place: Workplace, meanwhile: Callable[[Workplace], None]
) -> None:
    lock = place.root / ".git/index.lock"
    found: list[Any] = []
    with place.start() as client, place.client() as other:
        edit(client, "bot", write("new.txt", "new\n"))
        lock.touch()
        publishing = threading.Thread(target=lambda: found.append(refused(other.publish, "x", session="bot")))
        publishing.start()
        # It writes the file's blob right before it waits for the index.
        blob = place.git("hash-object", "new.txt").strip()
        wait_until((place.root / ".git/objects" / blob[:2] / blob[2:]).exists, "the blob")
        meanwhile(place)
        lock.unlink()
        publishing.join(20)
    assert found[0].name == "conflict"
    assert place.git("log", "--format=%s", "main") == "first\n"
    assert shown(place, "main:a.txt") == LINES
