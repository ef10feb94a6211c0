"""One daemon for the tests of a module with `FILES`: an author of proposals, and a reviewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.reviewers import next_author_of, reviewer_of, set_pin
from support.workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A running daemon for all tests of the module."""
    with workplace(tmp_path_factory.mktemp("shared") / "place", request.module.FILES) as made:
        set_pin(made)
        with made.start() as client:
            client.settle()
            yield made
        made.stop()


@pytest.fixture
def author(shared: Workplace, request: pytest.FixtureRequest) -> Iterator[Client]:
    """The session `agent` of claude, in a workspace that has the module's `FILES` and no others."""
    with next_author_of(shared, request.module.FILES) as made:
        yield made


@pytest.fixture(scope="module")
def reviewer(shared: Workplace) -> Iterator[Client]:
    """A reviewer who has given the PIN."""
    with reviewer_of(shared) as made:
        yield made
