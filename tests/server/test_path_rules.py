"""The order of the rules on paths, as `docs/architecture.md` shows it, through the real socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from editd.values.path_rules import KINDS
from editd.wire import messages
from editd_client.errors import EditdError
from support.reviewers import configure, reconfigure, reviewer_of, set_pin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

PROTECT = 'protect = ["a"]\n'
KEPT = "[history]\nexclude = []\n"
RULE = '[[review.rule]]\nname = "no"\npaths = ["a"]\naction = "refuse"\n'


def refusal_of(client: Client) -> tuple[str, dict[str, Any]]:
    with pytest.raises(EditdError) as caught:
        client.apply([messages.Move(path=".env", to="a")])
    return caught.value.name, caught.value.data


def lifted(place: Workplace, author: Client, ann: Client) -> Iterator[tuple[str, str, str]]:
    """Lift one rule after the other. Yield the kind, the code and the fact of the refusal before that."""
    yield "protect", "path_protected", "protect"
    reconfigure(place, ann, RULE)
    yield "exclude", "path_protected", "from"
    reconfigure(place, ann, KEPT + RULE)
    yield "pause", "permission_denied", "paused_by"
    ann.session_resume("agent")
    yield "scope", "permission_denied", "write"
    author.session_close()
    author.session_open("agent")
    yield "lease", "leased", "holder"
    ann.lease_release(ann.lease_list().leases[0].lease)
    ann.review_allow(["a", ".env"], 60, session="agent")
    yield "review", "permission_denied", "rule"
    reconfigure(place, ann, f'{KEPT}[review]\ndefault = "ask"\n')


def test_an_edit_meets_the_rules_in_the_order_of_their_table(place: Workplace) -> None:
    set_pin(place)
    configure(place, PROTECT + RULE)
    place.write({".env": "secret\n"})
    with place.start() as author, reviewer_of(place) as ann:
        author.settle()
        ann.session_open("other")
        ann.lease_acquire(["a"], 600)
        author.session_open("agent", scope=messages.Scope(write=["b"]))
        ann.session_pause("agent")
        kinds = []
        for kind, code, fact in lifted(place, author, ann):
            name, data = refusal_of(author)
            assert (name, fact in data) == (code, True), (kind, name, data)
            kinds.append(kind)
        author.apply([messages.Move(path=".env", to="a")])
    assert [*kinds, "grant"] == list(KINDS)
    assert place.files() == {"a": b"secret\n"}
