"""The MCP server: one client over standard input and output, in either era of MCP's protocol.

The only module that imports the SDK; `handshake` serves the client before. Each call runs in a thread, so
that a call that waits for a lease blocks no other. A call reports its progress if the client wants that, and
ends if the client cancels it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from editd import __version__
from editd.wire.codec import plain
from editd.wire.errors import Malformed
from editd.words import Face
from editd_client.errors import EditdError, Unreachable, refusal
from editd_client.file_text import readable
from editd_client.mcp import conversion, resources
from editd_client.mcp.calls import CALLS_MAX, GEMINI, PROGRESS_SECONDS
from editd_client.mcp.client_sessions import session_id_in
from editd_client.mcp.connection_pool import CallStream
from editd_client.mcp.handshake import INSTRUCTIONS, NAME
from editd_client.mcp.review_form import SCHEMA as FORM
from editd_client.mcp.review_form import ReviewForm, decide, form_of
from editd_client.mcp.review_link import CallState, CallStates, page_of, waiting_number
from editd_client.mcp.tools import ToolCall, listing, offered_tools, tool_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.context import ServerRequestContext

    from editd_client.client import Client
    from editd_client.mcp import Options
    from editd_client.mcp.client_sessions import ClientSessions
    from editd_client.mcp.connection_pool import ConnectionPool
    from editd_client.mcp.conversion import ToolResult
    from editd_client.mcp.handshake import Wire
    from editd_client.mcp.tools import McpTool

ROOTS_SECONDS_MAX = 5.0  # time limit for a client that announces roots but does not send them
RESOURCE_MISSING = -32002
MISSING = ("file_missing", "unknown_transaction")
ALLOW = "allow"
REVIEW = "review"  # the name of the request to open the page of a proposal, or a form
PERMISSION: dict[str, Any] = {
    "type": "object",
    "properties": {ALLOW: {"type": "boolean", "title": "Allow it", "default": False}},
    "required": [ALLOW],
}

Result = TypeVar("Result")


def serve(options: Options, sessions: ClientSessions, wire: Wire, request_ids: dict[int | str, str]) -> None:
    """Serve the client until it closes standard input; `wire` replays the handshake first.

    `request_ids` has those of the calls that `calls` has begun, by their ids.
    """
    anyio.run(ToolServer(options, sessions, request_ids).serve, wire)


class ToolServer:
    """One client of the SDK's server."""

    def __init__(self, options: Options, sessions: ClientSessions, request_ids: dict[int | str, str]) -> None:
        self._request_ids = request_ids
        self._options = options
        self._sessions = sessions
        self._announcing: asyncio.Task[None] | None = None
        self._states = CallStates()
        self._lock = anyio.Lock()
        # Separate: the SDK reads standard input in a thread, too, and waiting calls must not block it.
        self._threads = anyio.CapacityLimiter(CALLS_MAX)

    async def serve(self, wire: Wire) -> None:
        server: Server[Any] = Server(
            NAME,
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=_list_resources,
            on_list_resource_templates=_list_templates,
            on_read_resource=self._read,
            on_list_prompts=_list_prompts,
            on_get_prompt=self._prompt,
        )
        file: anyio.AsyncFile[str] = anyio.wrap_file(cast("Any", wire))
        async with stdio_server(file, file) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    # ── Requests of MCP ───────────────────────────────────────────────────────────────────────────

    async def _list(
        self, ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._announcing = asyncio.create_task(self._announce(ctx))
        tools = [types.Tool.model_validate(listing(tool)) for tool in self._tools(ctx).values()]
        return types.ListToolsResult(tools=tools)

    async def _call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            tool = tool_named(params.name, self._tools(ctx))
            arguments = tool.arguments(plain(params.arguments or {}, from_json=True))
            reviewed = await self._review(ctx, params, tool, arguments)
            if isinstance(reviewed, types.InputRequiredResult):
                return reviewed
            answer = reviewed
            if tool.is_own and not arguments.get("dry_run") and may_ask(ctx.session.client_capabilities):
                reason = conversion.question(answer)
                if reason is not None:
                    allowed = await self._run_if_allowed(ctx, params, tool, arguments, reason)
                    if isinstance(allowed, types.InputRequiredResult):
                        return allowed
                    answer = allowed
        except EditdError as error:
            answer = conversion.refusal_result(error)
        except Unreachable as error:
            answer = conversion.unreachable(error)
        except Malformed as error:
            answer = conversion.refusal_result(refusal(error.error.name, error.error.message))
        return _result(answer, has_data=not (answer.is_refusal and _is_gemini(ctx)))

    async def _review(
        self,
        ctx: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        tool: McpTool,
        arguments: dict[str, Any],
    ) -> ToolResult | types.InputRequiredResult:
        """Run the tool. If its edit waits for a reviewer, let the client ask its user, and wait.

        The client opens the page of the proposal, and its answer does not matter: the decision is made on the
        page. Without a page, it shows a form if the user trusts its answer. A client of the modern era
        asks when it gets this result, and sends the call again to wait.
        """
        wait = self._options.wait
        request_id = self._begun_id(ctx) or str(uuid.uuid4())
        if state := self._states.open(params.request_state):
            await self._take_answer(ctx, state, (params.input_responses or {}).get(REVIEW))
            return await self._run(ctx, tool, arguments, state.request_id, wait)
        if tool.is_read_only or not wait or not _asks_somehow(ctx):
            return await self._run(ctx, tool, arguments, request_id, wait)
        answer = await self._run(ctx, tool, arguments, request_id, 0.0)
        if answer.data.get("state") != "open":
            return answer
        asked, form = await self._question(ctx, answer)
        if asked is None:
            return await self._run(ctx, tool, arguments, request_id, wait)
        state = CallState(request_id) if form is None else CallState(request_id, form.number, form.view)
        if not ctx.session.can_send_request:
            return types.InputRequiredResult(
                input_requests={REVIEW: types.ElicitRequest(params=asked)},
                request_state=self._states.seal(state),
            )
        asking = asyncio.create_task(self._ask_user(ctx, asked, state))
        try:
            return await self._run(ctx, tool, arguments, request_id, wait)
        finally:
            asking.cancel()

    def _begun_id(self, ctx: ServerRequestContext[Any]) -> str:
        """Return the id of the request to the daemon that `calls` has sent for this call, or ""."""
        return "" if ctx.request_id is None else self._request_ids.pop(ctx.request_id, "")

    async def _question(
        self, ctx: ServerRequestContext[Any], answer: ToolResult
    ) -> tuple[types.ElicitRequestParams | None, ReviewForm | None]:
        """Return the request to the client's user about an edit that waits, and the form in it, if any."""
        workspace = self._sessions.pool(session_id_in(ctx.meta)).workspace
        number = waiting_number(answer)
        if number is None:
            return None, None
        address = page_of(number, workspace.state_folder) if _opens_pages(ctx) else None
        if address is not None:
            message = f"Proposal {number} of the agent waits for your review."
            return types.ElicitRequestURLParams(message=message, url=address), None
        if not may_ask(ctx.session.client_capabilities):
            return None, None
        form = await anyio.to_thread.run_sync(form_of, workspace, number, limiter=self._threads)
        if form is None:
            return None, None
        return types.ElicitRequestFormParams(message=form.message, requested_schema=FORM), form

    async def _ask_user(
        self, ctx: ServerRequestContext[Any], asked: types.ElicitRequestParams, state: CallState
    ) -> None:
        """Ask the client to open a page or a form. If it fails to, the call waits anyway."""
        with contextlib.suppress(MCPError):
            if isinstance(asked, types.ElicitRequestURLParams):
                await ctx.session.elicit_url(asked.message, asked.url, state.request_id, ctx.request_id)
            else:
                answer = await ctx.session.elicit_form(asked.message, asked.requested_schema, ctx.request_id)
                await self._take_answer(ctx, state, answer)

    async def _take_answer(self, ctx: ServerRequestContext[Any], state: CallState, answer: object) -> None:
        """Decide as the user has answered in a form. An answer that the daemon refuses decides nothing."""
        if state.number is None or not isinstance(answer, types.ElicitResult) or answer.action != "accept":
            return
        await self._find_workspace(ctx)
        workspace = self._sessions.pool(session_id_in(ctx.meta)).workspace
        form, content = ReviewForm(state.number, state.view), answer.content or {}
        with contextlib.suppress(EditdError, Unreachable):
            await anyio.to_thread.run_sync(decide, workspace, form, content, limiter=self._threads)

    async def _run(
        self,
        ctx: ServerRequestContext[Any],
        tool: McpTool,
        arguments: dict[str, Any],
        request_id: str,
        wait: float,
        *,
        is_elicited: bool = False,
    ) -> ToolResult:
        """Run the tool; a refusal is a result. `is_elicited`: the user allows the work of others."""

        def run(client: Client, pool: ConnectionPool) -> ToolResult:
            # A retry begins with the original arguments.
            return tool.run(
                ToolCall(
                    dict(arguments),
                    client,
                    pool.session,
                    pool.workspace.root,
                    request_id,
                    is_elicited or self._options.may_undo_others,
                    wait,
                    is_elicited=is_elicited,
                    tree=pool.workspace.tree,
                )
            )

        try:
            return await self._ask(ctx, tool.name, run)
        except EditdError as error:
            return conversion.refusal_result(error)

    async def _run_if_allowed(
        self,
        ctx: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        tool: McpTool,
        arguments: dict[str, Any],
        reason: str,
    ) -> ToolResult | types.InputRequiredResult:
        """Ask the user whether the call may take back the work of others, and then carry it out.

        A client of the modern era asks when it gets this result, and sends the call again with the answer.
        """
        request_id, wait = str(uuid.uuid4()), self._options.wait
        dry = {**arguments, "dry_run": True}
        shown = await self._run(ctx, tool, dry, request_id, wait, is_elicited=True)
        if shown.is_refusal:
            return shown
        asked = types.ElicitRequestFormParams(
            message=f"The agent asks for {tool.name}. {reason} "
            f"It would change: {conversion.files_of(shown)}. Allow it?",
            requested_schema=PERMISSION,
        )
        consent = (params.input_responses or {}).get(ALLOW)
        if not isinstance(consent, types.ElicitResult):
            if not ctx.session.can_send_request:
                return types.InputRequiredResult(input_requests={ALLOW: types.ElicitRequest(params=asked)})
            try:
                consent = await ctx.session.elicit_form(asked.message, asked.requested_schema, ctx.request_id)
            except MCPError:
                consent = None
        if consent is not None and consent.action == "accept" and (consent.content or {}).get(ALLOW) is True:
            return await self._run(ctx, tool, arguments, request_id, wait, is_elicited=True)
        answer = "could not be asked" if consent is None else "was asked, and did not allow it"
        return conversion.refusal_result(
            refusal(
                "permission_denied",
                f"{reason} The user {answer}.",
                hint="Leave the work of others as it is.",
            )
        )

    async def _read(
        self, ctx: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        text = await self._text(ctx, params.uri, lambda client, _: resources.read(client, params.uri))
        contents = types.TextResourceContents(uri=params.uri, mime_type=resources.TEXT, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _prompt(
        self, ctx: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        arguments = params.arguments or {}

        def answer(client: Client, pool: ConnectionPool) -> str:
            return resources.prompt(client, params.name, arguments, pool.session)

        content = types.TextContent(text=await self._text(ctx, params.name, answer))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    async def _text(
        self,
        ctx: ServerRequestContext[Any],
        name: str,
        question: Callable[[Client, ConnectionPool], str],
    ) -> str:
        """Return the answer of the daemon; a refusal is an error of MCP here."""
        try:
            return readable(await self._ask(ctx, name, question))
        except EditdError as error:
            code = RESOURCE_MISSING if error.name in MISSING else types.INVALID_PARAMS
            raise MCPError(code, error.text(Face.MCP), {"error": error.name}) from error
        except Unreachable as error:
            raise MCPError(types.INTERNAL_ERROR, error.text(Face.MCP)) from error

    async def _ask(
        self,
        ctx: ServerRequestContext[Any],
        name: str,
        question: Callable[[Client, ConnectionPool], Result],
    ) -> Result:
        """Ask the daemon in a thread, and report progress every second; cut that if it is cancelled."""
        await self._find_workspace(ctx)
        session_id, line = session_id_in(ctx.meta), CallStream()

        def run() -> Result:
            pool = self._sessions.pool(session_id)
            return pool.ask(lambda client: question(client, pool), line)

        telling = asyncio.create_task(_tell_progress(ctx, name))
        try:
            return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)
        except asyncio.CancelledError:
            line.cut()
            raise
        finally:
            telling.cancel()

    def _tools(self, ctx: ServerRequestContext[Any]) -> dict[str, McpTool]:
        tools = offered_tools(self._options, may_ask=may_ask(ctx.session.client_capabilities))
        return {tool.name: tool for tool in tools}

    # ── The workspace ─────────────────────────────────────────────────────────────────────────────

    async def _announce(self, ctx: ServerRequestContext[Any]) -> None:
        """Let commands in the agent's shell act in the session from now on, if there is a workspace."""
        with contextlib.suppress(EditdError):  # Each call will report the error.
            await self._find_workspace(ctx)
            self._sessions.announce()

    async def _find_workspace(self, ctx: ServerRequestContext[Any]) -> None:
        """Choose the workspace, if that is not done yet, by the client's roots."""
        async with self._lock:
            info = ctx.session.client_params
            self._sessions.introduce(info.client_info.name if info is not None else "")
            self._sessions.choose(await _roots(ctx) if self._sessions.needs_roots else [])


async def _list_resources(
    _ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    return types.ListResourcesResult.model_validate({"resources": resources.RESOURCES})


async def _list_templates(
    _ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": resources.TEMPLATES})


async def _list_prompts(
    _ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    return types.ListPromptsResult.model_validate({"prompts": resources.PROMPTS})


def may_ask(capabilities: types.ClientCapabilities | None) -> bool:
    """Return whether the client can ask its user with a form; one that names no mode can."""
    asking = None if capabilities is None else capabilities.elicitation
    return asking is not None and (asking.form is not None or asking.url is None)


def _asks_somehow(ctx: ServerRequestContext[Any]) -> bool:
    """Return whether the client can open an address, or a form, for its user."""
    return _opens_pages(ctx) or may_ask(ctx.session.client_capabilities)


def _opens_pages(ctx: ServerRequestContext[Any]) -> bool:
    """Return whether the client can open an address for its user."""
    capabilities = ctx.session.client_capabilities
    asking = None if capabilities is None else capabilities.elicitation
    return asking is not None and asking.url is not None


async def _roots(ctx: ServerRequestContext[Any]) -> list[str]:
    """Return the URIs of the client's roots; empty if it sends none, or uses the modern era."""
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.roots is None or not ctx.session.can_send_request:
        return []
    try:
        reply = await ctx.session.send_request(
            types.ListRootsRequest(), types.ListRootsResult, request_read_timeout_seconds=ROOTS_SECONDS_MAX
        )
    except MCPError:
        return []
    return [str(root.uri) for root in reply.roots]


async def _tell_progress(ctx: ServerRequestContext[Any], name: str) -> None:
    """Report once a second that the call still runs; do nothing without a progress token."""
    start = time.monotonic()
    while True:
        await anyio.sleep(PROGRESS_SECONDS)
        passed = time.monotonic() - start
        await ctx.session.report_progress(passed, None, f"{name}: {passed:.0f} s")


def _is_gemini(ctx: ServerRequestContext[Any]) -> bool:
    """Return whether the client is Gemini CLI, which gives its model the data of an error beside the text."""
    info = ctx.session.client_params
    return info is not None and info.client_info.name == GEMINI


def _result(answer: ToolResult, *, has_data: bool) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in answer.texts],
        structured_content=answer.data if has_data else None,
        is_error=answer.is_refusal,
    )
