"""A file's permission bits when git's mode of it changes.

Git knows one bit, executable or not. The others that a file has are kept.
"""

from __future__ import annotations

from editd.values.content import EXECUTABLE, SYMLINK, FileState, GitMode


def with_mode(state: FileState, mode: GitMode) -> FileState:
    """Return the same content with git's `mode`: x where r is, as git checks out, or x nowhere."""
    if mode == state.mode:
        return state
    permissions = state.permissions
    if SYMLINK in (mode, state.mode) or permissions is None:
        permissions = None
    elif mode == EXECUTABLE:
        permissions |= (permissions & 0o444) >> 2
    else:
        permissions &= ~0o111
    return FileState(state.content, mode, permissions, state.version)
