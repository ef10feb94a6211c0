"""The pane of details: its lines, the first one in view, the hunk at the cursor, and its syntax."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVarTuple

from editd_client.screen.patch_lines import DiffForm

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from typing import Any

    from editd_client.screen.desk import ReviewDesk
    from editd_client.screen.patch_lines import PatchLine

SHIFT_COLUMNS = 8
REST_SECONDS = 0.05  # of the cursor, before the syntax of its file is found
Unlit = TypeVarTuple("Unlit")


@dataclass(slots=True)
class Detail:
    """The lines of one thing. `about` names it: when another is shown, the pane begins at its top."""

    lines: Sequence[PatchLine] = field(default_factory=list)
    about: object = None
    top: int = 0
    height: int = 10
    hunk: str | None = None  # at the cursor
    path: str | None = None  # of the cursor
    is_wrapped: bool = False
    is_split: bool = False
    shift: int = 0
    _state: object = None  # the lines depend on it

    def form(self, width: int) -> DiffForm:
        """Return the form of a diff in a pane of this width."""
        return DiffForm(width, self.is_wrapped, self.shift, self.is_split)

    def turn_wrap(self) -> None:
        """Wrap long lines, or no longer."""
        self.is_wrapped, self.is_split, self.shift = not self.is_wrapped, False, 0

    def turn_split(self) -> None:
        """Show both sides beside each other, or no longer."""
        self.is_split, self.is_wrapped, self.shift = not self.is_split, False, 0

    def show(self, about: object, state: object, make: Callable[[], Iterable[PatchLine]]) -> None:
        """Show the lines of a thing, made anew if its `state` has changed. Keep the place in them."""
        if about == self.about and state == self._state:
            self.scroll(0)
            return
        lines = self.lines = list(make())
        self._state = state
        if about != self.about:
            self.about, self.top, self.shift = about, 0, 0
            self.hunk = self.path = None
        hunks = self.hunks
        if self.hunk not in hunks:
            self.hunk = hunks[0] if hunks else None
        if self.path is None:
            self.path = next((one.path for one in lines if one.path is not None), None)
        self.scroll(0)

    @property
    def hunks(self) -> list[str]:
        return [one.hunk for one in self.lines if one.is_title and one.hunk is not None]

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.lines if one.is_title and one.hunk is None and one.path is not None]

    def scroll(self, rows: int) -> None:
        """Move the lines in view."""
        self.top = min(max(0, self.top + rows), max(0, len(self.lines) - self.height))

    def step_hunk(self, step: int) -> None:
        """Move the cursor to the next hunk, or an earlier one, and show it."""
        hunks = self.hunks
        if not hunks:
            return
        at = hunks.index(self.hunk) if self.hunk in hunks else -1
        self.put(hunks[min(max(0, at + step), len(hunks) - 1)])

    def put(self, hunk: str) -> None:
        """Move the cursor to a hunk, and show it."""
        for number, one in enumerate(self.lines):
            if one.is_title and one.hunk == hunk:
                self.hunk, self.path = hunk, one.path
                self._reveal(number)
                return

    def step_file(self, step: int) -> None:
        """Move the cursor to the first hunk of the next file, or of an earlier one."""
        paths = self.paths
        if not paths:
            return
        at = paths.index(self.path) if self.path in paths else 0
        self.path = paths[min(max(0, at + step), len(paths) - 1)]
        for number, one in enumerate(self.lines):
            if one.path == self.path and one.is_title and one.hunk is None:
                self._reveal(number)
                break
        self.hunk = next((one.hunk for one in self.lines if one.path == self.path and one.hunk), self.hunk)

    def at(self, row: int) -> PatchLine | None:
        """Return the line in a row of the pane."""
        number = self.top + row
        return self.lines[number] if 0 <= number < len(self.lines) else None

    def _reveal(self, number: int) -> None:
        """Show a line, with the name of the file if that is above it, and with as much below as fits."""
        above = self.lines[number - 1] if number else None
        if above is not None and above.is_title and above.hunk is None:
            number -= 1
        if not self.top <= number < self.top + max(1, self.height - 3):
            self.top = number
        self.scroll(0)


class Lighting(Generic[*Unlit]):
    """Finds the syntax of the file at the cursor once the cursor rests, so that no key waits for it.

    `unlit` returns what is left to do, as arguments of `light`; None without any.
    """

    def __init__(
        self,
        desk: ReviewDesk,
        unlit: Callable[[], tuple[*Unlit] | None],
        light: Callable[[*Unlit], Coroutine[Any, Any, None]],
    ) -> None:
        self._desk, self._unlit, self._light = desk, unlit, light
        self._is_running = False

    def pump(self) -> None:
        """Begin the work, unless it runs."""
        if not self._is_running and self._unlit() is not None:
            self._is_running = True
            self._desk.begin(self._run)

    async def _run(self) -> None:
        try:
            while (one := self._unlit()) is not None:
                await asyncio.sleep(REST_SECONDS)
                if one == self._unlit():
                    await self._light(*one)
                    self._desk.redraw()
        finally:
            self._is_running = False
