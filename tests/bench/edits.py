"""Edits of one file, by one client and by eight, with pauses, after a start, by tool calls; and undo."""

from __future__ import annotations

import random
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.figures import Figure, Row, times_of
from bench.saves import (
    CONTENT_BYTES,
    Connection,
    Samples,
    editing,
    eight_clients,
    eight_threads,
    fresh,
    save,
    saving,
    write,
)
from editd.wire.messages import Write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.saves import Prepare
    from bench.sites import Bench, Site

REST_SECONDS = 0.5  # before a round: the daemon packs the edits of the one before
EIGHT_SECONDS = 0.6
PAUSES_MS = (100, 500)
FIRST_EDITS = 300
TEN = 10
LINE = "%04d is the number of this line, whose value is %08x\n"


def edit(bench: Bench) -> Row:
    """A durable edit of 10 KB through the socket, by one client without a pause."""
    site = bench.base
    connection, client = site.connection(), site.client

    def by_client() -> Callable[[], object]:
        change = Write(path=random.choice(site.paths), content=fresh().decode(), force=True)
        return lambda: client.apply([change])

    samples = Samples()
    samples.interleave(
        {
            "RAW": saving(site.root, site.paths),
            "edit": editing(connection, site.paths),
            "edit by the Python client": by_client,
        },
        rounds=bench.pick(8, 25),
        number=bench.pick(20, 40),
        rest_seconds=REST_SECONDS,
    )
    connection.close()
    return Row([Figure("edit", samples.ratio("edit", "RAW"), scope(site))], samples.times())


def pause(bench: Bench) -> Row:
    """The same after a pause of 100 and of 500 ms. RAW has the same pause."""
    site, connection = bench.base, bench.base.connection()
    figures, times = [], []
    for pause_ms in PAUSES_MS:
        samples = Samples()
        samples.interleave(
            {
                f"RAW after {pause_ms} ms": saving(site.root, site.paths),
                f"edit after {pause_ms} ms": editing(connection, site.paths),
            },
            rounds=bench.pick(3, 10),
            number=bench.pick(1_000, 2_500) // pause_ms,
            pause_seconds=pause_ms / 1000,
        )
        ratio = samples.ratio(f"edit after {pause_ms} ms", f"RAW after {pause_ms} ms")
        figures.append(Figure(f"pause-{pause_ms}", ratio, scope(site)))
        times += samples.times()
    connection.close()
    return Row(figures, times)


