"""A file's permission bits when its git mode changes.

Git records one bit, executable or not. The file's other permission bits are kept.
"""

from __future__ import annotations

from editd.values.content import EXECUTABLE, SYMLINK, FileState, GitMode


def with_mode(state: FileState, mode: GitMode) -> FileState:
    """Return `state` with git's `mode`: each reader may execute it, as git checks out, or nobody may."""
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
