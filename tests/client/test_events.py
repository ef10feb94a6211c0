"""editd_client.session_state: what a subscription hears, in between and after other requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError, Unreachable
from support.workplace import write

if TYPE_CHECKING:
    from support.workplace import Workplace


def test_events_are_typed_and_come_in_between_requests_of_the_same_client(place: Workplace) -> None:
    with place.start() as client:
        events = client.subscribe()
        assert (events.subscription, events.head) == (1, 0)
        client.apply([write("a", "1\n")], message="one")
        client.apply([write("a", "2\n")], message="two")
        assert client.status().head == 2
        heard = [next(events), next(events)]
        assert [one.event for one in heard] == ["transaction", "transaction"]
        assert [one.transaction.message for one in heard if one.transaction] == ["one", "two"]
        assert events.wait(0.05) is None
        assert client.status().head == 2


def test_two_subscriptions_of_a_client_each_hear_their_own(place: Workplace) -> None:
    with place.start() as client:
        everything, sources = client.subscribe(since=0), client.subscribe(paths=["src"])
        client.apply([write("a", "1\n")])
        client.apply([write("src/a", "1\n")])
        client.settle()
        assert [one.transaction.seq for one in (next(everything), next(everything)) if one.transaction] == [
            1,
            2,
        ]
        assert [next(sources).transaction is not None, sources.wait(0.05)] == [True, None]
        sources.close()
        sources.close()
        client.apply([write("src/a", "2\n")])
        assert sources.wait(0.05) is None
        assert everything.wait(5) is not None


def test_the_events_end_when_the_daemon_does(place: Workplace) -> None:
    with place.start() as client, place.client() as other:
        events = client.subscribe()
        other.apply([write("a", "1\n")])
        other.shutdown()
        assert [happening.event for happening in events] == ["transaction", "shutdown"]


def test_a_daemon_that_goes_without_a_word_is_unreachable(place: Workplace) -> None:
    with place.start() as client:
        events = client.subscribe()
        place.kill()
        with pytest.raises(Unreachable):
            events.wait(5)


def test_a_subscription_that_is_left_is_over(place: Workplace) -> None:
    with place.start() as client:
        with client.subscribe() as events:
            client.apply([write("a", "1\n")])
            assert next(events).transaction is not None
        client.apply([write("a", "2\n")])
        assert list(events) == []
        with pytest.raises(EditdError):
            client.subscribe(since=99)
        assert client.status().head == 2
