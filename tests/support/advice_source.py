"""Every advice and every hint in the source, with an `x` for each value that is filled in."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editd import advice as terms
from editd.advice import Advice, leave_out

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parents[2]
SOURCES = ("daemon/editd", "client/editd_client")
FILLED_IN = "x"
MAKERS = {name: getattr(terms, name) for name in vars(terms) if name.endswith("_term") and name[0] != "_"}


@dataclass(frozen=True, slots=True)
class Written:
    """An advice or a plain hint, and its place in the source."""

    place: str
    advice: Advice


def written() -> Iterator[Written]:
    """Yield each advice and each term that the source makes, and each text that it passes as a `hint`."""
    for folder in SOURCES:
        for file in sorted((TOP / folder).rglob("*.py")):
            yield from written_in(file.relative_to(TOP).as_posix(), file.read_text())


def written_in(name: str, source: str) -> Iterator[Written]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS:
            yield Written(f"{name}:{node.lineno}", Advice(_value(node)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "leave_out":
            yield Written(f"{name}:{node.lineno}", leave_out(*map(_value, node.args)))
        for value in _hints(node):
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "Advice":
                yield Written(f"{name}:{value.lineno}", Advice(*map(_value, value.args)))
            elif isinstance(value, ast.Constant | ast.JoinedStr):
                yield Written(f"{name}:{value.lineno}", Advice(_value(value)))


def _hints(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Advice":
        yield node
    if isinstance(node, ast.keyword) and node.arg == "hint":
        yield from _texts(node.value)
    if isinstance(node, ast.Assign) and any("hint" in ast.unparse(one).lower() for one in node.targets):
        yield from _texts(node.value)


def _texts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the texts that an expression may have as its value."""
    if isinstance(node, ast.IfExp):
        yield from (*_texts(node.body), *_texts(node.orelse))
    elif isinstance(node, (ast.BoolOp, ast.Dict)):
        for value in node.values:
            yield from _texts(value)
    elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node


def _value(node: ast.AST) -> Any:
    """Return a part of an advice, or an argument of a term."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else FILLED_IN for part in node.values
        )
    if isinstance(node, ast.Call) and (maker := MAKERS.get(ast.unparse(node.func))) is not None:
        return maker(*map(_value, node.args), **{str(one.arg): _value(one.value) for one in node.keywords})
    return FILLED_IN
