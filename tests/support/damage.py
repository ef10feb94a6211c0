"""A prepared history to be damaged: made once, copied for each case; and what must hold of every case."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from editd.store.journal import segment_path, whole_frames
from editd.values.content import version_of
from editd.wire.messages import Delete, Move
from editd_client.errors import EditdError
from support.crash_checks import children, history_files, packer, wait_until
from support.workplace import Workplace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import Transaction
    from editd_client.client import Client

BASELINE = {"tracked.txt": "as first seen\n", "folder/deep/tracked.txt": "deep\n"}
PACKED = 5  # transactions that are in the store
HOT = 4  # and those that are only in the journal


@dataclass(frozen=True, slots=True)
class Prepared:
    """A history with a baseline, packed transactions and a hot journal; nobody has it open."""

    folder: Path
    transactions: list[Transaction]
    contents: dict[tuple[int, str], str]  # what a path held after a transaction that touched it

    def contents_of(self, seq: int) -> dict[str, str]:
        """What the paths that a transaction touched held after it."""
        return {path: content for (at, path), content in self.contents.items() if at == seq}


def prepare(folder: Path) -> Prepared:
    """Make it. The daemon is killed, and its packing process before, so that the journal stays hot."""
    with workplace(folder, BASELINE) as place:
        with place.start() as client:
            client.settle()
            stopped = _edit(place, client)
            transactions = client.log(limit=1000).transactions[::-1]
            contents = {
                (tx.seq, change.path): client.read(change.path, at=tx.seq).content
                for tx in transactions
                for change in tx.files
                if change.version is not None
            }
            contents |= {(0, path): content for path, content in BASELINE.items()}
        left = children(place)
        place.kill()
        os.kill(stopped, signal.SIGKILL)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left), "a child does not end")
    return Prepared(folder, transactions, contents)


def _edit(place: Workplace, client: Client) -> int:
    client.apply([write("a", "a1\n"), write("folder/b", "b1\n")], message="first")
    client.apply([write("a", "a2\n" * 40)], session="s", request_id="r")
    wait_until(lambda: client.status().journal["unpacked"] == 0, "not packed")
    client.apply([Move(path="folder/b", to="moved")])
    client.apply([write("tracked.txt", "changed\n")])
    client.undo()
    wait_until(lambda: client.status().journal["unpacked"] == 0, "not packed")
    stopped = packer(place)
    os.kill(stopped, signal.SIGSTOP)
    client.apply([write("a", "a3\n"), write("new", "new1\n")])
    client.apply([write("new", "new2\n" * 100)])
    client.apply([Delete(path="moved")])
    client.apply([write("a", "a4\n")])
    client.log(limit=1)  # so that the index is written
    return stopped


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a file that one checksum covers, and the objects whose bytes are in it."""

    path: Path
    start: int
    end: int
    oids: frozenset[str]
    deflated_from: int = 0  # where the entry of a pack has its content, behind its kind and size
    content: bytes | None = None
    base: str = ""  # the object in the same pack to which the content is a delta

    def is_spoilt(self, path: Path, at: int) -> bool:
        """Whether the flip of the byte there, which is made, costs what lies here.

        The last bits before zlib's own checksum mean nothing.
        """
        if self.path != path or not self.start <= at < self.end:
            return False
        if self.content is None or at < self.deflated_from:
            return True
        try:
            return zlib.decompress(path.read_bytes()[self.deflated_from : self.end]) != self.content
        except zlib.error:
            return True


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each object of a sound history lies: in an entry of a pack, or in a frame of the journal."""

    pieces: list[Piece]
    needed: dict[tuple[int, str], set[str]]  # what reading a path at a transaction rests on

    def lost_at(self, path: Path, at: int) -> set[int]:
        """The transactions that can not all be read now that the byte there is flipped; exactly those."""
        hit = [piece for piece in self.pieces if piece.is_spoilt(path, at)]
        for piece in hit:  # grows on the way: what is a delta to a lost object is lost with it
            hit += [other for other in self.pieces if other.path == path and other.base in piece.oids]
        left = {oid for piece in self.pieces if piece not in hit for oid in piece.oids}
        lost = {oid for piece in hit for oid in piece.oids} - left
        return {seq for (seq, _), oids in self.needed.items() if oids & lost}


def layout(place: Workplace, prepared: Prepared) -> Layout:
    """By git's own word for the packs, and for the journal by what its frames say."""
    pieces: list[Piece] = []
    for pack in (place.store / "objects/pack").glob("*.pack"):
        for line in place.git("verify-pack", "-v", str(pack.with_suffix(".idx")), store=True).splitlines():
            words = line.split()
            if len(words) >= 5 and len(words[0]) == 40:
                base = words[6] if len(words) > 6 else ""
                pieces.append(_entry(pack, int(words[4]), int(words[3]), words[0], base))
    journal = str(place.state / "journal")
    for number, at, records in whole_frames(journal):
        path = Path(segment_path(journal, number))
        length = int.from_bytes(path.read_bytes()[at + 16 : at + 24], "little")
        sides = [side for record in records for change in getattr(record, "changes", ())
                 for side in (change.before, change.after)]  # fmt: skip
        oids = {side.version.hex() for side in sides if side is not None and side.content is not None}
        pieces.append(Piece(path, at, at + 32 + length, frozenset(oids)))
    needed: dict[tuple[int, str], set[str]] = {
        key: {version_of(content.encode())} for key, content in prepared.contents.items()
    }
    untouched = "folder/deep/tracked.txt"  # known by no transaction, only by the folders above it
    for folder in ("", "folder", "folder/deep"):
        oid = place.git("rev-parse", f"history:{folder}", store=True).strip()
        needed[0, untouched].add(oid)
    return Layout(pieces, needed)


def _entry(pack: Path, start: int, size: int, oid: str, base: str) -> Piece:
    held = pack.read_bytes()
    deflated_from = start
    for _ in range(2 if base else 1):  # kind and size; the distance to the base
        deflated_from += 1
        while held[deflated_from - 1] & 0x80:
            deflated_from += 1
    content = zlib.decompress(held[deflated_from : start + size])
    return Piece(pack, start, start + size, frozenset([oid]), deflated_from, content, base)


@contextlib.contextmanager
def copy(prepared: Prepared) -> Iterator[Workplace]:
    """The prepared history to do with as one likes; afterwards it is as it was."""
    kept = prepared.folder.with_name(prepared.folder.name + ".kept")
    shutil.copytree(prepared.folder, kept, symlinks=True)
    with tempfile.TemporaryDirectory(prefix="editd-run-") as runtime:
        place = Workplace(prepared.folder, Path(runtime))
        try:
            yield place
        finally:
            place.end()
            shutil.rmtree(prepared.folder)
            kept.rename(prepared.folder)


def state_files(place: Workplace) -> dict[str, bytes]:
    """Journal and store, byte by byte."""
    return history_files(place)


def readable(client: Client, prepared: Prepared) -> dict[int, str]:
    """Which transactions cannot be shown or read, by seq, with why."""
    failed: dict[int, str] = {}
    for tx in prepared.transactions:
        try:
            client.show(tx.seq, diff=True)
            for change in tx.files:
                if change.version is not None:
                    found = client.read(change.path, at=tx.seq).content
                    if found != prepared.contents[tx.seq, change.path]:
                        failed[tx.seq] = f"{change.path} is not what it was"
        except EditdError as error:
            failed[tx.seq] = f"{error.name}: {error.message}"
    return failed
