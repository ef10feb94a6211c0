"""Where a repository stands, held against what git itself says."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from editd.workspace.git_files import (
    LOCK_SECONDS_MAX,
    GitHead,
    HeadMove,
    describe_move,
    is_in_progress,
    is_locked,
)

if TYPE_CHECKING:
    from pathlib import Path


def git(place: Path, *argv: str, is_ok: bool = True) -> str:
    identity = ["-c", "user.name=Somebody", "-c", "user.email=s@example.org"]
    done = subprocess.run(["git", "-C", place, *identity, *argv], check=False, capture_output=True, text=True)
    assert done.returncode == 0 or not is_ok, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    git(tmp_path, "init", "-q", "-b", "main", str(place))
    (place / "a").write_text("1\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "first")
    return place


def standing(place: Path) -> GitHead:
    return GitHead.of(os.fsencode(git(place, "rev-parse", "--absolute-git-dir")))


def test_head_is_where_git_says_loose_packed_and_detached(repository: Path) -> None:
    here = GitHead("main", git(repository, "rev-parse", "HEAD"))
    assert standing(repository) == here
    git(repository, "pack-refs", "--all")
    assert standing(repository) == here
    git(repository, "checkout", "-q", "--detach")
    assert standing(repository) == GitHead(None, here.commit)


def test_a_branch_without_a_commit_and_no_repository_at_all(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "new")
    assert standing(tmp_path) == GitHead("new", None)
    assert GitHead.of(os.fsencode(tmp_path / "nowhere")) == GitHead()


def test_a_linked_work_tree_has_a_head_of_its_own(repository: Path) -> None:
    linked = repository.parent / "linked"
    git(repository, "worktree", "add", "-q", "-b", "side", str(linked))
    assert standing(linked) == GitHead("side", git(repository, "rev-parse", "side"))
    git(repository, "pack-refs", "--all")
    assert standing(linked) == GitHead("side", git(repository, "rev-parse", "side"))


def test_a_move_is_told_with_both_ends(repository: Path) -> None:
    before = standing(repository)
    git(repository, "checkout", "-qb", "other")
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    after = standing(repository)
    assert before.commit is not None
    assert after.commit is not None
    told = describe_move(before, after)
    assert told == f"HEAD moved from {before.commit[:7]} (main) to {after.commit[:7]} (other)"
    assert describe_move(after, after) == ""
    assert describe_move(GitHead(), GitHead("main")) == "HEAD moved from nothing to nothing (main)"


def test_stashes_are_told_when_they_come_and_when_they_go(repository: Path) -> None:
    told: list[str] = []
    now = standing(repository)
    for argv in (["stash"], ["stash", "-m", "named"], ["stash", "pop"], ["stash", "drop"]):
        if argv[1:] != ["drop"]:
            (repository / "a").write_text(f"{argv}\n")
        if argv[-1] == "pop":
            git(repository, "checkout", "-q", "a")
        before, _, now = now, git(repository, *argv), standing(repository)
        told.append(describe_move(before, now))
    first = git(repository, "log", "-1", "--format=%h first")
    assert told == [
        f"Stashed: WIP on main: {first}",
        "Stashed: On main: named",
        "Stash taken out: On main: named",
        f"Stash taken out: WIP on main: {first}",
    ]


def test_a_lock_counts_until_it_is_old(repository: Path) -> None:
    folder, now = os.fsencode(repository / ".git"), time.time()
    assert not is_locked(folder, now)
    (repository / ".git/index.lock").touch()
    assert is_locked(folder, now)
    assert not is_locked(folder, now + LOCK_SECONDS_MAX + 1)


def test_a_rebase_that_stopped_is_in_progress(repository: Path) -> None:
    git(repository, "checkout", "-qb", "side")
    (repository / "a").write_text("side\n")
    git(repository, "commit", "-qam", "side")
    git(repository, "checkout", "-q", "main")
    (repository / "a").write_text("main\n")
    git(repository, "commit", "-qam", "main")
    folder = os.fsencode(repository / ".git")
    assert not is_in_progress(folder)
    git(repository, "rebase", "side", is_ok=False)
    assert is_in_progress(folder)
    git(repository, "rebase", "--abort")
    assert not is_in_progress(folder)


def test_after_a_commit_and_a_checkout_head_moved_from_the_new_commit() -> None:
    one, two, three, other = (digit * 40 for digit in "1234")
    before, after = GitHead("main", one), GitHead("other", other)
    steps = [
        HeadMove(other, one, "checkout: moving from other to main"),
        HeadMove(one, two, "commit: Two"),
        HeadMove(two, three, "commit (amend): Three"),
        HeadMove(three, other, "checkout: moving from main to other"),
    ]
    assert describe_move(before, after, steps) == "HEAD moved from 3333333 (main) to 4444444 (other)"
    assert describe_move(before, GitHead("main", three), steps[:-1]) == (
        "HEAD moved from 1111111 (main) to 3333333 (main)"
    )
    assert describe_move(before, after, [steps[0], steps[-1]]).startswith("HEAD moved from 1111111 (main)")
    assert describe_move(before, after, []).startswith("HEAD moved from 1111111 (main)")
