"""`editctl mcp`: editd's tools, and the tools of its dialects, for agents that speak MCP.

Only `server` imports the official SDK, which is the extra `mcp`. `tools` holds the tools, and each call
runs in a thread over the `connection_pool` of the one session. `conversion` checks the arguments of a
call, and turns the daemon's reply into the tool's result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from editd.wire.messages import DialectEntry


class Options(Struct, frozen=True, kw_only=True):
    """The options of `editctl mcp`: the values from the command line and the environment."""

    workspace: str | None = None
    dialects: tuple[str, ...] = ()
    described: tuple[DialectEntry, ...] = ()  # those of other packages, by the daemon
    session: str | None = None
    token: str | None = None
    tools: tuple[str, ...] = ()  # empty: all
    is_read_only: bool = False
    may_undo_others: bool = False
    wait: float = 50.0  # seconds for the decision about a proposal; many clients give up after 60

    def offers(self, name: str, is_read_only: bool) -> bool:
        """Return whether to offer this tool."""
        return (not self.tools or name in self.tools) and (is_read_only or not self.is_read_only)
