"""A FIFO where git keeps its files: whoever opens it waits for good, so nothing of ours may."""

from __future__ import annotations

import contextlib
import os
from threading import Timer
from typing import TYPE_CHECKING

import pytest

from editd.system.native import NATIVE
from support.crash_checks import wait_until
from support.seeds import share
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

GITS = (
    *("HEAD", "packed-refs", "commondir", "gitdir", "config", "shallow", "index", "logs/refs/stash"),
    *("info/exclude", "info/attributes", "info/grafts", "objects/info/alternates"),
)
TOP = (".gitignore", "sub/.gitignore", "sub/.gitattributes", *(f".git/{name}" for name in GITS))
NESTED = (".git", ".git/HEAD", ".git/packed-refs", ".git/config")
USERS_OWN = ("home/.gitconfig", "config/git/config", "config/git/ignore")
STARTED_WITH = (
    (".git/HEAD", ".git/packed-refs"),
    (".git/config", ".git/commondir"),
    (".git/info/exclude", ".git/packed-refs"),
    (".git/index",),
    (".git",),
)
STUCK_SECONDS = 60.0  # then the daemon is taken to be stuck, and is killed


def test_a_fifo_put_where_gits_files_are_stops_no_daemon(place: Workplace, is_long: bool) -> None:
    """The short form has half of the files of the repository on top, by the seed."""
    nested = [f"nested{number}" for number in range(len(NESTED))]
    populate(place, ".", *nested)
    with served(place) as client:
        for name in TOP if is_long else share(TOP, 2):
            put_aside = exchanged(place.root / name)
            is_noticed(place, client, "sub" if name.startswith("sub") else ".", name)
            is_served(client, name)
            put_back(place.root / name, put_aside)
            client.settle()
        for folder, name in zip(nested, NESTED, strict=True):
            exchanged(place.root / folder / name)
        for folder in nested:
            is_noticed(place, client, folder, folder)
        is_served(client, "nested")
        assert client.check().problems == []


@pytest.mark.parametrize(
    "top",
    [
        (".gitignore", "sub/.gitignore", "sub/.gitattributes", ".git/logs/refs/stash"),
        sum(STARTED_WITH[:-1], ()),
    ],
    ids=["rules", "git"],
)
def test_a_daemon_starts_where_fifos_are(place: Workplace, top: tuple[str, ...]) -> None:
    nested = [f"nested{number}" for number in range(len(STARTED_WITH))]
    populate(place, ".", *nested)
    for folder, names in zip((".", *nested), (top, *STARTED_WITH), strict=True):
        for name in dict.fromkeys(names):
            exchanged(place.root / folder / name)
    with served(place) as client:
        is_served(client, "started")
        assert client.read("sub/file").content == "file\n"


def test_a_fifo_in_the_common_folder_of_a_linked_work_tree_stops_no_daemon(place: Workplace) -> None:
    populate(place, "..")
    place.git("-C", "..", "worktree", "add", "-q", str(place.root))
    with served(place) as client:
        for name in ("config", "info/exclude", "packed-refs"):
            put_aside = exchanged(place.folder / ".git" / name)
            is_noticed(place, client, "sub", name)
            is_served(client, name)
            put_back(place.folder / ".git" / name, put_aside)


def test_a_fifo_among_the_users_own_files_of_git_stops_no_daemon(place: Workplace) -> None:
    populate(place, ".")
    for name in USERS_OWN:
        exchanged(place.folder / name)
    with served(place) as client:
        is_served(client, "all")
        for name in USERS_OWN:
            (place.folder / name).unlink()
        for name in USERS_OWN:
            is_served(client, "none")
            exchanged(place.folder / name)
            is_noticed(place, client, ".", name)
            (place.folder / name).unlink()


def test_a_name_with_a_nul_in_gits_files_is_no_name(place: Workplace) -> None:
    populate(place, ".")
    with served(place) as client:
        (place.root / ".git/HEAD").write_bytes(b"ref: refs/heads/a\0b\n")
        (place.root / "new").mkdir()
        (place.root / "new/.git").write_bytes(b"gitdir: a\0b\n")
        (place.root / "new/file").write_text("1")
        is_served(client, "HEAD")
        assert client.read("new/file").content == "1"
    assert "Traceback" not in place.log()


def populate(place: Workplace, *repositories: str) -> None:
    """Repositories with a commit each, and files of every kind in them."""
    for folder in reversed(repositories):  # the innermost first
        files = {"file": "file\n", "sub/file": "file\n", ".gitattributes": "*.x filter=y\n"}
        place.write({f"{folder}/{name}": content for name, content in files.items()})
        place.git("-C", folder, "init", "-q")
        place.git("-C", folder, "add", *files)
        place.git("-C", folder, "commit", "-q", "-m", "first")


@contextlib.contextmanager
def served(place: Workplace) -> Iterator[Client]:
    """A client of a daemon; one that is stuck is killed, which is an error here."""
    deadline = Timer(STUCK_SECONDS, place.end)
    deadline.start()
    try:
        with place.start() as client:
            client.settle()
            yield client
        place.stop()
    finally:
        deadline.cancel()


def exchanged(path: Path) -> bytes | Path | None:
    """Put a FIFO where a file is, or is not; return what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    there: bytes | Path | None = None
    if path.is_dir():
        there = path.rename(path.with_name(".git-aside"))
    elif path.exists():
        there = path.read_bytes()
        path.unlink()
    os.mkfifo(path)
    return there


def put_back(path: Path, there: bytes | Path | None) -> None:
    path.unlink()
    if isinstance(there, bytes):
        path.write_bytes(there)
    elif there is not None:
        there.rename(path)


def is_noticed(place: Workplace, client: Client, folder: str, content: str) -> None:
    """What is written beside it is taken in: by itself, or by a scan if the system reports no changes."""
    head = client.status().head
    place.write({f"{folder}/beside": content})
    path = f"{folder}/beside".removeprefix("./")
    if not NATIVE.has_inotify:
        client.settle()
    wait_until(lambda: client.log(after=head, path=path).transactions, path)


def is_served(client: Client, name: str) -> None:
    """The daemon answers, takes an edit and settles."""
    client.status()
    client.apply([write("edited", name), write("sub/edited", name)])
    client.settle()
