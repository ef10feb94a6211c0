"""Tidying: what a packing process that was killed has left among the packs goes as the next one begins.

A `.keep` of its own would keep its pack from being put together with others for ever, and a pack whose index
went before it would take its room for ever. What it had not finished is in the journal still.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.errors import HistoryDamaged
from editd.store.compaction import MARKER
from editd.store.manifest import read_manifest
from editd.store.pack_writer import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

OTHERS = "tmp_gc_"  # what compaction is making right now, perhaps


def tidy(packs: str) -> None:
    """Remove what is unfinished in `packs`, the store's objects/pack. Only for the one packing process.

    A pack that is whole stays: what is in it is in the history, or will be put there once more. So does one
    that the history rests on, though its index is missing: that is damage, and no leaving of ours.
    """
    for name in _leavings(packs):
        _remove(packs, name)


def is_tidy(packs: str) -> bool:
    """Is there nothing that `tidy` would remove? Raises OSError."""
    return next(_leavings(packs), None) is None


def _leavings(packs: str) -> Iterator[str]:
    names = set(os.listdir(packs))
    for stem in _without_index(names):
        if _is_left(packs, stem):
            yield stem + ".pack"
            if stem + ".idx" + UNFINISHED in names:
                yield stem + ".idx" + UNFINISHED
    for name in names:
        is_temporary = name.startswith("tmp_") and not name.startswith(OTHERS)
        if is_temporary or name.endswith((".keep", ".keep" + UNFINISHED)):
            yield name


def _without_index(names: AbstractSet[str]) -> set[str]:
    """The packs that git does not see."""
    stems = {name.removesuffix(".pack") for name in names if name.endswith(".pack")}
    return {stem for stem in stems if f"{stem}.idx" not in names}


def _is_left(packs: str, stem: str) -> bool:
    """Is it known that the history does not rest on this pack, and that nobody is making it?"""
    store = os.path.dirname(os.path.dirname(packs))
    try:
        manifest = read_manifest(store)
    except HistoryDamaged:
        return False
    if manifest is None or stem in manifest.packs:
        return False
    is_being_made = os.path.exists(os.path.join(os.path.dirname(store), MARKER))
    return not is_being_made and not os.path.exists(os.path.join(packs, stem + ".idx"))


def _remove(packs: str, name: str) -> None:
    path = os.path.join(packs, name)
    with suppress(OSError):  # What cannot be removed stays, and does no harm.
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
