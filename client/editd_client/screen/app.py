"""The screen itself: its panes, the keys, and the loop that fetches and draws.

S1  The screen is drawn at most ten times a second because of events, and at once because of a key.
S2  A key that moves never waits for the daemon: a row that is not there yet is drawn as `…`.
S3  While nothing happens, the screen wakes every ten seconds, for the ages on it.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.app import App, SuspendNotSupported
from textual.binding import Binding

from editd.wire.codec import convert
from editd.wire.messages import RefusalEntry
from editd_client.errors import EditdError, Unreachable
from editd_client.review.actions import EVERYWHERE
from editd_client.review.agents import totals
from editd_client.review.query import QueryError, TransactionQuery, exactly
from editd_client.review.timeline import RefusalRow
from editd_client.screen.agents_view import AgentsView
from editd_client.screen.clock import ScreenClock
from editd_client.screen.desk import in_words
from editd_client.screen.detail import SHIFT_COLUMNS
from editd_client.screen.dialogs import KeyQuestion, LinePicker, LineQuestion
from editd_client.screen.header import TITLES, ScreenHeader, header_line
from editd_client.screen.keys import bottom_lines, help_lines
from editd_client.screen.layout import PaneLayout
from editd_client.screen.lines import Line, Look, TextSpan
from editd_client.screen.panes import Pane, Terminal
from editd_client.screen.proposals_view import ProposalsView
from editd_client.screen.pump import FetchPump
from editd_client.screen.refusals import refusal_sentence
from editd_client.screen.timeline_view import TimelineView

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from textual import events
    from textual.binding import BindingType
    from textual.geometry import Size
    from textual.worker import Worker

    from editd_client.prepared_call import PreparedCall
    from editd_client.review.actions import View
    from editd_client.screen.detail import Detail
    from editd_client.screen.source import DaemonSource
    from editd_client.session_state import Happening

Result = TypeVar("Result")
AnyView = ProposalsView | TimelineView | AgentsView

DRAW_SECONDS = 0.1  # S1
BURST_SECONDS = 0.01  # for the events of one change to be drawn together
AGE_SECONDS = 10.0  # S3
KEY_SECONDS = 0.25  # after a key: an answer that comes by then is drawn at once
MOVES = {"j": 1, "down": 1, "k": -1, "up": -1}


class ReviewApp(App[None]):
    """`editctl review`: proposals, timeline and agents of one workspace."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; layers: base; overflow: hidden; }
    Pane { position: absolute; background: ansi_default; color: ansi_default; }
    LinesScreen > Pane { position: relative; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "next_pane(1)", show=False, priority=True),
        Binding("shift+tab", "next_pane(-1)", show=False, priority=True),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(
        self, source: DaemonSource, *, clock: ScreenClock | None = None, terminal: Terminal | None = None
    ) -> None:
        terminal = terminal or Terminal.of_environment()  # before Textual takes NO_COLOR out of it
        super().__init__(ansi_color=True)
        self.source = source
        self.clock = clock or ScreenClock()
        self.root = source.workspace.root
        self.terminal_kind = terminal
        self.proposals = ProposalsView(self)
        self.timeline = TimelineView(self)
        self.agents = AgentsView(self)
        self.views: Mapping[View, AnyView] = {
            "proposals": self.proposals, "timeline": self.timeline, "agents": self.agents,
        }  # fmt: skip
        self.view: View = "proposals"
        self._is_opened = False  # the first view is chosen
        self.is_in_detail = False
        self.drawn_at = 0.0  # monotonic
        make = partial(Pane, terminal, on_press=self._click, on_wheel=self._wheel)
        lines = {
            "header": self._header,
            "footer": self._footer,
            "detail": self._detail_line,
            "summary": self.agents.summary,
        } | {f"{name}_title": partial(self._list_title, name) for name in EVERYWHERE}
        self._layout = PaneLayout(make, lines, self.views, self._has_cursor)
        self._pump = FetchPump(self.views, lambda seconds: self.set_timer(seconds, self.redraw))
        self._message = ("", False)
        self._away_since: float | None = None
        self._key_at = -1e9  # monotonic, of the last key
        self._is_due = False  # because of an event
        self._is_key_due = False
        self._new_size: Size | None = None

    # ── Panes ──

    def on_mount(self) -> None:
        self.screen.mount(*self._layout)
        self.source.on_event, self.source.on_state = self._event, self._state
        self.run_worker(self.source.run(), exit_on_error=True)
        self.set_interval(AGE_SECONDS, self._draw_ages)
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        self._new_size = event.size  # `size` changes a little later
        self.draw()

    def draw(self) -> None:
        """Draw everything from the present state, and fetch what is missing."""
        self._is_due = self._is_key_due = False
        self.drawn_at = time.monotonic()
        self._prepare()
        for pane in self._layout:
            if pane.display:
                pane.is_away = self._away_since is not None and pane.pane not in ("header", "footer")
                pane.update()
        if self.source.is_live:
            if not self.detail.lines:
                self._pump.hurry(self.view)
            self._pump.pump({name for name in EVERYWHERE if name == self.view or self._layout.has(name)})

    def _open_first(self) -> None:
        """Open on the timeline if nothing waits, unless a key has come before the list."""
        if self._is_opened or not self.proposals.is_loaded:
            return
        self._is_opened = True
        if self.view == "proposals" and not self.proposals.count and self._key_at < 0:
            self.view = "timeline"

    def _prepare(self) -> None:
        """Put the panes in their places, and make the lines of the diff, which the keys move in."""
        self._open_first()
        width, height = self._new_size or self.size
        self._layout.arrange(width, height, self.view)
        self.timeline.first_row, self.timeline.height = self._layout.rows_in_view("timeline")
        if self._layout.is_wide and not self.agents.has_summary:
            self.agents.has_summary = True
            self.agents.reload()
        rectangle = self._layout.place("detail")
        self.detail.height = rectangle.height
        if self._layout.has("detail"):
            self.active.draw(rectangle.width)
            self.detail.scroll(0)

    def _draw_soon(self) -> None:
        """Draw the screen as soon as the keys that have come are carried out."""
        if not self._is_key_due and self.is_running:
            self._is_key_due = True
            self.call_later(self.draw)

    def redraw(self) -> None:
        """Draw the screen anew within DRAW_SECONDS, and what a key has asked for at once (S1)."""
        now = time.monotonic()
        wait = self.drawn_at + DRAW_SECONDS - now
        if wait <= 0 or now < self._key_at + KEY_SECONDS:
            self._draw_soon()
        else:
            self._draw_in(wait)

    def _draw_in(self, seconds: float) -> None:
        """Draw the screen after so many seconds, unless it is to be drawn already."""
        if not self._is_due and self.is_running:
            self._is_due = True
            self.set_timer(seconds, self.draw)

    def _draw_ages(self) -> None:
        if time.monotonic() >= self.drawn_at + AGE_SECONDS / 2:
            self._draw_soon()

    # ── Lines of the panes ──

    def _header(self, _row: int, width: int) -> Line:
        view = self.active
        away = None if self._away_since is None else int(time.monotonic() - self._away_since)
        counts: dict[View, int] = {
            "proposals": len(self.proposals.list),
            "timeline": 0,
            "agents": totals(self.agents.agents.rows)[0],
        }
        is_following = self.view == "timeline" and self.timeline.timeline.is_following
        head = self.timeline.timeline.feed.head
        folder = os.path.basename(self.root)
        query = view.query.text
        matches = self.timeline.timeline.count if self.view == "timeline" else view.count
        header = ScreenHeader(folder, self.view, counts, head, is_following, query, matches, away)
        return header_line(header, width)

    def _footer(self, row: int, width: int) -> Line | None:
        message, is_error = self._message
        if message and row == 0:
            return Line((TextSpan(f" {message}", "bad" if is_error else "good"),))
        lines = bottom_lines(self.view, width, self._layout.place("footer").height, self.active.words())
        return lines[row] if row < len(lines) else None

    def _list_title(self, name: View, _row: int, _width: int) -> Line:
        look: Look = "tab" if name == self.view and not self.is_in_detail else "bold"
        return Line((TextSpan(f" {self.views[name].title()} ", look),))

    def _has_cursor(self, name: View) -> bool:
        return name == self.view and not self.is_in_detail

    def _detail_line(self, row: int, _width: int) -> Line | None:
        one = self.detail.at(row)
        if one is None:
            return None
        is_current = one.is_title and one.hunk is not None and one.hunk == self.detail.hunk
        return one.with_cursor() if is_current else one.line

    # ── Events of the daemon ──

    def _event(self, happening: Happening) -> None:
        if happening.event == "resync":
            self._reload()
        if happening.event == "review":
            self.timeline.outdate()
        if happening.event == "refusal":
            refusal = RefusalRow.of(convert(happening.data["refusal"], RefusalEntry))
            self.timeline.add_refusal(refusal)
            self.say(refusal_sentence(refusal), is_error=True)
        if happening.event == "proposal":
            self.proposals.event("proposal", happening.data)
        made = happening.transaction
        if made is not None:
            self.timeline.announce(made.seq, made.kind)
            self.proposals.event("transaction", {})
        self.agents.reload()
        wait = self.drawn_at + DRAW_SECONDS - time.monotonic()  # also after a key: hundreds may come a second
        self._draw_in(max(BURST_SECONDS, wait))

    def _state(self, is_live: bool) -> None:
        if is_live:
            self._away_since = None
            self._reload()
        else:
            self._away_since = time.monotonic()
            self._tick()
        self.redraw()

    def _tick(self) -> None:
        """Count the seconds without a daemon."""
        if self._away_since is not None:
            self._layout.panes["header"].update()
            self.set_timer(1.0, self._tick)

    def _reload(self) -> None:
        for view in self.views.values():
            view.reload()

    # ── The desk ──

    @property
    def active(self) -> AnyView:
        return self.views[self.view]

    @property
    def detail(self) -> Detail:
        return self.active.detail

    async def ask(self, call: PreparedCall[Result]) -> Result:
        """Send a request, and once more after the PIN if the daemon needs it."""
        try:
            return await self.source.ask(call)
        except EditdError as error:
            if not error.data.get("needs_pin"):
                raise
            pin = await self.prompt(f"This needs your PIN. {error.fact}", is_hidden=True)
            if not pin:
                raise
            await self.source.unlock(pin)
            return await self.source.ask(call)

    async def prompt(self, title: str, *, text: str = "", is_hidden: bool = False) -> str | None:
        """Ask for a line; None if the person leaves the question."""
        return await self.push_screen_wait(LineQuestion(title, text, is_hidden=is_hidden))

    async def choose(self, title: str, lines: Sequence[Line], answers: Mapping[str, str]) -> str | None:
        """Show lines, and ask for one of the keys; None if the person leaves the question."""
        return await self.push_screen_wait(KeyQuestion(title, lines, answers, self.terminal_kind))

    async def pick(self, title: str, lines: Sequence[Line], rows: frozenset[int]) -> frozenset[int] | None:
        """Show lines, and ask which of the `rows` to take; None if the person leaves the question."""
        return await self.push_screen_wait(LinePicker(title, lines, rows, self.terminal_kind))

    async def outside(self, run: Callable[[], Result]) -> Result:
        """Call a function that has the terminal for itself."""
        try:
            with self.suspend():
                result = run()
        except SuspendNotSupported:  # the screen has no terminal, as in a test
            result = run()
        self.refresh(layout=True)
        return result

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carry out work beside the screen; its errors are shown."""

        async def run() -> None:
            await self._guard(work())

        _: Worker[None] = self.run_worker(run, exit_on_error=True)

    async def _guard(self, work: Coroutine[Any, Any, None], *, is_key: bool = False) -> None:
        try:
            await work
        except EditdError as error:
            if not is_key:  # a refused key does not hold back what the screen fetches
                self._pump.note_failure()
            self.say(in_words(error), is_error=True)
        except Unreachable as error:
            self.say(in_words(error), is_error=True)

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a sentence at the bottom until the next key."""
        self._message = (text, is_error)
        self.redraw()

    def open_view(self, view: View) -> None:
        """Bring a view to the front."""
        self.view, self.is_in_detail = view, False
        self._pump.hurry(view)
        if view == "agents":
            self.agents.reload()  # a grant has no event

    def copy(self, text: str) -> None:
        self.copy_to_clipboard(text)

    # ── Keys and the mouse ──

    async def on_key(self, event: events.Key) -> None:
        if len(self.screen_stack) > 1:
            return
        event.stop()
        key = event.character if event.is_printable and event.character else event.key
        self.press("space" if key == " " else key)

    def press(self, key: str) -> None:
        """Carry out a key: at once if it moves or chooses (S2), otherwise beside the screen."""
        self._message = ("", False)
        self._key_at = time.monotonic()
        self._prepare()
        if not self._move(key) and not self._turn_to(key):
            work = self._work(key)
            if work is not None:
                self.run_worker(self._guard_key(work), exit_on_error=True)
        self._draw_soon()

    async def _guard_key(self, work: Coroutine[Any, Any, None]) -> None:
        await self._guard(work, is_key=True)
        self._draw_soon()

    def _move(self, key: str) -> bool:
        """Carry out a key that moves the cursor or the diff. Return whether it is one."""
        half = max(1, self._height() // 2)
        steps = {
            **MOVES, "ctrl+d": half, "ctrl+u": -half, "pagedown": 2 * half, "pageup": -2 * half,
        }  # fmt: skip
        if key in steps:
            self.detail.scroll(steps[key]) if self.is_in_detail else self.active.move(steps[key])
        elif key in ("g", "home"):
            self.detail.scroll(-len(self.detail.lines)) if self.is_in_detail else self.active.put(0)
        elif key in ("G", "end"):
            count = self.active.count
            self.detail.scroll(len(self.detail.lines)) if self.is_in_detail else self.active.put(count - 1)
        elif key == "J" or (key == "K" and self.view != "agents"):
            self.detail.scroll(1 if key == "J" else -1)
        elif key in ("]", "["):
            self.detail.step_hunk(1 if key == "]" else -1)
        elif key in ("}", "{"):
            self.detail.step_file(1 if key == "}" else -1)
        elif key in ("left", "right") and not self.detail.is_wrapped:
            self.detail.shift = max(
                0, self.detail.shift + (SHIFT_COLUMNS if key == "right" else -SHIFT_COLUMNS)
            )
        else:
            return False
        return True

    def _height(self) -> int:
        """Return the number of lines in the pane with the cursor."""
        if self.is_in_detail:
            return self._layout.place("detail").height
        return self._layout.rows_in_view(self.view)[1]

    def _turn_to(self, key: str) -> bool:
        """Carry out a key that changes what is shown. Return whether it is one."""
        if key in ("1", "2", "3"):
            self.open_view(EVERYWHERE[int(key) - 1])
        elif key == "w":
            self.detail.turn_wrap()
        elif key == "s":
            self.detail.turn_split()
        elif key == "escape":
            self._leave()
        elif key in ("enter", "p") and self.view == "agents":
            self._go_to_agent(key)
        elif key == "enter":
            self.is_in_detail = not self.is_in_detail
        else:
            return False
        return True

    def _work(self, key: str) -> Coroutine[Any, Any, None] | None:
        """Return the work of a key, which may ask a question or the daemon; None without any."""
        if key == "q":
            self.exit()
        elif key == "?":
            return self._help()
        elif key == "/":
            return self._filter()
        elif key == "r" and self._away_since is not None:
            return self._start()
        else:
            return self.active.key(key, is_in_detail=self.is_in_detail)
        return None

    async def _help(self) -> None:
        await self.choose(f"Keys: {TITLES[self.view].lower()}", list(help_lines(self.view)), {})

    async def _start(self) -> None:
        self.say("The daemon is started …")
        await self.source.start()

    async def _filter(self) -> None:
        view = self.active
        text = await self.prompt("Filter, as session:NAME actor:NAME path:PATH kind:KIND text:",
                                 text=view.query.text)  # fmt: skip
        if text is None:
            return
        try:
            view.query = TransactionQuery.parse(text)
        except QueryError as error:
            self.say(str(error), is_error=True)

    def _leave(self) -> None:
        """Leave the diff. Without it, drop the marks, and without those the filter."""
        if self.is_in_detail:
            self.is_in_detail = False
        elif not (self.view == "timeline" and self.timeline.leave()) and not self.active.query.is_empty:
            self.active.query = TransactionQuery()

    def _go_to_agent(self, key: str) -> None:
        row = self.agents.selected
        if row is None:
            return
        query = TransactionQuery(kind=("outside",)) if row.doing == "outside" else TransactionQuery(
            session=(exactly(row.name),)
        )  # fmt: skip
        view: View = "timeline" if key == "enter" else "proposals"
        self.views[view].query = query
        self.open_view(view)

    def action_next_pane(self, step: int) -> None:
        """Go to the next pane: the diff, or on a wide terminal the next list."""
        if len(self.screen_stack) > 1:
            return
        self._message = ("", False)
        if not self._layout.is_wide:
            self.is_in_detail = not self.is_in_detail
        else:
            order: list[tuple[View, bool]] = [
                ("agents", False), ("proposals", False), ("timeline", False), (self.view, True),
            ]  # fmt: skip
            at = 3 if self.is_in_detail else order.index((self.view, False))
            self.view, self.is_in_detail = order[(at + step) % 4]
        self._draw_soon()

    def _click(self, pane: str, row: int, key: str) -> None:
        """Take a click: on a row or a hunk it moves the cursor there, on a key it presses it."""
        if pane in EVERYWHERE:
            name: View = pane
            self.view, self.is_in_detail = name, False
            number = self._layout.row_at(name, row)
            if 0 <= number < self.views[name].count:
                self.views[name].put(number)
        elif pane == "detail":
            self.is_in_detail = True
            one = self.detail.at(row)
            if one is not None and one.hunk is not None:
                self.detail.hunk, self.detail.path = one.hunk, one.path
        if key:
            self.press(key)
        self._draw_soon()

    def _wheel(self, pane: str, rows: int) -> None:
        if pane == "detail":
            self.detail.scroll(rows)
        elif pane in EVERYWHERE:
            self.view, self.is_in_detail = pane, False
            self.active.move(rows)
        self._draw_soon()
