"""The panes in their places, and the first row in view of each list."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from editd_client.review.actions import EVERYWHERE
from editd_client.screen.arrangement import Arrangement, Rectangle, arrange
from editd_client.screen.lines import Line, TextSpan
from editd_client.screen.rows import agent_heading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from editd_client.review.actions import View
    from editd_client.screen.panes import Pane

    LineAt = Callable[[int, int], Line | None]

RULES = 6  # the most that an arrangement has
NOWHERE = Rectangle(0, 0, 0, 1)


class ListRows(Protocol):
    """The rows of a view."""

    @property
    def count(self) -> int: ...

    @property
    def cursor_row(self) -> int: ...

    def row(self, number: int, width: int, *, has_second: bool = False) -> Line | None: ...

    def second(self, number: int, width: int) -> Line | None:
        """Return the second line of a row, where rows have two."""
        ...


class PaneFactory(Protocol):
    """Makes a pane, with the functions for the mouse that all of them share."""

    def __call__(
        self, name: str, line_at: LineAt, *, is_cursor: Callable[[int], bool] = lambda _row: False
    ) -> Pane: ...


class PaneLayout:
    """The panes of `lines` by their names, and the list of each view.

    `has_cursor` says whether the keys go to the list of a view.
    """

    def __init__(
        self,
        make: PaneFactory,
        lines: Mapping[str, LineAt],
        views: Mapping[View, ListRows],
        has_cursor: Callable[[View], bool],
    ) -> None:
        self._views, self._has_cursor = views, has_cursor
        self._first: dict[View, int] = dict.fromkeys(EVERYWHERE, 0)
        self._arrangement = Arrangement("narrow", {}, ())
        self.panes = {name: make(name, line_at) for name, line_at in lines.items()}
        for name in EVERYWHERE:
            self.panes[name] = make(name, partial(self._line, name), is_cursor=partial(self._is_cursor, name))
        self._rules = [make(f"rule{number}", _rule) for number in range(RULES)]

    def __iter__(self) -> Iterator[Pane]:
        yield from self.panes.values()
        yield from self._rules

    @property
    def is_wide(self) -> bool:
        """Whether all views are side by side."""
        return self._arrangement.form == "wide"

    def has(self, name: str) -> bool:
        """Whether a pane is in view."""
        return name in self._arrangement.panes

    def place(self, name: str) -> Rectangle:
        """Return the place of a pane. One that is not in view has one line."""
        return self._arrangement.panes.get(name, NOWHERE)

    def arrange(self, width: int, height: int, view: View) -> None:
        """Put each pane in its place for a terminal of this size, and keep the cursors in view."""
        arrangement = arrange(
            width, height, view, {name: max(1, one.count) for name, one in self._views.items()}
        )
        if arrangement != self._arrangement:
            self._arrangement = arrangement
            for name, pane in self.panes.items():
                _put(pane, arrangement.panes.get(name))
            for number, pane in enumerate(self._rules):
                _put(pane, arrangement.rules[number] if number < len(arrangement.rules) else None)
        for name in EVERYWHERE:
            if self.has(name):
                self._scroll(name)

    def rows_in_view(self, name: View) -> tuple[int, int]:
        """Return the first row in view of a list, and how many rows fit."""
        return self._first[name], (self.place(name).height - self._heading_rows(name)) // self._lines_of(name)

    def row_at(self, name: View, y: int) -> int:
        """Return the number of the row in a line of the pane; negative in the heading."""
        heading = self._heading_rows(name)
        return self._first[name] + (y - heading) // self._lines_of(name) if y >= heading else -1

    def _scroll(self, name: View) -> None:
        """Keep the cursor of a list in view."""
        first, height = self.rows_in_view(name)
        height = max(1, height)
        view = self._views[name]
        first = max(min(first, view.cursor_row), view.cursor_row - height + 1)
        self._first[name] = max(0, min(first, max(0, view.count - height)))

    def _heading_rows(self, name: View) -> int:
        return int(name == "agents" and agent_heading(self.place(name).width) is not None)

    def _lines_of(self, name: View) -> int:
        """Return the number of lines of each row: beside the other views a proposal and an agent have two."""
        return 2 if self.is_wide and name != "timeline" else 1

    def _line(self, name: View, y: int, width: int) -> Line | None:
        row, view, lines = self.row_at(name, y), self._views[name], self._lines_of(name)
        if row < 0:
            return agent_heading(width)
        if (y - self._heading_rows(name)) % lines:
            return view.second(row, width)
        return view.row(row, width, has_second=lines > 1)

    def _is_cursor(self, name: View, y: int) -> bool:
        view = self._views[name]
        return bool(view.count) and self._has_cursor(name) and self.row_at(name, y) == view.cursor_row


def _rule(_row: int, width: int) -> Line:
    return Line((TextSpan("│" if width == 1 else "─" * width, "dim"),))


def _put(pane: Pane, rectangle: Rectangle | None) -> None:
    pane.display = rectangle is not None
    if rectangle is not None:
        pane.styles.offset = (rectangle.x, rectangle.y)
        pane.styles.width, pane.styles.height = rectangle.width, rectangle.height
