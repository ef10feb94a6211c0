"""The errors of the client: one class for each name of the protocol."""

from __future__ import annotations

import copy
import pickle

import pytest

from editd.wire.messages import ERROR_CODES
from editd_client import errors
from editd_client.errors import EditdError


@pytest.mark.parametrize("name", ERROR_CODES)
def test_each_name_of_the_protocol_has_a_class_of_its_own(name: str) -> None:
    error = EditdError.of(ERROR_CODES[name], name, "Why not.", {"path": "a"})
    assert type(error) is getattr(errors, "".join(word.capitalize() for word in name.split("_")))
    assert repr(error) == f"{type(error).__name__}(name={name!r}, message='Why not.')"
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(other), other.code, other.data) == (type(error), error.code, error.data)


def test_a_name_of_a_later_daemon_is_a_plain_error() -> None:
    assert type(EditdError.of(99, "too_new", "New.")) is EditdError
