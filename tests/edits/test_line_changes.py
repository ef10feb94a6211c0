"""Tests of `edits.line_changes`, and of `merge.merge_lines`, which is git's merge and this beyond it."""

from __future__ import annotations

import random
from itertools import product

import pytest

from editd.edits.line_changes import Collision, hunks_between, join, lines_of
from editd.edits.merge import MergeConflict, Merged, merge, merge_lines

BASE = b"a\nb\nc\nd\n"


def text(letters: str) -> bytes:
    return "".join(f"{letter}\n" for letter in letters).encode()


@pytest.mark.parametrize(
    ("ours", "theirs", "joined"),
    [
        ("aXcd", "abYd", "aXYd"),
        ("abXcd", "aYcd", "aYXcd"),
        ("aXbcd", "aYcd", "aXYcd"),
        ("abcXd", "abd", "abXd"),
        ("acd", "abYd", "aYd"),
        ("abcX", "abYd", "abYX"),
        ("aXcd", "abYcd", "aXYcd"),
    ],
)
def test_changes_of_neighbouring_lines_are_joined_where_git_has_a_conflict(
    ours: str, theirs: str, joined: str
) -> None:
    sides = text("abcd"), text(ours), text(theirs)
    assert isinstance(merge(*sides), MergeConflict)
    assert merge_lines(*sides) == Merged(text(joined))


@pytest.mark.parametrize(("ours", "theirs"), [("aXcd", "aYcd"), ("aXcd", "ad"), ("abXcd", "abYcd")])
def test_changes_of_the_same_lines_and_insertions_at_one_point_collide(ours: str, theirs: str) -> None:
    merged = merge_lines(text("abcd"), text(ours), text(theirs))
    assert isinstance(merged, MergeConflict)
    assert len(merged.collisions) == 1


def test_a_line_that_collides_goes_to_the_winner_and_its_neighbours_stay() -> None:
    ours, theirs = text("aXYdZ"), text("aPcd")
    assert join(BASE, ours, theirs, "theirs").content == text("aPYdZ")
    assert join(BASE, ours, theirs, "ours").content == ours
    assert join(BASE, ours, theirs).collisions == (Collision(1, 2, (b"b\n",), (b"X\n",), (b"P\n",), 2),)


def test_a_collision_is_shown_as_a_hunk() -> None:
    (collision,) = join(b"1\na\nb", b"0\n1\na\nX\nY", b"1\na\nc").collisions
    assert collision.hunk() == (
        "@@ -3,1 +4,2 @@\n-b\n\\ No newline at end of file\n+X\n+Y\n\\ No newline at end of file\n"
    )


def test_an_insertion_among_lines_that_repeat_is_one_before_or_behind_them() -> None:
    """A diff moves an insertion down as far as it goes, into the lines that the other side changes."""
    base = b"(\nmine\n)\nend\n"
    ours = b"(\nother\n)\n(\nmine\n)\nend\n"
    assert merge_lines(base, ours, b"end\n") == Merged(b"(\nother\n)\nend\n")
    ours = b"(\nmine\n)\n(\nother\n)\nend\n"
    assert merge_lines(base, ours, b"end\n") == Merged(b"(\nother\n)\nend\n")


def test_a_line_is_not_put_behind_one_without_an_end() -> None:
    assert isinstance(merge_lines(b"a\nb\n", b"a\nb", b"a\nb\nc\n"), MergeConflict)
    assert join(b"a\nb\n", b"a\nb", b"a\nb\nc\n", "theirs").content == b"a\nb\nc\n"


def test_no_line_of_either_side_is_lost_or_comes_back_where_nothing_collides() -> None:
    dice = random.Random(3)
    beyond_git = 0
    for letters in product("ab\n", repeat=4):
        base = "".join(letters)
        for _ in range(12):
            sides = [_changed(dice, base) for _ in range(2)]
            contents = [side.encode() for side in (base, *sides)]
            merged = merge_lines(*contents)
            git = merge(*contents)
            if isinstance(git, Merged):
                assert merged == git
            elif isinstance(merged, Merged):
                beyond_git += 1
                hunks = [hunks_between(contents[0], side) for side in contents[1:]]
                lines = len(lines_of(contents[0])) + sum(
                    len(hunk.lines) - (hunk.end - hunk.start) for side in hunks for hunk in side
                )
                assert len(lines_of(merged.content)) == lines, contents
    assert beyond_git > 50


def _changed(dice: random.Random, text: str) -> str:
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice(["", "x", "y\n", "\nz"]) + text[at + dice.randrange(2) :]


def test_the_changes_of_theirs_that_collide_are_named() -> None:
    hunks = hunks_between(BASE, text("aYcZ"))
    joined = join(BASE, text("aXcd"), hunks)
    assert (joined.content, joined.collided) == (text("aXcZ"), (hunks[0],))
