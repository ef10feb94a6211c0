"""Bar charts as SVG, readable on a light and on a dark page."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from bench.figures import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.figures import Build, Figure, Times

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 960, 390, 220
BAR_HEIGHT, ROW_GAP, TOP, BOTTOM = 14, 10, 52, 30
CHARACTER_WIDTH = 6.3
LABEL_CHARACTERS = int(LABEL_WIDTH / CHARACTER_WIDTH)
SHARES = (0.1, 0.2, 0.5, 1, 2, 5, 10)
MEDIANS_SHOWN = 3.0  # a p99 of more than so many of the largest median leads out of the chart
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 }
.soft { fill: #59636e }
.grid { stroke: #d1d9e0 }
.limit { stroke: #1f2328; stroke-width: 1.5 }
.line { stroke: #59636e; stroke-width: 1.5 }
.b0 { fill: #2f6fbb } .b1 { fill: #8ab4e3 }
.m0 { fill: #c2542d } .m1 { fill: #e6a184 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .soft { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .limit { stroke: #e6edf3 }
  .line { stroke: #9198a1 }
  .b0 { fill: #5b9be6 } .b1 { fill: #345e91 }
  .m0 { fill: #e2754c } .m1 { fill: #8f4a30 }
}
"""


def chart(height: float, title: str, parts: Iterator[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}"'
        f' height="{height:.0f}" role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
        f'<text class="title" x="0" y="16">{escape(title)}</text>\n{body}\n</svg>\n'
    )


def text(x: float, y: float, content: str, *, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(content)}</text>'


def vertical(x: float, top: float, bottom: float, kind: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" class="{kind}"/>'


def bar(x: float, y: float, width: float, kind: str) -> str:
    size = f'width="{max(width, 1):.1f}" height="{BAR_HEIGHT - 2}"'
    return f'<rect x="{x:.1f}" y="{y + 1:.1f}" {size} rx="2" class="{kind}"/>'


def label(content: str, y: float, rows: int) -> str:
    shown = content.replace("`", "")
    if len(shown) > LABEL_CHARACTERS:
        shown = shown[: LABEL_CHARACTERS - 1] + "…"
    return text(LABEL_WIDTH - 10, y + rows * BAR_HEIGHT / 2 + 4, shown, anchor="end")


def legend(builds: Sequence[Build], y: float) -> Iterator[str]:
    """Yield the names of the builds with their colors, if there are several."""
    x = LABEL_WIDTH
    for number, build in enumerate(builds if len(builds) > 1 else ()):
        name = build.python
        yield bar(x, y - BAR_HEIGHT + 2, BAR_HEIGHT, f"b{number % 2}")
        yield text(x + BAR_HEIGHT + 6, y, name, kind="soft")
        x += int(len(name) * CHARACTER_WIDTH) + 40


def shares_of_limits(builds: Sequence[Build]) -> str:
    """Return the chart of all figures with a limit: how much of the limit each takes, by a log scale."""
    names: dict[str, dict[int, Figure]] = {}
    for number, build in enumerate(builds):
        for row in build.rows.values():
            for figure in row.figures:
                if figure.has_limit:
                    names.setdefault(figure.name, {})[number] = figure
    row_height = len(builds) * BAR_HEIGHT + ROW_GAP
    end = TOP + len(names) * row_height
    span = WIDTH - LABEL_WIDTH - VALUE_WIDTH

    def place(share: float) -> float:
        inside = min(max(share, SHARES[0]), SHARES[-1])
        return LABEL_WIDTH + span * math.log(inside / SHARES[0]) / math.log(SHARES[-1] / SHARES[0])

    def parts() -> Iterator[str]:
        yield from legend(builds, TOP - 12)
        for share in SHARES:
            yield vertical(place(share), TOP, end, "limit" if share == 1 else "grid")
            yield text(place(share), end + 18, f"{share:g} ×", anchor="middle", kind="soft")
        for index, figures in enumerate(names[name] for name in LIMITS if name in names):
            y = TOP + index * row_height + ROW_GAP / 2
            yield label(next(iter(figures.values())).limit.text, y, len(builds))
            for number, figure in figures.items():
                left, right = sorted((place(1), place(figure.limit.share(figure.value))))
                kind = ("m" if figure.is_missed else "b") + str(number % 2)
                yield bar(left, y + number * BAR_HEIGHT, right - left, kind)
                value = f"{amount(figure.value)} {figure.limit.unit}"
                yield text(WIDTH - VALUE_WIDTH + 10, y + number * BAR_HEIGHT + 11, value, kind="soft")

    return chart(end + BOTTOM, "Each figure over its limit: a bar to the left holds it", parts())


def medians(title: str, builds: Sequence[Build], row: str) -> str:
    """Return the chart of one measurement: a bar for each median, and a line on to the p99."""
    found: dict[str, dict[int, Times]] = {}
    for number, build in enumerate(builds):
        for times in build.rows[row].times if row in build.rows else ():
            found.setdefault(times.label, {})[number] = times
    row_height = len(builds) * BAR_HEIGHT + ROW_GAP
    end = TOP + len(found) * row_height
    span = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    largest: dict[str, float] = {}
    for several in found.values():
        for times in several.values():
            shown = max(times.median, min(times.p99, MEDIANS_SHOWN * times.median))
            largest[times.unit] = max(largest.get(times.unit, 0.0), shown)

    def parts() -> Iterator[str]:
        yield from legend(builds, TOP - 12)
        yield vertical(LABEL_WIDTH, TOP, end, "grid")
        for index, (name, several) in enumerate(found.items()):
            y = TOP + index * row_height + ROW_GAP / 2
            yield label(name, y, len(builds))
            for number, times in several.items():
                scale = span / (largest[times.unit] or 1)
                top, middle = y + number * BAR_HEIGHT, y + number * BAR_HEIGHT + BAR_HEIGHT / 2
                width, far = times.median * scale, min(times.p99 * scale, span)
                yield bar(LABEL_WIDTH, top, width, f"b{number % 2}")
                ends = f'x1="{LABEL_WIDTH + width:.1f}" x2="{LABEL_WIDTH + far:.1f}"'
                yield f'<line {ends} y1="{middle:.1f}" y2="{middle:.1f}" class="line"/>'
                value = f"{amount(times.median)} {times.unit}"
                if times.number > 1:
                    value += f", p99 {amount(times.p99)}"
                yield text(WIDTH - VALUE_WIDTH + 10, top + 11, value, kind="soft")

    return chart(end + 8, title, parts())


def amount(value: float) -> str:
    """Return a number with three digits that matter."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
