"""The store's repository: git takes it for one, nobody else can read it, and it borrows what it may."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pygit2
import pytest

from editd.store.git_repository import borrow, create_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    create_store(str(tmp_path / "store.git"))
    return tmp_path / "store.git"


def git(store: Path, *argv: str) -> str:
    done = subprocess.run(
        ["git", "--git-dir", str(store), *argv], capture_output=True, check=True, encoding="utf-8"
    )
    return done.stdout.strip()


def stored(repository: Path, content: bytes) -> str:
    """The blob id of `content`, which git puts into `repository`."""
    command = ["git", "--git-dir", str(repository), "hash-object", "-w", "--stdin"]
    return subprocess.run(command, input=content, capture_output=True, check=True).stdout.decode().strip()


def test_git_and_libgit2_take_it_for_a_bare_repository_without_history(store: Path) -> None:
    assert git(store, "rev-parse", "--is-bare-repository") == "true"
    assert git(store, "symbolic-ref", "HEAD") == "refs/heads/history"
    assert git(store, "config", "gc.auto") == "0"
    assert git(store, "fsck") == ""
    repository = pygit2.Repository(str(store))
    assert repository.is_bare
    assert repository.head_is_unborn


def test_nobody_else_can_look_into_it(store: Path) -> None:
    borrow(str(store), ["/nowhere"])
    paths = [store, *store.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}


def test_it_has_no_hooks(store: Path) -> None:
    assert not (store / "hooks").exists()


def test_making_it_again_mends_it_and_keeps_what_is_in_it(store: Path) -> None:
    oid = stored(store, b"kept")
    (store / "HEAD").unlink()
    create_store(str(store))
    assert git(store, "cat-file", "blob", oid) == "kept"


def test_what_it_borrows_is_read_as_its_own(store: Path, tmp_path: Path) -> None:
    lender = tmp_path / "a folder é"
    subprocess.run(["git", "init", "-q", str(lender)], check=True)
    oid = stored(lender / ".git", b"lent")
    borrow(str(store), [str(lender / ".git/objects")])
    assert git(store, "cat-file", "blob", oid) == "lent"
    assert pygit2.Repository(str(store))[oid].read_raw() == b"lent"
    borrow(str(store), [])
    with pytest.raises(KeyError):
        pygit2.Repository(str(store))[oid]


def test_a_lender_that_is_gone_does_no_harm(store: Path, tmp_path: Path) -> None:
    borrow(str(store), [str(tmp_path / "gone"), os.fsdecode(b"/no/\xff")])
    assert pygit2.Repository(str(store)).head_is_unborn
    assert git(store, "rev-parse", "--is-bare-repository") == "true"


def test_a_folder_that_no_line_can_name_is_not_borrowed(store: Path) -> None:
    borrow(str(store), ["/a\nb", '"quoted', "#comment", "/plain"])
    assert (store / "objects/info/alternates").read_text() == "/plain\n"
