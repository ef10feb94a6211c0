"""`exec --isolated` and files whose content the history lacks: each change lands, or is refused by name."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.workspace.scan import FILE_BYTES_MAX
from support.seeds import seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

EDITS_MAX = 64 << 20  # `file_bytes_max`
SIZES = {"big.bin": FILE_BYTES_MAX + 1, "huge1.bin": EDITS_MAX + 1, "huge2.bin": EDITS_MAX + 1}


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """Of a repository with large files, an excluded file and a pipe, in which overlays work."""
    place.write({"small": "1\n", ".env": "KEY=first\n"} | dict.fromkeys(SIZES, ""))
    for name, size in SIZES.items():
        os.truncate(place.root / name, size)
    os.mkfifo(place.root / "pipe")
    configuration = place.folder / "config/editd"
    configuration.mkdir(parents=True, exist_ok=True)
    (configuration / "config.toml").write_text("[history]\nexclude = ['.env']\n")
    subprocess.run(["git", "init", "-q", place.root], check=True)
    place.skip_without_overlay()
    with place.start() as made:
        made.settle()
        yield made
    place.stop()


def isolated(place: Workplace, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return place.editctl("exec", "--isolated", *options, "--", "sh", "-c", script)


def changes(client: Client) -> set[tuple[str, str]]:
    """Return the paths and changes of the newest transaction."""
    return {(file.path, file.change) for file in client.log().transactions[0].files}


CHANGES = [
    ("rm big.bin", {("big.bin", "deleted")}),
    ("rm big.bin small", {("big.bin", "deleted"), ("small", "deleted")}),
    ("mv big.bin big2.bin", {("big.bin", "deleted"), ("big2.bin", "added")}),
    (": >big.bin", {("big.bin", "modified")}),
    ("chmod +x big.bin", {("big.bin", "mode")}),
    ("rm big.bin; ln -s small big.bin", {("big.bin", "modified")}),
    ("rm big.bin; mkdir big.bin; echo x >big.bin/x", {("big.bin", "deleted"), ("big.bin/x", "added")}),
]
SHORT = 2  # changes of the short form, which the seed of the commit draws


def test_a_change_of_a_file_that_was_never_recorded_lands_and_can_be_undone(
    place: Workplace, client: Client, *, is_long: bool
) -> None:
    first = seed() % len(CHANGES)
    for number, (script, expected) in enumerate(
        (CHANGES[first:] + CHANGES)[: len(CHANGES) if is_long else SHORT]
    ):
        size = SIZES["big.bin"] + number  # the content is a new one, which was not recorded by the last undo
        os.truncate(place.root / "big.bin", size)
        client.settle()
        done = isolated(place, script)
        assert (done.returncode, changes(client)) == (0, expected), done.stderr
        assert client.log().transactions[0].kind == "edit"
        client.undo()
        assert (place.root / "big.bin").stat().st_size == size


def test_its_deletion_can_wait_for_a_reviewer(place: Workplace, client: Client) -> None:
    done = isolated(place, "rm big.bin", "--propose")
    assert "[P1] waits for a reviewer" in done.stderr
    assert [one.paths for one in client.proposal_list().proposals] == [["big.bin"]]
    assert (place.root / "big.bin").exists()


def test_a_file_that_changed_while_the_command_ran_is_refused_by_name(
    place: Workplace, client: Client
) -> None:
    chmod = """[{"op": "chmod", "path": "big.bin", "executable": true}]"""
    applying = f"echo '{chmod}' | {place.provide_editctl() / 'editctl'} apply --session other >/dev/null"
    done = isolated(place, f"{applying}; rm big.bin small")
    assert done.returncode == 1
    assert "changed while the command ran: big.bin." in done.stderr
    assert "the changes are not applied, and are kept in" in done.stderr
    assert (place.root / "small").exists()
    assert (place.root / "big.bin").exists()


def test_each_file_that_is_too_large_for_an_edit_is_named(place: Workplace, client: Client) -> None:
    done = isolated(place, "rm *.bin small")
    assert done.returncode == 1
    assert "bytes that editd takes of one file: huge1.bin, huge2.bin." in done.stderr
    assert client.log(after=0).transactions == []
    assert (place.root / "small").exists()


@pytest.mark.parametrize(
    ("script", "change"), [("echo KEY=second >.env", "modified"), ("rm .env", "deleted")]
)
def test_a_change_of_an_excluded_file_from_outside_lands(
    place: Workplace, client: Client, script: str, change: str
) -> None:
    place.write({".env": "KEY=outside\n"})
    client.settle()
    done = isolated(place, f"{script}; rm small")
    assert done.returncode == 0, done.stderr
    assert changes(client) == {(".env", change), ("small", "deleted")}
    assert "kept in" not in done.stderr


def test_pipes_are_left_out_by_name(place: Workplace, client: Client) -> None:
    done = isolated(place, "rm pipe small; mkfifo pipe2")
    assert done.returncode == 0
    assert changes(client) == {("small", "deleted")}
    assert "left out, because they are neither files nor symlinks: pipe, pipe2" in done.stderr
