"""The state folder under a running daemon: whether it is still there, and what became of an earlier one.

Somebody may delete the folder as a cache. The daemon takes no edit from then on, because none would be kept.
It leaves a note beside the folder, so that the next daemon says that a new history begins.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from typing import TYPE_CHECKING

from editd.advice import Advice, command_term
from editd.errors import Broken
from editd.server.ownership import inode_of
from editd.store.transaction_record import rfc3339
from editd.system.files import replace_file_durably
from editd.system.native import NATIVE

if TYPE_CHECKING:
    from editd.engine.engine import Engine

log = logging.getLogger(__name__)

NOTE = ".gone"  # the suffix of the note's name, beside the folder
NOTE_SECONDS = 7 * 86_400.0  # that a note is shown


class StateFolder:
    """The state folder of one daemon, as it was at the start."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode = inode_of(path)
        self._open = os.open(path, NATIVE.folder_flags)
        self._notice = self._read_note()
        if self._notice:
            log.warning("%s", self._notice)

    def notices(self) -> list[str]:
        """Return the sentence of `status` about an earlier history, if there is one."""
        return [self._notice] if self._notice else []

    def look(self, engine: Engine) -> None:
        """Have the engine take no more edits if the folder is gone or replaced."""
        if inode_of(self._path) == self._inode or engine.recorder.broken is not None:
            return
        path = self._place_now()
        became = "was deleted" if path is None else f"was moved to {path}"
        hint = Advice("Restart the daemon with ", command_term("stop"), ": a new history begins.")
        if path is not None:
            hint = Advice(
                "Stop the daemon with ", command_term("stop"), f", and move the folder back from {path}."
            )
        broken = Broken(f"The history in {self._path} {became}: no edit can be kept.", hint=hint)
        engine.recorder.broken = broken
        log.critical("%s", broken.text())
        note = {
            "became": became, "head": int(engine.history.head), "time_us": time.time_ns() // 1000,
            "inode": self._inode,
        }  # fmt: skip
        try:
            os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
            replace_file_durably(self._path + NOTE, json.dumps(note).encode())
        except OSError as error:
            log.error("the next daemon cannot be told: %s", error)

    def _place_now(self) -> str | None:
        """Return the path that the folder has now; None if it was deleted, or if the system does not say."""
        with contextlib.suppress(OSError):
            path = os.readlink(f"{NATIVE.proc}/self/fd/{self._open}")
            return None if os.fstat(self._open).st_nlink == 0 or path.endswith(" (deleted)") else path
        return None

    def close(self) -> None:
        os.close(self._open)

    def _read_note(self) -> str:
        """Return the sentence of the note that an earlier daemon has left.

        Remove an old note, and that about a folder which is back in its place.
        """
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            with open(self._path + NOTE, encoding="utf-8") as file:
                note = json.load(file)
            is_new = time.time() - note["time_us"] / 1_000_000 < NOTE_SECONDS
            if is_new and note.get("inode") != list(self._inode or ()):
                return (
                    f"A new history has begun: the earlier one, with {int(note['head'])} transactions, "
                    f"was in {self._path}, which {note['became']} at {rfc3339(int(note['time_us']))}."
                )
            os.unlink(self._path + NOTE)
        return ""
