"""A pack that is made to take time or memory: an entry larger than announced, a delta, a chain in reverse."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

from editd.store import pack_writer, packfile
from editd.store.git_objects import object_id

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, entries: list[bytes]) -> str:
    body = struct.pack(">4sII", b"PACK", 2, len(entries)) + b"".join(entries)
    path = folder / "a.pack"
    path.write_bytes(body + hashlib.sha1(body).digest())
    return str(path)


def peak_of_reading(path: str) -> int:
    tracemalloc.start()
    try:
        packfile.Pack(path).close()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_entry_takes_no_more_memory_than_it_announces(tmp_path: Path) -> None:
    bomb = pack_writer._entry_header(3, 10) + zlib.compress(bytes(32 << 20), 9)
    assert peak_of_reading(written(tmp_path, [bomb])) < 4 << 20


def test_an_entry_that_announces_more_than_a_machine_word_is_damage(tmp_path: Path) -> None:
    pack = packfile.Pack(written(tmp_path, [pack_writer._entry_header(3, 1 << 70) + zlib.compress(b"x")]))
    assert list(pack) == []
    assert pack.holes


def test_a_delta_takes_no_more_memory_than_it_announces() -> None:
    base = bytes(64 << 10)
    delta = (
        pack_writer._encoded_size(len(base)) + pack_writer._encoded_size(10) + b"\x80" * 2000
    )  # 64 KiB by each
    tracemalloc.start()
    try:
        assert packfile.apply_delta(base, delta) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_long_chain_of_deltas_is_read_from_its_base_on_each_of_them_once(tmp_path: Path) -> None:
    contents = [b"%d\n" % number for number in range(1500)]  # deeper than Python's stack
    entries: list[bytes] = []
    for before, after in pairwise(contents):
        delta = pack_writer.delta_between(before, after)
        header = pack_writer._entry_header(7, len(delta)) + object_id("blob", before)
        entries.insert(0, header + zlib.compress(delta))
    missing, whole = written(tmp_path, entries), pack_writer._entry_header(3, 2) + zlib.compress(contents[0])
    pack = packfile.Pack(missing)
    assert list(pack) == []
    pack.close()
    pack = packfile.Pack(written(tmp_path, [*entries, whole]))
    assert len(list(pack)) == len(contents)
    pack._kept.clear()
    assert pack.read(object_id("blob", contents[-1])) == ("blob", contents[-1])
    pack.close()


def test_an_object_that_a_delta_makes_again_is_no_base_of_itself(tmp_path: Path) -> None:
    one, other = b"one\n" * 20, b"other\n" * 20

    def by_name(before: bytes, after: bytes) -> bytes:
        delta = pack_writer.delta_between(before, after)
        return pack_writer._entry_header(7, len(delta)) + object_id("blob", before) + zlib.compress(delta)

    whole = pack_writer._entry_header(3, len(one)) + zlib.compress(one)
    pack = packfile.Pack(written(tmp_path, [whole, by_name(one, other), by_name(other, one)]))
    pack._kept.clear()
    assert {pack.read(oid)[1] for oid in pack} == {one, other}
    pack.close()
