"""The terminal screen in a test: Textual's pilot on a real daemon, and the screen as text.

`python tests/support/screens.py --write` makes the screenshot of the README.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.keys import _character_to_key

from editd_client.locate import Workspace
from editd_client.screen.app import ReviewApp
from editd_client.screen.clock import ScreenClock
from editd_client.screen.panes import Terminal
from editd_client.screen.source import DaemonSource

if __name__ == "__main__":  # as a script it finds the others itself
    sys.path[0] = os.path.dirname(sys.path[0])

from support.shop import shop
from support.workplace import TOP, replace, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.pilot import Pilot
    from textual.strip import Strip

    from editd_client.client import Client
    from support.workplace import Workplace

WAIT_SECONDS = 30.0
NAMES = {" ": "space", "esc": "escape"}  # of keys, as Textual has them


class FixedClock(ScreenClock):
    """A clock that always shows the same times, for screens that are compared."""

    def now(self) -> datetime:
        return datetime(2026, 11, 25, 12, 5, tzinfo=UTC)

    def time_of_day(self, time: datetime) -> str:
        del time
        return "12:04:31"

    def age(self, time: datetime | None) -> str:
        return "" if time is None else "2m"


class SeenApp(ReviewApp):
    """The screen, which counts how often it is painted."""

    paints = 0

    def post_display_hook(self) -> None:
        self.paints += 1


class Seen:
    """The running screen: keys in, text out."""

    def __init__(self, app: SeenApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """The lines of the screen in front, without the spaces at their ends."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(part.text for part in strip).rstrip() for strip in strips)

    @property
    def picture(self) -> list[Strip]:
        """The screen with its colours."""
        return self.app.screen._compositor.render_strips()

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    async def press(self, *keys: str) -> None:
        """Press keys, each by its character or its name, and let the screen carry them out.

        Does not wait until the process is idle, as the pilot does: 40 ms a key, or a second under load.
        """
        for key in keys:
            name = NAMES.get(key, key)
            character = " " if name == "space" else key if len(key) == 1 else None
            if len(name) == 1 and not name.isalnum():
                name = _character_to_key(name)
            event = events.Key(name, character)
            event.set_sender(self.app)
            assert self.app._driver is not None
            self.app._driver.send_message(event)
        await self.settle()

    async def type(self, text: str) -> None:
        """Type a text into a question, and send it."""
        await self.press(*text, "enter")

    async def settle(self) -> None:
        """Wait until the screen and the question have taken all keys, and are painted."""
        for pump in (self.app, self.app.screen, self.app.focused, self.app):
            is_idle = asyncio.Event()
            if pump is not None and not self.app._exit and pump.call_later(is_idle.set):
                with suppress(TimeoutError):  # it ends
                    await asyncio.wait_for(is_idle.wait(), 1)
        if not self.app._exit:
            self.app.screen._on_timer_update()

    async def until(self, is_so: str | Callable[[], object]) -> str:
        """Wait until a text is on the screen, or a condition holds. Return the screen."""
        deadline = time.monotonic() + WAIT_SECONDS
        painted = -1
        while True:
            if not isinstance(is_so, str):
                if is_so():
                    return self.text
            elif painted != self.app.paints:
                painted, text = self.app.paints, self.text
                if is_so in text:
                    return text
            assert time.monotonic() < deadline, f"never: {is_so}\n{self.text}"
            await asyncio.sleep(0.01)

    async def gone(self, text: str) -> None:
        """Wait until a text is not on the screen."""
        await self.until(lambda: text not in self.text)

    async def idle(self) -> None:
        """Wait until the screen has carried out all keys, and has fetched all that it needs."""
        deadline = time.monotonic() + WAIT_SECONDS
        painted = -1
        while painted != self.app.paints or self._is_busy() or not self.text.strip():
            assert time.monotonic() < deadline, f"never idle: {list(self.app.workers)}\n{self.text}"
            painted = self.app.paints
            await self.settle()
            await asyncio.sleep(0.005)

    def _is_busy(self) -> bool:
        if len(self.app.screen_stack) > 1:
            return False  # a key is carried out when its question is answered
        is_fetching = self.app.view != "agents" and self.app.active.is_wanting  # those are often outdated
        return is_fetching or len(list(self.app.workers)) > 1 or self.app._is_due or self.app._is_key_due


@asynccontextmanager
async def screen_of(
    place: Workplace,
    size: tuple[int, int],
    *,
    clock: ScreenClock | None = None,
    terminal: Terminal | None = None,
) -> AsyncIterator[Seen]:
    """Run the screen at a size, connected to the daemon of a workplace."""
    app = SeenApp(
        DaemonSource(Workspace(str(place.root), "named")), clock=clock, terminal=terminal or Terminal()
    )
    async with app.run_test(size=size) as pilot:
        seen = Seen(app, pilot)
        await seen.until(lambda: app.source.is_live)
        await seen.idle()
        yield seen


# ── The workspace of tests/screen/conftest.py ──

SIZES = [(80, 24), (140, 40), (59, 24)]
LINES = "".join(f"{number}\n" for number in range(1, 41))  # of src/f0.py to src/f3.py


def propose(client: Client, *edits: Any, message: str = "Three words") -> int:
    """Propose edits, by default three hunks of a file and a new file; return the number."""
    made = client.apply(
        list(edits)
        or [
            replace("src/f1.py", "5\n6", "five\n6"),
            replace("src/f1.py", "\n20\n", "\ntwenty\n"),
            replace("src/f1.py", "\n35\n", "\nthirty-five\n"),
            write("src/new.py", "a = 1\nb = 2\n"),
        ],
        propose=True,
        message=message,
    )
    number: int | None = getattr(made.proposal, "proposal", None)
    assert number is not None
    return number


def on_screen(place: Workplace, size: tuple[int, int], steps: Any, **more: Any) -> None:
    """Run the steps on a screen of this size."""

    async def run() -> None:
        async with screen_of(place, size, **more) as seen:
            await steps(seen)

    asyncio.run(run())


# ── The screenshot of the README ──

PICTURE = TOP / "docs/images/review.svg"


def picture() -> str:
    """Return the screenshot: all views side by side, without a font from elsewhere."""

    async def taken(place: Workplace) -> str:
        async with screen_of(place, (140, 40), clock=FixedClock()) as seen:
            await seen.press("j")
            await seen.until("Retry with backoff")
            await seen.press("}", "space")
            await seen.idle()
            return seen.app.export_screenshot(title="editctl review")

    with tempfile.TemporaryDirectory() as folder, shop(Path(folder)) as place:
        os.environ.update(place.environment)
        svg = asyncio.run(taken(place))
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], "usage: python tests/support/screens.py --write"
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture())
