"""The habits that make a text hard to read, as patterns, and the texts of Python code to search for them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE_MAX = 1.0  # habits in 1,000 words; websockets, dulwich and watchdog have 0.1 to 0.2
_AFTER_WHO = (
    "is has asks had does wants waits edits reads makes made comes called calls gives sends needs cannot can "
    "looks only else wrote writes started starts took takes did uses may will would hears saves"
)
_AFTER_WHAT = (
    "is was are has had it they he comes came can cannot could must lies stands others somebody else follows "
    "remains waits makes made does"
)
_AFTER_WHERE = "that it there this nobody somebody one no none what something nothing he some all each"
_PREPOSITION = r"(?:^|[.,;:(]\s*|\b(?:for|of|to|by|and|that|from|with{}) )"


def _one_of(listed: str) -> str:
    return f"(?:{'|'.join(listed.split())})"


HABITS = {
    "a clause as a noun": (
        rf"{_PREPOSITION.format('')}[Ww]ho(?:ever)? {_one_of(_AFTER_WHO)}\b"
        rf"|{_PREPOSITION.format('|in')}[Ww]hat(?:ever)? {_one_of(_AFTER_WHAT)}\b"
    ),
    "where for if or when": rf"\b[Ww]here {_one_of(_AFTER_WHERE)}\b",
    "telling without a teller": (
        r"\b(?:is|are|was|were|be|been) (?:told|said|looked|asked|noted|meant|heard|noticed)\b"
    ),
    "things that stand, lie and tell": (
        r"\b(?:stands?|lies|lie) (?:there|here|beside|in|on|by|for|before|behind|below|above|now|under)\b"
        r"|\b(?:log|error|answer|page|file|reply|status|journal|record) tells\b"
    ),
    "else for otherwise": r"(?:^|[,;(] ?)else\b",
    "be it": r"\bbe (?:it|they)\b",
    "for as because": (
        r", for (?:it|they|that|there|what|nobody|nothing) (?:is|was|are|has|had|would|could|may|only)\b"
    ),
}
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(
    r"^<!-- (?:keys|tools|deviations|table|figures) -->$.*?^<!-- (?:end|/keys) -->$", re.MULTILINE | re.DOTALL
)
_STRING_OR_COMMENT = re.compile(
    r"""\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#(?P<comment>[^\n]*)""", re.DOTALL
)
_STRING_WORDS_MIN = 4  # a shorter string is a name or a key
_SENTENCE_END = re.compile(r"(?<=[a-z0-9`)][.!?]) (?=[A-Z])")


def words(text: str) -> int:
    return len(re.findall(r"\w+", _CODE.sub("", text)))


def habits(text: str) -> list[str]:
    """Each habit of a page with the words that show it; code is left out."""
    prose = _CODE.sub("", text)
    return [
        f"{name}: {match.group().strip()}"
        for name, pattern in HABITS.items()
        for match in re.finditer(pattern, prose, re.MULTILINE)
    ]


def crowded_lines(page: str) -> Iterator[str]:
    """Yield the lines with more than one sentence; code, tables and generated parts are left out."""
    for line in _GENERATED.sub("", _CODE.sub("", page)).splitlines():
        if not line.startswith("|") and _SENTENCE_END.search(re.sub(r"`[^`]*`", "`x`", line)):
            yield line


def code_texts(source: str) -> Iterator[str]:
    """Yield the docstrings, comments and longer strings of Python code."""
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    for value in constants:
        if isinstance(value, str) and len(value.split()) >= _STRING_WORDS_MIN:
            yield value
    for match in _STRING_OR_COMMENT.finditer(source):
        if comment := match["comment"]:
            yield comment.strip()
