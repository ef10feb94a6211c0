"""The benchmark: what editd costs, as ratios within one run.

    python -m tests.bench                          # all measurements in the short form, some minutes
    python -m tests.bench edit pause               # two of them
    python -m tests.bench --list
    python -m tests.bench --full --python .venv/bin/python --python /usr/bin/python3 --write docs/benchmarks
    python -m tests.bench --from a.json --write docs/benchmarks    # write the tables of an earlier run

RAW is a bare safe save of 10 KB in the same folder: a temporary file, write, fsync, rename, fsync of the
folder. An edit is durable, recorded and undoable, and goes through the socket, from a client of a few lines.
The kinds of step are timed in turn, in short rounds on one workspace. A ratio is the median of the rounds'
ratios. Trust the ratios, not the microseconds: the machine is not equally fast for long.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import edits, footprint, histories, interference, peers, proposals, report, screen, starts
from bench.figures import Build, Row, Run
from bench.plots import amount
from bench.sites import Bench, described, interpreter
from support.workplace import TOP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MEASUREMENTS: dict[str, Callable[[Bench], Row]] = {
    measure.__name__.replace("_", "-"): measure
    for module in (edits, peers, histories, interference, proposals, screen, footprint, starts)
    for measure in module.MEASUREMENTS
}
TITLES = {name: (measure.__doc__ or "").strip() for name, measure in MEASUREMENTS.items()}


def main(arguments: Sequence[str]) -> int:
    """Run the chosen measurements. Return 1 if one failed, or with `--check` if a limit is missed."""
    options = parse(arguments)
    if options.list:
        for name, title in TITLES.items():
            print(f"{name:12} {title}")
        return 0
    run = merged(options.earlier)
    names = options.names or ([] if options.earlier else list(MEASUREMENTS))
    has_failed = False
    if names:
        run.machine = machine()
        with tempfile.TemporaryDirectory(prefix="editd-bench-") as folder:
            for python in options.python or [sys.executable]:
                has_failed |= measure_all(options, run, interpreter(python, Path(folder)), names)
    print(f"\n{report.heading(run)}\n\n{report.table(run)}")
    if options.write:
        report.write(Path(options.write), run, list(MEASUREMENTS), TITLES)
    is_missed = options.check and print_missed(run)
    return 1 if has_failed or is_missed else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="measurements to run (default: all, or none with --from)"
    )
    parser.add_argument("--list", action="store_true", help="list the measurements")
    parser.add_argument("--full", action="store_true", help="use the long form, with up to a million files")
    parser.add_argument(
        "--python", action="append", metavar="PATH",
        help="run the daemon with this interpreter, in an environment for it if need be. Repeatable.",
    )  # fmt: skip
    parser.add_argument(
        "--repository", type=Path, default=TOP, metavar="DIR", help="replay the commits of this repository"
    )
    parser.add_argument(
        "--from", dest="earlier", action="append", default=[], metavar="FILE",
        help="keep the results of an earlier run, from its JSON. Repeatable.",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write all results to FILE, after each measurement")
    parser.add_argument("--write", metavar="DIR", help="write the pages and charts: docs/benchmarks")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure misses its limit")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in MEASUREMENTS]:
        parser.error(f"no measurement is named {', '.join(unknown)}: see --list")
    return options


def merged(files: Sequence[str]) -> Run:
    """Return the results of earlier runs as one. A later file replaces the measurements of the one before."""
    run = Run("")
    for file in files:
        other = msgspec.json.decode(Path(file).read_bytes(), type=Run)
        run.machine = other.machine
        for build in other.builds:
            kept = build_of(run, build.python, build.versions)
            kept.versions = build.versions
            kept.rows |= build.rows
    return run


def build_of(run: Run, python: str, versions: str) -> Build:
    """Return the results with this build of Python, which may be new."""
    for build in run.builds:
        if build.python == python:
            return build
    run.builds.append(Build(python, versions))
    return run.builds[-1]


def measure_all(options: argparse.Namespace, run: Run, python: str, names: Sequence[str]) -> bool:
    """Run the measurements with one interpreter. Return True if one failed."""
    build = build_of(run, *described(python))
    has_failed = False
    commit = subprocess.getoutput(f"git -C {TOP} describe --always --dirty 2>/dev/null || echo unknown")
    with Bench(python, options.full, options.repository) as bench:
        for name in names:
            began = time.perf_counter()
            try:
                row = MEASUREMENTS[name](bench)
            except Exception:  # noqa: BLE001  # the others are measured all the same
                traceback.print_exc()
                print(f"{name:12} FAILED", flush=True)
                has_failed = True
                continue
            when = time.strftime("%Y-%m-%d %H:%M")
            build.rows[name] = msgspec.structs.replace(row, when=when, commit=commit, is_full=options.full)
            values = ", ".join(f"{amount(one.value)} {one.limit.unit}".strip() for one in row.figures)
            print(f"{name:12} {values}   ({time.perf_counter() - began:.0f} s)", flush=True)
            if options.json:
                Path(options.json).write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
    return has_failed


def print_missed(run: Run) -> bool:
    """Print the figures that miss their limits. Return True if there are any."""
    missed = [
        (build, figure)
        for build in run.builds
        for row in build.rows.values()
        for figure in row.figures
        if figure.is_missed
    ]
    for build, figure in missed:
        limit = figure.limit
        bound = f"at least {limit.must:g}" if limit.is_floor else f"at most {limit.must:g}"
        print(f"missed: {limit.text}: {amount(figure.value)} {limit.unit}, not {bound} ({build.python})")
    return bool(missed)


def machine() -> str:
    """Return the processor, the kernel, the file system, git and the load of this machine."""
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", tempfile.gettempdir()], capture_output=True, text=True, check=True
    ).stdout.strip()
    return (
        f"{os.cpu_count()} cores of {cpu[1] if cpu else platform.processor()}, Linux {platform.release()},"
        f" {kind}, {subprocess.getoutput('git --version')}, load {os.getloadavg()[0]:.1f} at the start"
    )
