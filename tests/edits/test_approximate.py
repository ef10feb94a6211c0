"""Tests of `editd.edits.approximate`."""

from __future__ import annotations

import re
from random import Random

import pytest

from editd.edits.approximate import (
    JS_SPACES,
    PIECE,
    approximate_matches,
    js_trim,
    source_lines,
    units_of,
)


def distance(first: str, second: str) -> int:
    """The Levenshtein distance, by the textbook."""
    row = list(range(len(second) + 1))
    for number, letter in enumerate(first, 1):
        previous, row = row, [number]
        for index, other in enumerate(second):
            row.append(min(previous[index] + (letter != other), previous[index + 1] + 1, row[-1] + 1))
    return row[-1]


def as_units(text: str) -> str:
    raw = text.encode("utf-16-le")
    return "".join(chr(int.from_bytes(raw[at : at + 2], "little")) for at in range(0, len(raw), 2))


def by_the_textbook(text: str, block: str) -> list[tuple[int, int]]:
    """The windows as the original defines them, for a text whose lines end with LF only."""
    lines = [text[line.start : line.end] for line in source_lines(text)]
    searched = [line.rstrip(JS_SPACES) for line in re.findall(r".+\n?|\n", block)]
    size, goal = len(searched), as_units("\n".join(searched))
    scored = []
    for start in range(len(lines) - size + 1):
        window = as_units("\n".join(line.rstrip(JS_SPACES) for line in lines[start : start + size]))
        if not goal or abs(len(window) - len(goal)) / len(goal) > 1:
            continue
        bare = distance(*(re.sub(f"[{JS_SPACES}]", "", side) for side in (window, goal)))
        score = (bare + (distance(window, goal) - bare) * 0.1) / len(goal)
        if score <= 0.1:
            scored.append((score, start))
    taken: list[int] = []
    for _, start in sorted(scored):
        if all(abs(start - other) >= size for other in taken):
            taken.append(start)
    starts = [line.start for line in source_lines(text)] + [len(text)]
    return [(starts[start], starts[start + size]) for start in taken]


def test_random_windows_score_as_by_the_textbook() -> None:
    random, matched = Random(5), 0
    for _ in range(600):
        words = ["alpha", "beta", "b🙂ta", "  x = 1", "f(a, b)", "", "\t"]
        lines = [" ".join(random.choices(words, k=3)) for _ in range(random.randint(1, 7))]
        first = random.randrange(len(lines))
        block = list("\n".join(lines[first : first + random.randint(1, 3)]))
        for _ in range(random.randint(0, 3)):
            if block:
                block[random.randrange(len(block))] = random.choice([" ", "z", ""])
        text = "\n".join(lines) + random.choice(["", "\n"])
        needle = "".join(block)
        found = [(span.start, span.end) for span in approximate_matches(text, needle)]
        assert found == by_the_textbook(text, needle), (text, needle)
        matched += bool(found)
    assert matched > 100


def test_a_line_begins_after_the_last_separator_in_it() -> None:
    text = "a\rb\nc\u2028d\u2029e\n\r\nf\r"
    assert [text[line.start : line.end] for line in source_lines(text)] == ["b\n", "e\n", "\n"]
    assert source_lines("") == []


def test_lengths_are_in_units_of_utf_16() -> None:
    assert [units_of(text) for text in ("abc", "é", "🙂", "\ud83d")] == [3, 1, 2, 1]


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
@pytest.mark.parametrize("middle", ["", "x", "x \ufeff y", "\x1cx"])
def test_megabytes_of_spaces_are_trimmed_in_pieces_as_at_once(size: int, middle: str) -> None:
    text = "\ufeff" + " " * size + middle + "\n" * size + "\u3000"
    assert js_trim(text) == text.strip(JS_SPACES) == middle
