"""The words of the editors for the terms of each advice in the source: Neovim's, and those of VS Code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from editd.advice import Term
from editd.words import Face, words_of
from generated.editor_types import EDITORS
from support.advice_source import FILLED_IN, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LUA = EDITORS / "neovim" / "lua" / "editd" / "words.lua"
TYPESCRIPT = EDITORS / "vscode" / "src" / "words.ts"
KINDS = {"method", "operation", "option", "argument", "step"}  # a command is the same in an editor

LUA_HEAD = """\
--- The words of Neovim for the terms of an advice, made by tests/generated from `editd.words`.
---@type table<string, string>
return {
"""
TYPESCRIPT_HEAD = """\
/** The words of an editor for the terms of an advice, made by tests/generated from `editd.words`. */
export const WORDS: Readonly<Record<string, string>> = {
"""


def files() -> dict[Path, str]:
    """Return the text of each file."""
    lua = (f"  [{_quoted(key)}] = {_quoted(words)},\n" for key, words in _table(Face.NEOVIM))
    typescript = (f"  {_quoted(key)}: {_quoted(words)},\n" for key, words in _table(Face.EDITOR))
    return {
        LUA: LUA_HEAD + "".join(lua) + "}\n",
        TYPESCRIPT: TYPESCRIPT_HEAD + "".join(typescript) + "}\n",
    }


def _table(face: Face) -> list[tuple[str, str]]:
    return sorted(set(_words(face)))


def _words(face: Face) -> Iterator[tuple[str, str]]:
    """Yield the key of each term, by its kind, its name and its value, with its words."""
    for one in written():
        for term in one.advice.parts:
            if isinstance(term, Term) and term.kind in KINDS:
                yield _entry(replace(term, lead="", purpose=""), face)


def _entry(term: Term, face: Face) -> tuple[str, str]:
    if term.kind == "argument":
        return f"argument {term.argument}", words_of(term, face)
    value = "" if term.argument == FILLED_IN else term.argument
    term = replace(term, argument=value, option=term.option if term.kind == "option" else "")
    key = f"{term.kind} {term.option if term.kind == 'option' else term.method} {value}".rstrip()
    return key, words_of(term, face)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
