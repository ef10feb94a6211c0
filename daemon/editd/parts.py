"""The optional parts of editd, each a package that is found by its entry point.

    editd.tools   a dialect of edit tools, by its name: an `editd.tool_api.dialect.Dialect`
    editd.parts   `remote`, `screen` and `web`, which come with editd itself

No module of the core imports a part: the core takes it from here when a request first needs it. Any installed
distribution can have a dialect. A part that cannot be used is shown in `status`, and the others work.

The import of `importlib.metadata` would cost each start 50 ms. So this module itself reads the metadata in
the folders on `sys.path`: `entry_points.txt` of each `.dist-info` and `.egg-info`. As there, the first
distribution of a name counts. The client shares this module.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOOLS = "editd.tools"
PARTS = "editd.parts"
GROUPS = (TOOLS, PARTS)
OWN = "editd"  # the distribution that comes first if two have a part of the same name

_GROUP = re.compile(r"\[(?P<group>.+)\]")
_ENTRY = re.compile(r"(?P<name>[^=\s][^=]*?)\s*=\s*(?P<target>[\w.]+(?::[\w.]+)?)\s*(?:\[.*\])?")


class PartFailed(Exception):
    """A part cannot be used. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Part:
    """An entry point. `error` is the reason if it cannot be used."""

    group: str
    name: str
    target: str
    """A module, or an object in it: `package.module:object`."""
    distribution: str
    error: str | None = None

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    def load(self) -> Any:
        """Import the module; return the object. Raises PartFailed."""
        if self.error is not None:
            raise PartFailed(self.error)
        try:
            module = importlib.import_module(self.module)
            attribute = self.target.partition(":")[2]
            return getattr(module, attribute) if attribute else module
        except Exception as error:  # a part of another distribution may raise anything
            raise PartFailed(f"{type(error).__name__}: {error}") from error

    def is_there(self) -> bool:
        """Return whether its module exists, without running it."""
        try:
            return importlib.util.find_spec(self.module) is not None
        except Exception:  # noqa: BLE001 - the package around it is missing, or it fails
            return False


@cache
def parts() -> tuple[Part, ...]:
    """Return all parts by group and name, editd's own first. Each name after the first has an error."""
    by_name: dict[tuple[str, str], Part] = {}
    doubles: list[Part] = []
    entries = sorted(_entries(), key=lambda part: (part.distribution != OWN, part.distribution))
    for entry in entries:
        first = by_name.setdefault((entry.group, entry.name), entry)
        if first is not entry:
            doubles.append(replace(entry, error=f"{first.distribution} has a part of the same name"))
    return (*(by_name[key] for key in sorted(by_name)), *doubles)


def parts_of(group: str) -> dict[str, Part]:
    """Return the parts of a group by name, without those that have the name of another."""
    return {part.name: part for part in parts() if part.group == group and part.error is None}


def _entries() -> Iterator[Part]:
    for distribution, folder in _distributions(sys.path):
        try:
            with open(f"{folder}/entry_points.txt", "rb", buffering=0) as file:
                content = file.read()
        except OSError:  # most distributions have no such file
            continue
        if b"editd." in content:
            yield from entries_in(content.decode("utf-8", "replace"), distribution)


def _distributions(folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each distribution with the folder of its metadata, the first one of each name."""
    known: set[str] = set()
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:  # an archive, no folder at all, or "" for the current folder
            continue
        for name in names:
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            distribution = re.sub(r"[-_.]+", "-", name.rpartition(".")[0].partition("-")[0]).lower()
            if distribution not in known:
                known.add(distribution)
                yield distribution, f"{folder}/{name}"


def entries_in(text: str, distribution: str) -> Iterator[Part]:
    """Yield the parts in the text of an `entry_points.txt`. A line of another form has an error."""
    group = ""
    for line in (line.strip() for line in text.splitlines()):
        if match := _GROUP.fullmatch(line):
            group = match["group"].strip()
        elif group not in GROUPS or not line or line[0] in "#;":
            continue
        elif match := _ENTRY.fullmatch(line):
            yield Part(group, match["name"], match["target"], distribution)
        else:
            name, _, target = (half.strip() for half in line.partition("="))
            yield Part(
                group,
                name,
                target,
                distribution,
                "its line is not `name = module:object`",
            )
