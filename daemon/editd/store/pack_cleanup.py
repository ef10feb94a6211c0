"""Cleanup of the files that a killed packing process has left among the packs, when the next one begins.

A leftover `.keep` would exclude its pack from repacking forever. A pack without an index would use disk
space forever. The unfinished transactions are still in the journal.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from editd.errors import HistoryDamaged
from editd.store.git_repository import COMPACTING, read_manifest
from editd.store.pack_writer import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

OTHERS = "tmp_gc_"  # files that a compaction may be writing now


def tidy(packs: str) -> None:
    """Remove unfinished files in `packs`, the store's objects/pack. Only for the one packing process.

    A complete pack stays: its objects are in the history, or are packed again. A listed pack without an index
    stays too: that is damage, not a leftover.
    """
    for name in _leavings(packs):
        _remove(packs, name)


def is_tidy(packs: str) -> bool:
    """Return whether `tidy` has nothing to remove. Raises OSError."""
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
    """Return the packs without an index, which git ignores."""
    stems = {name.removesuffix(".pack") for name in names if name.endswith(".pack")}
    return {stem for stem in stems if f"{stem}.idx" not in names}


def remove_orphans(packs: str) -> None:
    """Remove unlisted packs without an index, which a killed `drop_packs` has left.

    Inside the exclusive lock, where no process is between the two files of a new pack.
    """
    for stem in _without_index(set(os.listdir(packs))):
        if _is_unlisted(packs, stem):
            _remove(packs, stem + ".pack")


def _is_unlisted(packs: str, stem: str) -> bool:
    """Return whether the manifest is sound, and lacks the pack."""
    try:
        manifest = read_manifest(os.path.dirname(os.path.dirname(packs)))
    except HistoryDamaged:
        return False
    return manifest is not None and stem not in manifest.packs


def _is_left(packs: str, stem: str) -> bool:
    """Return whether the pack is certainly unlisted, and no process is writing it."""
    if not _is_unlisted(packs, stem):
        return False
    store = os.path.dirname(os.path.dirname(packs))
    is_being_made = os.path.exists(os.path.join(os.path.dirname(store), COMPACTING))
    return not is_being_made and not os.path.exists(os.path.join(packs, stem + ".idx"))


def _remove(packs: str, name: str) -> None:
    path = os.path.join(packs, name)
    with contextlib.suppress(OSError):  # A file that cannot be removed stays, and is harmless.
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
