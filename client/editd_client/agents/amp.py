"""Amp. It loads a plugin. Written from its documentation; it was not run."""

from editd_client.agents.adapter import Plugin, Settings

ADAPTER = Plugin(
    "amp",
    "Amp",
    Settings(
        program="amp",
        folder=".config/amp",
        form="plugin",
        user=".config/amp/plugins/editd.ts",
        project=".amp/plugins/editd.ts",
        variable=("XDG_CONFIG_HOME", ".config"),
        mcp=(".config/amp/settings.json", ".amp/settings.json"),
        mcp_key=("amp.mcpServers",),
        plugin="amp.ts",
    ),
)
