"""Open the history; if verification fails, open it read-only."""

from __future__ import annotations

from editd.errors import HistoryDamaged
from editd.store.history import History
from editd.store.salvage import Salvage
from editd.store.verify import verify_quick


def open_history(folder: str) -> History:
    """Return the history in the state folder, or a read-only `Salvage` if it is damaged."""
    damages = verify_quick(folder)
    if damages:
        return Salvage(folder, damages[0].refusal())
    try:
        return History(folder)
    except HistoryDamaged as damage:
        return Salvage(folder, damage)
