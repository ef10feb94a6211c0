"""A daemon with some history for the tests of a module, and an author whose proposals end with each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.reviewers import reviewer_of, set_pin
from support.screens import LINES
from support.workplace import Workplace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client

EDITS = 60


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A daemon with some history, for all tests of the module. The screen has the environment of a shell."""
    with workplace(tmp_path_factory.mktemp("screen") / "shop") as made, pytest.MonkeyPatch.context() as patch:
        set_pin(made)
        made.git("init", "-q", "-b", "main")
        made.git("config", "user.name", "Ann")
        made.git("config", "user.email", "ann@example.org")
        made.write({f"src/f{number}.py": LINES for number in range(4)})
        for name, value in made.environment.items():
            patch.setenv(name, value)
        for name in ("EDITD_SOCKET", "EDITD_SESSION", "NO_COLOR", "VISUAL"):
            patch.delenv(name, raising=False)
        with made.start() as client:
            client.settle()
            for number in range(EDITS):
                client.apply(
                    [write(f"n{number % 5}", f"{number}\n")], session="robot", message=f"edit {number}"
                )
            yield made
        made.stop()


@pytest.fixture
def author(place: Workplace) -> Iterator[Client]:
    """A session of its own for a test; its proposals are withdrawn afterwards."""
    with place.client() as client:
        client.session_open("agent", actor="claude", fresh=True)
        place.write({f"src/f{number}.py": LINES for number in range(4)})
        (place.root / "src/new.py").unlink(missing_ok=True)
        client.settle()
        yield client
        for one in client.proposal_list().proposals:
            with reviewer_of(place) as reviewer:
                reviewer.proposal_reject(one.proposal)
        for grant in client.review_grants().grants:
            with reviewer_of(place) as reviewer:
                reviewer.review_revoke(grant.grant)
        client.session_close()
