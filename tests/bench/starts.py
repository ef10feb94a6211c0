"""The start of a daemon: on a known workspace, and on one that it has never seen."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from bench.figures import Figure, Row, Times, times_of
from bench.saves import fresh, request, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.sites import Bench, Site

POLL_SECONDS = 0.01


def start(bench: Bench) -> Row:
    """The time from the start of the process to its first answer, and to the end of its first edit."""
    figures, times = [], list[Times]()
    for files in bench.sizes(100_000, 1_000_000):
        site = bench.site(files)
        _ = site.connection()
        answers, edits = [], []
        for _ in range(bench.pick(3, 7)):
            site.stop()
            began = time.perf_counter()
            site.launch()
            connection = site.reached()
            connection.ask("read", path=site.paths[0])
            answers.append((time.perf_counter() - began) * 1000)
            connection.write(site.paths[0], fresh())
            edits.append((time.perf_counter() - began) * 1000)
            connection.close()
        name = f"start-{files if bench.is_full else 100_000}"
        figures.append(Figure(name, median(answers), f"{files:,} files", bench.is_full))
        times += [
            times_of(f"first answer at {files:,} files", answers, "ms"),
            times_of(f"first edit at {files:,} files", edits, "ms"),
        ]
    return Row(figures, times)


def first_start(bench: Bench) -> Row:
    """The first start on a workspace, with its baseline, and the longest wait of an edit meanwhile."""
    figures, times = [], list[Times]()
    for files in bench.sizes(100_000, 1_000_000):
        site = bench.site(files)
        readies, waits = list[float](), list[float]()
        for _ in range(bench.pick(2, 3)):
            site.forget()
            ready, wait = one_first_start(site)
            readies.append(ready)
            waits.append(wait)
        scale = files if bench.is_full else 100_000
        text = f"{files:,} files"
        figures += [
            Figure(f"first-start-{scale}", median(readies), text, bench.is_full),
            Figure(f"first-start-wait-{scale}", median(waits), text, bench.is_full),
        ]
        times += [
            times_of(f"ready at {files:,} files", readies, "s"),
            times_of(f"wait of an edit at {files:,} files", waits, "s"),
        ]
    return Row(figures, times)


def one_first_start(site: Site) -> tuple[float, float]:
    """Return the seconds until the daemon is ready, and the longest that an edit waits until then."""
    began = time.perf_counter()
    site.launch()
    connection, watcher = site.reached(), site.reached()
    longest, is_ready = 0.0, False
    while not is_ready:
        edit = request("apply", edits=[write(site.paths[0], fresh())])
        sent = time.perf_counter()
        connection.stream.sendall(edit)
        error, _ = connection.reply()
        assert error is None, error
        longest = max(longest, time.perf_counter() - sent)
        is_ready = watcher.ask("status")["state"] == "ready"
        time.sleep(POLL_SECONDS)
    ready = time.perf_counter() - began
    connection.close()
    watcher.close()
    return ready, longest


MEASUREMENTS: Sequence[Callable[[Bench], Row]] = (start, first_start)
