"""Two reviewers at once, one at the page and one on the socket, as the terminal screen is."""

from __future__ import annotations

import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from editd_client.errors import EditdError
from support.delays import SERIES, Delays
from support.reviewers import PIN, author_of, reviewer_of, set_pin
from support.web_page import PART, web_page
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd_client.client import Client
    from support.web_page import WebPage

ROUNDS = 3
SEEN_SECONDS_MAX = 0.2


class Reviews:
    """A page and a reviewer on the socket for all tests of this module, and the author of new proposals."""

    def __init__(self, author: Client, page: WebPage, reviewer: Client, watcher: Client) -> None:
        self.author, self.page, self.reviewer, self.watcher = author, page, reviewer, watcher
        self.numbers = itertools.count()

    def propose(self) -> int:
        made = self.author.apply([write(f"new{next(self.numbers)}", "x\n")], propose=True).proposal
        number = getattr(made, "proposal", None)
        assert isinstance(number, int)
        return number

    def approve_on_the_socket(self, number: int) -> None:
        self.reviewer.proposal_approve(number, view=self.reviewer.proposal_get(number).view)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reviews]:
    with workplace(tmp_path_factory.mktemp("two") / "place") as place:
        set_pin(place)
        with (
            author_of(place, {"a": "x\n"}) as author,
            web_page(place) as page,
            reviewer_of(place) as reviewer,
            place.client() as watcher,
        ):
            made = Reviews(author, page.enter(), reviewer, watcher)
            made.page.post("/allow", {"do": "allow", "paths": "none", "ttl": "1m", "pin": PIN})
            yield made


def test_a_proposal_that_both_approve_lands_once(reviews: Reviews) -> None:
    for _ in range(ROUNDS):
        number = reviews.propose()
        form = {**reviews.page.form(f"/proposals/{number}"), "do": "approve"}
        head = reviews.author.status().head
        gate = threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            faces = [
                pool.submit(approve_on_the_page, reviews, number, form, gate),
                pool.submit(approve_on_the_socket, reviews, number, gate),
            ]
            assert sorted(face.result() for face in faces) == ["decided", "landed"]
        assert reviews.author.status().head == head + 1


def approve_on_the_page(reviews: Reviews, number: int, form: dict[str, str], gate: threading.Barrier) -> str:
    gate.wait()
    answer = reviews.page.post(f"/proposals/{number}/decide", form)
    return {303: "landed", 409: "decided"}[answer.status]


def approve_on_the_socket(reviews: Reviews, number: int, gate: threading.Barrier) -> str:
    gate.wait()
    try:
        reviews.approve_on_the_socket(number)
    except EditdError as error:
        return error.name
    return "landed"


def test_the_page_shows_a_decision_of_the_other_within_200_ms(reviews: Reviews, *, is_long: bool) -> None:
    def approve(delays: Delays) -> None:
        number = reviews.propose()
        path = f"/proposals/{number}"
        shown = reviews.page.get(path, Accept=PART).parts["version"]
        with reviews.page.opened("GET", f"/events?{urlencode({'page': path, 'version': shown})}") as stream:
            delays.begin()
            reviews.approve_on_the_socket(number)
            while b"landed" not in (line := stream.readline()) or b'"detail"' not in line:
                assert line
            delays.end()

    check_delays(reviews, approve, is_long=is_long)


def test_the_other_is_told_of_a_decision_on_the_page_within_200_ms(
    reviews: Reviews, *, is_long: bool
) -> None:
    events = reviews.watcher.events(events=["proposal"])

    def approve(delays: Delays) -> None:
        number = reviews.propose()
        form = {**reviews.page.form(f"/proposals/{number}"), "do": "approve"}
        delays.begin()
        reviews.page.post(f"/proposals/{number}/decide", form)
        while next(events).data.get("what") != "landed":
            continue
        delays.end()

    check_delays(reviews, approve, is_long=is_long)


def check_delays(reviews: Reviews, approve: Callable[[Delays], None], *, is_long: bool) -> None:
    """Measure one series of delays, in the long form three."""
    pids = (os.getpid(), reviews.author.status().pid, reviews.page.pid)
    delays = Delays(pids, ROUNDS, SERIES if is_long else 1)
    while not delays.is_enough:
        approve(delays)
    delays.check(SEEN_SECONDS_MAX)
