"""Goose. It finds hooks in folders of plugins. Written from its documentation; it was not run."""

from __future__ import annotations

from editd_client.agents.adapter import AFTER, BEFORE, FAILED, START, TURN_END, Adapter, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from editd_client.agents.adapter import Json


def _deny(event: str, reason: str) -> Json:
    """Name the way on: Goose itself asks its model not to retry."""
    del event
    return {"decision": "block", "reason": f"{reason}\nAfter that, call the same tool again: it is allowed."}


ADAPTER = Adapter(
    "goose",
    "Goose",
    events={
        "SessionStart": START,
        "PreToolUse": BEFORE,
        "PostToolUse": AFTER,
        "PostToolUseFailure": FAILED,
        "Stop": TURN_END,
        "SessionEnd": TURN_END,
    },
    edits={"developer__write": "path", "developer__edit": "path"},
    whole=("developer__write",),
    replaced={"developer__edit": ("before", "after")},
    written={"developer__write": "content"},
    shells={"developer__shell": "command"},
    reads={"developer__read": "path"},
    event="event",
    call=("tool_call_id",),
    folder=("working_dir", "cwd"),
    deny=_deny,
    settings=Settings(
        program="goose",
        folder=".config/goose",
        form="groups",
        user=".agents/plugins/editd/hooks/hooks.json",
        project=".agents/plugins/editd/hooks/hooks.json",
        extra={
            ".agents/plugins/editd/plugin.json": '{\n  "name": "editd",\n  "version": "1.0.0",\n'
            '  "description": "Tells editd which edits and commands are this agent\'s."\n}\n'
        },
        hint="`goose configure` adds the MCP server `editctl mcp`: its settings are YAML.",
    ),
)
