"""Calls of Claude's text editor at random, and what is to come of each, said another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd.edits.search import LINE_END
from editd.errors import Refused
from tool_calls import Workspace, on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_PIECES = ["a", "b", "ab", " ", "\t", "é", "🙂", "$1", "\\1", "\f", "\u2028"]
_ENDS = ["\n", "\n", "\n", "\r\n", "\r"]
_ODD_NUMBERS = [-1, -2, 99, True, 1.0, "1", None]
_JUNK: list[object] = [None, 7, "", [], {}, "f.txt", ["a"]]


def calls(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield texts of a file `f.txt` with arguments for it, for ever; some of them make no sense."""
    while True:
        text = _text(random)
        args: dict[str, Any] = {
            "command": random.choice(["str_replace", "str_replace", "insert", "insert", "view", "create"]),
            "path": "f.txt",
        }
        match args["command"]:
            case "str_replace":
                args |= {"old_str": _part(random, text), "new_str": _text(random)}
            case "insert":
                name = random.choice(["insert_text", "insert_text", "new_str"])
                args |= {"insert_line": _number(random, text), name: _text(random)}
            case "view":
                args["view_range"] = [_number(random, text), random.choice([-1, _number(random, text)])]
            case _:
                args |= {"file_text": _text(random), "path": random.choice(["f.txt", "new/f.txt", "new.txt"])}
        if random.random() < 0.05:
            del args[random.choice(list(args))]
        if random.random() < 0.05:
            args[random.choice(list(args))] = random.choice(_JUNK)
        if random.random() < 0.02:
            args["command"] = random.choice(["undo_edit", "VIEW", "delete"])
        yield text, args


def check(text: str, args: dict[str, Any]) -> str:
    """Make the call, look at what comes of it, and return its name."""
    place = on({"f.txt": text})
    refusal = _refusal(place, args)
    if refusal is not None:
        assert refusal.hint
        assert place.files == {"f.txt": text.encode()}
        if refusal.code in ("no_match", "ambiguous"):
            count = _count(_plain(text), _plain(args["old_str"]))
            assert count != 1
            assert (count == 0) == (refusal.code == "no_match")
        return refusal.code
    command = args["command"]
    if command == "create":
        assert place.files == {"f.txt": text.encode(), args["path"]: args["file_text"].encode()}
        assert args["path"] != "f.txt"
        return "create"
    after = place.files["f.txt"].decode()
    new = "".join(str(args.get(name, "")) for name in ("new_str", "insert_text"))
    is_mixed = "\r" in _without_crlf(text + "|" + new) and "\n" in text + new
    if command == "view":
        assert after == text
    elif is_mixed:
        pass  # A lone CR before an LF makes another line end of the two.
    elif command == "str_replace":
        old, new = _plain(args["old_str"]), _plain(args.get("new_str") or "")
        assert _count(_plain(text), old) == 1
        assert _plain(after) == _plain(text).replace(old, new)
    else:
        added = args.get("insert_text")
        added = args["new_str"] if added is None else added
        assert _plain(after) == _inserted(_plain(text), args["insert_line"], _plain(added))
    kinds = set(LINE_END.findall(text))
    if len(kinds) == 1 and not is_mixed:
        assert set(LINE_END.findall(after)) <= kinds
    return str(command)


def _refusal(place: Workspace, args: dict[str, Any]) -> Refused | None:
    try:
        place.call("claude", "str_replace_based_edit_tool", args)
    except Refused as refusal:
        return refusal
    return None


def _inserted(text: str, line: int, added: str) -> str:
    lines = text.removesuffix("\n").split("\n") if text else []
    lines[line:line] = added.removesuffix("\n").split("\n")
    return "\n".join(lines) + ("\n" if text.endswith("\n") or not text else "")


def _without_crlf(text: str) -> str:
    return text.replace("\r\n", "")


def _count(text: str, wanted: str) -> int:
    return sum(text.startswith(wanted, start) for start in range(len(text)))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _text(random: Random) -> str:
    ends = random.choice([["\n"], ["\n"], ["\r\n"], _ENDS])
    return "".join(random.choices(_PIECES + 3 * ends, k=random.randint(0, 12)))


def _number(random: Random, text: str) -> object:
    return (
        random.choice(_ODD_NUMBERS) if random.random() < 0.1 else random.randint(0, _plain(text).count("\n"))
    )


def _part(random: Random, text: str) -> str:
    """A part of the text, mostly; now and then a little different."""
    start = random.randint(0, len(text))
    part = text[start : start + random.randint(0, 6)]
    match random.randrange(8):
        case 0:
            return part + random.choice(_PIECES)
        case 1:
            return _plain(part)
        case 2:
            return part.strip()
        case _:
            return part
