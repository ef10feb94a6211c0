"""The tools of other systems, from the daemon: their own names, schemas and answers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from editd.wire import messages
from editd_client.mcp import results
from editd_client.mcp.arguments import unknown_name
from editd_client.mcp.tools import CHANGES, OWN, McpTool, answered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd_client.mcp.results import ToolResult
    from editd_client.mcp.tools import ToolCall

TOOLS: Mapping[str, tuple[str, ...]] = {
    "serena": ("replace_content",),
    "gemini": ("replace",),
    "wcgw": ("FileWriteOrEdit", "ReadFiles"),
    "roo": ("search_and_replace",),
    "cline": ("replace_in_file",),
    "claude": ("str_replace_based_edit_tool",),
    "codex": ("apply_patch",),
}
"""The tools of each dialect, to refuse a wrong name before a daemon runs."""

_ANSWER = answered(answer={"type": "string", "description": "The tool's answer in its own words"}, **CHANGES)


def offered_names(chosen: Sequence[str]) -> list[str]:
    """Return the names of editd's own tools and of those of the chosen dialects.

    Raises EditdError (`invalid_params`) for an unknown dialect.
    """
    return [tool.name for tool in OWN] + [name for _, _, name in _named(chosen, TOOLS)]


def tools_of(entries: Iterable[messages.DialectEntry], chosen: Sequence[str]) -> list[McpTool]:
    """Return the tools of the chosen dialects, in that order.

    Raises EditdError (`invalid_params`) for an unknown dialect.
    """
    known = {(entry.name, tool.name): tool for entry in entries for tool in entry.tools}
    names = {entry.name: [tool.name for tool in entry.tools] for entry in entries}
    return [
        McpTool(
            name,
            (tool := known[dialect, given]).description,
            tool.schema,
            _runner(dialect, given),
            is_read_only=tool.read_only,
            is_destructive=tool.destructive,
            is_idempotent=tool.idempotent,
            is_own=False,
            title=f"{given} ({dialect})",
            output=_ANSWER,
        )
        for dialect, given, name in _named(chosen, names)
    ]


def _named(chosen: Sequence[str], tools: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str]]:
    """Return each tool of the chosen dialects: its dialect, its name there, and its name here.

    If two dialects, or a dialect and editd, share a name, it gets the dialect's name as a prefix
    (`cline_replace`).
    """
    for dialect in chosen:
        if dialect not in tools:
            raise unknown_name("dialect", dialect, list(tools))
    picked = [(dialect, tool) for dialect in dict.fromkeys(chosen) for tool in tools[dialect]]
    times = Counter([*(tool for _, tool in picked), *(tool.name for tool in OWN)])
    return [(dialect, tool, tool if times[tool] == 1 else f"{dialect}_{tool}") for dialect, tool in picked]


def _runner(dialect: str, tool: str) -> Callable[[ToolCall], ToolResult]:
    def run(call: ToolCall) -> ToolResult:
        edit = messages.Tool(dialect=dialect, tool=tool, args=call.arguments)
        result = call.client.apply([edit], request_id=call.request_id)
        said: Any = result.answers[0] if isinstance(result.answers, list) else None
        return results.applied(result, says=said or "")

    return run
