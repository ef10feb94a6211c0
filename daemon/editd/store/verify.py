"""Verification of a history on disk: precise reports of damage. Reads only.

`verify_quick` runs at each start. It reads the small files whole, and the newest packs up to a budget.
`verify_full` runs for `check`. It reads everything, each object and each transaction. Packing may go on
meanwhile, if no pack is removed and the history keeps its start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct

from editd.errors import HistoryDamaged, Refused, listed
from editd.store import sqlite, transaction_record
from editd.store.excluded import absent_contents, read_excluded
from editd.store.forgotten import read_forgotten
from editd.store.git_objects import (
    EMPTY_TREE,
    KINDS,
    CommitObject,
    GitTree,
    Oid,
    object_id,
    oid_of,
    tree_changes,
)
from editd.store.git_repository import (
    CONFIG,
    REF,
    SHALLOW,
    Manifest,
    open_store,
    own_objects,
    packs_in,
    read_head,
    read_history_start,
    read_manifest,
    shared_lock,
)
from editd.store.index import Index
from editd.store.journal import known_ends, read_while_written
from editd.store.packfile import Pack, offsets_in, verify_index, verify_pack
from editd.store.transaction_record import transactions_of
from editd.system.confinement import confine
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    what = damage.message.partition(path)[2].lstrip(": ").rstrip(".")
    return Damage(path, what, damage.hint)


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
                    place
                    for place, (one, other) in enumerate(zip(content, expected.encode(), strict=False))
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
            yield Damage(path + ".pack", flaw, _lost_in(path))
            continue
        flaw = verify_index(path + ".idx", path + ".pack")
        if flaw is not None:
            yield Damage(path + ".idx", flaw, f"It only has the positions of the objects in {name}.pack.")


def _lost_in(path: str) -> str:
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
    return f"{where}Its objects {listed([oid.hex() for oid in gone])} are damaged."


# ── The full verification ──


def verify_full(folder: str, through: int | None = None) -> tuple[list[str], bool]:
    """Verify everything that is packed: files, objects, the chain, the contents, and the index.

    The index is compared up to transaction `through`; None means all packed ones.

    Returns the problems as sentences, and whether the history itself is damaged. Damage of the index, or of
    borrowed objects, does not count: no recorded transaction depends on them.
    """
    damages = verify_quick(folder, None)
    if damages:
        return [damage.sentence for damage in damages], True
    problems = _of_objects(os.path.join(folder, "store.git"))
    if problems:
        return problems, True
    walk = _Walk(folder)
    problems = walk.problems()
    return (problems, True) if problems else ([*walk.of_baseline(), *walk.of_index(through)], False)


def _of_objects(store: str) -> list[str]:
    """Verify each object of the store by its id; return the problems."""
    odb = own_objects(store)
    problems: list[str] = []
    for oid in odb:
        try:
            kind, content = odb.read(oid)
            is_sound = object_id(KINDS[kind], content) == oid.raw
        except (KeyError, ValueError, pygit2.GitError):
            is_sound = False
        if not is_sound:
            problems.append(f"The object {oid} in {store} is damaged. {MENDS}")
    return problems


class _Walk:
    """The verification of the chain from head to the baseline, and of the index against it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._store = os.path.join(folder, "store.git")
        self._head = read_head(self._store)  # packing may move the ref meanwhile
        self._repository = open_store(self._store)
        self._own = own_objects(self._store)
        manifest = read_manifest(self._store)
        self._gone: dict[str, str] = {}  # the version by the path
        self._replaced: dict[str, int] = {}  # versions that the store does not own, by their last transaction
        lost = frozenset[bytes]() if manifest is None else manifest.lost
        # Contents that the packs need not have: lost in a repair, forgotten, or excluded.
        self._lost = lost | absent_contents(self._store)
        self._floor = read_history_start(self._store)  # the start of a compacted history

    def problems(self) -> list[str]:
        found: list[str] = []
        chain: list[tuple[Oid, CommitObject]] = []
        expected: int | None = None
        oid = self._head
        while oid is not None:
            try:
                commit = CommitObject.decode(self._tree(oid))
                seq = transaction_record.parse(commit.message).seq
            except (KeyError, ValueError, pygit2.GitError) as error:
                name = "head" if expected is None else f"transaction {expected}"
                return [f"The commit {oid.hex()} of {name} in {self._store} cannot be read: {error}. {MENDS}"]
            if expected is not None and seq != expected:
                found.append(f"The commit {oid.hex()} is transaction {seq}, where {expected} was to be.")
            chain.append((oid, commit))
            expected, oid = seq - 1, commit.parent
        is_compacted = bool(chain) and chain[-1][0] == self._floor.commit
        if expected not in (None, -1) and not is_compacted and not found:
            found.append(f"The history begins with transaction {(expected or 0) + 1}, not with the baseline.")
        return found or list(self._of_contents(chain))

    def _of_contents(self, chain: list[tuple[Oid, CommitObject]]) -> Iterator[str]:
        """Yield contents missing in the store's packs; contents of the baseline may also be borrowed."""
        first = int(transaction_record.parse(chain[-1][1].message).seq) if chain else 0
        for place, (_, commit) in enumerate(chain):
            seq = first + len(chain) - 1 - place
            is_baseline = place + 1 == len(chain) or transaction_record.parse(commit.message).is_first_scan
            try:
                if not is_baseline:
                    yield from self._of_changes(seq, chain[place + 1][1].tree, commit.tree)
                elif commit.tree != EMPTY_TREE:
                    self._gone |= self._missing_in(commit.tree)
            except (KeyError, ValueError, pygit2.GitError) as error:
                yield (f"A folder of transaction {seq} in {self._store} cannot be read: {error}. {MENDS}")

    def _of_changes(self, seq: int, before: Oid, after: Oid) -> Iterator[str]:
        """Yield the new contents of a transaction that the store lacks; old ones belong to earlier ones."""
        for path, former, made in tree_changes(self._tree, before, after):
            if former is not None and pygit2.Oid(hex=former.version) not in self._own:
                self._replaced.setdefault(former.version, seq)
            if (
                made is None
                or pygit2.Oid(hex=made.version) in self._own
                or oid_of(made.version) in self._lost
            ):
                continue
            yield (
                f"The content {made.version} of {os.fsdecode(path)} in transaction {seq} is missing in "
                f"{self._store}. `editctl check --repair` looks for it elsewhere."
            )

    def _missing_in(self, tree: Oid) -> dict[str, str]:
        """Return the files of the baseline with missing content; read each of its folders."""
        gone: dict[str, str] = {}
        waiting = [(b"", tree)]
        while waiting:
            prefix, oid = waiting.pop()
            folder = GitTree.decode(self._tree(oid))
            for name, entry in folder.files().items():
                oid = oid_of(entry.version)
                if pygit2.Oid(raw=oid) not in self._repository.odb and oid not in self._lost:
                    gone[os.fsdecode(prefix + name)] = entry.version
            waiting.extend((prefix + name + b"/", below) for name, below in folder.folders().items())
        return gone

    def of_baseline(self) -> Iterator[str]:
        """Yield sentences about borrowed contents of the baseline that are missing now."""
        needed = {path: self._replaced[one] for path, one in self._gone.items() if one in self._replaced}
        unneeded = sorted(self._gone.keys() - needed.keys())
        lenders = f"the repositories in {self._store}/objects/info/alternates"
        if unneeded:
            yield (
                f"The baseline's content of {listed(unneeded)} was borrowed from {lenders} and is gone "
                "there. No transaction needs it. `editctl check --repair` takes it from the files that still "
                "hold it."
            )
        if needed:
            seqs = listed([str(seq) for seq in sorted(set(needed.values()))])
            yield (
                f"The baseline's content of {listed(sorted(needed))} was borrowed from {lenders} and is gone "
                f"there. The undo of these transactions needs it, and so does `restore`: {seqs}. Bring the "
                "objects back into the repository, for example by `git fetch`. `editctl check --repair` "
                "records the content as lost if no file holds it."
            )

    def _index_anew(self, path: str, through: int | None) -> int:
        """Make an index from the commits; return its last transaction. Raises IoError, as on a full disk."""
        fresh, last = Index(path), -1
        with contextlib.closing(fresh):
            for transaction, notes in transactions_of(self._tree, self._head):
                if through is not None and transaction.seq > through:
                    break
                fresh.add(transaction, notes)
                fresh.flush_if_full()
                last = int(transaction.seq)
            fresh.flush()
        return last

    def of_index(self, through: int | None) -> Iterator[str]:
        """Compare the index with one that is rebuilt from the commits; yield a sentence on a difference."""
        path = os.path.join(self._folder, "index.db")
        with tempfile.TemporaryDirectory(prefix=MADE, dir=self._folder) as made:
            try:
                last = self._index_anew(os.path.join(made, "index.db"), through)
            except Refused as refusal:
                yield f"{path} could not be compared with the history. {refusal.text()}"
                return
            try:
                differing = _first_difference(path, os.path.join(made, "index.db"), last)
            except sqlite3.Error as error:
                differing = str(error)
        if differing is not None:
            yield (
                f"{path} is damaged: {differing}. No transaction is lost by this. "
                "`editctl check --repair` rebuilds it from the history."
            )

    def _tree(self, oid: Oid) -> bytes:
        return self._floor.seen(oid, bytes(self._own.read(pygit2.Oid(raw=oid))[1]))


