"""An entry that is apart from all touched lines merges with each waiting transaction, to the same text."""

from __future__ import annotations

import itertools
import random

import pytest

from editd.edits.line_changes import lines_of
from editd.edits.merge import Merged, merge
from editd.remote.marked_text import MARK, marked, with_entry

TRIES = 400
TRIES_LONG = 20_000
FEW = [b"a\n", b"b\n", b"}\n", b"\n"]  # repeated lines have several equal places


def edited(chance: random.Random, text: bytes) -> bytes:
    """Return a text with one to three lines changed, added or deleted."""
    lines = list(lines_of(text))
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(lines) + 1)
        new = [chance.choice([*FEW, b"%d\n" % chance.randrange(99)]) for _ in range(chance.randrange(3))]
        lines[at : at + chance.randrange(3)] = new
    return b"".join(lines)


def each_merged(base: bytes, versions: list[bytes]) -> bytes | None:
    """Merge each step of the versions into `base`, one after the other; None if one does not merge."""
    text = base
    for before, after in itertools.pairwise(versions):
        merged = merge(before, text, after)
        if not isinstance(merged, Merged):
            return None
        text = merged.content
    return text


def test_a_merge_with_the_marks_is_one_with_each_transaction(is_long: bool) -> None:
    chance, found = random.Random(7), 0
    for _ in range(TRIES_LONG if is_long else TRIES):
        base = b"".join(chance.choice([b"%d\n" % number, *FEW]) for number in range(40))
        versions = [base]
        for _ in range(chance.randrange(1, 6)):
            versions.append(edited(chance, versions[-1]))
        entry = edited(chance, base)
        joined = merge(base, versions[-1], entry)
        if not isinstance(joined, Merged):
            continue
        text = with_entry(marked(versions), base, entry, joined.content)
        if text is None:
            continue
        found += 1
        assert each_merged(entry, versions) == joined.content
        assert len(text) == len(lines_of(joined.content))
    assert found > TRIES / 10, "too few of them are apart"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (b"1\n2\nthree\n4\n", (b"1\n", b"2\n", MARK, b"4\n")),
        (b"1\n2\n3\nnew\n4\n", (b"1\n", b"2\n", b"3\n", MARK, b"4\n")),
        (b"1\n2\n4\n", (b"1\n", MARK, MARK)),
        (b"2\n3\n4\n", (MARK, b"3\n", b"4\n")),
        (b"1\n2\n3\n", (b"1\n", b"2\n", MARK)),
    ],
)
def test_the_lines_that_are_touched_are_marked(after: bytes, expected: tuple[bytes, ...]) -> None:
    assert marked([b"1\n2\n3\n4\n", after]) == expected


def test_a_line_that_was_touched_and_is_as_before_stays_marked() -> None:
    text = marked([b"1\n2\n3\n", b"1\ntwo\n3\n", b"1\n2\n3\n"])
    assert text == (b"1\n", MARK, b"3\n")
    assert with_entry(text, b"1\n2\n3\n", b"1\nTWO\n3\n", b"1\nTWO\n3\n") is None


def test_an_entry_that_is_apart_moves_the_marks() -> None:
    lines = [b"%d\n" % number for number in range(9)]
    base, own = b"".join(lines), b"".join([*lines[:6], b"six\n", *lines[7:]])
    entry = b"new\n" + base
    assert with_entry(marked([base, own]), base, entry, b"new\n" + own) == (
        b"new\n", *lines[:6], MARK, *lines[7:],
    )  # fmt: skip
