"""opencode. It loads a plugin, which speaks to the socket in its process. Run with version 1.18.33."""

from editd_client.agents.adapter import Plugin, Settings

ADAPTER = Plugin(
    "opencode",
    "opencode",
    Settings(
        program="opencode",
        folder=".config/opencode",
        form="plugin",
        user=".config/opencode/plugins/editd.js",
        project=".opencode/plugins/editd.js",
        variable=("XDG_CONFIG_HOME", ".config"),
        mcp=(".config/opencode/opencode.json", "opencode.json"),
        mcp_key=("mcp",),
        mcp_entry={"type": "local", "enabled": True, "timeout": 60000},
        plugin="opencode.js",
    ),
)
