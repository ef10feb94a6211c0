"""Packs: what we write, git reads, checks, and would have indexed the same way."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pygit2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.store.git_objects import EMPTY_TREE, commit_content, object_id
from editd.store.git_repository import create_store
from editd.store.pack_writer import PackWriter, delta_between, index_of, release
from editd.store.packfile import Pack, apply_delta

if TYPE_CHECKING:
    from pathlib import Path

SIZES = [0, 1, 15, 16, 17, 127, 128, 2047, 2048, 2049, 100_000, 3_000_000]
"""Sizes around each length of the entry header: 4 bits, then 7 at a time."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    create_store(str(tmp_path / "store.git"))
    return tmp_path / "store.git"


@pytest.fixture
def packs(store: Path) -> Path:
    return store / "objects/pack"


def git(store: Path, *argv: str) -> str:
    done = subprocess.run(
        ["git", "--git-dir", str(store), *argv], capture_output=True, check=True, encoding="utf-8"
    )
    return done.stdout + done.stderr


def test_git_finds_every_object_of_a_pack_and_no_fault(store: Path, packs: Path) -> None:
    blobs = [os.urandom(size // 2) + bytes(size - size // 2) for size in SIZES]
    writer = PackWriter(str(packs))
    oids = [writer.add("blob", blob) for blob in blobs]
    rows = [(b"%d" % number, oid) for number, oid in enumerate(oids)]
    tree = writer.add("tree", b"".join(b"100644 %b\0%b" % row for row in sorted(rows)))
    person = "editd <editd@localhost>"
    head = writer.add("commit", commit_content(tree, [], person, person, 1_700_000_000_000_000, "all\n"))
    assert len(writer) == len(blobs) + 2
    name = writer.finish()
    git(store, "update-ref", "refs/heads/history", head.hex())
    assert git(store, "fsck", "--full", "--strict", "--no-dangling") == ""
    git(store, "verify-pack", str(packs / f"{name}.idx"))
    assert git(store, "rev-parse", "history^{tree}").strip() == tree.hex()
    odb = pygit2.Repository(str(store)).odb
    for oid, blob in zip(oids, blobs, strict=True):
        assert odb.read(pygit2.Oid(raw=oid)) == (pygit2.enums.ObjectType.BLOB, blob)


def test_the_index_is_byte_for_byte_the_one_that_git_makes(packs: Path, tmp_path: Path) -> None:
    writer = PackWriter(str(packs))
    for number in range(700):
        writer.add("blob", b"%d" % number)
    name = writer.finish()
    ours = tmp_path / "ours.idx"
    subprocess.run(
        ["git", "index-pack", "--strict", "-o", str(ours), str(packs / f"{name}.pack")],
        check=True,
        capture_output=True,
    )
    assert (packs / f"{name}.idx").read_bytes() == ours.read_bytes()


def test_the_same_object_twice_is_written_once(packs: Path) -> None:
    writer = PackWriter(str(packs))
    assert writer.add("blob", b"a") == writer.add("blob", b"a") == object_id("blob", b"a")
    assert object_id("blob", b"a") in writer
    assert len(writer) == 1


def test_what_is_added_goes_to_the_file_and_not_into_memory(packs: Path) -> None:
    writer = PackWriter(str(packs))
    for _ in range(4):
        writer.add("blob", os.urandom(1 << 20))
    (temporary,) = packs.iterdir()
    assert temporary.stat().st_size >= 4 << 20
    writer.abandon()


def test_an_empty_pack_is_none(packs: Path) -> None:
    assert PackWriter(str(packs)).finish() is None
    assert list(packs.iterdir()) == []


def test_an_abandoned_pack_leaves_nothing_behind(packs: Path) -> None:
    writer = PackWriter(str(packs))
    writer.add("blob", b"a")
    writer.abandon()
    assert list(packs.iterdir()) == []


def test_a_kept_pack_survives_gc_until_it_is_released(store: Path, packs: Path) -> None:
    writer = PackWriter(str(packs))
    oid = writer.add("blob", b"named by nothing yet")
    name = writer.finish(keep=True)
    assert name is not None
    git(store, "gc", "--quiet", "--prune=now")
    assert git(store, "cat-file", "-t", oid.hex()).strip() == "blob"
    release(str(packs), name)
    release(str(packs), name)  # A second time does no harm: a crash may have come in between.
    git(store, "gc", "--quiet", "--prune=now")
    assert not (packs / f"{name}.pack").exists()


def test_only_the_owner_reads_a_pack(packs: Path) -> None:
    writer = PackWriter(str(packs))
    writer.add("tree", b"", EMPTY_TREE)
    writer.finish(keep=True)
    assert len(list(packs.iterdir())) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in packs.iterdir()} == {0o600}


def test_the_packs_folder_is_made_where_it_is_missing(tmp_path: Path) -> None:
    PackWriter(str(tmp_path / "objects/pack")).abandon()
    assert (tmp_path / "objects/pack").is_dir()


def test_offsets_past_two_gigabytes_are_read_by_git(packs: Path) -> None:
    writer = PackWriter(str(packs))
    offsets: dict[str, int] = {}
    for number, offset in enumerate((12, (1 << 31) - 1, 1 << 31, (1 << 32) + 5, 1 << 40)):
        writer._offset = offset  # as though so much had been written before
        offsets[writer.add("blob", b"%d" % number).hex()] = offset
    index = index_of(writer._entries, bytes(20))
    writer.abandon()
    done = subprocess.run(["git", "show-index"], input=index, capture_output=True, check=True)
    shown = (line.split() for line in done.stdout.decode().splitlines())
    assert {oid: int(offset) for offset, oid, _ in shown} == offsets


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_names_of_a_pack_are_durable_when_it_is_finished(
    packs: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    listed_at_sync: list[list[str]] = []
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        fsync(descriptor)
        if os.path.samestat(os.fstat(descriptor), packs.stat()):
            listed_at_sync.append(sorted(os.listdir(packs)))

    monkeypatch.setattr(os, "fsync", sync)
    writer = PackWriter(str(packs))
    writer.add("blob", b"a")
    name = writer.finish(keep=is_kept)
    assert {f"{name}.idx", f"{name}.pack"} <= set(os.listdir(packs))
    assert listed_at_sync[-1] == sorted(os.listdir(packs))


def test_a_later_version_is_a_delta_to_the_one_before_it(tmp_path: Path) -> None:
    lines = [b"line %d\n" % number for number in range(1000)]
    writer = PackWriter(str(tmp_path / "pack"))
    contents: list[bytes] = []
    before: tuple[bytes, bytes] | None = None
    for number in range(30):
        lines[number * 7] = b"changed %d\n" % number
        contents.append(b"".join(lines))
        before = writer.add("blob", contents[-1], before=before), contents[-1]
    name = writer.finish()
    listed = subprocess.run(
        ["git", "verify-pack", "-v", str(tmp_path / "pack" / f"{name}.idx")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    entries = [line.split() for line in listed.splitlines() if " blob " in line]
    assert max(int(words[5]) for words in entries if len(words) > 5) == 10, "how many steps a read takes"
    assert sum(len(words) > 5 for words in entries) == 27
    odb = pygit2.Odb()
    odb.add_backend(pygit2.OdbBackendPack(str(tmp_path)), 1)
    pack = Pack(str(tmp_path / "pack" / f"{name}.pack"))
    for content in contents:
        oid = object_id("blob", content)
        assert odb.read(pygit2.Oid(raw=oid))[1] == content == pack.read(oid)[1]


@given(
    base=st.binary(max_size=40).map(lambda part: part * 40) | st.binary(max_size=300),
    start=st.integers(0, 1600), end=st.integers(0, 1600), inserted=st.binary(max_size=300),
)  # fmt: skip
def test_a_delta_makes_the_content_of_its_base(base: bytes, start: int, end: int, inserted: bytes) -> None:
    content = base[:start] + inserted + base[end:]
    assert apply_delta(base, delta_between(base, content)) == content


def test_a_delta_copies_more_bytes_than_one_instruction_can() -> None:
    base = os.urandom(200_000)
    content = base[:150_000] + b"inserted" + base[150_000:]
    delta = delta_between(base, content)
    assert len(delta) < 100
    assert apply_delta(base, delta) == content
