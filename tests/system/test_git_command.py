"""git_command: no program of a repository is run, by whatever verb, and the user's own settings stay."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from editd.system.git_command import (
    PROTOCOLS,
    VERBS,
    GitFailed,
    GitMissing,
    git_environment,
    receiver_without_hooks,
    run_git,
    work_tree_of,
)
from support.bait import Bait, git
from support.hosts import bare_repository

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A work tree with a commit, an ignored file, and no trap yet."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("a\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", "a.txt")
    git(folder, "commit", "-qm", "one")
    (folder / "b.txt").write_text("b\n")
    (folder / "c.log").write_text("c\n")
    return folder


def test_no_trap_of_a_repository_runs_by_any_verb(top: Path, tmp_path: Path) -> None:
    other = bare_repository(tmp_path / "other.git")
    bait = Bait(tmp_path / "bait")
    bait.set(top / ".git", top)
    here, own = str(top), str(top / ".git")
    listing = ("--cached", "--others", "--exclude-standard")
    answers = {
        "ls-files": run_git(own, "ls-files", *listing, top=here, folder=here),
        "check-ignore": run_git(
            own, "check-ignore", "-z", "--stdin", stdin=b"c.log\0a.txt\0", top=here, folder=here
        ),
        "config": run_git(own, "config", "filter.trap.clean"),
        "ls-remote": run_git(own, "ls-remote", "--", str(other)),
        "push": run_git(own, "push", "-q", "--", str(other), "HEAD:refs/heads/one"),
        "fetch": run_git(own, "fetch", "-q", "--", str(other), "+refs/heads/one:refs/editd/one"),
        "repack": run_git(own, "repack", "-q", "-a", "-d"),
    }
    assert bait.sprung() == []
    assert answers.keys() == VERBS
    assert {b"a.txt", b"b.txt"} < set(answers["ls-files"].split())
    assert b"c.log" not in answers["ls-files"]
    assert answers["check-ignore"] == b"c.log\0"
    assert git(other, "log", "--format=%s", "one") == "one"
    git(top, "status")
    git(top, "add", "b.txt", check=False)
    assert {"fsmonitor", "included-fsmonitor"} & set(bait.sprung()), "the traps work"


def test_a_receiver_without_hooks_runs_no_trap_of_a_server(top: Path, tmp_path: Path) -> None:
    server = bare_repository(tmp_path / "server.git")
    bait = Bait(tmp_path / "bait")
    bait.set(server)
    own, refspec = str(top / ".git"), "HEAD:refs/heads/one"
    run_git(own, "push", "-q", f"--receive-pack={receiver_without_hooks()}", "--", str(server), refspec)
    assert bait.sprung() == []
    run_git(own, "push", "-q", "--", str(server), "HEAD:refs/heads/two", statuses=(0, 1))
    assert "hook-pre-receive" in bait.sprung(), "the traps work"


def test_a_verb_that_may_run_a_program_is_no_verb_here(top: Path) -> None:
    for verb in ("status", "diff", "add", "checkout", "gc"):
        with pytest.raises(AssertionError, match=verb):
            run_git(str(top / ".git"), verb)


@pytest.mark.parametrize("url", ["ext::sh -c true", "fd::0"])
def test_a_helper_of_git_is_not_run_even_by_its_name(url: str, top: Path) -> None:
    with pytest.raises(GitFailed, match="not allowed"):
        run_git(str(top / ".git"), "ls-remote", "--", url)


def test_the_work_tree_of_a_folder_is_that_of_the_nearest_dot_git(top: Path, tmp_path: Path) -> None:
    (top / "src").mkdir()
    assert work_tree_of(str(top / "src")) == (str(top / ".git"), str(top))
    git(top, "worktree", "add", "-q", str(tmp_path / "linked"))
    linked = work_tree_of(str(tmp_path / "linked"))
    assert linked == (str(top / ".git/worktrees/linked"), str(tmp_path / "linked"))
    bare = bare_repository(tmp_path / "bare")
    assert work_tree_of(str(bare)) is None, "edits can make such a folder"


def test_the_users_own_variables_stay_but_for_those_of_one_repository(
    monkeypatch: pytest.MonkeyPatch, top: Path
) -> None:
    kept = {
        "GIT_SSH_COMMAND": "ssh -v", "GIT_SSH": "/bin/ssh", "SSH_AUTH_SOCK": "/run/agent", "https_proxy": "p",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.mine", "GIT_CONFIG_VALUE_0": "yes",
        "GIT_CONFIG_GLOBAL": str(top / "global"), "GIT_SSL_CAINFO": "/etc/ca",
    }  # fmt: skip
    for name, value in (kept | {"GIT_DIR": "/x", "GIT_WORK_TREE": "/x", "GIT_INDEX_FILE": "/x"}).items():
        monkeypatch.setenv(name, value)
    (top / "global").write_text("[user]\n\talso = global\n")
    environment = git_environment()
    assert kept.items() <= environment.items()
    assert not {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} & environment.keys()
    assert environment["GIT_ALLOW_PROTOCOL"].split(":") == list(PROTOCOLS)
    own = str(top / ".git")
    assert [run_git(own, "config", f"user.{key}").strip() for key in ("mine", "also")] == [b"yes", b"global"]
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.fsmonitor=true'")
    assert run_git(own, "config", "core.fsmonitor").strip() == b"false", "they cannot undo an override"


def test_git_that_takes_too_long_is_killed_with_its_children(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nwait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(GitFailed, match="did not end within 2 s"):
        run_git(str(top / ".git"), "ls-files", seconds=2)
    child = (tmp_path / "child").read_text().strip()
    until = time.monotonic() + 30
    while _runs(child):
        assert time.monotonic() < until, "a child is left"
        time.sleep(0.01)


def test_without_git_the_caller_learns_it(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GitMissing):
        run_git(str(top / ".git"), "ls-files")


def _runs(pid: str) -> bool:
    shown = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False)
    return bool(shown.stdout.strip()) and not shown.stdout.startswith("Z")
