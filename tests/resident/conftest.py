"""A place whose commands are the installed scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.resident import resident_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.resident import Resident
    from support.workplace import Workplace


@pytest.fixture
def resident(place: Workplace) -> Iterator[Resident]:
    """The scripts, with a running daemon. No helper runs yet."""
    place.write({"a.txt": "one\ntwo\n"})
    with place.start() as client, resident_in(place) as made:
        client.settle()
        yield made
