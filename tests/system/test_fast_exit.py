"""system.fast_exit: a process that leaves has said all that it had to say, and waits for its threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys, threading, time
from editd.system.fast_exit import exit_fast
def work():
    time.sleep(0.2)
    print("worked")
logging.basicConfig(stream=sys.stderr)
if len(sys.argv) > 1:
    threading.Thread(target=work).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
logging.warning("logged")
print("said", end="")
exit_fast(7)
"""


@pytest.mark.parametrize(("argv", "said"), [([], "said"), (["with a thread"], "saidworked\n")])
def test_what_was_said_and_begun_is_there_before_the_process_is_gone(argv: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *argv], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout) == (7, said)
    assert "logged" in done.stderr


def test_nobody_who_reads_is_no_reason_to_fail() -> None:
    program = "from editd.system.fast_exit import exit_fast; print('x'); exit_fast(3)"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=buffered) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 3
