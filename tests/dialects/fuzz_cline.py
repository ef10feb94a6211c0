"""Calls of `replace_in_file`, most of them nearly right: the files are full of lines that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

LINES = (
    "a",
    "b",
    "{",
    "}",
    "  a",
    "  }",
    "\tb",
    "a ",
    "a b",
    "x = 1",
    "é",
    "",
    "- k",
    "=== =",
    "\ufeffa",
    "🙂",
)
NEW = (*LINES, "> q", "+ p", "$& $1 \\1", "=> x", "<div>", "---", "a\rb")
STARTS = ("------- SEARCH", "<<<<<<< SEARCH", "--- SEARCH", "------- SEARCH>", "-- SEARCH", "-------SEARCH")
SEPARATORS = ("=======", "===", "==========", "==", "======= ", " =======")
ENDS = ("+++++++ REPLACE", ">>>>>>> REPLACE", "+++ REPLACE>", "++ REPLACE", "+++++++ REPL", "+", "")


def calls(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, without end, the text of `notes.txt` and the arguments of a call."""
    while True:
        lines = [random.choice(LINES) for _ in range(random.randrange(10))]
        blocks = [line for _ in range(random.choice((1, 1, 1, 2, 3, 5))) for line in _block(random, lines)]
        if random.random() < 0.05:
            del blocks[random.randrange(len(blocks))]
        line_end = random.choice(("\n", "\n", "\n", "\r\n", "\r"))
        text = line_end.join(lines) + random.choice((line_end, line_end, ""))
        if random.random() < 0.05:
            text = text.replace(line_end, "\n", 1)
        diff = random.choice(("\n", "\n", "\n", "\n", "\r\n")).join([*blocks, *random.choice(((), ("",)))])
        yield text, {"path": "notes.txt", "diff": diff}


def _block(random: Random, lines: list[str]) -> list[str]:
    """The lines of one block, whose search is a run of `lines` or nearly one."""
    start = random.randrange(len(lines) + 1)
    search = _bent(random, lines[start : start + random.choice((1, 1, 2, 3, 4))])
    new = [random.choice(NEW) for _ in range(random.randrange(4))]
    around = [random.choice(("", "And then:", "---"))] if random.random() < 0.1 else []
    return [
        *around, _mostly_first(random, STARTS), *search, _mostly_first(random, SEPARATORS), *new,
        _mostly_first(random, ENDS),
    ]  # fmt: skip


def _bent(random: Random, search: list[str]) -> list[str]:
    match random.randrange(12):
        case 0:
            return [f"\t{line.strip()}" for line in search]
        case 1:
            return [f"{line.strip()} " for line in search]
        case 2:
            return [*search[:1], *("ZZ" for _ in search[1:-1]), *search[1:][-1:]]
        case 3:
            return [random.choice(LINES)]
        case 4:
            return [*search, ""]
        case _:
            return search


def _mostly_first(random: Random, choices: tuple[str, ...]) -> str:
    return choices[0] if random.random() < 0.9 else random.choice(choices)
