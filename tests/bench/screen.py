"""The screen `editctl review` in a terminal, on a long history: its start, its keys and its memory."""

from __future__ import annotations

import os
import sys
import threading
import time
from statistics import median
from typing import TYPE_CHECKING

from bench.figures import Figure, Row, percentile, times_of
from bench.histories import history, history_sizes
from bench.saves import Connection, fresh, write
from support.pseudo_terminal import PseudoTerminal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.sites import Bench, Site

SIZE = (80, 24)
LIVE_EACH_SECOND = 200
STORMED = "stormed.txt"


def screen(bench: Bench) -> Row:
    """From the start to the first picture, from a key to its whole repaint, beside a stream of edits too."""
    number = history_sizes(bench)[1]
    site = history(bench, number)
    head = site.client.status().head
    scope = f"{number:,} transactions"
    starts, work, memory = list[float](), list[float](), list[float]()
    for _ in range(bench.pick(2, 10)):
        with opened(site) as terminal:
            starts.append(terminal.until(f"● {head}") * 1000)
            work.append(processor_ms(terminal))
    keys, count = list[float](), bench.pick(20, 100)
    with opened(site) as terminal:
        in_timeline(terminal)
        before = processor_ms(terminal)
        keys += [pressed(terminal, "j", head - step) for step in range(1, count + 1)]
        key_work = (processor_ms(terminal) - before) / count
        terminal.send("G")  # the oldest one: its rows have to be fetched
        terminal.until("▌     0")
        memory.append(memory_of(terminal))
    live = list[float]()
    with opened(site) as terminal, LiveEdits(site) as edits:
        in_timeline(terminal)
        terminal.send(":")
        terminal.until("Go to the transaction")
        terminal.send(f"{head - 1000}\r")
        terminal.until(f"{head - 1000} +edit by")
        time.sleep(1)
        live += [pressed(terminal, "j", head - 1000 - step) for step in range(1, count + 1)]
        memory.append(memory_of(terminal))
    return Row(
        [
            Figure("screen-start", median(starts), scope, bench.is_full),
            Figure("screen-key", percentile(keys, 0.95), scope, bench.is_full),
            Figure("screen-live", percentile(live, 0.95), f"{edits.rate:.0f} edits a second", bench.is_full),
            Figure("screen-memory", max(memory), scope, bench.is_full),
        ],
        [
            times_of("start", starts, "ms"),
            times_of("processor time of a start", work, "ms"),
            times_of("key to its repaint", keys, "ms"),
            times_of("processor time of a key, with its diff", [key_work], "ms"),
            times_of("the same beside a stream of edits", live, "ms"),
        ],
    )


def opened(site: Site) -> PseudoTerminal:
    argv = [sys.executable, "-m", "editd_client", "review"]
    return PseudoTerminal(argv, SIZE, folder=str(site.root), environment=site.place.environment)


def in_timeline(terminal: PseudoTerminal) -> None:
    terminal.until(r"● \d+")
    terminal.send("2")
    terminal.until(r"\d+ +edit by")


def pressed(terminal: PseudoTerminal, key: str, seq: int) -> float:
    """Press a key that moves to a transaction; return the ms until its diff is on the screen."""
    began = time.monotonic() - terminal.began
    terminal.send(key)
    taken = (terminal.until(f"{seq} +edit by") - began) * 1000
    while terminal.read(0.05):  # the rest of the picture
        pass
    return taken


def processor_ms(terminal: PseudoTerminal) -> float:
    """Return the processor time of the program, which does not depend on the load of the machine."""
    with open(f"/proc/{terminal.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def memory_of(terminal: PseudoTerminal) -> float:
    """Return the resident megabytes of the program."""
    with open(f"/proc/{terminal.process.pid}/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]) * 1024 / 1e6


class LiveEdits:
    """Edits at a steady rate, as long as the `with` lasts."""

    def __init__(self, site: Site) -> None:
        self.rate = 0.0  # that was reached
        self._site = site
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> LiveEdits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        connection = Connection(self._site.place.socket)
        began, made = time.monotonic(), 0
        while not self._is_over.is_set():
            connection.ask("apply", edits=[write(STORMED, fresh()[:100])])
            made += 1
            time.sleep(max(0.0, began + made / LIVE_EACH_SECOND - time.monotonic()))
        self.rate = made / (time.monotonic() - began)
        connection.close()


MEASUREMENTS: Sequence[Callable[[Bench], Row]] = (screen,)
