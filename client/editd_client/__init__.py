"""The client of editd: finds a workspace and its daemon, and talks to it.

    Client, AsyncClient        a method for each of the protocol, transactions, events
    Write, Replace, …          the edits that `apply` takes
    EditdError, Unreachable    a refusal; no daemon answers

Of the daemon's code it uses only the contract, `editd.wire`. A name is imported on first use, so
that a program with one client does not load the other.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for typing's, whose import would cost `editd-hook` 4 ms
if TYPE_CHECKING:
    from editd.wire.messages import (
        Chmod,
        Delete,
        EditText,
        Filter,
        Move,
        Patch,
        Position,
        Replace,
        Scope,
        Symlink,
        TextEdit,
        Tool,
        Write,
    )
    from editd_client.aio import AsyncClient, AsyncEvents
    from editd_client.changesets import AsyncChangeset, Changeset
    from editd_client.client import Client
    from editd_client.errors import EditdError, Unreachable
    from editd_client.locate import find_workspace
    from editd_client.session_state import Events, Happening

__all__ = [
    "AsyncChangeset", "AsyncClient", "AsyncEvents", "Changeset", "Chmod", "Client", "Delete", "EditText",
    "EditdError", "Events", "Filter", "Happening", "Move", "Patch", "Position", "Replace", "Scope", "Symlink",
    "TextEdit", "Tool", "Unreachable", "Write", "find_workspace",
]  # fmt: skip

_HOMES = {
    **dict.fromkeys(("AsyncClient", "AsyncEvents"), "editd_client.aio"),
    **dict.fromkeys(("AsyncChangeset", "Changeset"), "editd_client.changesets"),
    "Client": "editd_client.client",
    **dict.fromkeys(("EditdError", "Unreachable"), "editd_client.errors"),
    **dict.fromkeys(("Events", "Happening"), "editd_client.session_state"),
    "find_workspace": "editd_client.locate",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES.get(name, "editd.wire.messages")), name)
