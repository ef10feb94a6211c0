"""The portable system: a daemon without anything beyond POSIX serves, and says what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import posix_only
from crash_checks import strays
from editd.system.native import NATIVE, PORTABLE, VARIABLE, NativeCalls
from workplace import replace, write

if TYPE_CHECKING:
    from workplace import Workplace

WEAKER = (
    "cannot exchange", "no leases", "reports no changes", "does not name the program", "ACLs",
    "leaves behind", "The mounts cannot be listed", "The boot id cannot be read",
)  # fmt: skip


def test_the_portable_system_has_nothing_that_linux_has() -> None:
    defaults = NativeCalls(system="portable")
    assert defaults == PORTABLE
    assert not os.path.lexists(PORTABLE.proc)
    assert (NATIVE.system == "portable") == (os.environ.get(VARIABLE) == "portable")


def test_a_daemon_without_linux_serves_recovers_and_names_each_weaker_promise(place: Workplace) -> None:
    place.variables = posix_only.variables(place.folder / "site", place.environment["PYTHONPATH"])
    place.is_forked = False
    place.write({"a": "one\n", "gone": "x\n", "old": "moves\n"})
    with place.start() as client:
        client.settle()
        client.apply([replace("a", "one", "two"), write("new/b", "b\n"), write("gone", "y\n")])
        client.apply([replace("a", "two", "three")])
        client.undo(1, paths=["gone"])
        place.write({"a": "four\n"})
        client.settle()
        assert client.read("a").content == "four\n"
        status = client.status()
        assert status.system["name"] == "portable"
        assert status.watcher["backend"] == "scan"
        assert {"openat2", "renameat2", "syncfs", "/proc"} <= set(status.system["missing"])
        for words in WEAKER:
            assert sum(words in sentence for sentence in status.weaker) == 1, words
    place.kill()
    with place.start() as client:
        client.settle()
        assert client.check().problems == []
        assert place.files() == {"a": b"four\n", "gone": b"x\n", "new/b": b"b\n", "old": b"moves\n"}
    place.stop()
    assert strays(place.root) == []


def test_an_unknown_system_is_refused(place: Workplace) -> None:
    variables = {**place.environment, VARIABLE: "solaris"}
    argv = [sys.executable, "-m", "editd", "-C", str(place.root)]
    done = subprocess.run(argv, env=variables, capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "'solaris'. It may be linux or portable." in done.stderr
