"""All the dialects there are, by name, in the order in which they are shown."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from editd.edits.dialects import claude, cline, codex, gemini, roo, serena, wcgw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.edits.desk import Dialect

_ALL = (serena, gemini, wcgw, roo, cline, claude, codex)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({module.DIALECT.name: module.DIALECT for module in _ALL})
