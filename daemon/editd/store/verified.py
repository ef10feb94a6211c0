"""The mark of the last verification: how far a history was seen whole, and in which packs.

A pack that is as it was, by the checksum over its bytes, has the objects that were verified one by one. So a
later check reads one by one only the objects of other packs, and follows only the transactions since then.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from editd.store.git_objects import oid_of
from editd.store.git_repository import packs_in
from editd.system.files import read_or_empty, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERIFIED = "verified"
VERSION = 1
_CHECKSUM_BYTES = 20  # at the end of a pack


class PackMark(Struct, frozen=True):
    """A verified pack: its size, its checksum, and the first transaction with its commit in it.

    `first` is 0 if the pack has no such commit.
    """

    size: int
    checksum: str
    first: int


class Verified(Struct, frozen=True, tag_field="version", tag=VERSION):
    """The transaction up to which all was verified, when, and what else that depends on."""

    seq: int
    commit: str
    time_us: int
    packs: dict[str, PackMark]
    conditions: str  # a digest of all that decides which contents are expected
    scans: list[str]  # the trees of baselines, whose contents may be borrowed

    def covers(self, name: str, pack: PackMark) -> bool:
        """Return whether the pack is one of the verified ones, byte for byte."""
        known = self.packs.get(name)
        return known is not None and (known.size, known.checksum) == (pack.size, pack.checksum)

    def since(self, packs: Mapping[str, PackMark]) -> int:
        """Return the transaction up to which all is still known; less than the first one if nothing is.

        The contents of a pack that is gone, such as one that was combined with others, count no longer.
        """
        gone = [
            mark.first
            for name, mark in self.packs.items()
            if name not in packs or not self.covers(name, packs[name])
        ]
        return min([self.seq, *(first - 1 for first in gone)])


def read_verified(folder: str) -> Verified | None:
    """Return the mark in the state folder; None if there is none, or none that this version reads."""
    try:
        mark = msgspec.json.decode(read_or_empty(os.path.join(folder, VERIFIED)), type=Verified)
        for oid in (mark.commit, *mark.scans):
            oid_of(oid)
    except (OSError, ValueError):  # a DecodeError is a ValueError
        return None
    return mark


def write_verified(folder: str, mark: Verified | None) -> None:
    """Replace the mark, or remove it for None. Raises OSError."""
    path = os.path.join(folder, VERIFIED)
    if mark is not None:
        replace_file(path, msgspec.json.encode(mark))
    elif os.path.lexists(path):
        os.unlink(path)


def present_packs(store: str) -> dict[str, PackMark]:
    """Return the packs of the store with their checksums, and 0 as the first transaction of each."""
    folder = os.path.join(store, "objects", "pack")
    packs: dict[str, PackMark] = {}
    for name, size in packs_in(store).items():
        with open(os.path.join(folder, f"{name}.pack"), "rb") as file:
            file.seek(max(0, size - _CHECKSUM_BYTES))
            packs[name] = PackMark(size, file.read().hex(), 0)
    return packs


def digest_of(conditions: Iterable[bytes]) -> str:
    """Return a digest of byte strings in any order."""
    return hashlib.sha256(b"".join(sorted(conditions))).hexdigest()
