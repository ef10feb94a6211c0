"""The verification of a history at each start: precise reports of damage. Reads only.

It reads the small files whole, and the newest packs up to a budget. `verify_history` reads everything.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct

from editd.errors import HistoryDamaged, join_names
from editd.store.excluded import read_excluded
from editd.store.forgotten import read_forgotten
from editd.store.git_repository import (
    CONFIG,
    REF,
    SHALLOW,
    Manifest,
    own_objects,
    packs_in,
    read_head,
    read_history_start,
    read_manifest,
)
from editd.store.journal import known_ends, read_while_written
from editd.store.packfile import Pack, offsets_in, verify_index, verify_pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.store.git_objects import (
        Oid,
    )


START_BYTES = 64 * 1024 * 1024  # of packs that a start reads whole, newest first: some 60 ms
MENDS = "`editctl check --repair` repairs as much as possible."
MADE = "proof-"  # the prefix of a folder with an index rebuilt for comparison


class Damage(Struct, frozen=True):
    """One damaged file: its damage, the consequence, and the next step."""

    file: str
    what: str
    means: str
    next: str = MENDS

    @property
    def sentence(self) -> str:
        return f"{self.file} is damaged: {self.what}. {self.means} {self.next}"

    def refusal(self) -> HistoryDamaged:
        return HistoryDamaged(
            f"The history is damaged: {self.file}: {self.what}. {self.means}",
            hint=f"Nothing was changed. {self.next}",
            data={"file": self.file},
        )


def is_begun(folder: str) -> bool:
    """Return whether the state folder has a history, or remains of one."""
    store = os.path.join(folder, "store.git")
    return any(
        os.path.lexists(path)
        for path in (
            os.path.join(store, REF),
            os.path.join(folder, "journal"),
            os.path.join(folder, "index.db"),
        )
    )


def verify_quick(folder: str, bytes_max: int | None = START_BYTES) -> list[Damage]:
    """Return the damage that a start can find. `bytes_max` None: every pack is read whole."""
    store = os.path.join(folder, "store.git")
    damages = list(_of_small_files(store))
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(store)
    except HistoryDamaged as damage:
        damages.append(_of(damage))
    listed = {} if manifest is None else manifest.packs
    if not os.path.isdir(os.path.join(store, "objects", "pack")):
        return [*damages, Damage(os.path.join(store, "objects", "pack"), "it is missing", _NO_PACK)]
    of_packs = list(_of_packs(store, listed, bytes_max))
    damages += of_packs
    own = _listed_soundly(store) if of_packs else None
    for read in (read_forgotten, read_excluded):
        try:
            read(store)
        except HistoryDamaged as damage:
            damages.append(_of(damage))
    damages += _of_floor(store, None if manifest is None else manifest.floor, own)
    damages += _of_head(store, folder, own)
    journal = os.path.join(folder, "journal")
    if os.path.isdir(journal):
        try:
            read_while_written(lambda: known_ends(journal))
        except HistoryDamaged as damage:
            damages.append(_of(damage))
    elif os.path.lexists(os.path.join(folder, "index.db")):  # which is created after the journal
        damages.append(Damage(journal, "it is missing", _NO_JOURNAL))
    return damages


def _of(damage: HistoryDamaged) -> Damage:
    path = str(damage.data.get("file", ""))
    problem = damage.message.partition(path)[2].lstrip(": ").rstrip(".")
    return Damage(path, problem, damage.hint)


_NO_COMMIT = "Either the ref was changed, or a pack is damaged or missing."
_NO_FLOOR = "No transaction is lost; it only names the first one of the history."
_NO_JOURNAL = "It held acknowledged transactions that were not packed yet; the files hold their results."
_NO_PACK = "Its objects cannot be read."


def _of_small_files(store: str) -> Iterator[Damage]:
    for name, expected in (("HEAD", f"ref: {REF}\n"), ("config", CONFIG)):
        path = os.path.join(store, name)
        try:
            with open(path, "rb") as file:
                content = file.read(4096)
        except OSError as error:
            yield Damage(path, f"it cannot be read: {error.strerror}", "git does not know the store.")
            continue
        if content != expected.encode():
            at = next(
                (
                    position
                    for position, (one, other) in enumerate(zip(content, expected.encode(), strict=False))
                    if one != other
                ),
                min(len(content), len(expected)),
            )
            yield Damage(path, f"its content is wrong from byte {at} on", "No transaction is lost.")


def _listed_soundly(store: str) -> set[Oid]:
    """Return the objects in verified indexes, without libgit2, which a damaged index can crash."""
    oids: set[Oid] = set()
    for name in packs_in(store):
        path = os.path.join(store, "objects", "pack", name)
        if verify_index(path + ".idx", path + ".pack") is None:
            oids |= offsets_in(path + ".idx").keys()
    return oids


def _has(store: str, own: set[Oid] | None, oid: Oid) -> bool:
    """Return whether the store's own packs have this object; `own` replaces the query of libgit2."""
    return pygit2.Oid(raw=oid) in own_objects(store) if own is None else oid in own


