"""Tests of `edits.patch`, against the real `git diff --binary`."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.edits.binary import BINARY_BYTES_MAX
from editd.edits.patch import apply_to, parse
from editd.errors import MalformedEdit, NoMatch, TooLarge

if TYPE_CHECKING:
    from pathlib import Path


def git_diff(folder: Path, before: bytes | None, after: bytes | None) -> str:
    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, check=True).stdout

    def tree(content: bytes | None) -> str:
        (folder / "f").unlink(missing_ok=True)
        if content is not None:
            (folder / "f").write_bytes(content)
        git("add", "-A")
        return git("write-tree").decode().strip()

    git("init", "-q")
    return git("diff", "--binary", "--full-index", tree(before), tree(after)).decode()


NOISE = random.Random(3).randbytes(20_000)
CASES = [
    (None, b"\0new"),
    (b"\0old", None),
    (b"\0" + NOISE[:50], b"\0" + NOISE[50:99]),
    (NOISE, NOISE[:9000] + b"changed" + NOISE[9000:]),
    (NOISE, NOISE[5000:] + NOISE[:5000]),
    (b"\0" * 100_000, b"\0" * 100_001),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_literals_and_deltas_of_git_give_its_bytes(
    tmp_path: Path, before: bytes | None, after: bytes | None
) -> None:
    (file,) = parse(git_diff(tmp_path, before, after))
    assert apply_to(before or b"", file).content == (after or b"")


def test_a_delta_is_among_the_cases(tmp_path: Path) -> None:
    assert "\ndelta " in git_diff(tmp_path, *CASES[3])


def test_a_binary_patch_for_another_version_is_refused(tmp_path: Path) -> None:
    (file,) = parse(git_diff(tmp_path, b"\0one", b"\0two"))
    with pytest.raises(NoMatch):
        apply_to(b"\0other", file)


@pytest.mark.parametrize("kept", [0, 12])
def test_a_binary_patch_that_does_not_say_in_full_which_version_it_is_for_is_refused(
    tmp_path: Path, kept: int
) -> None:
    before = b"\0one"
    diff = git_diff(tmp_path, before, b"\0two")
    (index,) = (line for line in diff.splitlines() if line.startswith("index "))
    old, new = index.removeprefix("index ").removesuffix(" 100644").split("..")
    short = f"index {old[:kept]}..{new[:kept]} 100644\n" if kept else ""
    (file,) = parse(diff.replace(f"{index}\n", short))
    with pytest.raises(MalformedEdit, match="does not name its base version in full"):
        apply_to(before, file)


HEAD = "diff --git a/f b/f\nindex {}..{} 100644\nGIT binary patch\n"


def check_malformed(body: str, line: int) -> None:
    with pytest.raises(MalformedEdit) as caught:
        parse(HEAD.format("0" * 40, "1" * 40) + body)
    assert caught.value.data["line"] == line


def test_what_is_not_a_binary_patch_is_refused_with_its_line() -> None:
    check_malformed("nonsense\n", 4)
    check_malformed("literal 5\n!not base85\n\n", 5)
    check_malformed("literal 5\nDabcde\n\n", 4)
    check_malformed("literal 5\n\n", 4)


def test_what_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(TooLarge):
        parse(HEAD.format("0" * 40, "1" * 40) + f"literal {BINARY_BYTES_MAX + 1}\nDabcde\n\n")


def test_every_damaged_delta_is_refused_and_none_raises_anything_else(tmp_path: Path) -> None:
    diff = git_diff(tmp_path, *CASES[3])
    (file,) = parse(diff)
    assert file.binary is not None
    dice = random.Random(5)
    for _ in range(300):
        content = bytearray(file.binary.content)
        content[dice.randrange(len(content))] = dice.randrange(256)
        damaged = type(file.binary)(bytes(content[: dice.randint(1, len(content))]), is_delta=True, line=1)
        try:
            apply_to(NOISE, type(file)(1, file.source, file.target, binary=damaged, base=file.base))
        except (MalformedEdit, TooLarge):
            continue
