"""The README's five minutes, as a reader would type them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console import carried_out
from workplace import TOP

if TYPE_CHECKING:
    from workplace import Workplace

README = (TOP / "README.md").read_text()


def test_every_command_of_the_readme_prints_what_the_readme_says(place: Workplace) -> None:
    for printed, expected, rest in carried_out(place, README):
        assert printed == expected, rest
