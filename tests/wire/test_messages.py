"""wire.messages: docs/protocol.md says exactly what is there."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from editd.wire import messages
from editd.wire.codec import LIMITS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text()

SIGNATURE = re.compile(r"^### `([\w.]+)`\n```\n\{(.*?)\}\n→ \{(.*?)\}\n```$", re.MULTILINE)
SIGNATURES = {method: (params, result) for method, params, result in SIGNATURE.findall(PAGE)}

RESULTS: dict[str, type[messages.Message]] = {
    "shutdown": messages.Empty,
    "abort": messages.Empty,
    "unsubscribe": messages.Empty,
    "session.close": messages.Empty,
    "session.resume": messages.Empty,
    "lease.release": messages.Empty,
    "document.release": messages.Empty,
    "review.revoke": messages.Empty,
    "review.unlock": messages.Empty,
    "exec.ask": messages.Empty,
    "seen": messages.Empty,
    **dict.fromkeys(
        [f"proposal.{what}" for what in ("reject", "comment", "submit", "withdraw", "reopen", "check")],
        messages.ProposalResult,
    ),
    **dict.fromkeys(("apply", "stage", "commit", "restore"), messages.ApplyResult),
    **dict.fromkeys(("undo", "redo", "rollback"), messages.UndoResult),
    **dict.fromkeys(
        [
            f"remote.{what}"
            for what in ("init", "join", "status", "now", "pause", "resume", "repair", "leave")
        ],
        messages.RemoteResult,
    ),
}


def fields_of(kind: type[messages.Message]) -> list[str]:
    """The fields of a message as the page writes them, `?` after what may be left out."""
    fields = msgspec.structs.fields(kind)
    return [field.encode_name + ("" if field.required else "?") for field in fields]


def named(text: str) -> list[str]:
    return text.split(", ") if text else []


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table after `heading`, without its head."""
    after = PAGE.split(heading + "\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def test_every_method_and_no_other_is_on_the_page() -> None:
    assert list(SIGNATURES) == list(messages.REQUESTS)


@pytest.mark.parametrize("method", messages.REQUESTS)
def test_a_method_takes_what_the_page_says(method: str) -> None:
    assert named(SIGNATURES[method][0]) == fields_of(messages.REQUESTS[method])


@pytest.mark.parametrize("method", messages.REQUESTS)
def test_a_method_returns_what_the_page_says(method: str) -> None:
    name = "".join(word.capitalize() for word in method.split("."))
    result = RESULTS.get(method) or getattr(messages, f"{name}Result")
    assert named(SIGNATURES[method][1]) == [field.rstrip("?") for field in fields_of(result)]


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
