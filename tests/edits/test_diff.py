"""Tests of `edits.diff`, against the real `git apply`."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.edits.diff import quote, unified_diff
from editd.edits.patch import apply_to, parse
from editd.values.content import EXECUTABLE, FILE, SYMLINK, FileState
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from pathlib import Path


def put(root: Path, path: str, state: FileState | None) -> None:
    file = os.path.join(os.fsencode(root), os.fsencode(path))
    os.makedirs(os.path.dirname(file), exist_ok=True)
    if state is None:
        return
    if state.is_symlink:
        os.symlink(state.content, file)
        return
    with open(file, "wb") as stream:
        stream.write(state.content)
    os.chmod(file, 0o755 if state.is_executable else 0o644)


def got(root: Path, path: str) -> FileState | None:
    file = os.path.join(os.fsencode(root), os.fsencode(path))
    if os.path.islink(file):
        return FileState(os.readlink(file), SYMLINK)
    if not os.path.exists(file):
        return None
    with open(file, "rb") as stream:
        return FileState(stream.read(), EXECUTABLE if os.access(file, os.X_OK) else FILE)


def check(
    tmp_path: Path,
    before: FileState | None,
    after: FileState | None,
    path: str = "f.txt",
    to: str | None = None,
) -> str:
    """The diff, once `git apply` and our own parser have made `after` of `before` with it."""
    old, new = WorkspacePath.parse(path), WorkspacePath.parse(to or path)
    diff = unified_diff(old, before, after, new)
    tmp_path.mkdir(exist_ok=True)
    put(tmp_path, path, before)
    patch = tmp_path / "the patch"
    patch.write_bytes(diff.encode("utf-8", "surrogateescape"))
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", patch.name],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
    )
    assert got(tmp_path, new.text) == after
    if after is None or to is not None:
        assert got(tmp_path, path) is None
    content = before.content if before else b""
    for file in parse(diff):
        assert old == (file.source or old)
        assert new == (file.target or new)
        content = apply_to(content, file).content
    assert content == (after.content if after else b"")
    return diff


def test_a_modified_file(tmp_path: Path) -> None:
    before, after = FileState(b"a\nb\nc\n"), FileState(b"a\nB\nc\n")
    assert check(tmp_path, before, after) == (
        f"diff --git a/f.txt b/f.txt\nindex {before.version[:10]}..{after.version[:10]} 100644\n"
        "--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, FileState(b"new\n"), id="added"),
        pytest.param(None, FileState(b""), id="added empty"),
        pytest.param(None, FileState(b"#!\n", EXECUTABLE), id="added executable"),
        pytest.param(FileState(b"old\n"), None, id="deleted"),
        pytest.param(FileState(b""), None, id="deleted empty"),
        pytest.param(FileState(b"a\n"), FileState(b"a\n", EXECUTABLE), id="mode"),
        pytest.param(FileState(b"a\n", EXECUTABLE), FileState(b"b\n"), id="mode and content"),
        pytest.param(FileState(b"a\nb"), FileState(b"a\nb\n"), id="final newline added"),
        pytest.param(FileState(b"a\nb\n"), FileState(b"a\nb"), id="final newline taken"),
        pytest.param(FileState(b"a\r\nb\r\n"), FileState(b"a\r\nB\r\n"), id="crlf"),
        pytest.param(FileState(b"a\r\nb\r\n"), FileState(b"a\nb\n"), id="crlf to lf"),
        pytest.param(FileState(b"\xff\n\xc3\xa9\n"), FileState(b"\xfe\n\xc3\xa9\n"), id="not utf-8"),
        pytest.param(None, FileState(b"target", SYMLINK), id="link added"),
        pytest.param(FileState(b"one", SYMLINK), FileState(b"two", SYMLINK), id="link retargeted"),
        pytest.param(FileState(b"one\n"), FileState(b"two", SYMLINK), id="file to link"),
    ],
)  # fmt: skip
def test_git_apply_takes_it_back(tmp_path: Path, before: FileState | None, after: FileState | None) -> None:
    check(tmp_path, before, after)


@pytest.mark.parametrize(
    "path",
    ["a b/c d.txt", "tab\there", 'quo"te\\', "new\nline", "é/ü", os.fsdecode(b"\xff\xfe"), "dir/ trailing "],
)
def test_odd_names_come_through(tmp_path: Path, path: str) -> None:
    check(tmp_path / "1", FileState(b"a\n"), FileState(b"b\n"), path)
    check(tmp_path / "2", None, FileState(b"b\n"), path)
    check(tmp_path / "3", None, FileState(b""), path)
    check(tmp_path / "4", FileState(b"a\n"), FileState(b"a\n"), "x", path)
    check(tmp_path / "5", FileState(b"a\nb\nc\n"), FileState(b"a\nb\nC\n"), path, "x y")


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for number in range(1, 6):
        (tmp_path / str(number)).mkdir()


def test_a_rename_says_both_names(tmp_path: Path) -> None:
    diff = check(tmp_path, FileState(b"a\n"), FileState(b"a\n"), "old", "sub/new")
    assert diff == "diff --git a/old b/sub/new\nrename from old\nrename to sub/new\n"


def test_no_change_has_no_diff() -> None:
    assert unified_diff(WorkspacePath.parse("f"), FileState(b"a"), FileState(b"a")) == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\0", b"\0\0"),
        (None, b"\0new"),
        (b"x" * 9000 + b"\0", None),
        (b"text\n", b"\0"),
        (bytes(range(256)) * 400, bytes(range(256)) * 400 + b"end"),  # as a delta
        (b"\0" + os.urandom(5000), b"\0" + os.urandom(5000)),
    ],
)
def test_content_with_a_nul_is_a_binary_patch_that_git_apply_takes(
    tmp_path: Path, before: bytes | None, after: bytes | None
) -> None:
    old, new = (None if content is None else FileState(content) for content in (before, after))
    assert "\nGIT binary patch\n" in check(tmp_path, old, new)
    if old is not None and new is not None:
        moved = check(tmp_path / "moved", old, FileState(new.content, EXECUTABLE), to="other.bin")
        assert "\nrename to other.bin\n" in moved


def test_on_request_content_with_a_nul_is_only_said_to_differ() -> None:
    diff = unified_diff(WorkspacePath.parse("f"), FileState(b"\0"), FileState(b"\0\0"), with_binary=False)
    assert diff.endswith("\nBinary files a/f and b/f differ\n")


def test_the_heading_of_a_hunk_is_never_cut_within_a_character() -> None:
    body = b"".join(b"    line %d\n" % number for number in range(20))
    before = b"def f" + "é".encode() * 60 + b"():\n" + body
    diff = unified_diff(
        WorkspacePath.parse("f.py"), FileState(before), FileState(before.replace(b"line 15", b"X"))
    )
    assert diff.encode("utf-8")


def test_names_are_quoted_as_git_does_but_for_readable_ones() -> None:
    assert quote("a b/é") == "a b/é"
    assert quote('a"\t\x01' + os.fsdecode(b"\xff")) == '"a\\"\\t\\001\\377"'
