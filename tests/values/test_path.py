"""Tests of `values.path`."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.errors import InvalidParams, PathOutside, PathProtected, Refused
from editd.values.path import (
    NAME_BYTES_MAX,
    PATH_BYTES_MAX,
    WorkspacePath,
    folders_of,
    is_among,
    is_protected_name,
)


def check_refused(kind: type[Refused], *texts: str) -> None:
    for text in texts:
        with pytest.raises(kind):
            WorkspacePath.parse(text)


def test_a_plain_path_is_taken_as_it_is() -> None:
    path = WorkspacePath.parse("src/a b/naïve.py")
    assert (path.folder, path.name, str(path)) == ("src/a b", "naïve.py", "src/a b/naïve.py")
    assert (WorkspacePath.parse("top").folder, WorkspacePath.parse("top").name) == ("", "top")


def test_another_name_in_the_folder_of_a_path_is_checked_as_any_path_is() -> None:
    assert str(WorkspacePath.parse("src/a").sibling("b")) == "src/b"
    assert str(WorkspacePath.parse("a").sibling("b")) == "b"
    with pytest.raises(PathOutside):
        WorkspacePath.parse("src/a").sibling("..")


def test_paths_that_leave_are_refused() -> None:
    check_refused(PathOutside, "/etc/passwd", "..", "a/../b", "../x", "a/..")


def test_paths_that_are_not_in_their_plain_form_are_refused() -> None:
    check_refused(InvalidParams, "", ".", "a//b", "a/", "./a", "a/./b", "a\0b", "\ud800", "a\udfff")


def test_git_is_protected_in_any_form_that_a_file_system_takes_for_it() -> None:
    check_refused(
        PathProtected,
        ".git",
        ".git/config",
        "sub/.GIT/x",
        ".git.",
        ".git ",
        "git~1",
        ".git::$INDEX_ALLOCATION",
        ".g\u200cit",
        ".git\\config",
        "a\\.git",
        "a\\Git~1. \\b",
        ".git\udcff",
        ".g\u00adit",
        ".gi\u2060t",
        "\U000e0001.git",
    )
    for name in (".gitignore", ".github", "git", "a.git", "a:.git", "git\\a", ".git~1", ".ｇｉｔ", "é.git"):
        assert not is_protected_name(name)
        assert WorkspacePath.parse(name).text == name


def test_our_own_temporary_names_are_protected() -> None:
    check_refused(PathProtected, ".editd-1", "a/.editd-x/b")


def test_lengths_are_counted_in_bytes() -> None:
    assert WorkspacePath.parse("é" * (NAME_BYTES_MAX // 2))
    check_refused(
        InvalidParams, "é" * (NAME_BYTES_MAX // 2 + 1), "/".join(["x" * 15] * (PATH_BYTES_MAX // 16 + 2))
    )


def test_paths_are_ordered_by_their_text() -> None:
    assert sorted(map(WorkspacePath.parse, ["b", "a/b", "a"])) == list(
        map(WorkspacePath.parse, ["a", "a/b", "b"])
    )


@given(st.binary(min_size=1, max_size=40))
def test_any_bytes_that_are_a_path_go_there_and_back(raw: bytes) -> None:
    try:
        path = WorkspacePath.parse(os.fsdecode(raw))
    except Refused:
        return
    assert path.raw == raw
    assert not raw.startswith(b"/")
    assert b".." not in raw.split(b"/")


def test_the_folders_of_a_path_come_nearest_first() -> None:
    assert list(folders_of(WorkspacePath("a/b/c"))) == [WorkspacePath("a/b"), WorkspacePath("a")]


def test_a_path_is_among_those_that_it_is_one_of_or_lies_below() -> None:
    places = {WorkspacePath("a/b"), WorkspacePath("c")}
    paths = ("a", "a/b", "a/b/x", "a/bc", "c/d/e", "cd")
    assert [path for path in paths if is_among(WorkspacePath(path), places)] == ["a/b", "a/b/x", "c/d/e"]
