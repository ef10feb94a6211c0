"""A FIFO where git keeps its files: whoever opens it waits for good, so nothing of ours may."""

from __future__ import annotations

import os
import time
from threading import Timer
from typing import TYPE_CHECKING

import pytest

from workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client
    from workplace import Workplace

GITS = (
    *("HEAD", "packed-refs", "commondir", "gitdir", "config", "shallow", "index", "logs/refs/stash"),
    *("info/exclude", "info/attributes", "info/grafts", "objects/info/alternates"),
)
TOP = (".gitignore", "sub/.gitignore", "sub/.gitattributes", *(f".git/{name}" for name in GITS))
NESTED = ("sub/.git", *(f"sub/.git/{name}" for name in ("HEAD", "packed-refs", "config")))
ANSWERS_SECONDS = 20.0  # then the daemon is taken to be stuck, and is killed
NOTICED_SECONDS = 0.3


@pytest.mark.parametrize(("repository", "places"), [(".", TOP), ("sub", NESTED)], ids=["top", "nested"])
def test_a_fifo_put_where_gits_files_are_stops_no_daemon(
    place: Workplace, repository: str, places: tuple[str, ...]
) -> None:
    populate(place, repository)
    with place.start() as client:
        client.settle()
        for name in places:
            put_aside = exchanged(place.root / name)
            beside = place.root / ("sub/beside" if name.startswith("sub") else "beside")
            beside.write_text(name)
            time.sleep(NOTICED_SECONDS)
            is_served(place, client, name)
            assert client.read(str(beside.relative_to(place.root))).content == name
            put_back(place.root / name, put_aside)
            time.sleep(0.05)
            is_served(place, client, name)
        assert client.check().problems == []
    place.stop()


@pytest.mark.parametrize(
    ("repository", "together"),
    [
        (".", (".gitignore", "sub/.gitignore", "sub/.gitattributes", ".git/logs/refs/stash")),
        (".", (".git/HEAD", ".git/packed-refs")),
        (".", (".git/config", ".git/commondir")),
        (".", (".git/info/exclude", ".git/packed-refs")),
        (".", (".git/index",)),
        ("sub", ("sub/.git",)),
        ("sub", ("sub/.git/HEAD", "sub/.git/packed-refs")),
    ],
)
def test_a_daemon_starts_where_a_fifo_is(
    place: Workplace, repository: str, together: tuple[str, ...]
) -> None:
    populate(place, repository)
    for name in together:
        exchanged(place.root / name)
    deadline = Timer(ANSWERS_SECONDS, place.end)
    deadline.start()
    with place.start() as client:
        is_served(place, client, together[0])
        assert client.read("sub/file").content == "file\n"
    place.stop()
    deadline.cancel()


@pytest.mark.parametrize("name", ["home/.gitconfig", "config/git/config", "config/git/ignore"])
def test_a_fifo_among_the_users_own_files_of_git_stops_no_daemon(place: Workplace, name: str) -> None:
    populate(place, ".")
    put_aside = exchanged(place.folder / name)
    deadline = Timer(ANSWERS_SECONDS, place.end)
    deadline.start()
    with place.start() as client:
        is_served(place, client, name)
        put_back(place.folder / name, put_aside)
        is_served(place, client, "none")
        exchanged(place.folder / name)
        (place.root / "beside").write_text(name)
        is_served(place, client, name)
        assert client.read("beside").content == name
    place.stop()
    deadline.cancel()


def test_a_name_with_a_nul_in_gits_files_is_no_name(place: Workplace) -> None:
    populate(place, ".")
    with place.start() as client:
        client.settle()
        (place.root / ".git/HEAD").write_bytes(b"ref: refs/heads/a\0b\n")
        (place.root / "new").mkdir()
        (place.root / "new/.git").write_bytes(b"gitdir: a\0b\n")
        (place.root / "new/file").write_text("1")
        is_served(place, client, "HEAD")
        assert client.read("new/file").content == "1"
    assert "Traceback" not in place.log()
    place.stop()


def populate(place: Workplace, repository: str) -> None:
    """A repository with a commit, and files of every kind in it."""
    place.write({"file": "file\n", "sub/file": "file\n", f"{repository}/.gitattributes": "*.x filter=y\n"})
    place.git("-C", repository, "init", "-q")
    place.git("-C", repository, "add", ".")
    place.git("-C", repository, "commit", "-q", "-m", "first")


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


def is_served(place: Workplace, client: Client, name: str) -> None:
    """The daemon answers, takes an edit and settles; a stuck one is killed, which is an error here."""
    deadline = Timer(ANSWERS_SECONDS, place.end)
    deadline.start()
    try:
        client.status()
        client.apply([write("edited", name), write("sub/edited", name)])
        client.settle()
    finally:
        deadline.cancel()
