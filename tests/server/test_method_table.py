"""The registry of the methods: a row for each, and each row fits its function."""

from __future__ import annotations

import inspect

import pytest

from editd.engine.permissions import PERMISSIONS
from editd.server.method_table import METHODS, MethodRow, verify_methods
from editd.server.methods import Services
from editd.wire import messages

SERVICES = inspect.get_annotations(Services)
ROWS = [pytest.param(kind, method, id=kind.method) for kind, method in METHODS.items()]


def first_two(function: object) -> list[tuple[str, str]]:
    """The name and the type of the service and of the parameters that a function gets."""
    assert callable(function)
    given = list(inspect.signature(function).parameters.values())
    assert len(given) == 3, "the service, the parameters, and the client"
    return [(one.name, str(one.annotation)) for one in given[:2]]


def test_each_method_of_the_protocol_has_one_row_and_one_function() -> None:
    assert {kind.method for kind in METHODS} == set(messages.REQUESTS)
    functions = [method.function for method in METHODS.values()]
    assert len(set(functions)) == len(functions)


@pytest.mark.parametrize(("kind", "method"), ROWS)
def test_a_row_names_a_function_of_its_parameters_and_the_service_that_it_gets(
    kind: type[messages.Params], method: MethodRow
) -> None:
    function = method.function
    assert inspect.isfunction(function)
    assert function.__name__ != "<lambda>"
    (name, service), (_, parameters) = first_two(function)
    assert parameters == f"messages.{kind.__name__}"
    if method.gets == "services":
        assert service == "Services"
    elif method.gets == "life":
        assert service == "Life"
    else:
        assert name == "self"
        assert function.__qualname__ == f"{SERVICES[method.gets]}.{function.__name__}"


@pytest.mark.parametrize(("kind", "method"), ROWS)
def test_a_row_has_the_permission_of_its_method_and_needs_no_less_than_it_uses(
    kind: type[messages.Params], method: MethodRow
) -> None:
    assert method.permission is PERMISSIONS[kind]
    assert (method.needs == "nothing") == (method.gets == "life")
    if method.acts_as == "named":
        assert "session" in kind.__struct_fields__
    if method.is_beginning:
        assert method.permission.needs in ("anyone", "session", "witness")


def test_a_method_without_a_row_does_not_start_the_daemon() -> None:
    verify_methods()
    with pytest.raises(LookupError, match=r"registry: publish, read$"):
        verify_methods(set(METHODS) - {messages.Publish, messages.Read})
