"""The part `remote` as the daemon finds it, by its entry point: the exchange's process, and its addresses."""

from __future__ import annotations

from editd.remote.server_address import ServerAddress

COMMAND = ("-m", "editd.remote.exchange_worker")


def check_server(url: str, histories: str) -> None:
    """Refuse the URL of no server. Raises InvalidParams.

    `histories` has the state folders of all workspaces.
    """
    ServerAddress.parse(url).repository(histories)
