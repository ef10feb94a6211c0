"""The tables and charts of a run, in Markdown and SVG."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench.figures import LIMITS
from bench.plots import amount, medians, shares_of_limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.figures import Build, Figure, Run

DETAILS = """# Benchmarks in detail

`python -m tests.bench --write docs/benchmarks` writes this page.
[benchmarks.md](../benchmarks.md) explains the figures.

A bar is the median of all samples, and the line leads on to the 99th percentile.
With fewer than 100 samples, that is the slowest one.

<!-- table -->
{}
<!-- end -->
"""


def heading(run: Run) -> str:
    """Return the machine, the builds and the date of each, as sentences."""
    lines = [f"Machine: {run.machine}."]
    for build in run.builds:
        rows = build.rows.values()
        days = sorted({row.when[:10] for row in rows})
        commits = sorted({row.commit for row in rows})
        forms = sorted({"full" if row.is_full else "short" for row in rows})
        lines.append(
            f"{build.python}: {build.versions}, {' and '.join(forms)} form,"
            f" commit {' and '.join(commits)}, {' to '.join(days[:1] + days[1:][-1:])}."
        )
    return "\n".join(lines)


def table(run: Run) -> str:
    """Return the table of all figures: a column for each build of Python, and the limits."""
    builds = run.builds
    names = [build.python for build in builds]
    return "\n".join(
        [
            line(["figure", *names, "must", "goal", "sizes"]),
            "|---|" + "---:|" * (len(builds) + 2) + "---|",
            *_table_rows(builds),
        ]
    )


def _table_rows(builds: Sequence[Build]) -> Iterator[str]:
    for name, limit in LIMITS.items():
        figures = [figure_of(build, name) for build in builds]
        known = [figure for figure in figures if figure is not None]
        if not known:
            continue
        cells = ["–" if figure is None else cell(figure) for figure in figures]
        sign = "≥" if limit.is_floor else "≤"
        bounds = [
            "–" if bound is None or not known[0].has_limit else f"{sign} {bound:g}"
            for bound in (limit.must, limit.goal)
        ]
        title = limit.text if known[0].has_limit else f"{limit.text} (smaller in this form)"
        yield line([title, *cells, *bounds, known[0].scope])


def cell(figure: Figure) -> str:
    value = f"{amount(figure.value)} {figure.limit.unit}".strip()
    return f"{value}, **missed**" if figure.is_missed else value


def figure_of(build: Build, name: str) -> Figure | None:
    return next((one for row in build.rows.values() for one in row.figures if one.name == name), None)


def details(run: Run, names: Sequence[str], titles: Mapping[str, str]) -> str:
    """Return the tables of the medians, and the links to the charts, measurement by measurement."""
    parts = [heading(run)]
    for name in names:
        builds = [build for build in run.builds if name in build.rows]
        if not builds:
            continue
        parts += [f"## {name}", titles[name], f"![{name}: medians and p99]({name}.svg)"]
        for build in builds:
            rows = [
                line([one.label, one.unit, amount(one.median), amount(one.p99), f"{one.number:,}"])
                for one in build.rows[name].times
            ]
            head = line([build.python, "unit", "median", "p99", "samples"])
            parts.append("\n".join([head, "|---|---|---:|---:|---:|", *rows]))
    return "\n\n".join(parts)


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write(folder: Path, run: Run, names: Sequence[str], titles: Mapping[str, str]) -> None:
    """Write the table into the page of the folder's name, and the details and the charts into the folder."""
    page = folder.with_suffix(".md")
    page.write_text(between_marks(page.read_text(), f"{heading(run)}\n\n{table(run)}"))
    folder.mkdir(exist_ok=True)
    (folder / "details.md").write_text(DETAILS.format(details(run, names, titles)))
    (folder / "limits.svg").write_text(shares_of_limits(run.builds))
    for name in names:
        if any(name in build.rows for build in run.builds):
            (folder / f"{name}.svg").write_text(medians(titles[name].rstrip("."), run.builds, name))


def between_marks(page: str, content: str) -> str:
    """Return the page with other content between its marks of the table."""
    marks = re.compile(r"(?<=^<!-- table -->\n).*?(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)
    replaced, number = marks.subn(lambda _: f"{content}\n", page)
    assert number == 1, "the page has no marks for the table"
    return replaced
