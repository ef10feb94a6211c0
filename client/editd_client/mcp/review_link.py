"""The page of a proposal, which a client opens for its user, and the state of a call that waits for it.

The decision is made on the page, in the user's browser, and goes to the daemon from there. The agent and its
client learn the address only. They cannot open the page themselves, because that needs the cookie of a
browser that has been let in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from editd_client.announcement import web_address

if TYPE_CHECKING:
    from editd_client.mcp.conversion import ToolResult


def waiting_number(answer: ToolResult) -> int | None:
    """Return the number of the proposal that an edit became, if it waits for a decision."""
    number = answer.data.get("proposal")
    is_waiting = answer.data.get("state") == "open" and answer.data.get("transaction") is None
    return number if isinstance(number, int) and is_waiting else None


def page_of(number: int, state_folder: str) -> str | None:
    """Return the page of a proposal; None if no page runs."""
    address = web_address(state_folder)
    return None if address is None else f"{address}/proposals/{number}"


class CallState(Struct, frozen=True):
    """A call that the client sends again: the id of its request, and the view that a form has shown."""

    request_id: str
    number: int | None = None
    view: str = ""


class CallStates:
    """The signed states of calls that a client sends again, while it opens a page or a form.

    A state has the id of the first request: sent again, it finds its proposal, and makes no second one.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes()

    def seal(self, state: CallState) -> str:
        text = base64.urlsafe_b64encode(msgspec.json.encode(state)).decode()
        return f"{text}.{self._signature(text)}"

    def open(self, sealed: str | None) -> CallState | None:
        """Return a state that this process has sealed; None for any other text."""
        text, _, signature = (sealed or "").rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=CallState)

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
