"""The user's own git: not a byte of `.git` is written, and nothing configured there changes the files.

Guarantee 5. Each arrangement below is made by real git, then put through a session of everything:
baseline, edits of every kind, outside changes, undo, a kill and a restart, `check`.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Chmod, Delete, Move, Symlink
from support.crash_checks import fsck, held, transactions
from support.workplace import Workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BYTES = {
    "unix.txt": b"one\ntwo\nthree\n",
    "dos.txt": b"one\r\ntwo\r\nthree\r\n",
    "mixed.txt": b"one\r\ntwo\nthree\r\n",
    "binary.bin": bytes(range(256)),
    "keyword.txt": b"$Id$ and secret\n",
    "folder/deep.txt": b"deep\n",
}


def seen(top: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file, folder and link below `top`, or `top` itself: mode, time of change, content."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path in [top, *sorted(top.rglob("*"))]:
        there = path.lstat()
        content = b""
        if stat.S_ISREG(there.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(there.st_mode):
            content = os.fsencode(path.readlink())
        found[str(path)] = there.st_mode, there.st_mtime_ns, content
    return found


def repository(place: Workplace) -> list[Path]:
    place.git("init", "-q", "-b", "main")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "first")
    return [place.root / ".git"]


def no_repository(place: Workplace) -> list[Path]:
    del place
    return []


def no_commits(place: Workplace) -> list[Path]:
    place.git("init", "-q")
    place.git("add", "unix.txt")
    return [place.root / ".git"]


def linked_worktree(place: Workplace) -> list[Path]:
    """The workspace is a worktree whose repository lies elsewhere."""
    main = place.folder / "main"
    main.mkdir()
    git_in(place, main, "init", "-q", "-b", "main")
    git_in(place, main, "commit", "-q", "--allow-empty", "-m", "first")
    aside = place.folder / "aside"
    aside.mkdir()
    move_all(place.root, aside)
    git_in(place, main, "worktree", "add", "-q", str(place.root))
    move_all(aside, place.root)
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "files")
    return [place.root / ".git", main / ".git"]


def nested_repository(place: Workplace) -> list[Path]:
    nested = place.root / "nested"
    place.write({"nested/inner.txt": "inner\n"})
    git_in(place, nested, "init", "-q")
    git_in(place, nested, "add", "-A")
    git_in(place, nested, "commit", "-q", "-m", "inner")
    return [*repository(place), nested / ".git"]


def submodule(place: Workplace) -> list[Path]:
    library = place.folder / "library"
    library.mkdir()
    (library / "inner.txt").write_text("inner\n")
    git_in(place, library, "init", "-q")
    git_in(place, library, "add", "-A")
    git_in(place, library, "commit", "-q", "-m", "inner")
    tops = repository(place)
    place.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "sub")
    place.git("commit", "-q", "-m", "submodule")
    return [*tops, place.root / "sub" / ".git"]


def line_ends_converted(place: Workplace) -> list[Path]:
    tops = repository(place)
    place.git("config", "core.autocrlf", "true")
    place.write({".gitattributes": "*.txt text=auto eol=crlf\n"})
    return tops


def filters(place: Workplace) -> list[Path]:
    """Clean and smudge filters that would change every text, and leave a trace if they were run."""
    tops = repository(place)
    trace = place.folder / "filter-was-run"
    for way in ("clean", "smudge"):
        place.git("config", f"filter.loud.{way}", f"touch {trace}; tr a-z A-Z")
    place.git("config", "filter.loud.required", "true")
    place.write({".gitattributes": "*.txt filter=loud ident\n"})
    return tops


def excludes_everywhere(place: Workplace) -> list[Path]:
    """Global, per-repository and per-folder rules that ignore what is edited."""
    tops = repository(place)
    place.write({".gitignore": "*.log\n"})
    (place.folder / "config" / "git").mkdir()
    (place.folder / "config" / "git" / "ignore").write_text("added*\n")
    (place.root / ".git" / "info" / "exclude").write_text("link\n")
    return tops


def hooks(place: Workplace) -> list[Path]:
    """Every hook that git knows, leaving a trace if it is run and refusing."""
    tops = repository(place)
    for name in ("pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change",
                 "fsmonitor-watchman", "post-checkout", "pre-auto-gc", "post-rewrite"):  # fmt: skip
        hook = place.root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {place.folder}/hook-was-run\nexit 1\n")
        hook.chmod(0o755)
    place.git("config", "core.fsmonitor", str(place.root / ".git" / "hooks" / "fsmonitor-watchman"))
    return tops


ARRANGEMENTS = [
    no_repository, repository, no_commits, linked_worktree, nested_repository, submodule, line_ends_converted,
    filters, excludes_everywhere, hooks,
]  # fmt: skip


def git_in(place: Workplace, folder: Path, *argv: str) -> None:
    place.git("-C", str(folder), *argv)


def move_all(source: Path, target: Path) -> None:
    for path in source.iterdir():
        path.rename(target / path.name)


def everything(place: Workplace) -> None:
    """A session of every kind of edit, undone again; the files are byte for byte what they should be."""
    with place.start() as client:
        client.settle()
        start = held(place)
        for path in BYTES:
            assert client.read(path, at=0).size == len(start[path]), path
        client.apply(
            [write("dos.txt", "1\r\n2\r\n"), write("unix.txt", "1\n2\r\n"), write("added.txt", "a\r\n\n")]
        )
        expected = start | {"dos.txt": b"1\r\n2\r\n", "unix.txt": b"1\n2\r\n", "added.txt": b"a\r\n\n"}
        assert held(place) == expected
        client.apply([Delete(path="keyword.txt"), Move(path="mixed.txt", to="moved/mixed.txt")])
        client.apply([Chmod(path="folder/deep.txt", executable=True), Symlink(path="link", target="dos.txt")])
        del expected["keyword.txt"]
        expected["moved/mixed.txt"] = expected.pop("mixed.txt")
        assert held(place) == expected
        head = client.status().head
        place.write({"binary.bin": b"\r\n\0theirs", "theirs.txt": b"new\r\n"})
        client.settle()
        outside = transactions(client, after=head)  # of a machine that pauses more than one
        assert {change.path for made in outside for change in made.files} == {"binary.bin", "theirs.txt"}
    place.kill()
    with place.start() as client:
        client.settle()
        assert held(place) == expected | {"binary.bin": b"\r\n\0theirs", "theirs.txt": b"new\r\n"}
        for seq in range(client.status().head, 0, -1):
            client.undo(seq)
        assert held(place) == start
        assert not (place.root / "folder" / "deep.txt").stat().st_mode & 0o111
        assert client.check().problems == []
    place.stop()
    fsck(place)


@pytest.mark.parametrize("arrange", ARRANGEMENTS)
def test_the_users_git_is_not_written_and_changes_no_byte(
    place: Workplace, arrange: Callable[[Workplace], list[Path]]
) -> None:
    place.write(BYTES)
    tops = arrange(place)
    before = [seen(top) for top in tops]
    traces = sorted(place.folder.glob("*-was-run"))
    everything(place)
    assert [seen(top) for top in tops] == before
    assert sorted(place.folder.glob("*-was-run")) == traces
