"""The portable system: a daemon without anything beyond POSIX serves, and says what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd.system.native import NATIVE, PORTABLE, VARIABLE, NativeCalls
from support import posix_only
from support.crash_checks import check_short_life, strays
from support.seeds import share
from support.workplace import TOP

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace

WEAKER = (
    "cannot exchange", "no leases", "reports no changes", "does not name the program", "ACLs",
    "leaves behind", "The mounts cannot be listed", "The boot id cannot be read",
)  # fmt: skip

FEW = (
    "tests/workspace/test_writer.py", "tests/workspace/test_publish.py", "tests/engine/test_commit.py",
    "tests/hostile/test_paths.py::test_no_method_gets_out_by_any_path", "tests/system/test_filesystem.py",
)  # fmt: skip
NOT_RACING = ("-k", "not flipped")  # a race that a busy machine may not see
ALL = (
    "tests/workspace", "tests/engine", "tests/system", "tests/race",
    "tests/hostile", "tests/crash/test_kill.py", "tests/crash/test_faults.py", "tests/crash/test_full.py",
    "tests/store/test_damage.py",
)  # fmt: skip


def test_the_portable_system_has_nothing_that_linux_has() -> None:
    defaults = NativeCalls(system="portable")
    assert defaults == PORTABLE
    assert not os.path.lexists(PORTABLE.proc)
    assert (NATIVE.system == "portable") == (os.environ.get(VARIABLE) == "portable")


def test_a_daemon_without_linux_serves_recovers_and_names_each_weaker_promise(place: Workplace) -> None:
    place.variables = posix_only.variables(place.folder / "site", place.environment["PYTHONPATH"])
    place.is_forked = False

    def look(client: Client) -> None:
        status = client.status()
        assert status.system["name"] == "portable"
        assert status.watcher["backend"] == "scan"
        assert {"openat2", "renameat2", "syncfs", "/proc"} <= set(status.system["missing"])
        for words in WEAKER:
            assert sum(words in sentence for sentence in status.weaker) == 1, words

    check_short_life(place, look)
    place.stop()
    assert strays(place.root) == []


@pytest.mark.timeout(3600)
@pytest.mark.skipif(NATIVE.system == "portable", reason="the other tests run there already")
def test_what_is_not_about_a_call_of_linux_holds_on_the_portable_system(is_long: bool) -> None:
    """The short form has half of some files; the race and the kills have a test of their own for it."""
    variables = {**os.environ, VARIABLE: "portable"}
    chosen = ALL if is_long else [*share(FEW, 2), *NOT_RACING]
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run(argv, cwd=TOP, env=variables, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stdout


def test_an_unknown_system_is_refused(place: Workplace) -> None:
    variables = {**place.environment, VARIABLE: "solaris"}
    argv = [sys.executable, "-m", "editd", "-C", str(place.root)]
    done = subprocess.run(argv, env=variables, capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "'solaris'. It may be linux or portable." in done.stderr