def first(bench: Bench) -> Row:
    """The first 300 edits after a start, without a pause, between RAW before and after them."""
    site, samples = bench.base, Samples()
    saves = saving(site.root, site.paths)
    for _ in range(bench.pick(2, 8)):
        site.stop()
        before = samples.take("RAW", saves, FIRST_EDITS // 2)
        assert before
        _ = site.client
        connection = Connection(site.place.socket)
        samples.take("edit", editing(connection, site.paths), FIRST_EDITS)
        connection.close()
        samples.take("RAW", saves, FIRST_EDITS // 2)
    raw = samples.rounds.pop("RAW")
    samples.rounds["RAW"] = [one + other for one, other in zip(raw[::2], raw[1::2], strict=True)]
    return Row([Figure("first", samples.ratio("edit", "RAW"), scope(site))], samples.times())


def portable(bench: Bench) -> Row:
    """An edit of a daemon that uses nothing beyond POSIX, over one of a daemon that uses Linux."""
    sites = {"Linux": bench.base, "portable": bench.site(bench.base.files, is_portable=True)}
    connections = {name: site.connection() for name, site in sites.items()}
    samples = Samples()
    samples.interleave(
        {"RAW": saving(bench.base.root, bench.base.paths)}
        | {f"edit, {name}": editing(connections[name], site.paths) for name, site in sites.items()},
        rounds=bench.pick(6, 25),
        number=bench.pick(20, 40),
        rest_seconds=REST_SECONDS,
    )
    for connection in connections.values():
        connection.close()
    ratio = samples.ratio("edit, portable", "edit, Linux")
    return Row([Figure("portable", ratio, scope(bench.base))], samples.times())


def sizes(bench: Bench) -> Row:
    """An edit in workspaces of several sizes, each in turn, over one at 10,000 files."""
    others = [100, 100_000, 1_000_000] if bench.is_full else [100]
    sites = [bench.base, *map(bench.site, others)]
    connections = [site.connection() for site in sites]
    samples = Samples()
    for _ in range(bench.pick(8, 25)):
        for number in random.sample(range(len(sites)), len(sites)):
            site = sites[number]
            time.sleep(REST_SECONDS)
            samples.take(f"RAW at {site.files:,} files", saving(site.root, site.paths), bench.pick(10, 40))
            edits = editing(connections[number], site.paths)
            samples.take(f"edit at {site.files:,} files", edits, bench.pick(20, 40))
    for connection in connections:
        connection.close()
    figures = []
    for site in sites[1:]:
        ratio = samples.ratio(f"edit at {site.files:,} files", f"edit at {bench.base.files:,} files")
        text = f"over {bench.base.files:,} files"
        figures.append(Figure(f"sizes-{site.files}", 100 * (ratio - 1), text, bench.is_full))
    return Row(figures, samples.times())


def eight(bench: Bench) -> Row:
    """The rate of eight clients, each with one request at a time, over that of eight RAW threads."""
    site = bench.base
    _ = site.connection()
    rates, edits, saves = [], list[float](), list[float]()
    for _ in range(bench.pick(4, 20)):
        time.sleep(REST_SECONDS)
        threads_rate, taken = eight_threads(site.root, site.paths, EIGHT_SECONDS)
        saves += taken
        clients_rate, taken = eight_clients(site.place.socket, site.paths, EIGHT_SECONDS)
        edits += taken
        rates.append(clients_rate / threads_rate)
    times = [times_of("RAW in eight threads", saves), times_of("edit by eight clients", edits)]
    return Row([Figure("eight", median(rates), scope(site))], times)


def cpu(bench: Bench) -> Row:
    """The CPU time of the daemon for an edit with eight clients."""
    site = bench.base
    _ = site.connection()
    main, whole = list[float](), list[float]()
    for _ in range(bench.pick(4, 20)):
        time.sleep(REST_SECONDS)
        before = cpu_us(site.pid)
        edits = len(eight_clients(site.place.socket, site.paths, EIGHT_SECONDS)[1])
        after = cpu_us(site.pid)
        main.append((after[0] - before[0]) / edits)
        whole.append((after[1] - before[1]) / edits)
    times = [times_of("CPU of the main thread for an edit", main), times_of("CPU of all threads", whole)]
    return Row([Figure("cpu", median(main), scope(site))], times)


def cpu_us(pid: int) -> tuple[float, float]:
    """Return the CPU time of the main thread and of all threads of a process, in microseconds."""
    of_threads = {
        int(task.name): int((task / "schedstat").read_text().split()[0]) / 1000
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
    return of_threads[pid], sum(of_threads.values())


def ten(bench: Bench) -> Row:
    """Ten files of 10 KB in one transaction, over ten RAW saves."""
    site, connection = bench.base, bench.base.connection()

    def ten_saves() -> Callable[[], object]:
        pairs = [(f"{site.root / path}.raw", fresh()) for path in random.sample(site.paths, TEN)]
        return lambda: save_all(pairs)

    def ten_edits() -> Callable[[], object]:
        pairs = [(path, fresh()) for path in random.sample(site.paths, TEN)]
        return lambda: connection.ask("apply", edits=[write(*pair) for pair in pairs])

    samples = Samples()
    samples.interleave(
        {"ten RAW saves": ten_saves, "a transaction of ten": ten_edits},
        rounds=bench.pick(6, 25),
        number=bench.pick(5, 15),
        rest_seconds=REST_SECONDS,
    )
    connection.close()
    ratio = samples.ratio("a transaction of ten", "ten RAW saves")
    return Row([Figure("ten", ratio, scope(site))], samples.times())


def save_all(pairs: Sequence[tuple[str, bytes]]) -> None:
    for path, content in pairs:
        save(path, content)


def tools(bench: Bench) -> Row:
    """A call of an agent's edit tool that replaces one line of a file of 10 KB."""
    site, connection = bench.base, bench.base.connection()
    kinds: dict[str, Prepare] = {"RAW": saving(site.root, site.paths)}
    for name, call in (("serena", serena), ("cline", cline)):
        path = f"{name}.txt"
        kinds[name] = calling(connection, path, call)
    samples = Samples()
    samples.interleave(kinds, rounds=bench.pick(6, 25), number=bench.pick(15, 40), rest_seconds=REST_SECONDS)
    connection.close()
    figures = [
        Figure(f"tools-{name}", samples.ratio(name, "RAW"), scope(site)) for name in ("serena", "cline")
    ]
    return Row(figures, samples.times())


def calling(connection: Connection, path: str, call: Callable[[str, str, str], dict[str, object]]) -> Prepare:
    """Make a file of 10 KB, and return the kind of step that replaces one of its lines by a tool call."""
    lines = [LINE % (number, 0) for number in range(CONTENT_BYTES // len(LINE % (0, 0)))]
    connection.write(path, "".join(lines).encode())
    values = count(1)

    def prepare() -> Callable[[], object]:
        number = random.randrange(len(lines))
        old, new = lines[number], LINE % (number, next(values))
        lines[number] = new
        return lambda: connection.ask("apply", edits=[call(path, old, new)])

    return prepare


def serena(path: str, old: str, new: str) -> dict[str, object]:
    args = {"relative_path": path, "needle": old, "repl": new, "mode": "literal"}
    return {"op": "tool", "dialect": "serena", "tool": "replace_content", "args": args}


def cline(path: str, old: str, new: str) -> dict[str, object]:
    block = f"------- SEARCH\n{old}=======\n{new}+++++++ REPLACE\n"
    return {
        "op": "tool",
        "dialect": "cline",
        "tool": "replace_in_file",
        "args": {"path": path, "diff": block},
    }


def undo(bench: Bench) -> Row:
    """An undo of the newest edit, over an edit."""
    site, connection = bench.base, bench.base.connection()
    edits = editing(connection, site.paths)

    def undos() -> Callable[[], object]:
        edits()()
        return lambda: connection.ask("undo")

    samples = Samples()
    samples.interleave(
        {"edit": edits, "undo of the newest edit": undos},
        rounds=bench.pick(6, 25),
        number=bench.pick(15, 40),
        rest_seconds=REST_SECONDS,
    )
    connection.close()
    ratio = samples.ratio("undo of the newest edit", "edit")
    return Row([Figure("undo", ratio, scope(site))], samples.times())


def rollback(bench: Bench) -> Row:
    """A rollback of a session that changed each of 1,000 files in a transaction of its own."""
    number = bench.pick(200, 1_000)
    site = bench.empty("rollback")
    paths = [f"d{file // 100}/f{file}" for file in range(number)]
    site.place.write({path: fresh() for path in paths})
    site.paths = paths
    connection, samples = site.connection(), Samples()
    for one in range(bench.pick(2, 5)):
        session = f"session {one}"
        connection.pipeline(
            "apply", [{"edits": [write(path, fresh())], "session": session} for path in paths]
        )
        site.wait_until_packed()
        for label, is_dry in (("dry run", True), ("rollback", False)):
            samples.take(label, rolling_back(connection, session, number, is_dry=is_dry), 1)
    connection.close()
    bench.drop("rollback")
    text = f"{number:,} transactions"
    return Row(
        [
            Figure("rollback-dry", median(samples.all("dry run")) / 1000, text, bench.is_full),
            Figure("rollback", median(samples.all("rollback")) / 1000, text, bench.is_full),
        ],
        samples.times(),
    )


def rolling_back(connection: Connection, session: str, number: int, *, is_dry: bool) -> Prepare:
    def step() -> None:
        done = connection.ask("rollback", session=session, dry_run=is_dry)
        assert len(done["files"]) == number

    return lambda: step


def scope(site: Site) -> str:
    return f"{site.files:,} files"


MEASUREMENTS: Sequence[Callable[[Bench], Row]] = (
    edit, pause, first, portable, sizes, eight, cpu, ten, tools, undo, rollback,
)  # fmt: skip
