"""A state folder that is deleted or moved under a running daemon."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.workplace import write

if TYPE_CHECKING:
    from support.workplace import Workplace


def test_a_deleted_state_folder_is_named_and_the_next_start_says_that_a_new_history_begins(
    place: Workplace,
) -> None:
    with place.start() as client:
        client.apply([write("a", "one\n")])
        client.apply([write("a", "two\n")])
        shutil.rmtree(place.state)
        status = client.status()
        assert status.state == "broken"
        assert f"The history in {place.state} was deleted: no edit can be kept." in str(status.reason)
        assert "editctl stop" in str(status.reason)
        with pytest.raises(EditdError) as refused:
            client.apply([write("a", "three\n")])
        assert "was deleted" in refused.value.message
        assert (place.root / "a").read_text() == "two\n"
    place.stop()
    with place.start() as again:
        (notice,) = again.status().notices
        assert notice.startswith(
            f"A new history has begun: the earlier one, with 2 transactions, was in {place.state}, "
            "which was deleted at "
        )
        assert again.apply([write("a", "three\n")]).transaction is not None
        assert "A new history has begun" in place.editctl("status").stdout
    place.stop()


def test_a_state_folder_that_was_moved_is_named_with_its_new_place(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "one\n")])
        moved = place.state.rename(place.state.with_name("elsewhere"))
        assert f"was moved to {moved.resolve()}" in str(client.status().reason)
    place.stop()
    moved.rename(place.state)
    with place.start() as again:
        assert (again.status().head, again.status().notices) == (1, [])
        assert again.check().problems == []
    place.stop()


def test_a_note_that_is_old_or_damaged_is_no_notice(place: Workplace) -> None:
    note = place.state.with_name(place.state.name + ".gone")
    note.parent.mkdir(parents=True, exist_ok=True)
    for text in ("nonsense", '{"became": "was deleted", "head": 3, "time_us": 1}'):
        note.write_text(text)
        with place.start() as client:
            assert client.status().notices == []
        place.stop()
    assert not note.exists()
