"""The program names that show the daemon and its clients which agent has started a process.

The kernel cuts a program's name to 15 bytes.
"""

from __future__ import annotations

SHELLS = frozenset(("bash", "zsh", "fish", "sh", "dash", "ksh", "nu", "tcsh"))
LAUNCHERS = frozenset(("uv", "uvx", "pipx", "npx", "npm exec", "env"))
"""Programs that start the server of an agent for it."""
