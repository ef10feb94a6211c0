"""The figures of the benchmark: their limits, and the result of a run.

A figure is a ratio of times within one run wherever that is possible, because the machine is not equally
fast for long. A limit applies to a figure of the full form. In the short form a figure that depends on the
size of the workspace or of the history has its own size, and no limit.
"""

from __future__ import annotations

from statistics import median

from msgspec import Struct, field


class Limit(Struct, frozen=True):
    """The limit of a figure: at most `must`, or at least if `is_floor`."""

    row: str  # the measurement that gives it
    text: str
    unit: str
    must: float
    goal: float | None = None
    is_floor: bool = False

    def is_held(self, value: float) -> bool:
        return value >= self.must if self.is_floor else value <= self.must

    def share(self, value: float) -> float:
        """Return how much of the limit the value takes: 1 is the limit, less is better."""
        return self.must / value if self.is_floor else value / self.must


LIMITS = {
    "edit": Limit("edit", "durable edit of 10 KB, one client", "× RAW", 0.9, 0.75),
    "pause-100": Limit("pause", "the same after a pause of 100 ms", "× RAW", 1.5, 1.0),
    "pause-500": Limit("pause", "the same after a pause of 500 ms", "× RAW", 1.5, 1.0),
    "first": Limit("first", "the first 300 edits after a start", "× RAW", 1.1),
    "portable": Limit("portable", "an edit with nothing beyond POSIX", "× an edit", 2),
    "sizes-100": Limit("sizes", "an edit at 100 files, over one at 10,000", "%", 10, 5),
    "sizes-100000": Limit("sizes", "an edit at 100,000 files, over one at 10,000", "%", 10, 5),
    "sizes-1000000": Limit("sizes", "an edit at 1,000,000 files, over one at 10,000", "%", 10, 5),
    "eight": Limit("eight", "eight clients", "× eight RAW threads", 1.1, 1.4, is_floor=True),
    "cpu": Limit("cpu", "CPU of the daemon's main thread for an edit, eight clients", "µs", 230, 190),
    "ten": Limit("ten", "ten files in one transaction", "× ten RAW saves", 0.35, 0.2),
    "tools-serena": Limit("tools", "a `serena` call on a file of 10 KB", "× RAW", 1.4, 1.1),
    "tools-cline": Limit("tools", "a `cline` call on a file of 10 KB", "× RAW", 1.4, 1.1),
    "undo": Limit("undo", "undo of the newest edit", "× an edit", 1.2),
    "rollback-dry": Limit("rollback", "rollback of 1,000 transactions of 1,000 files, dry run", "ms", 200),
    "rollback": Limit("rollback", "the same rollback, carried out", "ms", 200),
    "git-10000": Limit(
        "git", "`git add -A && git commit` at 10,000 files", "× an edit", 90, 120, is_floor=True
    ),
    "git-100000": Limit("git", "the same at 100,000 files", "× an edit", 500, 700, is_floor=True),
    "shadow-100000": Limit(
        "shadow", "a commit to an agent's shadow repository at 100,000 files", "× an edit", 600, 1000,
        is_floor=True,
    ),
    "queries-log": Limit("queries", "`log` of 50 at 100,000 transactions", "× at 15,000", 1.2),
    "queries-path": Limit("queries", "history of one path at 100,000 transactions", "× at 15,000", 1.2),
    "queries-blame": Limit("queries", "`blame` of 400 lines at 100,000 transactions", "× at 15,000", 1.2),
    "check": Limit("check", "`check` of 100,000 transactions", "s", 40),
    "check-start": Limit("check", "start without an index, 100,000 transactions", "s", 20),
    "packing": Limit("packing", "p99 of an edit without a pause, while packing", "× median", 1.9, 1.5),
    "storm": Limit("storm", "median of an edit while a folder is flipped without a pause", "ms", 3),
    "others": Limit("others", "longest edit of others during a transaction of 10,000 files", "ms", 50),
    "proposals-list": Limit("proposals", "`proposal.list` of 50, with 1,000 open", "ms", 20),
    "proposals-edit": Limit("proposals", "an edit beside 1,000 open proposals", "× one without", 1.05),
    "proposals-view": Limit("proposals", "view of 100 hunks in a file of 1 MB", "ms", 100),
    "screen-start": Limit("screen", "start of `editctl review` at 100,000 transactions", "ms", 500, 400),
    "screen-key": Limit("screen", "from a key to its whole repaint, p95", "ms", 60, 40),
    "screen-live": Limit("screen", "the same beside 200 edits a second, p95", "ms", 120, 60),
    "screen-memory": Limit("screen", "memory of the screen", "MB", 60, 40),
    "memory-100000": Limit("memory", "memory at 100,000 files", "MB", 80),
    "memory-1000000": Limit("memory", "memory at 1,000,000 files", "MB", 250),
    "memory-tx-15000": Limit("memory", "memory after 15,000 transactions", "MB", 120),
    "memory-tx-100000": Limit("memory", "memory after 100,000 transactions", "MB", 150),
    "idle-processes-100": Limit("idle", "processes of an idle daemon after a minute, 100 files", "", 1),
    "idle-memory-100": Limit("idle", "memory of all of them at 100 files", "MB", 50),
    "idle-processes-100000": Limit("idle", "processes of an idle daemon at 100,000 files", "", 1),
    "idle-memory-100000": Limit("idle", "memory of all of them at 100,000 files", "MB", 70),
    "start-100000": Limit("start", "first answer after a start at 100,000 files", "ms", 300),
    "start-1000000": Limit("start", "first answer after a start at 1,000,000 files", "ms", 400),
    "first-start-100000": Limit("first-start", "first start of 100,000 files, until ready", "s", 6),
    "first-start-wait-100000": Limit("first-start", "wait of an edit meanwhile, 100,000 files", "s", 1),
    "first-start-1000000": Limit("first-start", "first start of 1,000,000 files, until ready", "s", 25),
    "first-start-wait-1000000": Limit("first-start", "wait of an edit meanwhile, 1,000,000 files", "s", 1),
    "disk": Limit("disk", "disk for an edit of one line of a 9 KB file, packed", "KB", 2, 1),
    "replay": Limit(
        "replay", "real commits replayed, against `git checkout` of each", "× faster", 2, 5, is_floor=True
    ),
}  # fmt: skip


class Figure(Struct, frozen=True):
    """A measured figure. `name` is a key of `LIMITS`."""

    name: str
    value: float
    scope: str  # the sizes of this run
    has_limit: bool = True  # it has the size that the limit is for

    @property
    def limit(self) -> Limit:
        return LIMITS[self.name]

    @property
    def is_missed(self) -> bool:
        return self.has_limit and not self.limit.is_held(self.value)


class Times(Struct, frozen=True):
    """The times of one kind of step, in one unit."""

    label: str
    median: float
    p99: float
    number: int
    unit: str = "µs"


class Row(Struct, frozen=True):
    """The result of one measurement."""

    figures: list[Figure]
    times: list[Times] = field(default_factory=list)
    when: str = ""
    commit: str = ""
    is_full: bool = False


class Build(Struct):
    """The results with one Python build, by the names of the measurements."""

    python: str  # its version and the folder that it is installed in
    versions: str  # of the libraries
    rows: dict[str, Row] = field(default_factory=dict)


class Run(Struct):
    """The results of a run on one machine, a build of Python after the other."""

    machine: str
    builds: list[Build] = field(default_factory=list)


def times_of(label: str, values: list[float], unit: str = "µs") -> Times:
    return Times(label, median(values), percentile(values, 0.99), len(values), unit)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
