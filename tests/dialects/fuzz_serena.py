"""Calls of serena's `replace_content` at random, and what is to come of each by the original's own lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from editd.edits.search import LINE_END, with_plain_line_ends
from editd.errors import Refused
from tool_calls import Workspace, on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_PIECES = ["a", "b", "ab", "aa", " ", "é", "🙂", "(", ".", "\\", "$!1", "\x0b", "\u2028"]
_EXPRESSIONS = [
    "a", "b", "ab", ".", "a+", "a*", "[ab]+?", "(a)", "(b)?", "(a|b)", "(?P<n>a)", "\\s*", "\\s+", ".*?",
    ".*", "^", "$", "\\n", "\n", "\\b", "\\A", "\\Z", "(?=b)", "(?<=a)", "\\w", "[^a]", "(?i:A)", "(?:)",
]  # fmt: skip
_BROKEN = ["(", ")", "[", "*", "a{2,1}", "\\p", "(?<=a+)", "\\3", "(?P=x)"]
_REPLACEMENTS = ["", "x", "a", "ab", "\n", "\r\n", "$!0", "$!1", "$!2", "$!٣", "$1", "\\1", "\\n", "$!", "é"]
_WORDS = [True, False, "yes", "OFF", 1, 0, "1", "maybe", None, 2, []]


def calls(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield texts of a file `f.txt` with arguments for it, for ever; some of them make no sense."""
    while True:
        text = _text(random)
        mode = random.choice(["literal", "regex"])
        args: dict[str, Any] = {
            "relative_path": "f.txt",
            "needle": _literal(random, text) if mode == "literal" else _expression(random),
            "repl": "".join(random.choices(_REPLACEMENTS, k=random.randint(0, 3))),
            "mode": mode,
        }
        if random.random() < 0.5:
            args["allow_multiple_occurrences"] = random.choice(_WORDS)
        if random.random() < 0.05:
            del args[random.choice(list(args))]
        if random.random() < 0.05:
            args[random.choice(list(args) or ["mode"])] = random.choice([None, 7, "", [], "f.txt"])
        yield text, args


def check(text: str, args: dict[str, Any]) -> str:
    """Make the call, look at what comes of it, and return its name."""
    place = on({"f.txt": text})
    refusal = _refusal(place, args)
    if refusal is not None:
        assert refusal.hint
        assert place.text("f.txt") == text
        assert refusal.code == expected(text, args)[0]
        return refusal.code
    after = place.text("f.txt")
    assert ("ok", with_plain_line_ends(after)) == expected(text, args)
    assert not LINE_END.search(text) or set(LINE_END.findall(after)) <= set(LINE_END.findall(text))
    return "ok"


def expected(text: str, args: dict[str, Any]) -> tuple[str, str]:
    """The name of the outcome, and the text afterwards with LF line ends."""
    texts = [args.get(name) for name in ("relative_path", "needle", "repl")]
    allow = args.get("allow_multiple_occurrences", False)
    may_be_many = (
        {"yes": True, "OFF": False, "1": True}.get(allow, allow) if isinstance(allow, str) else allow
    )
    if not all(isinstance(value, str) for value in texts) or args.get("mode") not in ("literal", "regex"):
        return "invalid_params", ""
    if not isinstance(may_be_many, int) or may_be_many not in (0, 1):
        return "invalid_params", ""
    path, needle, repl = map(str, texts)
    if path != "f.txt":
        return ("not_a_file" if path == "" else "file_missing"), ""
    plain = with_plain_line_ends(text)
    if not needle:
        return ("invalid_params" if may_be_many or not plain else "ambiguous"), ""
    return _replaced(
        plain, _sought(text, needle, args["mode"]), repl, args["mode"], is_many=bool(may_be_many)
    )


def _refusal(place: Workspace, args: dict[str, Any]) -> Refused | None:
    try:
        place.call("serena", "replace_content", args)
    except Refused as refusal:
        return refusal
    return None


def _sought(text: str, needle: str, mode: str) -> str:
    if mode == "regex":
        return needle
    return re.escape(with_plain_line_ends(needle) if "\r" in text else needle)


def _replaced(text: str, pattern: str, repl: str, mode: str, *, is_many: bool) -> tuple[str, str]:
    try:
        expression = re.compile(pattern, re.DOTALL | re.MULTILINE)
    except re.error:
        return "invalid_regex", ""

    def put(match: re.Match[str]) -> str:
        if mode == "literal":
            return repl
        if "\n" in match[0] and expression.search(match[0][1:]):
            raise InterruptedError
        return re.sub(r"\$!(\d+)", lambda group: match[int(group[1])] or "", repl)

    try:
        result, count = expression.subn(put, text)
    except InterruptedError:
        return "ambiguous", ""
    except IndexError:
        return "invalid_params", ""
    if count == 0:
        return "no_match", ""
    if mode == "literal":  # matches that overlap count
        count = len(re.findall(f"(?={pattern})", text))
    else:
        count += _has_overlap(expression, text)
    return ("ok", with_plain_line_ends(result)) if count == 1 or is_many else ("ambiguous", "")


def _has_overlap(expression: re.Pattern[str], text: str) -> bool:
    """Return whether a match begins within the last one and ends after it."""
    *_, last = expression.finditer(text)
    inner = (expression.match(text, at) for at in range(last.start() + 1, last.end()))
    return any(match is not None and match.end() > last.end() for match in inner)


def _text(random: Random) -> str:
    ends = random.choice([["\n"], ["\n"], ["\r\n"], ["\n", "\r\n"], ["\r"]])
    pieces = [random.choice(_PIECES + ends * 3) for _ in range(random.randint(0, 12))]
    return "".join(pieces)


def _literal(random: Random, text: str) -> str:
    if random.random() < 0.2 or not text:
        return "".join(random.choices([*_PIECES, "\n", "\r\n"], k=random.randint(0, 3)))
    start = random.randrange(len(text))
    needle = text[start : start + random.randint(1, 6)]
    return needle if random.random() < 0.5 else with_plain_line_ends(needle)


def _expression(random: Random) -> str:
    parts = random.choices(_EXPRESSIONS, k=random.randint(1, 4))
    if random.random() < 0.1:
        parts.insert(random.randint(0, len(parts)), random.choice(_BROKEN))
    return "".join(parts)
