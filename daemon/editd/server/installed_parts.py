"""The installed optional parts, as `status` shows them.

A dialect of another distribution is imported for that, because nobody has tried it with this editd. Of
editd's own parts only the module is looked for: they are imported at their first use.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from editd.errors import NotInstalled
from editd.parts import OWN, TOOLS, parts
from editd.tool_api.dialect_registry import DIALECTS
from editd.wire import messages

if TYPE_CHECKING:
    from editd.parts import Part


@cache
def installed_parts() -> tuple[messages.InstalledPart, ...]:
    """Return each part, with the reason if it cannot be used."""
    return tuple(
        messages.InstalledPart(
            group=part.group, name=part.name, distribution=part.distribution, error=_error_of(part)
        )
        for part in parts()
    )


def weaker() -> list[str]:
    """Return a sentence for each part that cannot be used."""
    return [
        f"The part {part.name} of {part.distribution} ({part.group}) cannot be used: {part.error}."
        for part in installed_parts()
        if part.error is not None
    ]


def _error_of(part: Part) -> str | None:
    if part.error is not None:
        return part.error
    if not part.is_there():
        return f"the module {part.module} is missing"
    if part.group == TOOLS and part.distribution != OWN:
        try:
            DIALECTS[part.name]
        except NotInstalled as refusal:
            return str(refusal.data["reason"])
    return None
