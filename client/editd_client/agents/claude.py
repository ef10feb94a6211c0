"""Claude Code. Written from its documentation; it was not run."""

from editd_client.agents.adapter import (
    AFTER,
    BEFORE,
    FAILED,
    START,
    TURN_END,
    Adapter,
    Settings,
    hook_specific,
)

ADAPTER = Adapter(
    "claude",
    "Claude Code",
    events={
        "SessionStart": START,
        "PreToolUse": BEFORE,
        "PostToolUse": AFTER,
        "PostToolUseFailure": FAILED,
        "Stop": TURN_END,
        "SessionEnd": TURN_END,
    },
    edits={
        "Edit": "file_path",
        "MultiEdit": "file_path",
        "Write": "file_path",
        "NotebookEdit": "notebook_path",
    },
    whole=("Write",),
    shells={"Bash": "command"},
    reads={"Read": "file_path"},
    agent=("agent_id",),
    call=("tool_use_id",),
    background=("tool_input.run_in_background",),
    foreign=("cursor_version",),
    deny=hook_specific,
    settings=Settings(
        program="claude",
        folder=".claude",
        form="groups",
        user=".claude/settings.json",
        project=".claude/settings.json",
        variable=("CLAUDE_CONFIG_DIR", ".claude"),
        mcp=(".claude.json", ".mcp.json"),
        mcp_entry={"type": "stdio"},
        hint="Start Claude Code anew: it reads its hooks at the start.",
    ),
)
