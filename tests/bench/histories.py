"""Long histories: queries in them, their verification, and a start without their index."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.figures import Figure, Row, times_of
from bench.footprint import memory_bytes
from bench.saves import Connection, Samples, asking

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.sites import Bench, Site

FILES, LINES = 100, 400
ASKED = "asked.txt"  # its history and its authors are asked for
ASKED_EDITS = 40  # as many in each history, so that only the rest of the history differs
CHUNK = 1_000


def history_sizes(bench: Bench) -> tuple[int, int]:
    """Return the numbers of transactions of the short and of the long history."""
    return (15_000, 100_000) if bench.is_full else (1_500, 6_000)


def history(bench: Bench, transactions: int) -> Site:
    """Return the workspace with so many transactions. It is made when it is first used."""
    site = bench.empty(f"{transactions} transactions")
    if not site.transactions:
        names = [*(f"f{number}.txt" for number in range(FILES)), ASKED]
        site.place.write({name: "".join(line(number, 0) for number in range(LINES)) for name in names})
        site.files, site.paths = len(names), names[:1]
        _ = site.client
        connection = Connection(site.place.socket)
        values: dict[tuple[str, int], int] = {}
        every = transactions // ASKED_EDITS
        for start in range(0, transactions, CHUNK):
            numbers = range(start, min(start + CHUNK, transactions))
            connection.pipeline("apply", [one_line(number, every, values) for number in numbers])
        connection.close()
        site.wait_until_packed()
        site.transactions, site.memory_bytes = transactions, memory_bytes(site.pid)
    return site


def one_line(number: int, every: int, values: dict[tuple[str, int], int]) -> dict[str, object]:
    """Return the params of the request that changes one line of one file."""
    if number % every == 0:
        path, changed = ASKED, number // every * (LINES // ASKED_EDITS) % LINES
    else:
        path, changed = f"f{number % FILES}.txt", number // FILES % LINES
    old = values.get((path, changed), 0)
    values[path, changed] = number + 1
    edit = {"op": "replace", "path": path, "old": line(changed, old), "new": line(changed, number + 1)}
    return {"edits": [edit]}


def line(number: int, value: int) -> str:
    return f"line {number:03} {value:07}\n"


def queries(bench: Bench) -> Row:
    """`log` of 50, the history of one path, and `blame` of 400 lines: in a long history over a short one."""
    few, many = history_sizes(bench)
    samples = Samples()
    connections = {number: history(bench, number).connection() for number in (few, many)}
    kinds = {
        f"{name} at {number:,} transactions": asking(connection, method, **params)
        for name, method, params in (
            ("log of 50", "log", {"limit": 50}),
            ("history of one path", "log", {"path": ASKED}),
            ("blame of 400 lines", "blame", {"path": ASKED}),
        )
        for number, connection in connections.items()
    }
    samples.interleave(kinds, rounds=bench.pick(5, 15), number=bench.pick(20, 40))
    for connection in connections.values():
        connection.close()
    figures = []
    for key, name in (("log", "log of 50"), ("path", "history of one path"), ("blame", "blame of 400 lines")):
        ratio = samples.ratio(f"{name} at {many:,} transactions", f"{name} at {few:,} transactions")
        figures.append(Figure(f"queries-{key}", ratio, f"{many:,} over {few:,}", bench.is_full))
    return Row(figures, samples.times())


def check(bench: Bench) -> Row:
    """The verification of a long history, and a start when its index is lost."""
    number = history_sizes(bench)[1]
    site = history(bench, number)
    start = time.perf_counter()
    assert site.client.check().problems == []
    checked = time.perf_counter() - start
    site.stop()
    for path in site.place.state.glob("index.db*"):
        path.unlink()
    start = time.perf_counter()
    site.launch()
    connection = site.reached()
    connection.ask("log", path=ASKED)
    started = time.perf_counter() - start
    connection.close()
    text = f"{number:,} transactions"
    return Row(
        [
            Figure("check", checked, text, bench.is_full),
            Figure("check-start", started, text, bench.is_full),
        ],
        [times_of("check", [checked], "s"), times_of("start without an index", [started], "s")],
    )


MEASUREMENTS: Sequence[Callable[[Bench], Row]] = (queries, check)
