"""docs/multi-agent.md: its recipes do what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console import carried_out
from workplace import TOP

if TYPE_CHECKING:
    from workplace import Workplace

PAGE = (TOP / "docs/multi-agent.md").read_text()


def test_every_command_of_the_recipes_prints_what_the_page_says(place: Workplace) -> None:
    done = 0
    for printed, expected, rest in carried_out(place, PAGE):
        assert printed == expected, rest
        done += 1
    assert done > 20
