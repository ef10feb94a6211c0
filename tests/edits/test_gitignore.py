"""Tests of `edits.gitignore`."""

from __future__ import annotations

import subprocess
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from editd.edits.gitignore import is_ignored, rules_of

if TYPE_CHECKING:
    from pathlib import Path


def check(path: str, *, is_folder: bool = False, **files: str) -> bool:
    """Is `path` ignored? `files` are the texts of ignore files: `root`, and others by their folder."""
    return is_ignored(
        path,
        lambda folder: rules_of(files.get(folder or "root", "").split("\n"), folder),
        is_folder=is_folder,
    )


@pytest.mark.parametrize(
    ("line", "ignored", "kept"),
    [
        ("a.txt", ["a.txt", "d/a.txt", "a.txt/x"], ["b.txt", "A.txt", "aatxt"]),
        ("*.log", ["a.log", "d/a.log", ".log"], ["a.log.gz"]),
        ("/a", ["a", "a/b"], ["d/a"]),
        ("d/a", ["d/a"], ["e/d/a"]),
        ("build/", ["build/a", "x/build/a"], ["build"]),
        ("**/a", ["a", "d/e/a"], ["ba"]),
        ("d/**", ["d/a", "d/e/a"], ["d", "e/d/a"]),
        ("d/**/a", ["d/a", "d/e/f/a"], ["d/ba"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("a*c*e", ["ace", "abcde", "acce"], ["ac/e", "abcdef"]),
        ("[a-c]1", ["a1", "c1"], ["d1"]),
        ("[!a-c]1", ["d1"], ["a1", "/1"]),
        ("[[:digit:]x]", ["3", "x"], ["y"]),
        ("[]-]", ["]", "-"], ["a"]),
        ("[z", ["[z"], ["z"]),
        ("[c-a]", [], ["a", "b"]),
        ("[!c-a]", ["a"], []),
        ("\\#a", ["#a"], ["a", "\\#a"]),
        ("\\!a", ["!a"], ["a"]),
        ("a\\*", ["a*"], ["ab"]),
        ("# a", [], ["a", "# a"]),
        ("  a  ", ["a"], ["  a  "]),
        ("a\\ ", ["a "], ["a"]),
        ("/", [], ["a", "a/b"]),
        ("!", [], ["a"]),
    ],
)
def test_a_line_ignores_what_git_lets_it(line: str, ignored: list[str], kept: list[str]) -> None:
    assert [path for path in ignored if not check(path, root=line)] == []
    assert [path for path in kept if check(path, root=line)] == []


def test_the_last_line_that_matches_decides() -> None:
    assert not check("a.txt", root="*.txt\n!a.txt")
    assert check("a.txt", root="!a.txt\n*.txt")


def test_a_folders_own_file_comes_after_those_above_it() -> None:
    assert not check("d/a.txt", root="*.txt", d="!a.txt")
    assert check("d/a.txt", root="!a.txt", d="a.txt")
    assert not check("a.txt", d="a.txt")


def test_a_pattern_with_a_slash_holds_where_its_file_lies() -> None:
    assert check("d/e/a.txt", d="e/a.txt")
    assert not check("d/x/e/a.txt", d="e/a.txt")


def test_below_an_ignored_folder_nothing_is_brought_back() -> None:
    assert check("d/a.txt", root="d/\n!d/a.txt")
    assert check("d/a.txt", root="d/", d="!a.txt")


def test_a_pattern_for_folders_takes_a_folder_itself() -> None:
    assert check("build", root="build/", is_folder=True)
    assert not check("build", root="build/")


def test_many_stars_do_not_take_long() -> None:
    start = time.monotonic()
    assert not check("a" * 255, root="*a" * 100 + "b")
    assert not check("a/" * 1000 + "a", root="**/a/" * 100 + "b")
    assert time.monotonic() - start < 1


def patterns(random: Random) -> list[str]:
    pieces = [
        "a",
        "b",
        "*",
        "?",
        "[ab]",
        "[!a]",
        "[a-c]",
        "[[:digit:]]",
        ".txt",
        "\\*",
        "[]x]",
        "[^b-z]",
        "-",
    ]

    def name() -> str:
        return "".join(random.choice(pieces) for _ in range(random.randint(1, 3)))

    def pattern() -> str:
        names = [random.choice(["a", "b", "**", name()]) for _ in range(random.choice([1, 1, 2, 3]))]
        return (
            random.choice(["", "", "!"])
            + random.choice(["", "/"])
            + "/".join(names)
            + random.choice(["", "/"])
        )

    return [pattern() for _ in range(random.randint(1, 4))]


def test_git_says_the_same(tmp_path: Path) -> None:
    random = Random(7)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a" / "b").mkdir(parents=True)
    folders = ["", "a/", "a/b/", "b/", "c/a/b/"]
    paths = [folder + name for folder in folders for name in ("c", "ab", "a.txt", "1", "x", "a-b", "b*")]
    for _ in range(60):
        root, inner = patterns(random), patterns(random)
        (tmp_path / ".gitignore").write_text("\n".join(root))
        (tmp_path / "a" / ".gitignore").write_text("\n".join(inner))
        said = subprocess.run(
            ["git", "-C", tmp_path, "check-ignore", "--no-index", "--stdin"],
            input="\n".join(paths), capture_output=True, text=True, check=False,
        ).stdout.split("\n")  # fmt: skip
        ours = [path for path in paths if check(path, root="\n".join(root), a="\n".join(inner))]
        assert ours == [path for path in paths if path in said], (root, inner)