def _of_head(store: str, folder: str, own: set[Oid] | None) -> Iterator[Damage]:
    path = os.path.join(store, REF)
    try:
        head = read_head(store)
    except HistoryDamaged:
        yield Damage(path, "it holds no commit id", "No transaction is lost; it only names the newest one.")
        return
    if head is None and is_begun(folder):
        yield Damage(path, "it is missing", "No transaction is lost; it only names the newest one.")
    if head is not None and not _has(store, own, head):
        yield Damage(path, f"it names the commit {head.hex()}, and no pack has that", _NO_COMMIT)


def _of_floor(store: str, known: Oid | None, own: set[Oid] | None) -> Iterator[Damage]:
    """Yield the damage of the floor's file. `known` is the floor by the manifest."""
    path = os.path.join(store, SHALLOW)
    try:
        commit = read_history_start(store).commit
    except HistoryDamaged as damage:
        yield _of(damage)
        return
    if commit is None and known is not None:
        yield Damage(path, "it is missing", _NO_FLOOR)
    if commit is not None and commit != known and not _has(store, own, commit):
        yield Damage(path, f"it names the commit {commit.hex()}, and no pack has that", _NO_FLOOR)


def _of_packs(store: str, listed: dict[str, int], bytes_max: int | None) -> Iterator[Damage]:
    folder = os.path.join(store, "objects", "pack")
    present = packs_in(store)
    for name, size in listed.items():
        path = os.path.join(folder, name)
        if name not in present:
            for suffix in (".pack", ".idx"):
                if not os.path.exists(path + suffix):
                    means = _NO_PACK if suffix == ".pack" else f"{name}.pack cannot be read without it."
                    yield Damage(path + suffix, "it is missing", means)
        elif present[name] != size:
            yield Damage(path + ".pack", f"it has {present[name]} bytes and had {size}", _NO_PACK)
    left = bytes_max
    for name in sorted(present, key=lambda name: -os.path.getmtime(os.path.join(folder, name + ".pack"))):
        path = os.path.join(folder, name)
        if listed.get(name, present[name]) != present[name]:
            continue
        if left is not None:
            left -= present[name]
        flaw = None if left is not None and left < 0 else verify_pack(path + ".pack")
        if flaw is not None:
            yield Damage(path + ".pack", flaw, _describe_lost(path))
            continue
        flaw = verify_index(path + ".idx", path + ".pack")
        if flaw is not None:
            yield Damage(path + ".idx", flaw, f"It only has the positions of the objects in {name}.pack.")


def _describe_lost(path: str) -> str:
    """Describe the unreadable objects of a damaged pack in a sentence."""
    pack = Pack(path + ".pack")
    holes = [f"{start} to {end}" for start, end in pack.holes]
    where = f"Bytes {', '.join(holes)} cannot be read. " if holes else ""
    try:
        gone = [oid for oid in offsets_in(path + ".idx") if oid not in pack]
    except (OSError, ValueError):
        return where + "Its other objects are whole."
    finally:
        pack.close()
    if not gone:
        return where + "Each object in it is whole."
    return f"{where}Its objects {join_names([oid.hex() for oid in gone])} are damaged."
