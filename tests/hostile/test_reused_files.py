"""A replaced file never shows the content of another path, whoever still leads to it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.crash_checks import wait_until
from support.workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

FILES = 30
SECRETS = 3 * FILES  # each edit takes a spare, and a replaced file was once the first to be taken
ADDED = "one line that the isolated command added\n"
COMMAND = f"""
import os, sys, time
names = [f"f{{number}}" for number in range({FILES})]
for name in names:
    open(name).read()  # now the overlay leads to its inode
open(sys.argv[1] + "/ready", "w").close()
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.01)
for name in names:
    text = open(name).read()
    open(name, "w").write(text + {ADDED!r})
"""

pytestmark = [pytest.mark.disk, pytest.mark.needs("exchange")]


@pytest.fixture
def client(place: Workplace) -> Client:
    place.write({"secret": "secret 0\n"} | {f"f{number}": f"old {number}\n" for number in range(FILES)})
    return place.start()


def replace_all(client: Client) -> None:
    """Replace each file, and bring it back, so that the isolated edits apply."""
    for number in range(FILES):
        made = client.apply([write(f"f{number}", f"new {number}\n")])
        assert made.transaction is not None
        client.undo(str(made.transaction.seq))


def use_the_spares(place: Workplace, client: Client) -> None:
    """Wait until each replaced file was checked, then write the secret into as many spares."""
    replaced = place.state / "replaced"
    wait_until(lambda: not any(size_of(path) for path in replaced.iterdir()), "replaced files are kept")
    for number in range(SECRETS):
        client.apply([write("secret", f"secret {number + 1}\n")])


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_an_isolated_command_reads_and_lands_its_own_files_only(
    place: Workplace, client: Client, tmp_path: Path
) -> None:
    signals = tmp_path / "signals"
    signals.mkdir()
    place.skip_without_overlay()
    argv = [
        str(place.provide_editctl() / "editctl"),
        "exec",
        "--isolated",
        "--",
        sys.executable,
        "-c",
        COMMAND,
    ]
    with subprocess.Popen([*argv, str(signals)], cwd=place.root, env=place.environment) as isolated:
        wait_until((signals / "ready").exists, "the command did not start")
        replace_all(client)
        use_the_spares(place, client)
        (signals / "go").touch()
        assert isolated.wait() == 0
    landed = {name: text for name, text in place.files().items() if name.startswith("f")}
    assert landed == {f"f{number}": f"old {number}\n{ADDED}".encode() for number in range(FILES)}


@pytest.mark.needs("/proc")
def test_a_descriptor_that_no_lease_shows_leads_to_no_other_path(place: Workplace, client: Client) -> None:
    descriptors = [os.open(place.root / f"f{number}", os.O_PATH) for number in range(FILES)]
    try:
        replace_all(client)
        use_the_spares(place, client)
        for descriptor in descriptors:
            with open(f"/proc/self/fd/{descriptor}", "rb") as file:
                assert b"secret" not in file.read()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
