"""All dialects by name, in their order of display.

A dialect's module is imported at its first use, so that a daemon without dialect calls starts sooner.
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
        dialect: Dialect = importlib.import_module(f"editd.tools.{name}").DIALECT
        return dialect

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


DIALECTS = DialectRegistry()
