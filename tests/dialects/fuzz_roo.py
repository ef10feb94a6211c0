"""Calls of roo's `search_and_replace` at random: some make no sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

PIECES = ("a", "b", "A", "ab", " ", "\t", "é", "É", "ſ", "🙂", "$", "\\", "(", "]", "*", ".", "\u2028", "1")
EXPRESSIONS = (
    "a", "b", ".", "a+", "a*?", "[ab]", "[^a]", "(a)", "(b)?", "(?<n>a|b)", "^", "$", "\\s", "\\S+", "\\b",
    "\\n", "(?=b)", "(?<=a)", "(?<!^)", "\\1", "\\k<n>", "\\u{2}", "[^]", "[🙂]", "\\ud83d", "a{1,2}",
    "a{,2}", "|", "(?:)",
)  # fmt: skip
BROKEN = ("(", ")", "a++", "(?i:a)", "[b-a]", "(?>a)", "(?P<n>a)", "\\")
TEMPLATES = ("", "x", "a", "$1", "$2", "$&", "$$", "$`", "$'", "$<n>", "$<m>", "$", "\n", "\r\n", "\\n", "🙂")
FLAGS: tuple[Any, ...] = ("true", "true", True, "false", False, "", " True ", "yes", 1, None)
LINES: tuple[Any, ...] = (
    "1",
    "2",
    "3",
    "",
    1,
    2,
    3,
    0,
    "0",
    "-1",
    "2.9",
    "4th",
    " 2",
    "99",
    "x",
    None,
    True,
    2.5,
)


def calls(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, without end, the text of `notes.txt` and the arguments of a call."""
    while True:
        line_end = random.choice(("\n", "\n", "\n", "\r\n", "\r"))
        lines = ["".join(random.choices(PIECES, k=random.randrange(6))) for _ in range(random.randrange(6))]
        text = line_end.join(lines) + random.choice((line_end, ""))
        is_regex = random.random() < 0.6
        args: dict[str, Any] = {
            "path": "notes.txt",
            "search": _expression(random) if is_regex else _literal(random, text),
            "replace": "".join(random.choices(TEMPLATES, k=random.randrange(4))),
        }
        if is_regex:
            args["use_regex"] = random.choice(("true", True))
        for name, values in (("ignore_case", FLAGS), ("start_line", LINES), ("end_line", LINES)):
            if random.random() < 0.3:
                args[name] = random.choice(values)
        if random.random() < 0.05:
            args[random.choice(list(args))] = random.choice((None, 7, "", [], "true"))
        yield text, args


def _expression(random: Random) -> str:
    whole = "".join(random.choices(EXPRESSIONS, k=random.choice((1, 1, 2, 3, 4))))
    return whole + (random.choice(BROKEN) if random.random() < 0.05 else "")


def _literal(random: Random, text: str) -> str:
    start = random.randrange(len(text) + 1)
    found = text[start : start + random.choice((1, 1, 2, 3, 6))] or random.choice(PIECES)
    return found.swapcase() if random.random() < 0.2 else found
