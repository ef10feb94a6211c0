"""The benchmark as anybody runs it, by few measurements. Its bounds here suit a machine with other work."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import msgspec
import pytest

from bench.command import MEASUREMENTS, main
from bench.figures import LIMITS, Build, Figure, Row, Run, times_of
from support.workplace import TOP

if TYPE_CHECKING:
    from pathlib import Path

RATIO_MAX = 10.0  # 0.9 on a machine without other work
SHARE_MIN = 0.1  # 1.1
TIMES = [times_of("RAW", [1.0, 2.0, 9.0]), times_of("edit", [2.0, 3.0])]


def page_in(folder: Path) -> Path:
    """Copy the page, whose table the benchmark replaces."""
    page = folder / "benchmarks.md"
    page.write_text((TOP / "docs/benchmarks.md").read_text())
    return page


def a_run(folder: Path, value: float) -> str:
    """Write the results of a run of `edit` with this ratio, and return the file."""
    row = Row([Figure("edit", value, "10,000 files")], TIMES, "2026-01-01 10:00", "abc", is_full=True)
    file = folder / f"{value}.json"
    file.write_bytes(msgspec.json.encode(Run("a machine", [Build("Python 3", "lib 1", {"edit": row})])))
    return str(file)


def test_the_benchmark_writes_its_pages_and_no_ratio_is_of_another_order(
    tmp_path: Path, is_long: bool
) -> None:
    names = ("edit", "eight", "disk") if is_long else ("edit", "disk")
    page, results = page_in(tmp_path), tmp_path / "results.json"
    options = ["--write", str(tmp_path / "benchmarks"), "--json", str(results)]
    command = [sys.executable, "-m", "tests.bench", *names, *options]
    environment = {**os.environ, "TMPDIR": "/var/tmp"}  # a save in memory costs nothing
    printed = subprocess.run(
        command, cwd=TOP, check=True, capture_output=True, text=True, env=environment
    ).stdout
    (build,) = msgspec.json.decode(results.read_bytes(), type=Run).builds
    figures = {figure.name: figure.value for row in build.rows.values() for figure in row.figures}
    assert 0 < figures["edit"] < RATIO_MAX
    assert figures.get("eight", 1.0) > SHARE_MIN
    assert 0 < figures["disk"] < RATIO_MAX
    table = printed[printed.index("Machine: ") :].strip()
    assert table in page.read_text()
    details = (tmp_path / "benchmarks/details.md").read_text()
    for name in names:
        assert f"({name}.svg)" in details
        assert ElementTree.parse(tmp_path / f"benchmarks/{name}.svg").getroot().tag.endswith("svg")
    assert ElementTree.parse(tmp_path / "benchmarks/limits.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(("value", "status"), [(0.89, 0), (0.91, 1)])
def test_a_missed_limit_is_shown_and_ends_a_check_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: float, status: int
) -> None:
    assert main(["--from", a_run(tmp_path, value), "--check"]) == status
    printed = capsys.readouterr().out
    assert (f"{value} × RAW, **missed**" in printed) == ("\nmissed: durable edit" in printed) == bool(status)


def test_a_later_run_replaces_the_measurements_of_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--from", a_run(tmp_path, 0.91), "--from", a_run(tmp_path, 0.5), "--check"]) == 0
    assert "| 0.50 × RAW |" in capsys.readouterr().out


def test_each_limit_belongs_to_a_measurement_and_each_measurement_has_a_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(MEASUREMENTS)
    assert {limit.row for limit in LIMITS.values()} == set(MEASUREMENTS)
