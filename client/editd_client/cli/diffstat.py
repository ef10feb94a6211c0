"""Counts of added and removed lines, made from a diff as the daemon prints it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from editd_client.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAPH_WIDTH = 40  # characters for `+++--` of the file with the most changes
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class DiffStat:
    """The changed lines of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.added = 0
        self.removed = 0
        self.is_binary = False


def stats_of(diff: str) -> list[DiffStat]:
    """Return the counts of each file in a diff.

    A line counts only inside a hunk, whose header says how long it is: content may look like a header.
    """
    stats: list[DiffStat] = []
    old = new = 0  # lines of the hunk that are still to come
    for line in diff.split("\n"):
        if old > 0 or new > 0:
            stats[-1].removed += line[:1] == "-"
            stats[-1].added += line[:1] == "+"
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
        elif line.startswith("diff --git "):
            stats.append(DiffStat(_name_in(line)))
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1] or 1), int(hunk[2] or 1)
        elif line.startswith("rename from ") and stats:
            stats[-1].name = line.removeprefix("rename from ")
        elif line.startswith("rename to ") and stats:
            stats[-1].name += " => " + line.removeprefix("rename to ")
        elif line.startswith(("Binary files ", "GIT binary patch")) and stats:
            stats[-1].is_binary = True
    return stats


def stat_lines(diff: str) -> Iterator[str]:
    """Yield the lines of `--stat`: one for each file, and the sum."""
    stats = stats_of(diff)
    if not stats:
        return
    width = max(len(output.plain(stat.name)) for stat in stats)
    most = max(stat.added + stat.removed for stat in stats)
    digits = len(str(most))
    for stat in stats:
        name = output.plain(stat.name).ljust(width)
        if stat.is_binary:
            yield f" {name} | {'Bin':>{digits}}"
            continue
        scale = min(1.0, GRAPH_WIDTH / most) if most else 1.0
        plus, minus = (-(-int(count * scale * 1000) // 1000) for count in (stat.added, stat.removed))
        graph = output.paint("+" * plus, "green") + output.paint("-" * minus, "red")
        yield f" {name} | {stat.added + stat.removed:>{digits}} {graph}".rstrip()
    yield " " + summary(len(stats), sum(s.added for s in stats), sum(s.removed for s in stats))


def summary(files: int, added: int, removed: int) -> str:
    """Return the sum of a change, as git words it."""
    parts = [f"{files} file{'' if files == 1 else 's'} changed"]
    if added or not removed:
        parts.append(f"{added} insertion{'' if added == 1 else 's'}(+)")
    if removed or not added:
        parts.append(f"{removed} deletion{'' if removed == 1 else 's'}(-)")
    return ", ".join(parts)


def _name_in(header: str) -> str:
    """Return the file's new name in `diff --git a/NAME b/NAME`, whose halves are alike but for a rename."""
    names = header.removeprefix("diff --git ")
    if names.startswith('"'):
        return names[: len(names) // 2].strip('"').removeprefix("a/")
    return names[: len(names) // 2].removeprefix("a/")
