"""File systems unlike ext4, and gVisor: a daemon serves there, recovers, and names what is weaker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support import file_systems
from support.crash_checks import check_short_life, in_the_long_form, strays
from support.workplace import TOP, workplace

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

SHARED, IN_MEMORY = "shared with others", "not durable"
NO_EXCHANGE, FOLDING = "cannot exchange", "two spellings"
WEAKER = {  # words of the sentences in `weaker`
    "overlay": set(),
    "overlay, volatile": {IN_MEMORY},
    "fuse-overlayfs": {SHARED},
    "bindfs": {SHARED, NO_EXCHANGE},
    "mergerfs": {SHARED, NO_EXCHANGE},
    "gocryptfs": {SHARED},
    "ntfs-3g": {SHARED, NO_EXCHANGE},
    "exfat": {FOLDING, NO_EXCHANGE},
}
IN_SHORT = "overlay, volatile"
KINDS = [IN_SHORT, *(in_the_long_form(kind) for kind in WEAKER if kind != IN_SHORT)]
GVISOR = "runsc --ignore-cgroups --network=none --platform=ptrace do -force-overlay=false"
IN_GVISOR = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from support.crash_checks import check_short_life, strays
from support.workplace import workplace
with workplace(Path(sys.argv[1])) as place:
    place.is_forked = False
    check_short_life(place, lambda client: print(client.status()))
    place.stop()
    assert strays(place.root) == []
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_is_served_and_each_weaker_promise_named(tmp_path: Path, kind: str) -> None:
    """The workspace and the state folder are both there, as in a container or an encrypted home."""
    if (reason := file_systems.missing(kind)) is not None:
        pytest.skip(reason)

    def look(client: Client) -> None:
        text = " ".join(client.status().weaker)
        assert {words for words in set().union(*WEAKER.values()) if words in text} == WEAKER[kind]

    with (
        file_systems.mounted_kind(kind, tmp_path / "disk", tmp_path),
        workplace(tmp_path / "disk/place") as place,
    ):
        check_short_life(place, look)
        place.stop()
        assert strays(place.root) == []


@pytest.mark.long
def test_a_file_system_that_changes_the_spelling_of_names_is_refused(place: Workplace) -> None:
    if (reason := file_systems.missing("lowntfs-3g")) is not None:
        pytest.skip(reason)
    with file_systems.mounted_kind("lowntfs-3g", place.root, place.folder):
        done = place.editctl("start")
        assert "changes the spelling of names" in done.stderr
        assert done.returncode
        assert os.listdir(place.root) == []


@pytest.mark.long
def test_gvisor_is_served_and_each_weaker_promise_named(tmp_path: Path) -> None:
    if shutil.which("runsc") is None or os.geteuid() != 0:
        pytest.skip("runsc is not installed, or this is not root")
    argv = [*GVISOR.split(), "-cwd", str(TOP), sys.executable, "-c", IN_GVISOR, str(tmp_path / "place")]
    paths = [str(TOP / name) for name in ("tests", "daemon", "client")]
    done = subprocess.run([*argv, *paths], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    for words in (NO_EXCHANGE, SHARED, "no leases", "boot id"):
        assert words in done.stdout, words
