"""Calls of wcgw's `FileWriteOrEdit` at random, most of them nearly right, and what is to come of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd.edits.search import LINE_END
from editd.errors import Refused
from tool_calls import ROOT, Workspace, on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from editd.values.transaction import Outcome

_LINES: tuple[str, ...] = (
    "a", "b", "    a", "\tb", "}", "}", "", "", "   ", "f(a, b)", "f(a,b)", 'say("x")', "say(“x”)", "12 a",
    "x – y", "é\u00a0🙂", "a\u2028b", "\f", "a ",
)  # fmt: skip
_MARKERS = ("=======", "<<<<<<< SEARCH", ">>>>>>> REPLACE")
_ENDS = ("\n", "\n", "\n", "\r\n", "\r")
_BENT: tuple[Callable[[str], str], ...] = (
    lambda line: f"{line} ",
    str.lstrip,
    lambda line: f"  {line}",
    lambda line: f"7 {line}",
    lambda line: line.replace("“", '"').replace("”", '"').replace("–", "-"),
    lambda line: "".join(line.split()),
    lambda line: line.replace('"', '\\"'),
    lambda line: "",
    str.upper,
)
_PERCENTAGES = (1, 10, 10, 50, 51, 100, 0, -5, "30", 30.0, 30.5, "30%", True, None, '"30"', 1e300)
_PATHS = (
    "{ROOT}/f.txt",
    "{ROOT}/./d/../f.txt",
    "f.txt",
    "~/f.txt",
    "{ROOT}/../f.txt",
    "{ROOT}",
    "{ROOT}/n.txt",
    "",
)
_JUNK: tuple[Any, ...] = (None, 7, "", [], {}, "  ", "t 1", '"a"', "[1]")
REFUSALS = {
    "no_match", "ambiguous", "malformed_edit", "unread", "invalid_params", "path_outside", "file_missing",
    "not_a_file",
}  # fmt: skip


def calls(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield texts of a file `f.txt` with arguments for it, for ever; some of them make no sense."""
    while True:
        lines = random.choices(_LINES, k=random.randrange(14))
        text = "".join(line + random.choice(_ENDS[: random.choice((1, 5))]) for line in lines)
        if random.random() < 0.3:
            text = text.rstrip("\r\n")
        args: dict[str, Any] = {
            "file_path": _mostly_first(random, _PATHS),
            "percentage_to_change": random.choice(_PERCENTAGES[:4])
            if random.random() < 0.9
            else random.choice(_PERCENTAGES),
            "text_or_search_replace_blocks": _argument(random, lines),
            "thread_id": "t1",
        }
        if random.random() < 0.08:
            args["percentage_to_change"] = random.choice((51, 100, 0, -5))
            args["text_or_search_replace_blocks"] = text + random.choice(("", "x", "\r\n"))
            args["file_path"] = random.choice(_PATHS)
        if random.random() < 0.03:
            del args[random.choice(list(args))]
        if random.random() < 0.03:
            args[random.choice([*args, "other"])] = random.choice(_JUNK)
        yield text, args


def check(text: str, args: dict[str, Any]) -> str:
    """Make the call, look at what comes of it, and return its name."""
    place = on({"f.txt": text})
    given = {name: _rooted(value) for name, value in args.items()}
    made = _made(place, given)
    if isinstance(made, Refused):
        assert made.code in REFUSALS
        assert made.hint
        assert place.files == {"f.txt": text.encode()}
        return made.code
    (answer,) = made.answers
    if answer == "Success":
        name = "n.txt" if "n.txt" in place.files else "f.txt"
        assert place.files[name] == given["text_or_search_replace_blocks"].encode()
        assert name == "n.txt" or not text.strip()
        return "written"
    assert answer is not None
    assert answer.startswith("File edited successfully.")
    after = place.text("f.txt")
    if "\r" not in _without_crlf(text + given["text_or_search_replace_blocks"]):
        ends = set(LINE_END.findall(text))
        assert not ends or set(LINE_END.findall(after)) <= ends
    return "edited with a warning" if "\n" in answer else "edited"


def _made(place: Workspace, args: dict[str, Any]) -> Outcome | Refused:
    try:
        return place.call("wcgw", "FileWriteOrEdit", args)
    except Refused as refusal:
        return refusal


def _without_crlf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _argument(random: Random, lines: list[str]) -> str:
    if random.random() < 0.05:
        return "\n".join(random.choices([*_LINES, *_MARKERS], k=4))
    parts = [random.choice(("", "And:\n", "\n"))] if random.random() < 0.1 else []
    start = 0
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 6))):
        start = random.randrange(start, len(lines) + 1) if random.random() < 0.8 else 0
        size = random.choice((1, 1, 2, 3, 5))
        search = _bent(random, lines[start : start + size]) or [random.choice(_LINES)]
        start = min(start + size, len(lines))
        new = _bent(random, random.choices([*_LINES, *search], k=random.randrange(4)))
        parts += [
            _mostly_first(random, ("<<<<<<< SEARCH\n", "<<<<<< SEARCH>\n", "<<<<< SEARCH\n", "")),
            *(f"{line}\n" for line in search),
            _mostly_first(random, ("=======\n", "=====  \n", "====\n", "")),
            *(f"{line}\n" for line in new),
            _mostly_first(random, (">>>>>>> REPLACE\n", ">>>>>>REPLACE\n", ">>>>>>> replace\n", "")),
        ]
    argument = "".join(parts)
    return argument.replace("\n", "\r\n") if random.random() < 0.05 else argument


def _bent(random: Random, lines: list[str]) -> list[str]:
    """The lines, some of them changed a little."""
    change = random.choice(_BENT)
    match random.randrange(8):
        case 0:
            return [change(line) for line in lines]
        case 1:
            return [change(line) if random.random() < 0.3 else line for line in lines]
        case 2:
            return [line for line in lines if line.strip()]
        case 3:
            return [*lines, ""]
        case _:
            return lines


def _mostly_first(random: Random, choices: tuple[str, ...]) -> str:
    return choices[0] if random.random() < 0.95 else random.choice(choices)


def _rooted(value: Any) -> Any:
    return value.replace("{ROOT}", ROOT) if isinstance(value, str) else value
