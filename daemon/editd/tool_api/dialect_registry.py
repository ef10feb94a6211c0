"""The dialects of all installed distributions, by the entry points of the group `editd.tools`.

The entry points are read at the first use, and a dialect's module is imported at the first use of the
dialect, so that a daemon without dialect calls starts sooner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from editd.errors import NotInstalled
from editd.parts import TOOLS, PartFailed, parts_of
from editd.tool_api.dialect import Dialect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.parts import Part


class DialectRegistry(Mapping[str, Dialect]):
    """All dialects by name. A dialect that cannot be loaded raises NotInstalled."""

    def __init__(self) -> None:
        self._loaded: dict[str, Dialect] = {}

    def __getitem__(self, name: str) -> Dialect:
        if name not in self._loaded:
            self._loaded[name] = load_dialect(parts_of(TOOLS)[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(parts_of(TOOLS))

    def __len__(self) -> int:
        return len(parts_of(TOOLS))


def load_dialect(part: Part) -> Dialect:
    """Import a dialect. Raises NotInstalled."""
    try:
        return _check(part, part.load())
    except PartFailed as failure:
        raise NotInstalled(
            f"The dialect {part.name!r} of {part.distribution} cannot be loaded: {failure}.",
            data={"group": part.group, "part": part.name, "reason": str(failure)},
        ) from failure


def _check(part: Part, dialect: object) -> Dialect:
    if not isinstance(dialect, Dialect):
        raise PartFailed(f"{part.target} is no Dialect")
    if dialect.name != part.name:
        raise PartFailed(f"its Dialect has the name {dialect.name!r}")
    double = [name for name, times in Counter(tool.name for tool in dialect.tools).items() if times > 1]
    if double:
        raise PartFailed(f"it names the tool {double[0]!r} twice")
    return dialect


DIALECTS = DialectRegistry()
