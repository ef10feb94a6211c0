"""The terminal screen in a test: Textual's pilot on a real daemon, and the screen as text.

`python tests/screens.py --write` makes the screenshot of the README.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from editd_client.locate import Workspace
from editd_client.screen.app import ReviewApp
from editd_client.screen.clock import ScreenClock
from editd_client.screen.panes import Terminal
from editd_client.screen.source import DaemonSource
from reviewers import set_pin
from workplace import TOP, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from textual.pilot import Pilot

    from editd_client.client import Client
    from workplace import Workplace

WAIT_SECONDS = 10.0
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


class Seen:
    """The running screen: keys in, text out."""

    def __init__(self, app: ReviewApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """The lines of the screen in front, without the spaces at their ends."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(part.text for part in strip).rstrip() for strip in strips)

    @property
    def picture(self) -> str:
        """The screen with its colours."""
        return repr([list(strip) for strip in self.app.screen._compositor.render_strips()])

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    async def press(self, *keys: str) -> None:
        """Press keys, each by its character or its name, and let the screen carry them out."""
        for key in keys:
            await self.pilot.press(NAMES.get(key, key))
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Type a text into a question, and send it."""
        for character in text:
            await self.pilot.press(NAMES.get(character, character))
        await self.pilot.press("enter")
        await self.pilot.pause()

    async def until(self, is_so: str | Callable[[], object]) -> str:
        """Wait until a text is on the screen, or a condition holds. Return the screen."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (is_so in self.text if isinstance(is_so, str) else is_so()):
            assert time.monotonic() < deadline, f"never: {is_so}\n{self.text}"
            await asyncio.sleep(0.01)
        return self.text

    def _is_busy(self) -> bool:
        has_question = len(self.app.screen_stack) > 1  # its key is carried out when it is answered
        return (len(list(self.app.workers)) > 1 and not has_question) or self.app._is_due

    async def gone(self, text: str) -> None:
        """Wait until a text is not on the screen."""
        await self.until(lambda: text not in self.text)

    async def idle(self) -> None:
        """Wait until the screen has carried out all keys, and has fetched all that it needs."""
        before = None
        while before != self.picture:  # it is painted a little after it is drawn
            before = self.picture
            await self.pilot.pause(0.04)
            await self.until(lambda: not self._is_busy())


@asynccontextmanager
async def screen_of(
    place: Workplace,
    size: tuple[int, int],
    *,
    clock: ScreenClock | None = None,
    terminal: Terminal | None = None,
) -> AsyncIterator[Seen]:
    """Run the screen at a size, connected to the daemon of a workplace."""
    app = ReviewApp(
        DaemonSource(Workspace(str(place.root), "named")), clock=clock, terminal=terminal or Terminal()
    )
    async with app.run_test(size=size) as pilot:
        seen = Seen(app, pilot)
        await seen.until(lambda: app.source.is_live)
        await seen.idle()
        yield seen


# ── A workspace with a story, the same each time ──

PICTURE = TOP / "docs/images/review.svg"
LOADER = """import time


def load(path):
    for attempt in range(3):
        try:
            return parse(open(path))
        except OSError:
            time.sleep(1)
    return None
"""
LOCK = "".join(f'    "package-{number}": "1.{number}.0",\n' for number in range(1, 13))


@contextmanager
def shop(folder: Path) -> Iterator[Workplace]:
    """Run a daemon on a workspace in which two agents work: two proposals wait, and one hunk conflicts."""
    files = {"src/loader.py": LOADER, "package-lock.json": LOCK, "src/cart.py": "class Basket:\n    pass\n"}
    with workplace(folder / "shop", files) as place:
        set_pin(place)
        with place.start() as ann, place.client() as codex:
            ann.settle()
            ann.hello("ann")
            codex.session_open("codex", actor="codex")
            with place.client() as claude:
                claude.session_open("claude-2", actor="claude")
                claude.lease_acquire(["src/**"], 3600)
                claude.apply([replace("src/cart.py", "Basket", "Cart")], message="Rename Basket to Cart")
                claude.apply(
                    [write("tests/test_cart.py", "from src.cart import Cart\n")], message="Test Cart"
                )
                codex.apply([replace("package-lock.json", "1.3.0", "1.3.1")], message="Bump package-3")
                _propose(claude, codex)
                ann.apply([replace("package-lock.json", "1.11.0", "1.11.5")], message="Bump package-11")
                undone = codex.apply([write("notes.txt", "remove me\n")], message="Notes").transaction
                assert undone is not None
                ann.undo(undone.seq)
                yield place
        place.stop()


def _propose(claude: Client, codex: Client) -> None:
    claude.apply(
        [
            replace("src/loader.py", "def load(path):\n    for attempt in range(3):",
                    "def load(path, retries=5):\n    for attempt in range(retries):"),
            replace("src/loader.py", "    return None", "    raise LoadError(path)"),
            write("src/errors.py", "class LoadError(Exception):\n    pass\n"),
        ],
        propose=True, message="Retry with backoff",
    )  # fmt: skip
    codex.apply(
        [replace("package-lock.json", "1.5.0", "1.5.1"), replace("package-lock.json", "1.11.0", "1.11.1")],
        propose=True, message="Bump two packages",
    )  # fmt: skip


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
    assert sys.argv[1:] == ["--write"], "usage: python tests/screens.py --write"
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture())
