"""editd_client: what importing it costs, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import editd_client

IMPORT_SECONDS_MAX = 0.06  # of processor time, over what comes before it


def seconds_of(program: str) -> float:
    """The processor time of a fresh Python that runs this; the least of five."""
    least = 9.0
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", program])
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        least = min(least, used.ru_utime + used.ru_stime)
    return least


def test_every_name_that_is_offered_is_there() -> None:
    for name in editd_client.__all__:
        assert getattr(editd_client, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(editd_client, "nothing")  # noqa: B009  # that is what is tested


def test_neither_the_daemon_nor_its_libraries_nor_asyncio_come_with_the_client() -> None:
    program = (
        "import sys; from editd_client import Client, Write; "
        "print(*(name for name in sys.modules if name.split('.')[0] in ('pygit2', 'asyncio', 'click')), "
        "*{name.split('.')[1] for name in sys.modules if name.startswith('editd.')})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["advice", "config", "wire", "words"]  # the contract


def test_importing_it_is_quick() -> None:
    assert seconds_of("import editd_client") - seconds_of("pass") < IMPORT_SECONDS_MAX
    libraries = seconds_of("import msgspec, socket, inspect")  # some 50 ms, most of them msgspec's
    assert seconds_of("from editd_client import Client") < 2.5 * libraries
