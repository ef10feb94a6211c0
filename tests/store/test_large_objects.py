"""store.large_objects: reading without libgit2, from each form of storage, and never anything damaged."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.store.git_objects import object_id
from editd.store.git_repository import borrow, create_store
from editd.store.large_objects import read_large
from editd.store.pack_writer import PackWriter
from editd.store.packfile import find_offset, offsets_in

if TYPE_CHECKING:
    from pathlib import Path

BLOB = 3
LARGE = random.Random(7).randbytes(400_000) + b"\n" * 900_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    create_store(str(tmp_path / "store.git"))
    return tmp_path / "store.git"


def packed(store: Path, *contents: bytes) -> Path:
    """Write a pack of versions, each after the first one as a delta."""
    writer, before = PackWriter(str(store / "objects/pack")), None
    for content in contents:
        before = writer.add("blob", content, before=before), content
    return store / f"objects/pack/{writer.finish()}.pack"


def git(*argv: str, content: bytes = b"") -> None:
    subprocess.run(["git", *argv], input=content, check=True, capture_output=True)


def test_an_object_of_a_pack_is_read_whole_or_as_a_chain_of_deltas(store: Path) -> None:
    versions = [LARGE + b"%d\n" % number for number in range(5)]
    packed(store, *versions)
    for content in versions:
        assert read_large(str(store), object_id("blob", content)) == (BLOB, content)
    assert read_large(str(store), object_id("blob", b"other")) is None


def test_a_borrowed_object_is_read_from_a_loose_file_and_from_gits_own_pack(
    store: Path, tmp_path: Path
) -> None:
    lender = tmp_path / "lender"
    git("init", "--bare", str(lender))
    borrow(str(store), [str(lender / "objects")])
    git("--git-dir", str(lender), "hash-object", "-w", "--stdin", content=LARGE)
    assert read_large(str(store), object_id("blob", LARGE)) == (BLOB, LARGE)
    git("--git-dir", str(lender), "hash-object", "-w", "--stdin", content=LARGE + b"x")
    git("--git-dir", str(lender), "-c", "gc.pruneExpire=never", "repack", "-adk")
    assert read_large(str(store), object_id("blob", LARGE + b"x")) == (BLOB, LARGE + b"x")


def test_each_flipped_byte_of_a_pack_leaves_the_object_to_libgit2(store: Path) -> None:
    pack = packed(store, LARGE, LARGE + b"x")
    oid, whole = object_id("blob", LARGE + b"x"), pack.read_bytes()
    pack.chmod(0o600)
    dice = random.Random(1)
    for place in [12, 13, len(whole) - 21, *(dice.randrange(12, len(whole) - 20) for _ in range(30))]:
        pack.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        assert read_large(str(store), oid) in (None, (BLOB, LARGE + b"x")), place
    pack.write_bytes(whole[:100])
    assert read_large(str(store), oid) is None
    pack.write_bytes(b"")
    assert read_large(str(store), oid) is None


def test_each_object_of_an_index_is_found_at_its_offset(store: Path) -> None:
    pack = packed(store, *(b"%d" % number for number in range(600)))
    index = pack.with_suffix(".idx")
    known = offsets_in(str(index))
    assert len(known) == 600
    assert {oid: find_offset(index.read_bytes(), oid) for oid in known} == known
    assert find_offset(index.read_bytes(), b"\xff" * 20) is None
    assert find_offset(index.read_bytes(), b"\0" * 20) is None
    assert find_offset(b"no index", b"\0" * 20) is None
