"""Many open proposals: their list, the edits of others beside them, and the view of one with many hunks."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.figures import Figure, Row, times_of
from bench.interference import timed_for
from bench.saves import Connection, Samples, asking, editing, fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.sites import Bench, Site

FILES_EACH = 10
SESSION_PROPOSALS = 100  # of one session, which may have at most 200
HUNKS, LINES = 100, 20_000  # in a file of a megabyte
LARGE = "large.txt"


def proposals(bench: Bench) -> Row:
    """A list of 1,000 open proposals, an edit beside them, and the view of one with 100 hunks in 1 MB."""
    number = bench.pick(200, 1_000)
    site, without = (prepared(bench, f"{name} proposals") for name in ("open", "no"))
    connections = {"without proposals": without.connection(), f"beside {number:,}": site.connection()}
    for session in range(0, number, SESSION_PROPOSALS):
        propose(site, session, min(SESSION_PROPOSALS, number - session))
    samples = Samples()
    samples.interleave(
        {f"edit {label}": editing(one, site.paths) for label, one in connections.items()},
        rounds=bench.pick(5, 15), number=bench.pick(20, 40),
    )  # fmt: skip
    asked = connections[f"beside {number:,}"]
    assert len(asked.ask("proposal.list", limit=number)["proposals"]) == number
    lists = timed_for(asking(asked, "proposal.list"), bench.pick(1, 5))
    whole = timed_for(asking(asked, "proposal.list", limit=number), bench.pick(1, 5))
    beside = connections["without proposals"]
    view = asking(beside, "proposal.get", proposal=propose_hunks(without))
    views = timed_for(view, bench.pick(1, 5))
    for connection in connections.values():
        connection.close()
    for name in ("open", "no"):
        bench.drop(f"{name} proposals")
    scope = f"{number:,} of {FILES_EACH} files"
    ratio = samples.ratio(f"edit beside {number:,}", "edit without proposals")
    return Row(
        [
            Figure("proposals-list", median(lists) / 1000, scope, bench.is_full),
            Figure("proposals-edit", ratio, scope, bench.is_full),
            Figure("proposals-view", median(views) / 1000, f"{LINES:,} lines"),
        ],
        [
            *samples.times(),
            times_of("list of the newest 50", lists),
            times_of(f"list of all {number:,}", whole),
            times_of("view of 100 hunks", views),
        ],
    )


def prepared(bench: Bench, name: str) -> Site:
    site = bench.empty(name)
    paths = [f"d{folder}/f{file}.txt" for folder in range(10) for file in range(10)]
    site.place.write({path: fresh().decode() for path in paths} | {LARGE: large(range(0))})
    site.files, site.paths = len(paths) + 1, paths[:1]
    return site


def large(changed: range) -> str:
    """Return the megabyte of text, with other words in the `changed` lines."""
    said = {True: "as somebody proposes it", False: "as it is in the file now"}
    return "".join(f"line {line:07}, {said[line in changed]:40}\n" for line in range(LINES))


def propose(site: Site, first: int, number: int) -> None:
    """Open a session that makes so many proposals of ten files each."""
    connection = Connection(site.place.socket)
    connection.ask("session.open", name=f"agent-{first}")
    content = fresh().decode()
    for one in range(number):
        start = one * FILES_EACH % 100
        names = [f"d{start // 10}/f{file}.txt" for file in range(FILES_EACH)]
        edits = [{"op": "write", "path": name, "content": content, "force": True} for name in names]
        assert connection.ask("apply", edits=edits, propose=True)["proposal"] is not None
    connection.close()


def propose_hunks(site: Site) -> int:
    """Return the number of a proposal with many hunks in a file of a megabyte."""
    connection = Connection(site.place.socket)
    connection.ask("session.open", name="hunks")
    content = large(range(0, LINES, LINES // HUNKS))
    edit = {"op": "write", "path": LARGE, "content": content, "force": True}
    number: int = connection.ask("apply", edits=[edit], propose=True)["proposal"]["proposal"]
    shown = connection.ask("proposal.get", proposal=number)
    assert len(shown["files"][0]["hunks"]) == HUNKS
    connection.close()
    return number


MEASUREMENTS: Sequence[Callable[[Bench], Row]] = (proposals,)
