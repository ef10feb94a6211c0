"""The words of Neovim for the terms of each advice in the source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from editd.advice import Term
from editd.words import Face, words_of
from generated.editor_types import EDITORS
from support.advice_source import FILLED_IN, written

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = EDITORS / "neovim" / "lua" / "editd" / "words.lua"
KINDS = {"method", "operation", "option", "argument", "step"}  # a command is the same in an editor

HEAD = """\
--- The words of Neovim for the terms of an advice, made by tests/generated from `editd.words`.
---@type table<string, string>
return {
"""


def text() -> str:
    """Return the text of the file."""
    lines = (f"  [{_quoted(key)}] = {_quoted(words)},\n" for key, words in sorted(set(_words())))
    return HEAD + "".join(lines) + "}\n"


def _words() -> Iterator[tuple[str, str]]:
    """Yield the key of each term, by its kind, its name and its value, with its words."""
    for one in written():
        for term in one.advice.parts:
            if isinstance(term, Term) and term.kind in KINDS:
                yield _entry(replace(term, lead="", purpose=""))


def _entry(term: Term) -> tuple[str, str]:
    if term.kind == "argument":
        return f"argument {term.argument}", words_of(term, Face.EDITOR)
    value = "" if term.argument == FILLED_IN else term.argument
    term = replace(term, argument=value, option=term.option if term.kind == "option" else "")
    key = f"{term.kind} {term.option if term.kind == 'option' else term.method} {value}".rstrip()
    return key, words_of(term, Face.EDITOR)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
