"""`editctl mcp`: editd's tools, and the tools of its dialects, for agents that speak MCP.

Only `server` imports the official SDK, which is the extra `mcp`. `workspace_choice` selects the workspace,
`tools` and `dialects` hold the tools, and each call runs in a thread over the `connection_pool` of the one
session. `results` turns the daemon's reply into the tool's result.
"""
