"""All the dialects there are, by name, in the order in which they are shown.

A dialect's module is imported when it is first asked for: a daemon that nobody calls in any starts sooner.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from editd.tools.api import Dialect

NAMES = ("serena", "gemini", "wcgw", "roo", "cline", "claude", "codex")


class DialectRegistry(Mapping[str, Dialect]):
    """The dialects by name."""

    def __getitem__(self, name: str) -> Dialect:
        if name not in NAMES:
            raise KeyError(name)
        found: Dialect = importlib.import_module(f"editd.tools.{name}").DIALECT
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


DIALECTS = DialectRegistry()
