"""All the dialects there are, by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.edits.desk import Dialect

_ALL: tuple[Dialect, ...] = ()
DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in _ALL})
