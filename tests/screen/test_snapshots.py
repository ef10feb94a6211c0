"""The whole screen as text, at each size and in each view, compared with the files in `snapshots`.

EDITD_REWRITE=1 writes them anew: read the difference before you commit it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd_client.screen.panes import Terminal
from support.screens import FixedClock, screen_of
from support.shop import shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

FOLDER = Path(__file__).parent / "snapshots"
PLAIN = Terminal(has_colours=False, is_ascii=True)
SHOTS: dict[str, tuple[tuple[int, int], str, Terminal]] = {  # name: the size, the keys, the terminal
    "proposals-80x24": ((80, 24), "j", Terminal()),
    "proposals-59x24": ((59, 24), "j", Terminal()),
    "proposals-110x30": ((110, 30), "j", Terminal()),
    "conflict-80x24": ((80, 24), "]", Terminal()),
    "timeline-80x24": ((80, 24), "2j", Terminal()),
    "timeline-59x24": ((59, 24), "2j", Terminal()),
    "timeline-30x10": ((30, 10), "2j", Terminal()),
    "undo-80x24": ((80, 24), "2jjju", Terminal()),
    "agents-80x24": ((80, 24), "3", Terminal()),
    "all-140x40": ((140, 40), "j", Terminal()),
    "help-80x24": ((80, 24), "?", Terminal()),
    "ascii-80x24": ((80, 24), "j", PLAIN),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with shop(tmp_path_factory.mktemp("snapshots")) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        patch.delenv("EDITD_SOCKET", raising=False)
        yield made


@pytest.mark.parametrize("name", SHOTS)
def test_the_screen_is_as_in_its_snapshot(place: Workplace, name: str) -> None:
    size, keys, terminal = SHOTS[name]

    async def shot() -> str:
        async with screen_of(place, size, clock=FixedClock(), terminal=terminal) as seen:
            for key in keys:
                await seen.press(key)
                await seen.idle()
            return seen.text + "\n"

    text = asyncio.run(shot())
    file = FOLDER / f"{name}.txt"
    if os.environ.get("EDITD_REWRITE"):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()
