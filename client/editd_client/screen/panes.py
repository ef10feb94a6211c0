"""The widgets: panes that draw only the lines in view, and the colours of their looks.

A pane has no scroll bar and no model: it asks for each line that it draws. So a list of 100,000 rows costs
what 20 rows cost.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from editd_client.screen.lines import ASCII

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events

    from editd_client.review.patch import Role
    from editd_client.screen.lines import Line, Look, TextSpan

COLOURED: dict[Look, Style] = {
    "": Style(),
    "dim": Style(dim=True),
    "bold": Style(bold=True),
    "title": Style(bold=True),
    "key": Style(color="cyan", bold=True),
    "added": Style(color="green"),
    "removed": Style(color="red"),
    "added_word": Style(color="green", reverse=True),
    "removed_word": Style(color="red", reverse=True),
    "good": Style(color="green"),
    "bad": Style(color="red", bold=True),
    "warning": Style(color="yellow"),
    "struck": Style(dim=True, strike=True),
    "tab": Style(reverse=True, bold=True),
}
BOLD, UNDERLINED = Style(bold=True), Style(underline=True)
PLAIN: dict[Look, Style] = {  # with NO_COLOR: signs, reverse, underline and bold carry all of it
    **dict.fromkeys(COLOURED, Style()),
    "dim": Style(dim=True),
    "struck": Style(dim=True),
    "added_word": UNDERLINED,
    "removed_word": UNDERLINED,
    "bold": BOLD, "title": BOLD, "key": BOLD, "bad": BOLD, "warning": BOLD,
    "tab": Style(reverse=True, bold=True),
}  # fmt: skip
ROLES: dict[Role, Style] = {  # of the syntax. A removed or added line keeps its colour
    "": Style(),
    "keyword": Style(color="magenta"),
    "name": Style(color="blue"),
    "string": Style(color="yellow"),
    "number": Style(color="cyan"),
    "comment": Style(dim=True, italic=True),
}
WEIGHTS: dict[Role, Style] = {
    **dict.fromkeys(ROLES, Style()),
    "keyword": BOLD, "name": BOLD, "comment": Style(italic=True),
}  # fmt: skip
CURSOR = Style(reverse=True)


class Terminal(NamedTuple):
    """The abilities of the terminal."""

    has_colours: bool = True
    is_ascii: bool = False

    @classmethod
    def of_environment(cls) -> Terminal:
        """Return the kind of terminal by NO_COLOR, TERM, and the character set of the locale."""
        import locale

        codeset = locale.getencoding().lower().replace("-", "")
        is_ascii = codeset != "utf8" or os.environ.get("TERM") in ("linux", "dumb")
        return cls(not os.environ.get("NO_COLOR"), is_ascii)

    def text(self, text: str) -> str:
        return text.translate(ASCII) if self.is_ascii else text


class PaneRow(NamedTuple):
    """All that a row of a pane depends on."""

    line: Line | None
    is_cursor: bool
    is_away: bool


class Pane(Widget):
    """Lines in a rectangle. `line_at` gives each by its row and the width; `is_cursor` marks one."""

    can_focus = False

    def __init__(
        self,
        terminal: Terminal,
        name: str,
        line_at: Callable[[int, int], Line | None],
        *,
        is_cursor: Callable[[int], bool] = lambda _row: False,
        on_press: Callable[[str, int, str], None] = lambda _name, _row, _key: None,
        on_wheel: Callable[[str, int], None] = lambda _name, _rows: None,
    ) -> None:
        super().__init__(id=name)
        self.pane = name
        self.is_away = False
        self._rows: list[PaneRow] = []  # as they were drawn last
        self._rows_width = -1
        self._terminal, self._line_at, self._is_cursor = terminal, line_at, is_cursor
        self._on_press, self._on_wheel = on_press, on_wheel
        self._styles = COLOURED if terminal.has_colours else PLAIN

    def update(self) -> None:
        """Draw the lines that have changed."""
        width, height = self.size
        rows = [self._row(y, width) for y in range(height)]
        before, self._rows = self._rows, rows
        if len(before) != height or self._rows_width != width:
            self._rows_width = width
            self.refresh()
        elif changed := [Region(0, y, width, 1) for y in range(height) if rows[y] != before[y]]:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        is_known = width == self._rows_width and y < len(self._rows)
        row = self._rows[y] if is_known else self._row(y, width)
        if row.line is None:
            return Strip.blank(width)
        segments = [
            Segment(self._terminal.text(span.text), self._style(span)) for span in row.line.spans if span.text
        ]
        strip = Strip(segments).adjust_cell_length(width)
        if row.is_cursor:
            strip = strip.apply_style(CURSOR)
        return strip.apply_style(Style(dim=True)) if row.is_away else strip

    def _row(self, y: int, width: int) -> PaneRow:
        return PaneRow(self._line_at(y, width), self._is_cursor(y), self.is_away)

    def _style(self, span: TextSpan) -> Style:
        style = self._styles[span.look]
        if not span.role:
            return style
        has_own_colour = span.look or self._styles is PLAIN
        return style + (WEIGHTS if has_own_colour else ROLES)[span.role]

    def on_click(self, event: events.Click) -> None:
        """Report the row, and the key of the span that was clicked."""
        event.stop()
        line = self._line_at(event.y, self.size.width)
        key, x = "", 0
        for span in line.spans if line is not None else ():
            if x <= event.x < x + cell_len(span.text):
                key = span.key
            x += cell_len(span.text)
        self._on_press(self.pane, event.y, key)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._on_wheel(self.pane, 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._on_wheel(self.pane, -3)
