"""The crash tests run daemons that are started as users start them: by exec, with nothing imported before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from workplace import Workplace


@pytest.fixture
def place(place: Workplace) -> Workplace:
    """An empty workspace; its daemon is not started yet."""
    place.is_forked = False
    return place
