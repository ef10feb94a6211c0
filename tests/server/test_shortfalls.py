"""What file systems cannot give is in `status.weaker`; a watcher that is deaf is not `ready` (D34)."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from editd.server.watcher import BLIND_SECONDS
from support import machine, without
from support.crash_checks import transactions, wait_until
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace


@contextlib.contextmanager
def mirrored(behind: Path, where: Path) -> Iterator[None]:
    """The folder `behind`, shown at `where` by bindfs: a file system with another side."""
    reason = machine.missing() if shutil.which("bindfs") else "bindfs is not installed"
    if reason is not None:
        pytest.skip(reason)
    behind.mkdir(exist_ok=True)
    where.mkdir(exist_ok=True)
    subprocess.run(["bindfs", str(behind), str(where)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def recorded(client: Client) -> list[str]:
    return [touched.path for transaction in transactions(client) for touched in transaction.files]


def weaker(client: Client) -> str:
    return "\n".join(client.status().weaker)


@pytest.mark.disk
def test_a_local_disk_falls_short_of_nothing(place: Workplace) -> None:
    if (reason := machine.missing()) is not None:
        pytest.skip(reason)
    image = machine.new_image(place.folder)
    shutil.rmtree(place.root)
    with machine.mounted(image, place.folder / "disk"):
        place.variables["XDG_STATE_HOME"] = str(place.folder / "disk/state")
        (place.folder / "disk/workspace").mkdir()
        place.root.symlink_to(place.folder / "disk/workspace")
        with place.start() as client:
            client.settle()
            status = client.status()
            assert (status.weaker, status.uncovered) == ([], [])
            assert status.system == {"name": "linux", "file_system": "ext4", "missing": []}
        place.stop()


@pytest.mark.parametrize("folder", ["", "vendor"])
def test_what_is_written_on_the_other_side_of_a_shared_folder_is_found_by_settle(
    place: Workplace, folder: str
) -> None:
    behind = place.folder / "behind"
    with mirrored(behind, place.root / folder):
        (behind / "f").write_text("one\n")
        with place.start() as client:
            client.settle()
            status = client.status()
            assert status.watcher["state"] == "partial"
            assert "shared with others" in weaker(client)
            assert ("is another mount" in weaker(client)) == bool(folder)
            assert (status.system["file_system"] == "fuse") == (not folder)
            for content in ("two\n", "three\n"):
                (behind / "f").write_text(content)
                client.settle()
            assert len([path for path in recorded(client) if path.endswith("f")]) == 2
            path = f"{folder}/f".lstrip("/")
            (behind / "f").write_text("longer than what the kernel remembers of it\n")
            assert client.read(path).content == "longer than what the kernel remembers of it\n"
            client.apply([write(path, "ours\n")])
            assert (behind / "f").read_text() == "ours\n"
        place.stop()


def test_a_shared_folder_that_is_mounted_later_makes_the_watcher_partial(place: Workplace) -> None:
    place.write({"a": "a\n"})
    with place.start() as client:
        client.settle()
        assert client.status().watcher["state"] == "ready"
        with mirrored(place.folder / "behind", place.root / "vendor"):
            (place.root / "vendor/f").write_text("one\n")
            client.settle()
            assert "vendor is shared with others" in weaker(client)
            wait_until(lambda: client.status().watcher["state"] == "partial", "it is not noticed")
    place.stop()


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_shared_folder_that_is_mounted_while_nothing_happens_is_scanned_from_the_next_settle_on(
    place: Workplace,
) -> None:
    place.write({"vendor/f": "one\n"})
    with place.start() as client:
        client.settle()
        behind = place.folder / "behind"
        (place.root / "vendor/f").unlink()
        client.settle()
        with mirrored(behind, place.root / "vendor"):
            client.settle()
            (behind / "g").write_text("on the other side\n")
            until = time.monotonic() + 2 * BLIND_SECONDS
            while "vendor/g" not in recorded(client) and time.monotonic() < until:
                time.sleep(0.5)
            assert "vendor/g" in recorded(client)
    place.stop()


@pytest.mark.disk
@pytest.mark.parametrize("name", ["workspace", "state"])
def test_a_file_system_in_memory_is_said_to_be_not_durable(place: Workplace, name: str) -> None:
    if (reason := machine.missing()) is not None:
        pytest.skip(reason)
    with machine.mounted("none", place.folder / name, options="size=64m", kind="tmpfs"):
        with place.start() as client:
            what = {"workspace": "The workspace (tmpfs)", "state": "The history (tmpfs)"}
            told = weaker(client)
            for one, words in what.items():
                assert (f"{words} is not durable" in told) == (one == name)
        place.stop()


def test_weaker_is_told_while_the_first_scan_runs(place: Workplace) -> None:
    if (reason := without.missing()) is not None:
        pytest.skip(reason)
    place.launcher = without.launcher("exchange")
    place.write({f"{number}": "x" * 100 for number in range(3000)})
    with place.start() as client:
        status = client.status()
        assert status.state == "scanning"
        assert "cannot exchange" in " ".join(status.weaker)


def test_publishing_by_rename_is_said_to_be_weaker(place: Workplace) -> None:
    (place.folder / "config/editd").mkdir(parents=True)
    (place.folder / "config/editd/config.toml").write_text('publish = "rename"\n')
    with place.start() as client:
        assert "by a check and a rename" in weaker(client)


def test_the_files_that_are_not_covered_are_those_that_exist_now(place: Workplace) -> None:
    """The list was that of the last scan, while files came and went."""
    with place.start() as client:
        client.settle()
        assert client.status().uncovered == []
        with open(place.root / "large.bin", "wb") as file:
            file.truncate(17 << 20)
        wait_until(lambda: "large.bin" in " ".join(client.status().uncovered), "the large file is listed")
        (place.root / "large.bin").unlink()
        assert client.status().uncovered == []
