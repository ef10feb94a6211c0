"""`forget` in a workspace that several hosts share: the log keeps its contents, and the exchange goes on."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.hosts import exchange, hosts
from support.state_search import holders
from support.workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path


def test_the_log_keeps_what_a_host_forgets_and_it_says_so(tmp_path: Path) -> None:
    secret = secrets.token_hex(20)
    with hosts(tmp_path, 2, {"a.txt": "one\n"}) as (places, (one, other), _):
        one.apply([write("app.conf", f"password = {secret}\n")])
        one.apply([replace("app.conf", secret, "$PASSWORD")])
        exchange(one, other)
        done = one.forget(text=secret)
        assert [gone.version for gone in done.removed] == done.shared
        assert done.remaining == []
        assert all(name.startswith("remote/") for name in holders(places[0].state, secret.encode()))
        assert holders(places[1].state, secret.encode()) != []

        other.apply([write("app.conf", "password = $OTHER\n")])
        one.apply([write("b.txt", "beside\n")])
        exchange(one, other)
        assert places[0].files() == places[1].files()
        for client in (one, other):
            assert client.check().problems == []


def test_what_has_not_landed_is_not_forgotten(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, {"a.txt": "one\n"}) as (_, (one,), _):
        one.remote_pause()
        one.apply([write("app.conf", "password = swordfish\n")])
        one.apply([write("app.conf", "clean\n")])
        with pytest.raises(EditdError, match="does not have transaction") as refused:
            one.forget(text="swordfish")
        assert refused.value.name == "conflict"
        one.remote_resume()
        exchange(one)
        one.forget(text="swordfish")
        one.apply([write("b.txt", "beside\n")])
        exchange(one)
        assert one.check().problems == []
