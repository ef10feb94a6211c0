"""The user's repository goes away: what the history borrowed from it is taken from the files."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.workplace import write

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace

FILES = {"kept": "kept\n", "sub/kept": "kept below\n", "edited": "before\n", "replaced": "first\n"}
LOST = "The first content of replaced cannot be restored."


@pytest.fixture
def client(place: Workplace) -> Client:
    """Of a daemon whose history borrows the content of `FILES`, without `edited`."""
    place.write(FILES)
    time.sleep(0.1)  # else git's index is too young for its times to be believed, and nothing is borrowed
    place.git("init", "-q", "-b", "main")
    place.git("add", ".")
    place.git("commit", "-q", "-m", "all")
    client = place.start()
    client.settle()
    client.apply([write("edited", "after\n")])
    assert not is_own(place, "kept"), "it is borrowed"
    return client


def is_own(place: Workplace, path: str) -> bool:
    """Return whether the history has the first content of a file itself."""
    version = subprocess.run(
        ["git", "hash-object", "--stdin"], input=FILES[path].encode(), capture_output=True, check=True
    ).stdout.decode()
    for index in (place.store / "objects/pack").glob("*.idx"):
        shown = subprocess.run(
            ["git", "show-index"], input=index.read_bytes(), capture_output=True, check=True
        )
        if version.strip().encode() in shown.stdout:
            return True
    return False


def test_a_removed_repository_takes_nothing_from_the_history(place: Workplace, client: Client) -> None:
    shutil.rmtree(place.root / ".git")
    wait_until(lambda: all(is_own(place, path) for path in ("kept", "sub/kept", "replaced")), "taken")
    place.write(dict.fromkeys(FILES, "later\n"))
    client.settle()
    for path, text in FILES.items():
        assert client.read(path, at=0).content == text
    assert client.check().problems == []
    assert not [line for line in client.status().weaker if "first content" in line]
    client.restore(0)
    assert {path: place.files()[path].decode() for path in FILES} == FILES


def test_a_repository_that_is_cloned_again_or_packed_anew_is_looked_through(
    place: Workplace, client: Client
) -> None:
    place.git("checkout", "-q", "--orphan", "other")
    place.git("rm", "-r", "-f", "-q", "--cached", ".")
    place.git("commit", "-q", "--allow-empty", "-m", "another history")
    place.git("branch", "-D", "-q", "main")
    place.git("reflog", "expire", "--expire=now", "--all")
    place.git("gc", "-q", "--prune=now")
    wait_until(lambda: is_own(place, "kept"), "it is taken")
    assert client.check().problems == []


def test_the_status_names_what_is_lost(place: Workplace, client: Client) -> None:
    """Nobody can take it any more: repository and file change while the daemon does not run."""
    place.stop()
    shutil.rmtree(place.root / ".git")
    place.write({"replaced": "by somebody\n"})
    with place.start() as again:
        wait_until(lambda: is_own(place, "kept"), "it is taken")
        wait_until(lambda: any(LOST in line for line in again.status().weaker), "told")
        assert again.read("kept", at=0).content == "kept\n"
        again.settle()
        (problem,) = [line for line in again.check().problems if "replaced" in line]
        assert "The undo of these transactions needs it, and so does `restore`: 2." in problem
        assert "No transaction needs it" not in problem
        with pytest.raises(EditdError) as gone:
            again.read("replaced", at=0)
        assert gone.value.name == "history_damaged"
        assert again.apply([write("replaced", "goes on\n", force=True)]).transaction is not None
        assert LOST in place.editctl("status").stdout
