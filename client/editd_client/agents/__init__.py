"""Coding agents as they are: a hook for their own edits and commands, and the settings that call it.

    hook        the program `editd-hook`, which an agent runs before and after a tool
    codex, …    one table for each agent: its events, its tools, its answers, its settings

Modules that the hook imports use the standard library's light half only: an agent waits for each call.
"""

ID_LENGTH = 8  # a session is named after the last characters of its id: the first of a UUIDv7 are a time
NAMES = ("codex", "claude", "gemini", "cursor", "cline", "goose", "crush", "opencode", "amp")
