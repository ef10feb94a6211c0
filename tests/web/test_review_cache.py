"""What a page keeps between two events, at a real daemon: in each order of an event and a result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from editd_client.aio import AsyncClient
from editd_client.session_state import Happening
from editd_client.web.review_cache import ReviewCache
from support.reviewers import PIN, propose, set_pin
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from editd.wire.messages import ProposalEntry
    from editd_client.aio import AsyncEvents
    from editd_client.client import Client
    from editd_client.prepared_call import PreparedCall
    from support.workplace import Workplace


class CountingClient(AsyncClient):
    """A client that notes the method of each request."""

    def __init__(self, at: str) -> None:
        super().__init__(at)
        self.methods: list[str] = []

    async def ask(self, asked: PreparedCall[Any]) -> Any:
        self.methods.append(asked.params.method)
        return await super().ask(asked)


class Watched:
    """A cache with its client and the events that it has not taken yet."""

    def __init__(self, client: CountingClient, events: AsyncEvents) -> None:
        self.client, self.events = client, events
        self.is_told = True
        self.cache = ReviewCache(client, lambda: self.is_told)

    async def shown(self, number: int) -> tuple[list[int], str, tuple[int, ...]]:
        """Return the waiting proposals, the state of one, and the counts, as the page asks for them."""
        entries = await self.cache.entries()
        counts = await self.cache.counts()
        shown = await self.cache.proposal(number)
        return [one.proposal for one in entries], shown.state, tuple(counts)

    async def take(self, *names: str) -> None:
        """Take the events up to the last of these, in this order."""
        wanted = [*names]
        while wanted:
            happening = await anext(self.events)
            self.cache.take(happening)
            if happening.event == wanted[0]:
                wanted.pop(0)

    async def approve(self, number: int) -> tuple[ProposalEntry, int]:
        view = (await self.client.proposal_get(number)).view
        made = await self.client.proposal_approve(number, view=view)
        assert made.transaction is not None
        return made.proposal, made.transaction.seq

    def sent(self) -> list[str]:
        methods, self.client.methods = self.client.methods, []
        return methods


@pytest.fixture
def author(place: Workplace) -> Iterator[Client]:
    set_pin(place)
    with place.start() as client:
        client.session_open("agent", actor="claude")
        for number in range(2):
            propose(client, write("a", f"{number}\n"))
        yield client


def watch(place: Workplace, steps: Callable[[Watched], Awaitable[None]]) -> None:
    async def run() -> None:
        async with CountingClient(str(place.socket)) as client:
            await client.hello("ann")
            await client.review_unlock(PIN)
            events = await client.subscribe(brief=True)
            watched = Watched(client, events)
            await watched.shown(2)
            watched.sent()
            await steps(watched)

    asyncio.run(run())


AFTER = ([1], "landed", (1, 1, 1))  # the page after the approval


def test_nothing_is_asked_for_twice(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        assert await watched.shown(2) == ([2, 1], "open", (2, 1, 0))
        assert watched.sent() == []

    watch(place, steps)


def test_the_result_of_a_decision_comes_before_its_events(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        made = await watched.approve(2)
        watched.sent()
        watched.cache.decided(*made)
        assert await watched.shown(2) == AFTER
        assert watched.sent() == ["proposal.list", "proposal.get"]
        await watched.take("transaction", "proposal", "proposal")
        assert await watched.shown(2) == AFTER
        assert watched.sent() == []

    watch(place, steps)


def test_the_events_of_a_decision_come_before_its_result(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        made = await watched.approve(2)
        watched.sent()
        await watched.take("transaction")
        assert await watched.shown(2) == AFTER
        await watched.take("proposal", "proposal")
        watched.cache.decided(*made)
        assert await watched.shown(2) == AFTER
        assert watched.sent() == ["proposal.list", "proposal.get"]

    watch(place, steps)


def test_a_change_during_a_fetch_is_fetched_the_next_time(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        made = await watched.approve(2)
        watched.cache.outdate()
        watched.sent()
        fetched = asyncio.gather(watched.cache.entries(), watched.cache.proposal(2))
        await asyncio.sleep(0)  # both requests are sent, and no answer has come
        assert watched.sent() == ["proposal.list", "proposal.get"]
        watched.cache.decided(*made)
        await fetched
        assert await watched.shown(2) == AFTER
        assert watched.sent() == ["proposal.list", "status", "proposal.get"]

    watch(place, steps)


def test_an_event_of_a_proposal_is_in_the_list_and_outdates_its_texts(
    place: Workplace, author: Client
) -> None:
    async def steps(watched: Watched) -> None:
        author.proposal_comment(2, "hello")
        await watched.take("proposal")
        assert [len(one.comments) for one in await watched.cache.entries()] == [1, 0]
        assert len((await watched.cache.proposal(2)).comments) == 1
        assert watched.sent() == ["proposal.get"]
        author.proposal_comment(1, "hello")
        await watched.take("proposal")
        await watched.shown(2)
        assert watched.sent() == []

    watch(place, steps)


def test_an_event_during_a_fetch_is_in_its_result(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        author.proposal_withdraw(1)
        watched.cache.outdate()
        fetched = asyncio.gather(watched.cache.entries(), watched.cache.proposal(2))
        await watched.take("proposal")
        await fetched
        assert await watched.shown(2) == ([2], "open", (1, 1, 0))
        assert watched.sent() == ["proposal.list", "proposal.get", "status"]

    watch(place, steps)


def test_a_cache_without_proposals_takes_their_events_for_the_count(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        watched.cache.outdate()
        assert tuple(await watched.cache.counts()) == (2, 1, 0)
        author.proposal_withdraw(1)
        await watched.take("proposal")
        assert tuple(await watched.cache.counts()) == (1, 1, 0)
        assert watched.sent() == ["status", "status"]

    watch(place, steps)


def test_an_event_during_the_fetch_of_the_counts_outdates_them(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        watched.cache.outdate()
        fetched = asyncio.create_task(watched.cache.counts())
        await asyncio.sleep(0)  # the request is sent, and its answer has not come
        author.proposal_withdraw(1)
        happening = Happening("proposal", None, {"proposal": {}})  # of which an empty cache reads nothing
        watched.cache.take(happening)
        assert (await fetched).proposals in {1, 2}
        assert (await watched.cache.counts()).proposals == 1
        assert watched.sent() == ["status", "status"]

    watch(place, steps)


def test_a_session_outdates_the_counts_alone(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        with place.client() as other:
            other.session_open("other")
            await watched.take("session")
            assert await watched.shown(2) == ([2, 1], "open", (2, 2, 0))
            assert watched.sent() == ["status"]

    watch(place, steps)


def test_nothing_is_kept_without_events_or_after_lost_ones(place: Workplace, author: Client) -> None:
    async def steps(watched: Watched) -> None:
        watched.cache.take(Happening("resync", None, {}))
        await watched.shown(2)
        whole = ["proposal.list", "status", "proposal.get"]
        assert watched.sent() == whole
        watched.is_told = False
        await watched.shown(2)
        assert watched.sent() == whole

    watch(place, steps)
