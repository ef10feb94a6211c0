"""Two reviewers at once, one at the terminal screen and one at the page of `editctl web`."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from support.delays import SERIES, Delays
from support.reviewers import PIN
from support.screens import Seen, on_screen, propose
from support.web_page import PART, WebPage, web_page
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

    from editd_client.client import Client
    from support.workplace import Workplace

ROUNDS = 3
SEEN_SECONDS_MAX = 0.2


@pytest.fixture(scope="module")
def page(place: Workplace) -> Iterator[WebPage]:
    """A page whose browser has given the PIN."""
    with web_page(place) as made:
        made.enter().post("/allow", {"do": "allow", "paths": "none", "ttl": "1m", "pin": PIN})
        yield made


async def unlock(seen: Seen, author: Client) -> None:
    """Give the PIN at the screen, too, with a first decision."""
    number = propose(author, write("first", "x\n"))
    await seen.until(f"P{number}")
    await seen.idle()
    await seen.press("1")  # it has opened on the timeline
    await seen.idle()
    await seen.press("x")
    await seen.until("Reject all that is left")
    await seen.type("no")
    await seen.until("PIN")
    await seen.type(PIN)
    await seen.until(f"P{number} is rejected")


def approval(page: WebPage, number: int) -> dict[str, str]:
    return {**page.form(f"/proposals/{number}"), "do": "approve"}


def read_until_landed(stream: HTTPResponse) -> float:
    """Return the time at which the page was sent that its proposal has landed."""
    while b"landed" not in (line := stream.readline()) or b'"detail"' not in line:
        assert line
    return time.monotonic()


def test_a_proposal_that_both_approve_lands_once(place: Workplace, author: Client, page: WebPage) -> None:
    async def steps(seen: Seen) -> None:
        await unlock(seen, author)
        for at in range(ROUNDS):
            number = propose(author, write(f"once{at}", "x\n"))
            await seen.until(f"P{number}")
            await seen.idle()
            form, head = await asyncio.to_thread(approval, page, number), author.status().head
            posted = asyncio.create_task(asyncio.to_thread(page.post, f"/proposals/{number}/decide", form))
            await seen.press("1")  # it has opened on the timeline
            await seen.idle()
            await seen.press("a")
            answer = await posted
            await seen.until("Nothing waits")
            assert answer.status in (303, 409)
            assert author.proposal_get(number).state == "landed"
            assert author.status().head == head + 1

    on_screen(place, (140, 40), steps)


def test_each_sees_the_decision_of_the_other_within_200_ms(
    place: Workplace, author: Client, page: WebPage, *, is_long: bool
) -> None:
    """The short form measures one series each way, the long form three."""

    async def on_the_page(seen: Seen, delays: Delays) -> None:
        """Approve at the screen, and measure the time until the page is sent it."""
        number = propose(author, write("a", f"{time.monotonic()}\n"))
        await seen.until(f"P{number}")
        await seen.idle()
        path = f"/proposals/{number}"
        shown = await asyncio.to_thread(lambda: page.get(path, Accept=PART).parts["version"])
        with page.opened("GET", f"/events?{urlencode({'page': path, 'version': shown})}") as stream:
            landed = asyncio.create_task(asyncio.to_thread(read_until_landed, stream))
            delays.begin()
            await seen.press("1")  # it has opened on the timeline
            await seen.idle()
            await seen.press("a")
            delays.end(await landed)

    async def at_the_screen(seen: Seen, delays: Delays) -> None:
        """Approve on the page, and measure the time until the screen shows it."""
        number = propose(author, write("b", f"{time.monotonic()}\n"))
        await seen.until(f"P{number}")
        form = await asyncio.to_thread(approval, page, number)
        delays.begin()
        posted = asyncio.create_task(asyncio.to_thread(page.post, f"/proposals/{number}/decide", form))
        await seen.until("Nothing waits")
        delays.end()
        await posted

    async def steps(seen: Seen) -> None:
        await unlock(seen, author)
        for approve in (on_the_page, at_the_screen):
            delays = Delays((os.getpid(), author.status().pid, page.pid), ROUNDS, SERIES if is_long else 1)
            while not delays.is_enough:
                await approve(seen, delays)
            delays.check(SEEN_SECONDS_MAX)

    on_screen(place, (140, 40), steps)
