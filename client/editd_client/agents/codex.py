"""Codex CLI. Its edit tool takes a patch, and it reads by shell commands. Run with version 0.169.0."""

from editd_client.agents.adapter import (
    AFTER,
    ASKED,
    BEFORE,
    PATCH,
    START,
    TURN_END,
    Adapter,
    Settings,
    hook_specific,
)

ADAPTER = Adapter(
    "codex",
    "Codex CLI",
    events={
        "SessionStart": START,
        "PreToolUse": BEFORE,
        "PermissionRequest": ASKED,
        "PostToolUse": AFTER,
        "Stop": TURN_END,
        "SessionEnd": TURN_END,
    },
    edits={"apply_patch": PATCH + "command"},
    shells={"Bash": "command"},
    agent=("agent_id",),
    call=("tool_use_id",),
    deny=hook_specific,
    settings=Settings(
        program="codex",
        folder=".codex",
        form="groups",
        user=".codex/hooks.json",
        project=".codex/hooks.json",
        variable=("CODEX_HOME", ".codex"),
        mcp=(".codex/config.toml", ".codex/config.toml"),
        mcp_key=("mcp_servers",),
        mcp_entry={
            "required": True,
            "startup_timeout_sec": 30,
            "env_vars": ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "EDITD_WORKSPACE", "EDITD_SOCKET"],
        },
        hint="Start `codex`, enter /hooks, and trust the hooks of editd, "
        "also after an upgrade. Until then Codex leaves each new one out.",
    ),
)
