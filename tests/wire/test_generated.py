"""The files that are made from the messages are up to date."""

from __future__ import annotations

import msgspec

import generated
from editd.wire import messages
from generated import requests_module


def test_each_file_is_as_the_messages_make_it() -> None:
    assert list(generated.stale_files()) == [], "`python tests/generated --write` makes them anew"


def test_what_python_writes_differently_names_fields_of_the_protocol() -> None:
    fields = {(kind.method, one.name) for kind in messages.ANSWERS for one in msgspec.structs.fields(kind)}
    named = {(method, name) for method, names in requests_module.HIDDEN.items() for name in names}
    named |= {(method, name) for method, names in requests_module.POSITIONAL.items() for name in names}
    assert named | set(requests_module.RENAMED) | set(requests_module.CONVERTED) <= fields


def test_each_method_has_a_docstring() -> None:
    assert [kind.method for kind in messages.ANSWERS if not kind.__doc__] == []
