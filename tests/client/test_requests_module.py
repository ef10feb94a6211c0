"""The request methods of the clients are made from the messages of the protocol."""

from __future__ import annotations

import msgspec

import requests_module
from editd.wire import messages


def test_the_module_is_as_the_messages_make_it() -> None:
    text = requests_module.MODULE.read_text()
    assert requests_module.module() == text, "`python tests/requests_module.py --write` makes it anew"


def test_what_python_writes_differently_names_fields_of_the_protocol() -> None:
    fields = {(kind.method, one.name) for kind in messages.ANSWERS for one in msgspec.structs.fields(kind)}
    named = {(method, name) for method, names in requests_module.HIDDEN.items() for name in names}
    named |= {(method, name) for method, names in requests_module.POSITIONAL.items() for name in names}
    assert named | set(requests_module.RENAMED) | set(requests_module.CONVERTED) <= fields


def test_each_method_has_a_docstring() -> None:
    assert [kind.method for kind in messages.ANSWERS if not kind.__doc__] == []
