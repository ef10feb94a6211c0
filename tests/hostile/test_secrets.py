"""A secret that is removed from the history in the documented way is in no file of the state folder."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from support.state_search import holders
from support.workplace import replace, write

if TYPE_CHECKING:
    from support.workplace import Workplace


def keep(place: Workplace, count: int) -> None:
    folder = place.folder / "config" / "editd"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f"history.keep = {{ count = {count} }}\n")


def test_a_secret_that_gc_has_compacted_is_in_no_file_of_the_state_folder(place: Workplace) -> None:
    secret = secrets.token_hex(24)
    keep(place, 2)
    with place.start() as client:
        client.apply([write("app.conf", f"host = db\npassword = {secret}\n")])
        client.apply([replace("app.conf", secret, "$PASSWORD")], message=f"take {secret} out")
        for number in range(4):
            client.apply([write("other.txt", f"{number}\n")])
        assert holders(place.state, secret.encode()) != []
        assert client.gc().oldest == 4
        assert holders(place.state, secret.encode()) == []
        assert client.check().problems == []
        place.stop()
    assert holders(place.state, secret.encode()) == []
    with place.start() as client:
        assert client.check().problems == []
        assert client.undo(6).transaction is not None
