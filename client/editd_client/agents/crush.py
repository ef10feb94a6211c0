"""Crush. Calls of its sub-agents are not hooked. Written from its documentation; it was not run."""

from editd_client.agents.adapter import AFTER, BEFORE, FAILED, START, TURN_END, Adapter, Settings, decision

ADAPTER = Adapter(
    "crush",
    "Crush",
    events={
        "SessionStart": START,
        "PreToolUse": BEFORE,
        "PostToolUse": AFTER,
        "PostToolUseFailure": FAILED,
        "TurnEnd": TURN_END,
        "SessionEnd": TURN_END,
    },
    edits={"edit": "file_path", "multiedit": "file_path", "write": "file_path"},
    whole=("write",),
    replaced={"edit": ("old_string", "new_string"), "multiedit": ("old_string", "new_string")},
    written={"write": "content"},
    shells={"bash": "command"},
    reads={"view": "file_path"},
    event="event",
    call=("tool_call_id", "tool_use_id"),
    deny=decision("deny"),
    settings=Settings(
        program="crush",
        folder=".config/crush",
        form="flat",
        user=".config/crush/crush.json",
        project="crush.json",
        variable=("XDG_CONFIG_HOME", ".config"),
        mcp=(".config/crush/crush.json", "crush.json"),
        mcp_key=("mcp",),
        mcp_entry={"type": "stdio"},
    ),
)
