"""Compaction: a process that frees the objects used only before a given transaction, and forgotten ones.

`python -m editd.store.compaction STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).

    prepare   writes the objects that are still needed to a new pack, durably; touches nothing else
    (start)   the daemon moves the start of the history (`shallow` in the store): it is compacted from here on
    sweep     removes the packs whose objects are in the new pack, or not needed any more
    (end)     the daemon removes what else is left of the dropped content (`server.remains`)

A crash before the start moves leaves the old state and one pack too many; a crash after it leaves the new
state and packs too many. The file `compacting` in the state folder requests the next run, which frees them.
Packing continues meanwhile: its new packs are not on the list of `prepare`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pygit2
from msgspec import Struct

from editd.advice import Advice, command_term
from editd.errors import HistoryDamaged, Refused
from editd.store.git_objects import EMPTY_TREE, CommitObject, Oid
from editd.store.git_repository import (
    COMPACTING,
    drop_packs,
    exclusive_lock,
    open_store,
    read_head,
    remove_partial,
    shared_lock,
    write_manifest,
)
from editd.store.pack_cleanup import remove_orphans
from editd.store.packfile import offsets_in
from editd.store.transaction_record import parse
from editd.system.confinement import confine
from editd.system.fast_exit import exit_fast
from editd.system.files import sync_path
from editd.system.flock import take
from editd.system.frames import read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MADE = "tmp_gc_"


class CompactionLimits(Struct, frozen=True):
    """The range of possible first transactions of the history, and the most bytes that it may take.

    The objects of `without` are always dropped.
    """

    least: int
    most: int
    bytes: int | None
    without: frozenset[Oid] = frozenset()


class Compactor:
    """The two steps of a compaction of the history in the state folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._store = os.path.join(folder, "store.git")
        self._packs = os.path.join(self._store, "objects", "pack")
        self._repository = open_store(self._store)

    def prepare(self, limits: CompactionLimits, *, is_dry: bool) -> dict[str, object]:
        """Compute the floor. Unless `is_dry`, copy the needed objects of mixed packs to a new pack.

        A mixed pack also holds objects that are not needed any more.

        Raises HistoryDamaged, OSError, pygit2.GitError with nothing changed.
        """
        with exclusive_lock(self._store):
            packs = {name: list(pack_sizes(self._packs, name)) for name in _names(self._packs)}
        sizes = {oid: size for entries in packs.values() for oid, size in entries}
        floor, commit, reached = self._reach(limits, sizes)
        reached -= limits.without
        mixed = [name for name, oids in packs.items() if not reached.issuperset(oid for oid, _ in oids)]
        clean = {oid for name, entries in packs.items() if name not in mixed for oid, _ in entries}
        needed = {oid for name in mixed for oid, _ in packs[name]} & reached - clean
        freed = sum(size for oid, size in sizes.items() if oid not in reached)
        if not is_dry:
            self._begin()
            self._write(needed)
        return {"floor": floor, "commit": commit.hex(), "freed": freed, "packs": mixed}

    def sweep(self, packs: Iterable[str]) -> None:
        """Remove the packs that the new one replaces. Raises OSError."""
        with shared_lock(self._store), exclusive_lock(self._store):
            drop_packs(self._store, list(packs))
            remove_orphans(self._packs)

    def _begin(self) -> None:
        """Create the marker file, which `end` removes, and remove the remains of an earlier run."""
        os.close(
            os.open(os.path.join(self._folder, COMPACTING), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        )
        for name in os.listdir(self._packs):
            if name.startswith(_MADE):
                shutil.rmtree(os.path.join(self._packs, name))
        remove_partial(self._store)

    def _write(self, needed: set[Oid]) -> None:
        """Write these objects to a new pack, durably, and verify that it holds them."""
        if not needed:
            return
        with tempfile.TemporaryDirectory(prefix=_MADE, dir=self._packs) as made:
            self._repository.pack(made, lambda builder: _add_all(builder, needed), n_threads=1)
            name = next(name[: -len(".idx")] for name in os.listdir(made) if name.endswith(".idx"))
            if {oid for oid, _ in pack_sizes(made, name)} != needed:
                raise HistoryDamaged("The new pack lacks needed objects.", data={"file": self._store})
            with exclusive_lock(self._store):
                for suffix in (".pack", ".idx"):  # the index last: without one git does not see the pack
                    sync_path(os.path.join(made, name + suffix))
                    os.chmod(os.path.join(made, name + suffix), 0o600)
                    os.rename(os.path.join(made, name + suffix), os.path.join(self._packs, name + suffix))
                sync_path(self._packs)
                write_manifest(self._store)

    def _reach(self, limits: CompactionLimits, sizes: dict[Oid, int]) -> tuple[int, Oid, set[Oid]]:
        """Walk back from head as far as the limits allow. Return the seq and the commit there.

        The third result has the objects that the transactions from there to head need.
        """
        oid = read_head(self._store)
        if oid is None:
            raise HistoryDamaged("The history has no head.", data={"file": self._store})
        seq = parse(self._commit(oid).message).seq
        floor, commit_there = int(seq), oid
        reached: set[Oid] = set()
        total = 0
        while True:
            commit = self._commit(oid)
            new = {oid}
            self._walk(commit.tree, reached, new)
            total += sum(sizes.get(one, 0) for one in new)
            if limits.bytes is not None and total > limits.bytes and seq < limits.most:
                return floor, commit_there, reached
            reached |= new
            floor, commit_there = int(seq), oid
            if seq <= limits.least or commit.parent is None:
                return floor, commit_there, reached
            oid, seq = commit.parent, type(seq)(seq - 1)

    def _walk(self, root: Oid, known: set[Oid], new: set[Oid]) -> None:
        """Add the trees and blobs below `root` that are not in `known`."""
        waiting = [root]
        while waiting:
            tree = waiting.pop()
            if tree in known or tree in new:
                continue
            new.add(tree)
            for is_folder, oid in _entries(b"" if tree == EMPTY_TREE else self._read(tree)):
                if is_folder:
                    waiting.append(oid)
                elif oid not in known:
                    new.add(oid)

    def _commit(self, oid: Oid) -> CommitObject:
        try:
            return CommitObject.decode(self._read(oid))
        except ValueError as error:
            raise HistoryDamaged(f"The commit {oid.hex()} cannot be read: {error}.") from error

    def _read(self, oid: Oid) -> bytes:
        try:
            return self._repository.odb.read(pygit2.Oid(raw=oid))[1]
        except KeyError:
            raise HistoryDamaged(
                f"The object {oid.hex()} is missing, so the history is not compacted.",
                hint=Advice("Run ", command_term("check"), "."),
                data={"file": self._store},
            ) from None


def was_cut_off(folder: str) -> bool:
    """Return whether a compaction has begun, and has not reached `end`."""
    return os.path.exists(os.path.join(folder, COMPACTING))


def end(folder: str) -> None:
    """Remove the marker file from the state folder: nothing is left to do. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, COMPACTING))


def pack_sizes(folder: str, name: str) -> Iterator[tuple[Oid, int]]:
    """Yield each object of a pack with its packed size, by the pack's index. Raises ValueError."""
    offsets = sorted(offsets_in(os.path.join(folder, f"{name}.idx")).items(), key=itemgetter(1))
    end = os.stat(os.path.join(folder, f"{name}.pack")).st_size - 20
    for (oid, offset), (_, until) in zip(offsets, [*offsets[1:], (b"", end)], strict=True):
        yield oid, until - offset


def _names(folder: str) -> list[str]:
    """Return the complete packs, without packs that are kept until head moves."""
    names = set(os.listdir(folder))
    stems = [name[: -len(".pack")] for name in names if name.endswith(".pack")]
    return sorted(stem for stem in stems if f"{stem}.idx" in names and f"{stem}.keep" not in names)


def _entries(tree: bytes) -> Iterator[tuple[bool, Oid]]:
    """Yield for each entry of a tree whether it is a folder, and its id."""
    at = 0
    while at < len(tree):
        end = tree.index(b"\0", at)
        yield tree.startswith(b"40000 ", at), tree[end + 1 : end + 21]
        at = end + 21


def _add_all(builder: pygit2.PackBuilder, oids: Iterable[Oid]) -> None:
    for oid in sorted(oids):
        builder.add(pygit2.Oid(raw=oid))


def main() -> None:
    """Serve requests until stdin closes.

    `{do: "prepare", least, most, bytes, dry, without?}` → `{floor, commit, freed, packs}`;
    `{do: "sweep", packs}` → `{}`; either → `{failed}`.
    """
    confine([sys.argv[1]])
    alone = take(os.path.join(sys.argv[1], COMPACTING + ".lock"), wait=True)
    assert alone is not None
    while (request := read_frame(sys.stdin.buffer)) is not None:
        try:
            answer = _answer(request)
        except Refused as refusal:
            answer = {"failed": refusal.text()}
        except (OSError, pygit2.GitError) as error:
            answer = {"failed": str(error)}
        write_frame(sys.stdout.buffer, answer)


def _answer(request: dict[str, Any]) -> dict[str, object]:
    compactor = Compactor(sys.argv[1])
    if request["do"] == "sweep":
        compactor.sweep(request["packs"])
        return {}
    limits = CompactionLimits(
        request["least"], request["most"], request["bytes"], frozenset(request.get("without", ()))
    )
    return compactor.prepare(limits, is_dry=request["dry"])


if __name__ == "__main__":
    main()
    exit_fast()
