"""A page with a browser that has entered, for the tests over HTTP, and Chromium for all the others."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from support.chromium import Chromium, Tab
from support.web_page import web_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.web_page import WebPage
    from support.workplace import Workplace


@pytest.fixture
def page(place: Workplace, author: Client) -> Iterator[WebPage]:
    """The daemon has asked the browser for nothing yet."""
    assert author.status().state == "ready"
    with web_page(place) as made:
        yield made.enter()


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """One Chromium for all tests of a process, because its start takes a second of a CPU."""
    with closing(Chromium()) as made:
        yield made


@pytest.fixture(scope="module")
def window(browser: Chromium) -> Iterator[Tab]:
    """A tab for the tests of a module, each of which leaves the page that it has opened."""
    with closing(Tab(browser)) as made:
        yield made
