"""wire.messages: docs/protocol.md says exactly what is there."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from editd.wire import messages
from editd.wire.limits import LIMITS
from generated.protocol_page import fields_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text()

METHODS = re.findall(r"^### `([\w.]+)`\n```\n\{", PAGE, re.MULTILINE)


def named(text: str) -> list[str]:
    return text.split(", ") if text else []


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table after `heading`, without its head."""
    after = PAGE.split(heading + "\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def test_every_method_and_no_other_is_on_the_page() -> None:
    assert list(messages.REQUESTS) == METHODS


def test_every_edit_and_its_fields_are_on_the_page() -> None:
    on_the_page = {cells[0].strip("`"): named(cells[1].replace("`", "")) for cells in rows_of("## Edits")}
    kinds = messages.AnyEdit.__args__
    assert on_the_page == {kind.__struct_config__.tag: fields_of(kind) for kind in kinds}


def test_every_error_and_its_number_is_on_the_page() -> None:
    assert {cells[1].strip("`"): int(cells[0]) for cells in rows_of("## Errors")} == messages.ERROR_CODES


def test_every_limit_is_on_the_page() -> None:
    assert {cells[0].strip("`"): int(cells[1]) for cells in rows_of("### Limits")} == msgspec.structs.asdict(
        LIMITS
    )


def test_what_a_later_daemon_says_more_is_passed_over_and_what_a_client_asks_more_is_refused() -> None:
    line = {"line": 1, "seq": 1, "actor": "a", "session": None, "time": "t", "later": {"deep": 1}}
    told = msgspec.convert({"version": "v", "lines": [line], "later": []}, messages.BlameResult)
    assert told.lines[0].actor == "a"
    with pytest.raises(msgspec.ValidationError, match="unknown field `later`"):
        msgspec.convert({"path": "a", "later": []}, messages.Blame)


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        messages.SettleResult(head=1).head = 2  # pyright: ignore
