"""wire.codec: what a request calls things is Unicode, and of a length that makes sense."""

from __future__ import annotations

from typing import Any

import pytest

from editd.wire.codec import params_of
from editd.wire.errors import Malformed
from editd.wire.limits import LIMITS
from editd.wire.messages import Apply, Undo

TOO_LONG = "x" * (LIMITS.name_length_max + 1)
NO_TEXT = "\udcff"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("apply", {"edits": [], "actor": TOO_LONG}),
        ("apply", {"edits": [], "session": ""}),
        ("apply", {"edits": [], "request_id": NO_TEXT}),
        ("apply", {"edits": [], "message": NO_TEXT}),
        ("apply", {"edits": [], "message": "x" * (LIMITS.message_length_max + 1)}),
        ("begin", {"actor": NO_TEXT}),
        ("commit", {"changeset": "a", "request_id": TOO_LONG}),
        ("exec.begin", {"command": NO_TEXT}),
        ("hello", {"session": TOO_LONG}),
        ("show", {"tx": NO_TEXT}),
        ("undo", {"filter": {"actor": NO_TEXT}}),
        ("diff", {"from": NO_TEXT}),
    ],
)
def test_a_name_that_cannot_be_one_is_refused_by_its_name(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(Malformed) as caught:
        params_of(method, params)
    assert caught.value.error.name == "invalid_params"
    assert method in caught.value.error.message
    assert len(caught.value.error.message) < LIMITS.text_length_max


def test_what_people_write_passes() -> None:
    told = {"edits": [], "actor": "Zoë 🙂", "session": "s" * LIMITS.name_length_max, "message": "ok\n\nyes\n"}
    assert isinstance(params_of("apply", told), Apply)
    assert isinstance(params_of("undo", {"filter": {"actor": "Zoë", "since": 3}}), Undo)


def test_paths_and_content_may_be_bytes() -> None:
    edit = {"op": "write", "path": NO_TEXT, "content": NO_TEXT}
    assert isinstance(params_of("apply", {"edits": [edit]}), Apply)
