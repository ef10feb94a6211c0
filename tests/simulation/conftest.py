"""What tests of the simulated world share."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def collecting() -> Iterator[Callable[[], object]]:
    """Collect garbage only when the test asks for it: between two histories, and once before the first.

    A killed engine leaves objects that close their descriptors when they are collected. In the middle of
    another history, that counts as a call of it.
    """
    gc.collect()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()
