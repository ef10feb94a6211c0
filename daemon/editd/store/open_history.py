"""Opening a history: whole where it proves whole, else for reading what is left of it."""

from __future__ import annotations

from editd.errors import HistoryDamaged
from editd.store.history import History
from editd.store.salvage import Salvage
from editd.store.verify import verify_quick


def open_history(folder: str) -> History:
    """The history in the state folder; a `Salvage` where it is damaged."""
    damages = verify_quick(folder)
    if damages:
        return Salvage(folder, damages[0].refusal())
    try:
        return History(folder)
    except HistoryDamaged as damage:
        return Salvage(folder, damage)
