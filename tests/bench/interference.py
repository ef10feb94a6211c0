"""Edits while something else is under way: packing, a storm of outside events, a large transaction."""

from __future__ import annotations

import os
import select
import threading
import time
from statistics import median
from typing import TYPE_CHECKING

from bench.figures import Figure, Row, percentile, times_of
from bench.saves import Connection, editing, request, saving, write
from support.outsider import flipping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.saves import Prepare
    from bench.sites import Bench, Site

SETTLE_SECONDS = 1.0
SILENT_SECONDS = 0.001
STORM_PAUSE_SECONDS = 0.005


def packing(bench: Bench) -> Row:
    """Edits without a pause by one client, long enough that packing goes on beside them."""
    site = bench.base
    connection = site.connection()
    saves = timed_for(saving(site.root, site.paths), bench.pick(2, 10))
    packs = site.place.store / "objects/pack"
    before = {path.name for path in packs.glob("*.pack")}
    edits = timed_for(editing(connection, site.paths), bench.pick(7, 30))
    packed = len({path.name for path in packs.glob("*.pack")} - before)
    assert packed, "nothing was packed meanwhile"
    connection.close()
    figure = Figure(
        "packing", percentile(edits, 0.99) / median(edits), f"{site.files:,} files, {packed} packs"
    )
    return Row([figure], [times_of("RAW", saves), times_of("edit while packing", edits)])


def timed_for(prepare: Prepare, seconds: float) -> list[float]:
    """Time steps without a pause for so long, in microseconds."""
    taken, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        step = prepare()
        start = time.perf_counter()
        step()
        taken.append((time.perf_counter() - start) * 1e6)
    return taken


def storm(bench: Bench) -> Row:
    """Edits while another program exchanges a folder and a symlink without a pause."""
    site = bench.empty("storm")
    site.place.write({"edited/a.txt": "a\n", "flipped/b.txt": "b\n", "target/b.txt": "c\n"})
    os.symlink("target", site.root / "link")
    site.files, site.paths = 3, ["edited/a.txt"]
    connection = site.connection()
    edits = editing(connection, site.paths)
    seconds = bench.pick(3, 20)
    calm = timed_for(edits, seconds / 2)
    with flipping(site.root / "flipped", site.root / "link"):
        time.sleep(SETTLE_SECONDS)
        stormy = timed_for(edits, seconds)
    connection.close()
    bench.drop("storm")
    times = [times_of("edit in calm", calm), times_of("edit in a storm", stormy)]
    return Row([Figure("storm", median(stormy) / 1000, "one folder")], times)


def others(bench: Bench) -> Row:
    """Edits of others while a transaction of many files is worked out: a write of all, and its undo."""
    number = bench.pick(1_000, 10_000)
    site = bench.empty("others")
    paths = [f"many/d{file // 100}/f{file}" for file in range(number)]
    site.place.write({"edited/a.txt": "a\n"} | dict.fromkeys(paths, "old\n"))
    site.files, site.paths = number, ["edited/a.txt"]
    waits = list[float]()
    times = []
    for label, large in (
        (
            "a write of all",
            request("apply", edits=[write(path, b"new\n") for path in paths], session="large"),
        ),
        ("an undo of it", request("undo", session="large")),
    ):
        taken, seconds = edits_beside(site, large)
        waits.append(max(taken))
        times += [times_of(f"edit beside {label}", taken), times_of(label, [seconds], "s")]
    bench.drop("others")
    return Row([Figure("others", max(waits) / 1000, f"{number:,} files", bench.is_full)], times)


def edits_beside(site: Site, large: bytes) -> tuple[list[float], float]:
    """Send a large request, and edit until its answer has come. Return the edits' times and its seconds."""
    connection, busy = site.connection(), Connection(site.place.socket)
    time.sleep(SETTLE_SECONDS)
    sender = threading.Thread(target=busy.stream.sendall, args=(large,))
    start, taken = time.perf_counter(), list[float]()
    sender.start()
    edits = editing(connection, site.paths)
    while True:
        step, began = edits(), time.perf_counter()
        step()
        taken.append((time.perf_counter() - began) * 1e6)
        if select.select([busy.stream], [], [], SILENT_SECONDS)[0] and busy.received():
            break
    seconds = time.perf_counter() - start
    sender.join()
    connection.close()
    busy.close()
    return taken, seconds


MEASUREMENTS: Sequence[Callable[[Bench], Row]] = (packing, storm, others)
