"""The default author of a client's edits."""

from __future__ import annotations

import os


def current_actor() -> str:
    """Return the name to sign with: EDITD_ACTOR, otherwise the login name."""
    return os.environ.get("EDITD_ACTOR") or login_name()


def login_name() -> str:
    """Return the name of the user, or their number if the system has no entry, as in a container."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.geteuid()}"
