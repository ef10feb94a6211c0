"""Calls of Gemini CLI's `replace` at random, and what is to come of each, said another way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from editd.edits.search import LINE_END, with_plain_line_ends
from editd.errors import Refused
from recorded import rooted
from tool_calls import ROOT, Workspace, on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_PIECES = ["a", "b", "aa", "ab", " ", "\t", "é", "🙂", "$&", "$1", "\\", "\\n", '"', "'", "\\\\", "\u2028"]
_COUNTS = [1, 1, 2, 2, 3, 1.0, 1.5, 0, -1, True, "1", None]
_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def calls(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield texts of a file `f.txt` with arguments for it, for ever; some of them make no sense."""
    while True:
        text = _text(random)
        args: dict[str, Any] = {
            "file_path": "{ROOT}/f.txt",
            "old_string": _old(random, text),
            "new_string": "".join(random.choices([*_PIECES, "\n", "\r\n"], k=random.randint(0, 3))),
        }
        if random.random() < 0.4:
            args["expected_replacements"] = random.choice(_COUNTS)
        if random.random() < 0.1:
            args["new_string"] = args["old_string"]
        if random.random() < 0.05:
            del args[random.choice(list(args))]
        if random.random() < 0.05:
            args[random.choice(list(args))] = random.choice([None, 7, "", [], "f.txt"])
        if random.random() < 0.05:
            args["file_path"] = "{ROOT}/new.txt"
        yield text, args


def check(text: str, args: dict[str, Any]) -> str:
    """Make the call, look at what comes of it, and return its name."""
    place = on({"f.txt": text})
    refusal = _refusal(place, args)
    if refusal is not None:
        assert refusal.hint
        assert place.files == {"f.txt": text.encode()}
        assert refusal.code == expected(text, args)[0]
        return refusal.code
    name, after = expected(text, args)
    assert name in ("ok", "made")
    if name == "made":
        assert place.text("new.txt") == args["new_string"]
        return name
    assert with_plain_line_ends(place.text("f.txt")) == after
    ends = set(LINE_END.findall(text))
    assert not ends or set(LINE_END.findall(place.text("f.txt"))) <= ends
    return name


def expected(text: str, args: dict[str, Any]) -> tuple[str, str]:
    """The name of the outcome, and the text afterwards with LF line ends."""
    path, old, new = (args.get(name) for name in ("file_path", "old_string", "new_string"))
    count = args.get("expected_replacements", 1)
    if not (isinstance(path, str) and isinstance(old, str) and isinstance(new, str)):
        return "invalid_params", ""
    if type(count) not in (int, float) or count < 1 or not path.startswith("{ROOT}/"):
        return "invalid_params", ""
    if path == "{ROOT}/new.txt":
        return ("file_missing" if old else "made"), ""
    if not old:
        return "file_exists", ""
    reading = text.replace("\r\n", "\n")
    sought = old.replace("\r\n", "\n") if "\r\n" in text else old
    return _replaced(reading, sought, new, count)


def _refusal(place: Workspace, args: dict[str, Any]) -> Refused | None:
    try:
        place.call("gemini", "replace", rooted(args, ROOT))
    except Refused as refusal:
        return refusal
    return None


def _replaced(text: str, old: str, new: str, count: float) -> tuple[str, str]:
    said = old
    if old not in text:
        old = _unescaped(old)
    found = text.count(old)
    if found == count == 1:  # one that overlaps it counts
        found = len(re.findall(f"(?={re.escape(old)})", text))
    if found != count:
        return ("no_match" if found == 0 else "ambiguous" if count == 1 else "count_mismatch"), ""
    after = with_plain_line_ends(new).join(map(with_plain_line_ends, text.split(old)))
    if said == new or after == with_plain_line_ends(text):
        return "no_change", ""
    return "ok", after


def _unescaped(text: str) -> str:
    """The escapes undone by a loop over the characters."""
    result, index = "", 0
    while index < len(text):
        end = index
        while end < len(text) and text[end] == "\\":
            end += 1
        if end > index and text[end : end + 1] in set("ntr'\"`\n"):
            result += {"n": "\n", "t": "\t", "r": "\r"}.get(text[end], text[end])
            index = end + 1
        elif end - index > 1:
            result += "\\"
            index = end
        else:
            end += end == index
            result += text[index:end]
            index = end
    return result


def _text(random: Random) -> str:
    ends = random.choice([["\n"], ["\n"], ["\r\n"], ["\n", "\r\n"], ["\r"]])
    return "".join(random.choice(_PIECES + ends * 3) for _ in range(random.randint(0, 12)))


def _old(random: Random, text: str) -> str:
    if random.random() < 0.15 or not text:
        return "".join(random.choices([*_PIECES, "\n", "\r\n"], k=random.randint(0, 3)))
    start = random.randrange(len(text))
    old = text[start : start + random.randint(1, 6)]
    if random.random() < 0.5:
        old = with_plain_line_ends(old)
    return "".join(_ESCAPES.get(character, character) for character in old) if random.random() < 0.3 else old
