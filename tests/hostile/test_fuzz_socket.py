"""The fuzzer of the socket, for as long as CI has; by hand for an hour, see fuzz_socket.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.seeds import seed

FUZZER = Path(__file__).with_name("fuzz_socket.py")
SECONDS, SECONDS_LONG = 4, 600


@pytest.mark.timeout(SECONDS_LONG + 120)
def test_nothing_that_a_client_sends_breaks_the_daemon(tmp_path: Path, is_long: bool) -> None:
    seconds = SECONDS_LONG if is_long else SECONDS
    first = "5" if is_long else str(seed())
    argv = [sys.executable, str(FUZZER), "--seconds", str(seconds), "--seed", first, "--keep", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    last = done.stdout.splitlines()[-1]
    print(last)
    assert int(last.split(" inputs")[0]) > 5 * seconds, "it hardly came to anything"
