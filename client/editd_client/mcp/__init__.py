"""`editctl mcp`: editd's tools, and those of its dialects, for agents that speak MCP.

`server` alone imports the official SDK, which is the extra `mcp`. It asks `place` which
workspace is meant, lists what `tools` and `dialects` hold, and runs each call in a thread over
`link`, the one session that a connection is; `answers` says what came of it.
"""
