"""An agent: the MCP SDK's own client over the standard input and output of a real `editctl mcp`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import mcp_types as types
from anyio.from_thread import start_blocking_portal
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from anyio.from_thread import BlockingPortal

    from support.workplace import Workplace

MODERN, LEGACY = "2026-07-28", "legacy"


@dataclass
class Agent:
    client: Client
    portal: BlockingPortal

    def call(self, tool: str, /, **arguments: Any) -> types.CallToolResult:
        found: types.CallToolResult = self.portal.call(self.client.call_tool, tool, arguments)
        return found

    def tools(self) -> list[types.Tool]:
        return self.portal.call(self.client.list_tools).tools

    def does(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The data of a call that is not refused."""
        found = self.call(tool, **arguments)
        assert not found.is_error, text_of(found)
        data: dict[str, Any] = found.structured_content
        return data

    def is_refused(self, tool: str, /, **arguments: Any) -> tuple[str, dict[str, Any]]:
        """The text and the data of a call that is refused."""
        found = self.call(tool, **arguments)
        assert found.is_error, text_of(found)
        assert set(found.structured_content) == {"error", "code", "message", "data"}
        return text_of(found), found.structured_content


@dataclass
class User:
    """Who is asked by the client's form: what was asked, and how it is answered."""

    action: Literal["accept", "decline", "cancel"] = "accept"
    content: dict[str, str | int | float | bool | list[str] | None] | None = None
    asked: list[str] = field(default_factory=list)
    is_away: bool = False  # the client cannot show the form

    async def answer(
        self, context: Any, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        del context
        self.asked.append(params.message)
        if self.is_away:
            return types.ErrorData(code=types.INTERNAL_ERROR, message="no window")
        return types.ElicitResult(action=self.action, content=self.content)


@contextlib.contextmanager
def agent(
    place: Workplace,
    *words: str,
    name: str = "agent",
    mode: str = MODERN,
    roots: Sequence[str] | None = None,
    folder: Path | None = None,
    user: User | None = None,
    **variables: str,
) -> Iterator[Agent]:
    """An agent of that name in `folder`, whose server is `editctl mcp` with these words."""

    async def list_roots(context: Any) -> types.ListRootsResult:
        del context
        return types.ListRootsResult.model_validate({"roots": [{"uri": root} for root in roots or ()]})

    server = StdioServerParameters(
        command=str(place.provide_editctl() / "editctl"),
        args=["mcp", *words],
        env=place.environment | variables,
        cwd=folder or place.root,
    )
    client = Client(
        server,
        mode=mode,
        client_info=types.Implementation(name=name, version="1"),
        list_roots_callback=None if roots is None else list_roots,
        elicitation_callback=None if user is None else user.answer,
        cache=None,
    )
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(client):
        yield Agent(client, portal)


def text_of(result: types.CallToolResult) -> str:
    """The texts of a result, one after another."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
