"""The text of a file as the dialects see it, with LF line ends and without its byte order mark.

New text takes the line ends of the text it replaces, line for line in a mixed file. A byte outside the
replaced spans never changes. The file keeps its encoding and byte order mark.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from typing import TYPE_CHECKING

from editd.edits.replace import Replacement, fit_line_ends, replace
from editd.edits.search import Span, lost_returns, with_plain_line_ends

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.values.path import WorkspacePath


@dataclasses.dataclass(frozen=True, slots=True)
class ToolText:
    """A file's text: `raw` has its own line ends, `text` has LF. Offsets refer to `text`."""

    path: WorkspacePath
    raw: str
    text: str = dataclasses.field(init=False)
    _lost: list[int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", with_plain_line_ends(self.raw))
        object.__setattr__(self, "_lost", lost_returns(self.raw))

    def with_replacements(self, replacements: Iterable[Replacement]) -> str:
        """Return `raw` with the replacements made; Overlap if two of them overlap."""
        return replace(self.raw, [self._of_raw(replacement) for replacement in replacements])

    def _of_raw(self, replacement: Replacement) -> Replacement:
        span = Span(self._raw_offset(replacement.start), self._raw_offset(replacement.end))
        old, new = self.text[replacement.start : replacement.end], replacement.text
        if with_plain_line_ends(new) == old:
            return Replacement(span.start, span.end, self.raw[span.start : span.end])
        return Replacement(span.start, span.end, fit_line_ends(new, old, self.raw, span))

    def _raw_offset(self, offset: int) -> int:
        return offset + bisect_left(self._lost, offset)
