"""A later check reads only what an earlier one has not seen, unless what it saw is no longer the same."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pygit2
import pytest
from msgspec.structs import replace

from editd.store.git_repository import open_store, read_head, write_manifest
from editd.store.repack import repack
from editd.store.verified import VERIFIED, read_verified, write_verified
from editd.store.verify_history import Verification, damaged_objects, verify_since
from support.harness import Harness, apply, done, pack
from support.harness import write as write_edit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path


class Checks:
    """A history, and its checks with the mark of the last one."""

    def __init__(self, folder: Path) -> None:
        self.place = Harness(folder)
        self.place.baseline({"a": "0\n"})
        self.read: list[list[str]] = []  # the packs that each check has read, object by object

    def edit(self, *numbers: int) -> None:
        """Write each number to the file, and pack them together."""
        with self.place.engine() as engine:
            for number in numbers:
                done(engine, apply(write_edit("a", f"{number}\n")))
            pack(engine)

    def check(self) -> Verification:
        known = read_verified(str(self.place.state))
        result = verify_since(str(self.place.state), None, known, self._begin)
        write_verified(str(self.place.state), result.mark)
        return result

    def _begin(self, packs: Collection[str]) -> Callable[[], list[str]]:
        self.read.append(list(packs))
        return lambda: damaged_objects(str(self.place.store), packs)

    @property
    def packs(self) -> set[str]:
        return {path.stem for path in (self.place.store / "objects/pack").glob("*.pack")}


@pytest.fixture
def checks(tmp_path: Path) -> Checks:
    made = Checks(tmp_path / "place")
    made.edit(1, 2)
    made.edit(3)
    return made


def test_the_first_check_reads_all_and_the_next_one_what_is_new(checks: Checks) -> None:
    first = checks.check()
    assert (first.problems, first.known) == ([], None)
    assert set(checks.read[0]) == checks.packs
    assert first.mark is not None
    assert first.mark.seq == 3
    before = checks.packs
    checks.edit(4)
    second = checks.check()
    assert (second.problems, second.known) == ([], first.mark)
    assert set(checks.read[1]) == checks.packs - before
    third = checks.check()
    assert (third.problems, third.known, checks.read[2]) == ([], second.mark, [])
    assert third.mark is not None
    assert third.mark.seq == 4


def test_of_combined_packs_the_transactions_in_them_are_verified_again(checks: Checks) -> None:
    checks.check()
    repack(open_store(str(checks.place.store)))
    second = checks.check()
    assert second.problems == []
    assert checks.read[1]
    known = second.known
    assert known is None or known.since({}) < 3


def lose_a_content(checks: Checks) -> None:
    """Combine the packs without the content of transaction 2, as no daemon would."""
    repository = open_store(str(checks.place.store))
    commit = pygit2.Oid(raw=read_head(str(checks.place.store)) or b"")
    newest = repository[commit]
    assert isinstance(newest, pygit2.Commit)
    gone = newest.parents[0].tree["a"].id
    oids = [oid for oid in repository.odb if oid != gone]
    folder = checks.place.store / "objects/pack"
    made = checks.place.folder / "made"
    made.mkdir()

    def add(builder: pygit2.PackBuilder) -> None:
        for oid in oids:
            builder.add(oid)

    repository.pack(str(made), add)
    for path in folder.iterdir():
        path.unlink()
    for path in made.iterdir():
        shutil.move(path, folder)
    write_manifest(str(checks.place.store))


def test_a_content_that_got_lost_with_its_pack_is_missed(checks: Checks) -> None:
    checks.check()
    lose_a_content(checks)
    result = checks.check()
    assert "in transaction 2 is missing" in result.problems[0]
    assert result.is_damaged
    assert not (checks.place.state / VERIFIED).exists()


def test_another_history_of_the_same_length_is_verified_as_a_whole(checks: Checks, tmp_path: Path) -> None:
    checks.check()
    other = Checks(tmp_path / "other")
    other.edit(7, 8)
    other.edit(9)
    shutil.copy(checks.place.state / VERIFIED, other.place.state / VERIFIED)
    result = other.check()
    assert (result.problems, result.known) == ([], None)
    assert set(other.read[-1]) == other.packs


def test_an_older_copy_of_the_history_is_verified_as_a_whole(checks: Checks, tmp_path: Path) -> None:
    shutil.copytree(checks.place.state, tmp_path / "older", symlinks=True)
    checks.edit(4)
    checks.check()
    mark = (checks.place.state / VERIFIED).read_bytes()
    shutil.rmtree(checks.place.state)
    shutil.copytree(tmp_path / "older", checks.place.state, symlinks=True)
    (checks.place.state / VERIFIED).write_bytes(mark)
    result = checks.check()
    assert (result.problems, result.known) == ([], None)


def test_a_mark_under_other_conditions_does_not_count(checks: Checks) -> None:
    first = checks.check()
    assert first.mark is not None
    write_verified(str(checks.place.state), replace(first.mark, conditions="others"))
    assert checks.check().known is None


@pytest.mark.parametrize("field", ["commit", "scans"])
def test_a_mark_with_no_id_of_an_object_counts_as_none(checks: Checks, field: str) -> None:
    first = checks.check()
    assert first.mark is not None
    write_verified(
        str(checks.place.state), replace(first.mark, **{field: ["x"] if field == "scans" else "x"})
    )
    result = checks.check()
    assert (result.problems, result.known) == ([], None)


def test_a_mark_with_a_baseline_that_the_history_lacks_does_not_count(checks: Checks) -> None:
    first = checks.check()
    assert first.mark is not None
    write_verified(str(checks.place.state), replace(first.mark, scans=["00" * 20]))
    result = checks.check()
    assert (result.problems, result.known) == ([], None)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"version": 9}', b"\xff\0"])
def test_a_mark_that_cannot_be_read_counts_as_none(checks: Checks, content: bytes) -> None:
    checks.check()
    (checks.place.state / VERIFIED).write_bytes(content)
    result = checks.check()
    assert (result.problems, result.known) == ([], None)


def test_a_flipped_bit_in_a_verified_pack_is_found(checks: Checks) -> None:
    checks.check()
    path = next((checks.place.store / "objects/pack").glob("*.pack"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    result = checks.check()
    assert result.is_damaged
    assert path.name in result.problems[0]


def test_rows_of_the_index_before_the_mark_wait_for_a_full_check(checks: Checks) -> None:
    checks.check()
    checks.edit(4)
    with contextlib.closing(sqlite3.connect(checks.place.state / "index.db")) as index, index:
        index.execute("update tx set message = 'x' where seq = 2")
    assert checks.check().problems == []
    with contextlib.closing(sqlite3.connect(checks.place.state / "index.db")) as index, index:
        index.execute("update tx set message = 'x' where seq = 4")
    (checks.place.state / VERIFIED).unlink()
    assert "its transaction 2 differs" in checks.check().problems[0]
