"""A call that waits for a review: a client that opens addresses is given the page of the proposal."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from anyio.from_thread import start_blocking_portal
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters

from editd_client.mcp.conversion import ToolResult
from editd_client.mcp.review_link import CallState, CallStates, page_of, waiting_number
from support.agent import LEGACY, MODERN, Agent, agent, text_of
from support.reviewers import PIN, set_pin
from support.web_page import web_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.web_page import WebPage
    from support.workplace import Workplace

ASK = '[[review.rule]]\nname = "all"\npaths = ["**"]\naction = "ask"\n'
EDIT = {"op": "replace", "path": "a", "old": "one", "new": "two"}
ERAS = pytest.mark.parametrize("mode", [LEGACY, MODERN])


@dataclass
class Window:
    """A user at a client that opens addresses: decides on the page, or looks away."""

    page: WebPage
    verdict: str = ""
    answer: str = "accept"
    opened: list[str] = field(default_factory=list)

    async def show(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert isinstance(params, types.ElicitRequestURLParams)
        self.opened.append(params.url)
        if self.verdict:
            threading.Thread(target=self._decide, args=[params.url]).start()
        return types.ElicitResult.model_validate({"action": self.answer})

    def _decide(self, address: str) -> None:
        path = address.removeprefix(self.page.address)
        form = {**self.page.form(path), "do": self.verdict, "pin": PIN, "comment": "seen"}
        assert self.page.post(f"{path}/decide", form).status == 303


@pytest.fixture
def reviewed(place: Workplace) -> Iterator[Workplace]:
    """A workspace of which each edit waits for a reviewer."""
    set_pin(place)
    (place.folder / "config" / "editd" / "config.toml").write_text(ASK)
    place.write({"a": "one\n"})
    with place.start() as client:
        client.settle()
        yield place
    place.stop()


@contextlib.contextmanager
def client_with(place: Workplace, window: Window, mode: str, *words: str) -> Iterator[Agent]:
    """An agent whose client can open addresses."""
    server = StdioServerParameters(
        command=str(place.provide_editctl() / "editctl"), args=["mcp", *words], env=place.environment,
        cwd=place.root,
    )  # fmt: skip
    client = McpClient(
        server, mode=mode, client_info=types.Implementation(name="agent", version="1"),
        elicitation_callback=window.show, cache=None,
    )  # fmt: skip
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(client):
        yield Agent(client, portal)


@ERAS
def test_an_approval_on_the_page_is_the_answer_of_the_call(reviewed: Workplace, mode: str) -> None:
    with web_page(reviewed) as page:
        window = Window(page.enter(), "approve")
        with client_with(reviewed, window, mode) as made:
            found = made.call("apply_edits", edits=[EDIT])
    assert not found.is_error
    assert "Approved by " in text_of(found)
    assert reviewed.files()["a"] == b"two\n"
    assert window.opened == [f"{page.address}/proposals/1"]


@ERAS
def test_a_rejection_on_the_page_is_the_answer_of_the_call(reviewed: Workplace, mode: str) -> None:
    with web_page(reviewed) as page:
        window = Window(page.enter(), "reject")
        with client_with(reviewed, window, mode) as made:
            text, data = made.is_refused("apply_edits", edits=[EDIT])
    assert "rejected proposal 1: seen" in text
    assert data["error"] == "rejected"
    assert reviewed.files()["a"] == b"one\n"


@ERAS
@pytest.mark.parametrize("answer", ["accept", "decline", "cancel"])
def test_the_answer_of_a_client_decides_nothing(reviewed: Workplace, mode: str, answer: str) -> None:
    with web_page(reviewed) as page:
        window = Window(page.enter(), answer=answer)
        with client_with(reviewed, window, mode, "--wait", "1") as made:
            found = made.call("apply_edits", edits=[EDIT])
        with reviewed.client() as client:
            assert [one.state for one in client.proposal_list().proposals] == ["open"]
    assert "waits for review" in text_of(found)
    assert reviewed.files()["a"] == b"one\n"
    assert len(window.opened) == 1


@ERAS
def test_a_tool_of_another_system_answers_in_its_words(reviewed: Workplace, mode: str) -> None:
    with web_page(reviewed) as page:
        window = Window(page.enter(), "reject")
        with client_with(reviewed, window, mode, "--dialect", "gemini") as made:
            arguments = {"file_path": str(reviewed.root / "a"), "old_string": "one", "new_string": "two"}
            found = made.call("replace", **arguments)
    assert "[Operation Cancelled] Reason: User denied execution." in text_of(found)
    assert len(window.opened) == 1


@ERAS
def test_without_a_page_the_call_waits(reviewed: Workplace, mode: str) -> None:
    with web_page(reviewed) as page:
        window = Window(page.enter())
    with client_with(reviewed, window, mode, "--wait", "1") as made:
        assert "waits for review" in text_of(made.call("apply_edits", edits=[EDIT]))
    assert window.opened == []
    with reviewed.client() as client:
        assert len(client.proposal_list().proposals) == 1, "the call that waits is the same request"


def test_a_client_without_it_waits(reviewed: Workplace) -> None:
    with web_page(reviewed), agent(reviewed, "--wait", "1") as made:
        assert "waits for review" in text_of(made.call("apply_edits", edits=[EDIT]))


def test_a_state_of_another_process_is_none() -> None:
    states = CallStates()
    state = CallState("one", 7, "v")
    sealed = states.seal(state)
    assert states.open(sealed) == state
    for text in (None, "", "one", "one.", ".", sealed + "0", "A" + sealed, sealed[1:], "ü.ü"):
        assert states.open(text) is None
    assert CallStates().open(sealed) is None


def test_only_an_edit_that_waits_is_asked_about(tmp_path: Path) -> None:
    waiting = {"proposal": 7, "state": "open", "transaction": None}
    assert waiting_number(ToolResult((), waiting)) == 7
    assert page_of(7, str(tmp_path)) is None, "no page runs"
    for data in ({}, {"transaction": 1}, {**waiting, "state": "landed"}, {**waiting, "transaction": 3}):
        assert waiting_number(ToolResult((), data)) is None
