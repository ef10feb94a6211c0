"""A command that tries what a hook or a check may reach: files, a server, its parent, its own loopback."""

from __future__ import annotations

from editd.system.confinement import SIGNALS_SINCE, landlock_version

REACH = """
import json, os, socket, sys
port, outside = int(sys.argv[1]), sys.argv[2]
def attempt(call):
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return "done"
def loopback():
    with socket.create_server(("127.0.0.1", 0)) as own:
        socket.create_connection(own.getsockname(), 5).close()
print(json.dumps({
    "outside": attempt(lambda: open(os.path.join(outside, "by-hook"), "w")),
    "scratch": attempt(lambda: open("here", "w")),
    "temporary": attempt(lambda: open(os.environ["TMPDIR"] + "/here", "w")),
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", port), 5).close()),
    "loopback": attempt(loopback),
    "signal": attempt(lambda: os.kill(os.getppid(), 0)),
    "unix": attempt(lambda: socket.socket(socket.AF_UNIX).close()),
}))
"""
SIGNAL = "PermissionError" if landlock_version() >= SIGNALS_SINCE else "done"  # of a confined command
HELD = {"scratch": "done", "temporary": "done", "loopback": "done"}
