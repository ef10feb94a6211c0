"""HTML from elements: text is escaped because it is text, and markup has its own type.

Characters that would hide or reorder the text of a diff are shown by their code points, so that a reviewer
approves the text that is there.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from editd_client.file_text import HIDDEN, readable

_VOID = frozenset(("input", "link", "meta", "br"))


class Html(str):
    """Markup that is safe to send. This module alone makes it."""

    __slots__ = ()


DOCTYPE = Html("<!doctype html>")


def text(content: str) -> Html:
    """Return plain text as markup, with hidden characters shown by their code points."""
    shown = HIDDEN.sub(lambda match: f"\0{ord(match[0]):04X}\0", readable(content))
    parts = html.escape(shown).split("\0")
    for at in range(1, len(parts), 2):
        parts[at] = f'<span class="hidden-character">U+{parts[at]}</span>'
    return Html("".join(parts))


def element(tag: str, *children: object, **attributes: str | int | bool | None) -> Html:
    """Return an element. A trailing `_` of an attribute's name is dropped, and other ones become `-`.

    An attribute that is None or False is left out, and True has no value. Children are text, markup, None
    and iterables of them.
    """
    start = [tag]
    for name, value in attributes.items():
        named = name.rstrip("_").replace("_", "-")
        if value is True:
            start.append(named)
        elif value is not None and value is not False:
            start.append(f'{named}="{html.escape(readable(str(value)))}"')
    opened = f"<{' '.join(start)}>"
    return Html(opened if tag in _VOID else f"{opened}{joined(*children)}</{tag}>")


def joined(*children: object) -> Html:
    """Return children one after the other."""
    return Html("".join(_flat(children)))


def _flat(children: Iterable[object]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str):
            yield text(child)
        elif isinstance(child, int):
            yield str(child)
        elif isinstance(child, Iterable):
            yield from _flat(child)
