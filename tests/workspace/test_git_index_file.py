"""The index's file: every path that git lists, in each version, and no sense made of a damaged one."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.values.content import EXECUTABLE, FILE, version_of
from editd.workspace.git_index_file import read_index_file

if TYPE_CHECKING:
    from pathlib import Path

EMPTY = bytes.fromhex(version_of(b""))
NAMES = [
    *(b"n" * length for length in range(1, 20)),  # each length of the padding
    *(b"deep/" * depth + b"file" for depth in (1, 2, 30)),
    b"deep/" * 60 + b"x" * 200,  # nothing in common with what follows: much to take off in version 4
    b"long/" * 1000 + b"name",  # past what the flags can count
    b"name \xff\n\t",
    b"z",
]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def git(top: Path, *argv: str, given: bytes = b"") -> bytes:
    return subprocess.run(["git", *argv], cwd=top, input=given, check=True, capture_output=True).stdout


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_the_paths_are_those_that_git_lists(top: Path, version: str) -> None:
    lines = b"".join(b"100644 %b\t%b\0" % (EMPTY.hex().encode(), name) for name in NAMES)
    git(top, "hash-object", "-w", "--stdin")
    git(top, "update-index", "-z", "--index-info", given=lines)
    git(top, "update-index", "--skip-worktree", "z")  # with an extended entry among the others
    git(top, "update-index", "--index-version", version)
    if version != "4":
        assert (top / ".git/index").read_bytes()[7] == 3  # git takes 2 for 3 where an entry needs it
    index = read_index_file(str(top / ".git/index"))
    assert sorted(index.offsets) == sorted(git(top, "ls-files", "-z").split(b"\0")[:-1]) == sorted(NAMES)
    assert {index.entry(offset).oid for offset in index.offsets.values()} == {EMPTY}


def test_an_entry_is_what_lstat_said(top: Path) -> None:
    (top / "a").write_bytes(b"abc")
    (top / "b").write_bytes(b"")
    (top / "b").chmod(0o755)
    git(top, "add", "a", "b")
    index = read_index_file(str(top / ".git/index"))
    entry, found = index.entry(index.offsets[b"a"]), os.lstat(top / "a")
    assert entry.size == 3
    assert entry.oid.hex() == version_of(b"abc")
    assert entry.mtime_s * 10**9 + entry.mtime_ns == found.st_mtime_ns
    assert entry.ctime_s * 10**9 + entry.ctime_ns == found.st_ctime_ns
    assert (entry.inode, entry.uid, entry.gid) == (found.st_ino & 0xFFFFFFFF, found.st_uid, found.st_gid)
    assert (entry.mode, index.entry(index.offsets[b"b"]).mode) == (FILE, EXECUTABLE)
    assert index.written_ns == os.stat(top / ".git/index").st_mtime_ns


def test_an_extension_that_must_be_understood_is_named_and_others_are_not(top: Path) -> None:
    (top / "a").write_bytes(b"")
    git(top, "add", "a")
    git(top, "-c", "user.name=u", "-c", "user.email=u@localhost", "commit", "-qm", "a")
    assert b"TREE" in (top / ".git/index").read_bytes()
    assert read_index_file(str(top / ".git/index")).required == {}
    git(top, "update-index", "--split-index")
    assert read_index_file(str(top / ".git/index")).required.keys() == {b"link"}


def test_without_an_index_there_are_no_entries(tmp_path: Path) -> None:
    assert read_index_file(str(tmp_path / "index")).offsets == {}


def test_an_index_without_a_checksum_is_read(top: Path) -> None:
    (top / "a").write_bytes(b"")
    git(top, "add", "a")
    place = top / ".git/index"
    place.write_bytes(place.read_bytes()[:-20] + bytes(20))
    assert list(read_index_file(str(place)).offsets) == [b"a"]


def test_a_damaged_index_is_refused_wherever_it_is_cut_or_changed(top: Path) -> None:
    (top / "a").write_bytes(b"")
    git(top, "add", "a")
    place = top / ".git/index"
    raw = place.read_bytes()
    changed = [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(len(raw))]
    cut = [raw[:length] for length in range(len(raw))]
    cut_and_unsigned = [part + bytes(20) for part in cut[: len(raw) - 20]]
    for damaged in [*changed, *cut, *cut_and_unsigned]:
        place.write_bytes(damaged)
        with pytest.raises(ValueError):
            read_index_file(str(place))
