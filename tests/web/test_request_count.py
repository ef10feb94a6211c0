"""The requests that the page sends to the daemon, counted at its socket."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from support.reviewers import PIN, author_of, propose, set_pin
from support.socket_proxy import Cutter, cutter
from support.web_page import PART, web_page
from support.workplace import replace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.web_page import WebPage

LINES = "".join(f"#{n}\n" for n in range(1, 31))
FILES = {"a": LINES, "b": LINES}
QUIET_SECONDS = 1.0  # ten times as long as a stream rests between two looks
APPROVAL_MAX = 3


class Counted:
    """A browser with the PIN, whose requests pass a proxy, and an author."""

    def __init__(self, author: Client, page: WebPage, proxy: Cutter) -> None:
        self.author, self.page, self.proxy = author, page, proxy

    def until_quiet(self) -> list[str]:
        """Return the requests since the last call, once no more come."""
        count = -1
        while count != len(self.proxy.methods):
            count = len(self.proxy.methods)
            time.sleep(QUIET_SECONDS)
        methods, self.proxy.methods = self.proxy.methods, []
        return methods


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    with workplace(tmp_path / "place") as place:
        set_pin(place)
        with (
            author_of(place, FILES) as author,
            cutter(place.folder / "proxy", str(place.socket)) as proxy,
        ):
            place.variables["EDITD_SOCKET"] = str(place.folder / "proxy")
            with web_page(place) as page:
                del place.variables["EDITD_SOCKET"]
                page.enter().post("/allow", {"do": "allow", "paths": "none", "ttl": "1m", "pin": PIN})
                yield Counted(author, page, proxy)


@pytest.mark.parametrize("others", [0, 2])
def test_an_approval_sends_three_requests(counted: Counted, others: int) -> None:
    """One lands the proposal, and the others show it and the list: also to the stream of the page."""
    for number in range(others + 1):
        propose(counted.author, replace("a", f"#{number + 5}\n", "#five\n"))
    path = f"/proposals/{others + 1}"
    shown = counted.page.get(path, Accept=PART).parts["version"]
    form = {**counted.page.form(path), "do": "approve"}
    with counted.page.opened("GET", f"/events?{urlencode({'page': path, 'version': shown})}") as stream:
        counted.until_quiet()
        answer = counted.page.post(f"{path}/decide", form, Accept=PART)
        assert "landed as" in answer.parts["said"]
        while b"landed" not in (line := stream.readline()) or b'"detail"' not in line:
            assert line
        methods = counted.until_quiet()
    assert "proposal.approve" in methods
    assert len(methods) <= APPROVAL_MAX, methods


def test_a_page_that_is_opened_is_fetched(counted: Counted) -> None:
    """Not only what an event has outdated, because the event may come later than the browser."""
    propose(counted.author, replace("a", "#5\n", "#five\n"))
    for _ in range(2):
        counted.until_quiet()
        counted.page.get("/proposals/1")
        assert sorted(counted.until_quiet()) == ["proposal.get", "proposal.list", "status"]
