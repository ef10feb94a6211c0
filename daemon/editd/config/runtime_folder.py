"""The folder of the user's sockets. Imports next to nothing, because each call of `editctl` needs it."""

from __future__ import annotations

import os


def socket_folder() -> str:
    """Return the folder of the user's sockets, in the protocol's order."""
    if runtime := absolute_in("XDG_RUNTIME_DIR"):
        return os.path.join(runtime, "editd")
    if os.path.isdir(runtime := f"/run/user/{os.getuid()}"):
        return os.path.join(runtime, "editd")
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # both sides check the folder's owner
    return os.path.join(temporary, f"editd-{os.getuid()}")


def absolute_in(variable: str) -> str | None:
    """Return the folder that the environment names; the XDG specification says to ignore a relative one."""
    given = os.environ.get(variable, "")
    return given if os.path.isabs(given) else None
