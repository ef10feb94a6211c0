"""How long an edit of one host takes until it is in the files of the others, and what that costs on the wire.

    python tests/bench/hosts.py                          # a folder, with 2 and with 5 hosts
    python tests/bench/hosts.py --kind ssh --hosts 2     # folder, ssh (needs sshd), http (needs lighttpd)
    python tests/bench/hosts.py --hang                   # the latency of an edit with a server that hangs

Hosts edit in turn, files of their own, with a pause of `--pause` seconds. The time runs from the answer of
an edit to its content in the files of each other host.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.git_servers import git_server
from support.hosts import exchange, hosts
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_SECONDS = 0.002
BATCH = 200
WARM_EDITS, LATENCY_EDITS = 200, 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kind", choices=["folder", "ssh", "gitolite", "http"], default="folder")
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 5])
    parser.add_argument("--edits", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.5)
    parser.add_argument("--hang", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        if options.hang:
            print_latency(Path(folder))
            return
        for number in options.hosts:
            print_arrivals(Path(folder) / str(number), options.kind, number, options.edits, options.pause)


def print_arrivals(folder: Path, kind: str, number: int, edits: int, pause: float) -> None:
    files = {f"d{one}/f{two}.txt": f"{one} {two}\n" * 50 for one in range(10) for two in range(20)}
    with (
        git_server(folder / "server", kind) as server,
        hosts(folder, number, files, server=server) as (places, clients, _),
    ):
        seconds: list[float] = []
        exchange(*clients)
        for edit in range(edits):
            author = edit % number
            content = f"{edit}\n"
            clients[author].apply([write(f"new{author}.txt", content)])
            answered = time.monotonic()
            watchers = [
                threading.Thread(
                    target=watch, args=(place.root / f"new{author}.txt", content, answered, seconds)
                )
                for place in places
                if place is not places[author]
            ]
            for one in watchers:
                one.start()
            time.sleep(pause)
            for one in watchers:
                one.join()
        exchange(*clients)
        print(f"{kind}, {number} hosts, {edits} edits: {percentiles(seconds)}")
        if server.traffic is not None:
            for client in clients[1:]:
                client.remote_pause()
            clients[0].remote_pause()
            for file in range(BATCH):
                clients[0].apply([write(f"d{file % 10}/f{file % 20}.txt", f"{file}\n")])
            before = server.traffic.bytes
            clients[0].remote_resume()
            exchange(clients[0])
            sent = server.traffic.bytes - before
            clients[1].remote_resume()
            exchange(clients[1])
            taken = server.traffic.bytes - before - sent
            costs = f"{sent / BATCH:.0f} bytes a transaction to land {BATCH}"
            print(f"  {costs}, {taken / BATCH:.0f} to take them in")


def watch(path: Path, content: str, answered: float, seconds: list[float]) -> None:
    """Wait until the file has this content, and note the time."""
    while True:
        try:
            if path.read_text() == content:
                break
        except FileNotFoundError:
            pass
        time.sleep(LOOK_SECONDS)
    seconds.append(time.monotonic() - answered)


def print_latency(folder: Path) -> None:
    """Compare edits without other hosts and with a server that hangs, in pairs of random order."""
    program, hung = folder / "bin" / "git", folder / "hung"
    program.parent.mkdir(parents=True)
    words = "*ls-remote*|*push*|*fetch*"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in {words}) touch {hung}; exec sleep 600;; esac\nexec /usr/bin/git "$@"\n'
    )
    program.chmod(0o755)
    chance = random.Random(1)
    with (
        hosts(folder, 1, {"a.txt": "a\n"}, scheme="file://") as (places, clients, _),
        workplace(folder / "alone", {"a.txt": "a\n"}) as alone,
    ):
        clients[0].close()
        places[0].stop()
        places[0].variables["PATH"] = f"{program.parent}:/usr/bin:/bin"
        with places[0].start() as hanging, alone.start() as other:
            taken: dict[str, list[float]] = {"alone": [], "hangs": []}
            for edit in range(WARM_EDITS + LATENCY_EDITS):
                pair = [("alone", other), ("hangs", hanging)]
                chance.shuffle(pair)
                for name, client in pair:
                    begun = time.perf_counter()
                    client.apply([write("a.txt", f"{edit}\n")])
                    taken[name].append(time.perf_counter() - begun)
            assert hung.exists(), "git has asked the server, and hangs"
            assert hanging.remote_status().state != "current"
        ratios = [
            other / bare for bare, other in zip(*(one[WARM_EDITS:] for one in taken.values()), strict=True)
        ]
        for name, seconds in taken.items():
            print(f"{name}: {percentiles(seconds[WARM_EDITS:])}")
        print(f"median of the ratios of {LATENCY_EDITS} pairs: {statistics.median(ratios):.3f}")


def percentiles(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return (
        f"median {1000 * statistics.median(ordered):.1f} ms, "
        f"p95 {1000 * ordered[int(0.95 * (len(ordered) - 1))]:.1f} ms"
    )


if __name__ == "__main__":
    main()
