"""Gemini CLI. It names no call, so that two equal calls at once are one. Run with version 0.61.0."""

from editd_client.agents.adapter import AFTER, ASKED, BEFORE, START, TURN_END, Adapter, Settings, decision

ADAPTER = Adapter(
    "gemini",
    "Gemini CLI",
    events={
        "SessionStart": START,
        "BeforeTool": BEFORE,
        "AfterTool": AFTER,
        "Notification": ASKED,
        "AfterAgent": TURN_END,
        "SessionEnd": TURN_END,
    },
    edits={"replace": "file_path", "write_file": "file_path"},
    whole=("write_file",),
    replaced={"replace": ("old_string", "new_string")},
    written={"write_file": "content"},
    question=("notification_type", "ToolPermission"),
    shells={"run_shell_command": "command"},
    reads={"read_file": "file_path"},
    output=("tool_response.llmContent",),
    background=("tool_input.is_background",),
    deny=decision("deny"),
    settings=Settings(
        program="gemini",
        folder=".gemini",
        form="groups",
        user=".gemini/settings.json",
        project=".gemini/settings.json",
        mcp=(".gemini/settings.json", ".gemini/settings.json"),
        mcp_entry={"timeout": 60000},
        seconds=10000,
        hint="Under `gemini --acp`, as editors start it, no hook of a tool runs: its edits are outside.",
    ),
)
