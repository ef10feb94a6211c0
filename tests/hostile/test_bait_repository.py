"""A workspace whose repository has a trap wherever git runs a program: no verb of editd springs one."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from editd.runs.scratch import TrialFile
from editd.runs.workspace_copy import copy_workspace
from editd_client.errors import EditdError
from support.bait import Bait, git
from support.every_method import FOUND, METHODS
from support.hosts import bare_repository, name_host
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace

BARE = {
    "HEAD": "ref: refs/heads/main\n",
    "objects/.keep": "",
    "refs/.keep": "",
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {trap}\n",
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with workplace(tmp_path / "one", {"a.txt": "a\n", "b.txt": "b\n", "c.log": "ignored\n"}) as made:
        name_host(made, "one")
        yield made
        made.editctl("stop")


def verbs(place: Workplace, copy: Path, server: str) -> Iterator[tuple[str, ...]]:
    """Yield command lines that, one after the other, use every verb that may ask git anything."""
    yield ("start",)
    yield ("status",)
    yield ("write", "new.txt")
    yield ("replace", "a.txt", "a", "A")
    yield ("mv", "b.txt", "moved.txt")
    yield ("read", "a.txt")
    for inspect in ("log", "diff", "settle", "check", "sessions"):
        yield (inspect,)
    yield ("log", "-p")
    yield ("blame", "a.txt")
    yield ("show", "1")
    yield ("exec", "--", "touch", "by-exec.txt")
    yield ("exec", "--isolated", "--", "touch", "isolated.txt", "isolated.log")
    yield ("exec", "--isolated", "--", "rm", "new.txt", "c.log")
    yield ("replace", "a.txt", "A", "AA", "--propose")
    yield ("proposal", "show", "1")
    yield ("proposal", "try", "1", "--", "cat", "a.txt")
    yield ("proposal", "checkout", "1", str(copy))
    yield ("remote", "init", "--yes", server)
    yield ("remote", "now")
    yield ("remote", "status")
    yield ("remote", "repair")
    yield ("remote", "leave")
    yield ("publish", "--from", "1", "-m", "Publish", "--branch", "published", "--author", "x <x@x>")
    yield ("undo",)
    yield ("gc",)


def test_no_verb_springs_a_trap(place: Workplace, tmp_path: Path) -> None:
    server, bait = bare_repository(tmp_path / "server.git"), Bait(tmp_path / "bait")
    git(place.root, "init", "-q")
    (place.root / ".gitignore").write_text("*.log\n")
    git(place.root, "add", ".gitignore", "a.txt")
    git(place.root, "commit", "-qm", "one")
    bait.set(place.root / ".git", place.root)
    copy = tmp_path / "copy"
    for words in verbs(place, copy, str(server)):
        done = place.editctl(*words, stdin="new\n")
        assert bait.sprung() == [], words
        assert done.returncode == 0 or words[0] in ("publish", "gc"), (words, done.stderr)
    assert sorted(path.name for path in copy.iterdir() if path.suffix != ".config") == [
        ".gitattributes", ".gitignore", "a.txt", "by-exec.txt", "isolated.txt", "moved.txt",
    ]  # fmt: skip
    assert (place.root / "c.log").exists(), "an ignored file is left out"
    git(place.root, "status")
    assert bait.sprung(), "the traps work"


def test_no_method_springs_a_trap(place: Workplace, tmp_path: Path) -> None:
    bait = Bait(tmp_path / "bait")
    place.write({"plain": "plain\n", "found.txt": f"{FOUND}\n"})
    git(place.root, "init", "-q")
    git(place.root, "add", "a.txt", "found.txt")
    git(place.root, "commit", "-qm", "one")
    bait.set(place.root / ".git", place.root)
    answered = 0
    with place.start() as client:
        for name, ask in METHODS.items():
            with contextlib.suppress(EditdError):
                ask(client, str(place.root), "found.txt")
                answered += 1
            place.write({"plain": "plain\n", "found.txt": f"{FOUND}\n"})
            client.settle()
            assert bait.sprung() == [], name
    assert answered > len(METHODS) / 3, "the others write new files"


def test_a_repository_of_plain_edits_runs_nothing(place: Workplace, tmp_path: Path) -> None:
    bait = Bait(tmp_path / "bait")
    trap = bait.trap("fsmonitor")
    with place.start() as client:
        client.apply([write(path, content.format(trap=trap)) for path, content in BARE.items()])
        client.apply([write("a.txt", "proposed\n")], propose=True)
    git(place.root, "ls-files", "--others")
    assert bait.sprung() == ["fsmonitor"], "the traps work"
    for words in (
        ("proposal", "checkout", "1", str(tmp_path / "copy")),
        ("exec", "--isolated", "--", "touch", "isolated.txt"),
    ):
        done = place.editctl(*words)
        assert bait.sprung() == [], words
        assert done.returncode == 0, (words, done.stderr)
    refused = place.editctl("publish", "--from", "1", "-m", "Publish", "--author", "x <x@x>")
    assert "in no git repository" in refused.stderr
    assert bait.sprung() == []
    assert (tmp_path / "copy/a.txt").read_text() == "proposed\n"
    assert "isolated.txt" in place.files()
    copy_workspace(str(place.root), str(tmp_path / "check"), [TrialFile("a.txt", b"checked\n")])
    assert bait.sprung() == []
    assert (tmp_path / "check/a.txt").read_text() == "checked\n"


def test_the_settings_of_a_repository_move_no_copy_elsewhere(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/secret").write_text("secret\n")
    git(place.root, "init", "-q")
    git(place.root, "config", "core.worktree", str(tmp_path / "elsewhere"))
    copy_workspace(str(place.root), str(tmp_path / "copy"), [])
    assert sorted(os.listdir(tmp_path / "copy")) == ["a.txt", "b.txt", "c.log"]


def test_an_index_with_a_path_to_the_outside_copies_nothing_of_it(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "one/secret").write_text("secret\n")
    git(place.root, "init", "-q")
    (place.root / "XX").mkdir()
    (place.root / "XX/secret").write_text("x\n")
    git(place.root, "add", "XX/secret")
    index = place.root / ".git/index"
    index.write_bytes(index.read_bytes().replace(b"XX/secret", b"../secret"))
    assert "../secret" in git(place.root, "ls-files"), "git lists it"
    (tmp_path / "inner").mkdir()
    copy_workspace(str(place.root), str(tmp_path / "inner/copy"), [])
    assert os.listdir(tmp_path / "inner") == ["copy"]
    assert "secret" not in os.listdir(tmp_path / "inner/copy")


def test_a_broken_repository_is_named_and_nothing_is_copied(place: Workplace, tmp_path: Path) -> None:
    git(place.root, "init", "-q")
    (place.root / ".git/config").write_text("[core\n")
    with pytest.raises(OSError, match="git ls-files failed"):
        copy_workspace(str(place.root), str(tmp_path / "copy"), [])
    assert os.listdir(tmp_path / "copy") == []
