"""A workspace for all tests of a file, whose daemon runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.reviewers import configure
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("mcp") / "place") as made:
        configure(made, '[permissions]\nagents = ["undo_others"]\n')
        made.start().close()
        yield made
        made.stop()
