"""system.namespaces: a process gets its own network, and stays the user's."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from editd.system import namespaces

ALONE = """
import codecs, ctypes, os, socket, sys
codecs.lookup("ascii"), codecs.lookup("idna")  # before the files of Python are out of reach
sys.path.insert(0, sys.argv[1])
from editd.system.namespaces import can_leave_network, leave_network
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: otherwise its files in /proc are root's
user = os.getuid()
if not can_leave_network():
    sys.exit("not here")
leave_network()
assert os.getuid() == user
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname(), 5).close()
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), 5)
except ConnectionRefusedError:
    print("alone")
"""


@pytest.mark.needs("/proc")
def test_a_process_without_a_privilege_leaves_the_network_and_keeps_its_user_and_a_loopback() -> None:
    folder = str(Path(namespaces.__file__).parents[2])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        argv = [sys.executable, "-I", "-c", ALONE, folder, str(listener.getsockname()[1])]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    if done.stderr == "not here\n":
        pytest.skip("this system lets no process have a network of its own")
    assert (done.stdout, done.stderr) == ("alone\n", "")
