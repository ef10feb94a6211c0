"""A client that asks for the status again and again, and prints the seconds that each answer took.

`socket_attacks.start_canary` runs it in a process of its own, so that the attacker's share of the test's
process is not taken for the daemon's.
"""

from __future__ import annotations

import sys
import time

from editd_client.client import Client

PAUSE_SECONDS = 0.005

if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
        client.status()
        print("ready", flush=True)
        while True:
            began = time.perf_counter()
            client.status()
            print(time.perf_counter() - began, flush=True)
            time.sleep(PAUSE_SECONDS)
