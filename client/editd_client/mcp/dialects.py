"""The tools of other systems, as the daemon describes them: own names, own schemas, own answers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from editd.wire import messages
from editd_client.errors import refusal
from editd_client.mcp import answers
from editd_client.mcp.tools import OWN, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from editd_client.mcp.answers import Answer
    from editd_client.mcp.tools import Call


def tools_of(entries: Iterable[messages.DialectEntry], chosen: Sequence[str]) -> list[Tool]:
    """The tools of the chosen dialects, in that order.

    A name that two of them have, or editd itself, has the dialect's before it (`cline_replace`).
    Raises EditdError (`invalid_params`) for a dialect that there is not.
    """
    known = {entry.name: entry for entry in entries}
    if unknown := [name for name in chosen if name not in known]:
        raise refusal(
            "invalid_params", f"There is no dialect {unknown[0]!r}.", hint=f"There are {', '.join(known)}."
        )
    picked = [(known[name], tool) for name in dict.fromkeys(chosen) for tool in known[name].tools]
    names = Counter([*(tool.name for _, tool in picked), *(tool.name for tool in OWN)])
    return [
        Tool(
            tool.name if names[tool.name] == 1 else f"{dialect.name}_{tool.name}",
            tool.description,
            tool.schema,
            _runner(dialect.name, tool.name),
            is_read_only=tool.read_only,
            is_destructive=tool.destructive,
            is_idempotent=tool.idempotent,
            is_own=False,
        )
        for dialect, tool in picked
    ]


def _runner(dialect: str, tool: str) -> Callable[[Call], Answer]:
    def run(call: Call) -> Answer:
        edit = messages.Tool(dialect=dialect, tool=tool, args=call.arguments)
        result = call.client.apply([edit], request_id=call.request_id)
        said: Any = result.answers[0] if isinstance(result.answers, list) else None
        return answers.applied(result, says=said or "")

    return run
