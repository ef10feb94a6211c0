"""The page of a proposal, which a client opens for its user, and the state of a call that waits for it.

The decision is made on the page, in the user's browser, and goes to the daemon from there. The agent and its
client learn the address only. They cannot open the page themselves, because that needs the cookie of a
browser that has been let in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from editd_client.web.announcement import web_address

if TYPE_CHECKING:
    from editd_client.mcp.conversion import ToolResult


def link_of(found: ToolResult, state_folder: str) -> tuple[int, str] | None:
    """Return the number and the page of the proposal that an edit became; None if no page runs."""
    number = found.data.get("proposal")
    is_waiting = found.data.get("state") == "open" and found.data.get("transaction") is None
    if not isinstance(number, int) or not is_waiting:
        return None
    address = web_address(state_folder)
    return None if address is None else (number, f"{address}/proposals/{number}")


class CallStates:
    """The signed states of calls that a client sends again, while it opens a page.

    A state has the id of the first request: sent again, it finds its proposal, and makes no second one.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes()

    def seal(self, request_id: str) -> str:
        return f"{request_id}.{self._signature(request_id)}"

    def open(self, state: str | None) -> str | None:
        """Return the request id of a state that this process has sealed; None for any other text."""
        request_id, _, signature = (state or "").rpartition(".")
        expected = self._signature(request_id)
        is_ours = hmac.compare_digest(signature.encode(), expected.encode())
        return request_id if request_id and is_ours else None

    def _signature(self, request_id: str) -> str:
        return hmac.new(self._key, request_id.encode(), hashlib.sha256).hexdigest()
