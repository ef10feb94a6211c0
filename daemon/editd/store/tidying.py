"""Tidying: what a packing process that was killed has left among the packs goes before the next one begins.

A `.keep` of its own would keep its pack from being put together with others for ever. What it had not
finished is in the journal still.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

OTHERS = "tmp_gc_"  # what compaction is making right now, perhaps


def tidy(packs: str) -> None:
    """Remove what is unfinished in `packs`, the store's objects/pack. Only for the one packing process.

    A pack that is whole stays: what is in it is in the history, or will be put there once more.
    """
    names = set(os.listdir(packs))
    for name in sorted(names):
        stem, _, suffix = name.rpartition(".")
        if name.startswith("tmp_") and not name.startswith(OTHERS):
            _remove(packs, name)
        elif suffix == "keep":
            if f"{stem}.idx" not in names:  # git does not see it without one
                for unfinished in (".pack", ".idx.tmp"):
                    _remove(packs, stem + unfinished)
            _remove(packs, name)
        elif name.endswith(".keep.tmp"):
            _remove(packs, name)


def _remove(packs: str, name: str) -> None:
    path = os.path.join(packs, name)
    with suppress(OSError):  # What cannot be removed stays, and does no harm.
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
