"""The text of a test's report, in characters that UTF-8 has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """Make each report printable: pytest-xdist ends the whole run at a lone surrogate in one."""
    return printable((yield))


def printable(value: object) -> object:
    """Return the value of lists, dictionaries and texts with each lone surrogate as an escape."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case list() | tuple():
            return type(value)(map(printable, value))
        case dict():
            return {printable(key): printable(content) for key, content in value.items()}
        case _:
            return value
