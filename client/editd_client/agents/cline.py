"""Cline. It takes one executable for each event. Written from its documentation; it was not run."""

from __future__ import annotations

from editd_client.agents.adapter import AFTER, BEFORE, TURN_END, Adapter, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from editd_client.agents.adapter import Json


def _deny(event: str, reason: str) -> Json:
    del event
    return {"cancel": True, "errorMessage": reason}


ADAPTER = Adapter(
    "cline",
    "Cline",
    events={
        "PreToolUse": BEFORE,
        "PostToolUse": AFTER,
        "TaskComplete": TURN_END,
        "TaskCancel": TURN_END,
    },
    edits={"write_to_file": "path", "replace_in_file": "path"},
    whole=("write_to_file",),
    written={"write_to_file": "content"},
    shells={"execute_command": "command"},
    reads={"read_file": "path"},
    event="hookName",
    session=("taskId",),
    folder=("workspaceRoots.0", "cwd"),
    tool=("preToolUse.toolName", "postToolUse.toolName"),
    arguments=("preToolUse.parameters", "postToolUse.parameters"),
    success=("postToolUse.success",),
    deny=_deny,
    settings=Settings(
        program="cline",
        folder="Documents/Cline",
        form="files",
        user="Documents/Cline/Hooks",
        project=".clinerules/hooks",
        hint="Switch each hook on in Cline's view of hooks. docs/mcp.md has the lines for its MCP servers.",
    ),
)
