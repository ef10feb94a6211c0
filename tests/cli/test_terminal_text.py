"""Text of files on a terminal: each verb shows it without the control characters and colours of the file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pseudo_terminal import PseudoTerminal
from workplace import write

if TYPE_CHECKING:
    from workplace import Workplace

EDITCTL = [sys.executable, "-P", "-m", "editd_client"]
HIDDEN = "seen \x1b[30mhidden\x1b[0m \x1b[8mx\x1b[2m \x1b[1mend\n"


@pytest.mark.parametrize("words", [("read", "a.txt"), ("diff", "0"), ("show", "1"), ("blame", "a.txt")])
def test_no_colour_of_a_file_hides_a_text(place: Workplace, words: tuple[str, ...]) -> None:
    """The attack: black letters on a black terminal."""
    with place.start() as client:
        client.apply([write("a.txt", HIDDEN)])
        environment = {**place.environment, "EDITD_PAGER": "cat"}
        with PseudoTerminal(
            [*EDITCTL, *words], (200, 40), folder=str(place.root), environment=environment
        ) as terminal:
            terminal.until("seen .*end")
            assert rb"seen \x1b[30mhidden\x1b[0m \x1b[8mx\x1b[2m \x1b[1mend" in terminal.text()
