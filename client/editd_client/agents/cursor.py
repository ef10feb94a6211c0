"""Cursor. Written from its documentation; it was not run."""

from __future__ import annotations

from editd_client.agents.adapter import AFTER, BEFORE, FAILED, PATCH, TURN_END, Adapter, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from editd_client.agents.adapter import Json


def _deny(event: str, reason: str) -> Json:
    del event
    return {"permission": "deny", "user_message": reason, "agent_message": reason}


ADAPTER = Adapter(
    "cursor",
    "Cursor",
    events={
        "preToolUse": BEFORE,
        "postToolUse": AFTER,
        "postToolUseFailure": FAILED,
        "stop": TURN_END,
    },
    edits={
        "Write": "file_path|path",
        "StrReplace": "file_path|path",
        "Delete": "file_path|path",
        "ApplyPatch": PATCH + "patch|input|command",
    },
    whole=("Write", "Delete"),
    replaced={"StrReplace": ("old_string", "new_string")},
    shells={"Shell": "command"},
    reads={"Read": "file_path|path"},
    session=("conversation_id",),
    call=("tool_use_id",),
    folder=("cwd", "workspace_roots.0"),
    deny=_deny,
    settings=Settings(
        program="cursor-agent",
        folder=".cursor",
        form="flat",
        user=".cursor/hooks.json",
        project=".cursor/hooks.json",
        mcp=(".cursor/mcp.json", ".cursor/mcp.json"),
        head={"version": 1},
    ),
)
