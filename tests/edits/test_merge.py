"""Tests of `edits.merge`."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from editd.edits.merge import HUNKS_MAX, MergeConflict, Merged, Region, merge, merge_states
from editd.errors import Conflict
from editd.values.content import EXECUTABLE, FILE, SYMLINK, FileState

if TYPE_CHECKING:
    from pathlib import Path


def regions(base: bytes, ours: bytes, theirs: bytes) -> tuple[Region, ...]:
    merged = merge(base, ours, theirs)
    assert isinstance(merged, MergeConflict)
    return merged.regions


def test_changes_in_different_places_are_joined() -> None:
    assert merge(b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n") == Merged(b"A\nb\nC\n")


def test_changes_in_the_same_place_collide_and_the_lines_are_named() -> None:
    assert regions(b"a\nb\nc\n", b"a\nX\nc\n", b"a\nY\nc\n") == (Region(2, 2),)
    assert regions(b"a\nb\nc\nd\ne\n", b"new\na\nb\nc\nd\nX\nX\n", b"a\nb\nc\nd\nY\n") == (Region(6, 7),)


def test_changes_of_neighbouring_lines_collide_and_only_these_lines_are_named() -> None:
    assert regions(b"a\nb\nc\nd\n", b"a\nX\nc\nd\n", b"a\nb\nY\nd\n") == (Region(2, 2),)


def test_the_same_change_on_both_sides_is_made_once() -> None:
    assert merge(b"a\nb\nc\n", b"a\nX\nc\n", b"a\nX\nc\n") == Merged(b"a\nX\nc\n")


def test_a_missing_final_newline_that_both_changed_collides() -> None:
    assert regions(b"a\nb\n", b"a\nX\n", b"a\nX") == (Region(2, 2),)


def test_bytes_that_are_not_utf8_come_through() -> None:
    assert merge(b"\xff\nb\nc\n", b"\xfe\nb\nc\n", b"\xff\nb\n\x80\n") == Merged(b"\xfe\nb\n\x80\n")
    assert merge(b"\xc3\xa9\nb\nc\xff\n", b"\xc3\xa8\nb\nc\xff\n", b"\xc3\xa9\nb\n\n") == Merged(
        b"\xc3\xa8\nb\n\n"
    )


def test_content_with_a_nul_is_joined_only_where_one_side_left_it_alone() -> None:
    assert merge(b"\0a", b"\0a", b"\0b") == Merged(b"\0b")
    assert merge(b"\0a", b"\0b", b"\0a") == Merged(b"\0b")
    assert merge(b"\0a", b"\0b", b"\0b") == Merged(b"\0b")
    assert merge(b"\0\na\nb\n", b"\0\nA\nb\n", b"\0\na\nB\n") == MergeConflict(())


def mutated(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    lines = list(lines)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(lines) + 1)
        lines[at : at + dice.randint(0, 2)] = [dice.choice(LINES) for _ in range(dice.randint(0, 2))]
    return lines


LINES = [b"a\n", b"b\n", b"c\n", b"d\r\n", b"\n", b"\xc3\xa9\n", b"\xff\n", b"=======\n", b"<<<<<<< x\n"]


def test_it_is_what_git_merge_file_gives(tmp_path: Path) -> None:
    dice = random.Random(2)
    conflicts = 0
    for _ in range(300):
        base = [dice.choice(LINES) for _ in range(dice.randint(1, 14))]
        sides = [b"".join(lines) for lines in (base, mutated(dice, base), mutated(dice, base))]
        sides = [side.removesuffix(b"\n") if dice.random() < 0.1 else side for side in sides]
        for name, side in zip("bot", sides, strict=True):
            (tmp_path / name).write_bytes(side)
        git = subprocess.run(
            ["git", "merge-file", "-p", "o", "b", "t"], cwd=tmp_path, capture_output=True, check=False
        )
        result = merge(*sides)
        if git.returncode == 0:
            assert result == Merged(git.stdout), sides
        else:
            conflicts += 1
            assert isinstance(result, MergeConflict), sides
            count = sides[1].count(b"\n") + 1
            assert result.regions
            assert all(1 <= region.start_line <= region.end_line <= count for region in result.regions), sides
    assert 50 < conflicts < 250


BASE = FileState(b"a\nb\nc\n", FILE, 0o640)


def check(
    ours: FileState | None,
    theirs: FileState | None,
    expected: FileState | None,
    base: FileState | None = BASE,
) -> None:
    merged = merge_states(base, ours, theirs)
    assert merged == expected
    assert merged is None or expected is None or merged.permissions == expected.permissions


def conflict(base: FileState | None, ours: FileState | None, theirs: FileState | None) -> dict[str, Any]:
    with pytest.raises(Conflict) as caught:
        merge_states(base, ours, theirs, path="f")
    assert caught.value.hint
    (file,) = caught.value.data["files"]
    assert file["path"] == "f"
    return {key: value for key, value in file.items() if key != "path"}


def test_mode_and_content_merge_apart_and_permissions_are_those_that_are_there() -> None:
    check(
        FileState(b"A\nb\nc\n", FILE, 0o600),
        FileState(b"a\nb\nc\n", EXECUTABLE, 0o755),
        FileState(b"A\nb\nc\n", EXECUTABLE, 0o700),
    )
    check(
        FileState(b"a\nb\nc\n", EXECUTABLE, 0o750),
        FileState(b"a\nb\nC\n", FILE, 0o640),
        FileState(b"a\nb\nC\n", EXECUTABLE, 0o750),
    )


def test_what_one_side_left_alone_is_what_the_other_made_of_it() -> None:
    check(BASE, None, None)
    check(None, BASE, None)
    check(None, None, None)
    link = FileState(b"target", SYMLINK)
    check(BASE, link, link)
    check(None, link, link, base=None)


def test_deleting_what_the_other_side_changed_is_a_conflict() -> None:
    changed = FileState(b"X\n")
    assert conflict(BASE, None, changed) == {"reason": "deleted", "lines": []}
    assert conflict(BASE, changed, None) == {"reason": "deleted", "lines": []}


def test_adding_different_files_in_one_place_is_a_conflict() -> None:
    assert conflict(None, BASE, FileState(b"other"))["reason"] == "added"
    assert merge_states(None, BASE, BASE) == BASE


def test_a_link_is_never_merged_by_its_lines() -> None:
    one, two, three = (FileState(target, SYMLINK) for target in (b"one", b"two", b"three"))
    assert conflict(one, two, three)["reason"] == "symlink"
    assert conflict(BASE, FileState(b"X\nb\nc\n"), one)["reason"] == "symlink"
    assert conflict(BASE, FileState(BASE.content, EXECUTABLE), one)["reason"] == "mode"


def test_a_conflict_names_the_lines_or_says_that_there_are_none() -> None:
    data = conflict(BASE, FileState(b"a\nX\nc\n"), FileState(b"a\nY\nc\n"))
    lines = [{"start_line": 2, "end_line": 2}]
    assert data == {"reason": "lines", "lines": lines, "hunks": ["@@ -2,1 +2,1 @@\n-b\n+X\n"]}
    assert conflict(BASE, FileState(b"\0"), FileState(b"\0\0"))["reason"] == "binary"


def test_a_conflict_has_the_diffs_of_its_first_hunks() -> None:
    def numbered(word: str) -> FileState:
        return FileState("".join(f"{word} {n}\n-\n-\n-\n" for n in range(HUNKS_MAX + 1)).encode())

    with pytest.raises(Conflict) as refused:
        merge_states(numbered("base"), numbered("ours"), numbered("theirs"))
    (file,) = refused.value.data["files"]
    assert (len(file["lines"]), len(file["hunks"])) == (HUNKS_MAX + 1, HUNKS_MAX)
