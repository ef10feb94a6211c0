"""A page with a browser that has entered, for the tests over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from web_page import web_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from web_page import WebPage
    from workplace import Workplace


@pytest.fixture
def page(place: Workplace, author: Client) -> Iterator[WebPage]:
    """The daemon has asked the browser for nothing yet."""
    assert author.status().state == "ready"
    with web_page(place) as made:
        yield made.enter()