_COLUMNS = {
    "tx": "seq, id, kind, actor, session, message, request_id, time_us, undoes, notes",
    "touch": "seq, path, before_mode, before, after_mode, after, source",
}


def _first_difference(path: str, other: str, last: int) -> str | None:
    """Describe the first difference of two indexes up to transaction `last`; None if there is none."""
    database, fresh = map(sqlite.connect_to_read, (path, other))
    try:
        flaw = database.execute("pragma integrity_check(1)").fetchone()[0]
        if flaw != "ok":
            return str(flaw)
        for table, columns in _COLUMNS.items():
            order = "seq" if table == "tx" else "seq, path"
            query = f"select {columns} from {table} where seq <= ? order by {order}"  # noqa: S608  # ours
            mine, theirs = database.execute(query, (last,)), fresh.execute(query, (last,))
            while True:
                row, expected = mine.fetchone(), theirs.fetchone()
                if row != expected:
                    seq = min(side[0] for side in (row, expected) if side is not None)
                    return f"its transaction {seq} differs from the history"
                if row is None:
                    break
    finally:
        database.close()
        fresh.close()
    return None


# The process of a `check` that verifies the whole history, while packing goes on.
#
# `python -m editd.store.verify STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).
# Each check starts one. It writes nothing but a second index beside the verified one. It ends with the
# daemon, however long the check would have taken.


def main() -> None:
    """Serve one request: `{through}` → `{problems, damaged}`, as `verify_full` has them."""
    request = read_frame(sys.stdin.buffer)
    if request is None:
        return
    folder = sys.argv[1]
    confine([folder])
    threading.Thread(target=_end_with_the_daemon, daemon=True).start()
    with shared_lock(os.path.join(folder, "store.git")):
        for name in os.listdir(folder):
            if name.startswith(MADE):  # left by an interrupted check
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        problems, is_damaged = verify_full(folder, request["through"])
    write_frame(sys.stdout.buffer, {"problems": problems, "damaged": is_damaged})


def _end_with_the_daemon() -> None:
    while os.read(sys.stdin.fileno(), 1):
        continue
    os._exit(0)  # the next check removes the temporary index


if __name__ == "__main__":
    main()
    exit_fast()
