"""The MCP server: one client over standard input and output, in either era of MCP's protocol.

The only module that imports the SDK. Each call runs in a thread, so that a call that waits for a lease
blocks no other. A call reports its progress if the client wants that, and ends if the client cancels it.
Standard output belongs to the protocol: the SDK redirects file descriptor 1 to standard error while it
serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from editd import __version__
from editd.wire.codec import Malformed, plain
from editd_client.errors import EditdError, Unreachable, refusal
from editd_client.mcp import conversion
from editd_client.mcp.connection_pool import (
    CallStream,
    ConnectionPool,
    SessionClaim,
    choose_workspace,
    is_named,
)
from editd_client.mcp.conversion import unknown_name
from editd_client.mcp.review_link import CallStates, link_of
from editd_client.mcp.tools import McpTool, ToolCall, own_tools, tools_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import ServerRequestContext

    from editd_client.mcp import Options
    from editd_client.mcp.conversion import ToolResult

ROOTS_SECONDS_MAX = 5.0  # time limit for a client that announces roots but does not send them
PROGRESS_SECONDS = 1.0
CALLS_MAX = 128  # at once, each with a thread and a connection: half of a daemon's limit
NAME_CHARACTERS_MAX = 100
CLIENT_SUFFIX = "-mcp-client"
GEMINI = f"gemini-cli{CLIENT_SUFFIX}"
NOBODY = "mcp"  # the session of a client without a name
REVIEW = "review"  # the name of the request to open the page of a proposal
TERMINATED = 128 + signal.SIGTERM

INSTRUCTIONS = (
    "Edit files of this workspace through editd: several agents may edit at once, no change is overwritten "
    "unseen, and each edit can be undone alone. A refused call has changed nothing, and names the next step."
)


def serve(options: Options) -> None:
    """Serve one client until it closes standard input, then close the session; its edits stay."""
    desk = ToolServer(options)
    # The SDK reads standard input in a thread that cannot be cancelled: a signal ends the process.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: desk.leave_now())
    try:
        anyio.run(desk.serve)
    finally:
        desk.close()


class ToolServer:
    """One client, with its pool of connections to a daemon from its first call on."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._link: ConnectionPool | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._tools: dict[str, McpTool] = {}
        self._states = CallStates()
        self._lock = anyio.Lock()
        # Separate: the SDK reads standard input in a thread, too, and waiting calls must not block it.
        self._threads = anyio.CapacityLimiter(CALLS_MAX)

    async def serve(self) -> None:
        server: Server[Any] = Server(
            "editd",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    def close(self) -> None:
        """Close the session, if it is open."""
        if self._link is not None:
            self._link.close()

    def leave_now(self) -> NoReturn:
        """Handle a signal: close the session, then end the process."""
        self.close()
        os._exit(TERMINATED)

    # ── Requests of MCP ───────────────────────────────────────────────────────────────────────────

    async def _list(
        self, ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        try:
            tools = await self._known_tools(ctx)
        except EditdError as error:
            raise MCPError(types.INVALID_PARAMS, error.message) from error
        except Unreachable as error:
            raise MCPError(types.INTERNAL_ERROR, f"{error.message} {error.hint}".strip()) from error
        self._announcing = asyncio.create_task(self._announce(ctx))
        return types.ListToolsResult(tools=[_listed(tool) for tool in tools.values()])

    async def _call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            tool = _named(params.name, await self._known_tools(ctx))
            arguments = tool.arguments(plain(params.arguments or {}, from_json=True))
            reviewed = await self._reviewed(ctx, params, tool, arguments)
            if isinstance(reviewed, types.InputRequiredResult):
                return reviewed
            found = reviewed
        except EditdError as error:
            found = conversion.refused(error)
        except Unreachable as error:
            found = conversion.unreachable(error)
        except Malformed as error:
            found = conversion.refused(refusal(error.error.name, error.error.message))
        return _result(found, has_data=not (found.is_refusal and _is_gemini(ctx)))

    async def _reviewed(
        self,
        ctx: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        tool: McpTool,
        arguments: dict[str, Any],
    ) -> ToolResult | types.InputRequiredResult:
        """Run the tool. If its edit waits for a reviewer, let the client open the page of the proposal.

        The client's answer does not matter: the decision is made on the page, and the call waits for it. A
        client of the modern era opens the page when it gets this result, and sends the call again to wait.
        """
        wait, request_id = self._options.wait, str(uuid.uuid4())
        if known := self._states.open(params.request_state):
            return await self._run(ctx, tool, arguments, known, wait)
        if tool.is_read_only or not wait or not _opens_pages(ctx):
            return await self._run(ctx, tool, arguments, request_id, wait)
        found = await self._run(ctx, tool, arguments, request_id, 0.0)
        link = link_of(found, (await self._linked(ctx)).workspace.state_folder)
        if link is None:
            is_waiting = found.data.get("state") == "open"
            return await self._run(ctx, tool, arguments, request_id, wait) if is_waiting else found
        asked = types.ElicitRequestURLParams(
            message=f"Proposal {link[0]} of the agent waits for your review.", url=link[1]
        )
        if not ctx.session.can_send_request:
            return types.InputRequiredResult(
                input_requests={REVIEW: types.ElicitRequest(params=asked)},
                request_state=self._states.seal(request_id),
            )
        opening = asyncio.create_task(_open(ctx, asked, request_id))
        try:
            return await self._run(ctx, tool, arguments, request_id, wait)
        finally:
            opening.cancel()

    async def _run(
        self,
        ctx: ServerRequestContext[Any],
        tool: McpTool,
        arguments: dict[str, Any],
        request_id: str,
        wait: float,
    ) -> ToolResult:
        """Run the tool in a thread, and report progress every second; cut the call if it is cancelled."""
        link, line = await self._linked(ctx), CallStream()

        def run() -> ToolResult:
            root = link.workspace.root
            try:
                # A retry begins with the original arguments.
                return link.ask(
                    lambda client: tool.run(
                        ToolCall(
                            dict(arguments),
                            client,
                            link.session,
                            root,
                            request_id,
                            self._options.may_undo_others,
                            wait,
                        )
                    ),
                    line,
                )
            except EditdError as error:
                return conversion.refused(error)
            except Unreachable as error:
                return conversion.unreachable(error)

        telling = asyncio.create_task(_tell_progress(ctx, tool.name))
        try:
            return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)
        except asyncio.CancelledError:
            line.cut()
            raise
        finally:
            telling.cancel()

    # ── Tools, workspace and session ──────────────────────────────────────────────────────────────

    async def _known_tools(self, ctx: ServerRequestContext[Any]) -> Mapping[str, McpTool]:
        """Return the offered tools by name; the daemon describes those of dialects."""
        options = self._options
        if not self._tools:
            found = own_tools(may_undo_others=options.may_undo_others)
            if options.dialects:
                link = await self._linked(ctx)
                said = await anyio.to_thread.run_sync(
                    link.ask,
                    lambda client: client.dialects(),
                    abandon_on_cancel=True,
                    limiter=self._threads,
                )
                found += tools_of(said.dialects, options.dialects)
            self._tools = {tool.name: tool for tool in found if options.offers(tool.name, tool.is_read_only)}
        return self._tools

    async def _announce(self, ctx: ServerRequestContext[Any]) -> None:
        """Let commands in the agent's shell act in the session from now on, if there is a workspace."""
        with contextlib.suppress(EditdError):  # Each call will report the error.
            await self._linked(ctx)

    async def _linked(self, ctx: ServerRequestContext[Any]) -> ConnectionPool:
        """Return the pool for the daemon of the selected workspace, which is chosen once."""
        async with self._lock:
            if self._link is None:
                options = self._options
                roots = [] if is_named(options.workspace) else await _roots(ctx)
                info = ctx.session.client_params
                name = _readable(info.client_info.name if info is not None else "")
                claim = SessionClaim(options.session or name, options.session is not None, options.token)
                self._link = ConnectionPool(choose_workspace(options.workspace, roots), claim, name)
                self._link.announce()
            return self._link


def _opens_pages(ctx: ServerRequestContext[Any]) -> bool:
    """Return whether the client can open an address for its user."""
    capabilities = ctx.session.client_capabilities
    asking = None if capabilities is None else capabilities.elicitation
    return asking is not None and asking.url is not None


async def _open(ctx: ServerRequestContext[Any], asked: types.ElicitRequestURLParams, ident: str) -> None:
    """Ask the client to open a page; one that fails to leaves the call waiting all the same."""
    with contextlib.suppress(MCPError):
        await ctx.session.elicit_url(asked.message, asked.url, ident, ctx.request_id)


async def _roots(ctx: ServerRequestContext[Any]) -> list[str]:
    """Return the URIs of the client's roots; empty if it sends none, or uses the modern era."""
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.roots is None or not ctx.session.can_send_request:
        return []
    try:
        said = await ctx.session.send_request(
            types.ListRootsRequest(), types.ListRootsResult, request_read_timeout_seconds=ROOTS_SECONDS_MAX
        )
    except MCPError:
        return []
    return [str(root.uri) for root in said.roots]


async def _tell_progress(ctx: ServerRequestContext[Any], name: str) -> None:
    """Report once a second that the call still runs; do nothing without a progress token."""
    start = time.monotonic()
    while True:
        await anyio.sleep(PROGRESS_SECONDS)
        passed = time.monotonic() - start
        await ctx.session.report_progress(passed, None, f"{name}: {passed:.0f} s")


def _named(name: str, tools: Mapping[str, McpTool]) -> McpTool:
    if name not in tools:
        raise unknown_name("tool", name, list(tools))
    return tools[name]


def _readable(name: str) -> str:
    """Return a client's name in the form of a session's name, without the words that every client has."""
    plain_name = re.sub(r"[\x00-\x1f\x7f-\x9f]", "", name).strip()
    return plain_name.removesuffix(CLIENT_SUFFIX)[:NAME_CHARACTERS_MAX] or NOBODY


def _is_gemini(ctx: ServerRequestContext[Any]) -> bool:
    """Return whether the client is Gemini CLI, which gives its model the data of an error beside the text."""
    info = ctx.session.client_params
    return info is not None and info.client_info.name == GEMINI


def _listed(tool: McpTool) -> types.Tool:
    changes = None if tool.is_read_only else tool.is_destructive  # MCP: of what changes something only
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=dict(tool.schema),
        output_schema=dict(tool.output),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_read_only,
            destructive_hint=changes,
            idempotent_hint=tool.is_idempotent,
            open_world_hint=False,
        ),
    )


def _result(answer: ToolResult, *, has_data: bool) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in answer.texts],
        structured_content=answer.data if has_data else None,
        is_error=answer.is_refusal,
    )
