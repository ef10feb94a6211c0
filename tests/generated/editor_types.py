"""The types of the daemon's answers: TypeScript for VS Code, and annotations of Lua for Neovim."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import inspect as kinds

from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EDITORS = Path(__file__).resolve().parents[2] / "client" / "editors"
TYPESCRIPT = EDITORS / "vscode" / "src" / "messages.ts"
LUA = EDITORS / "neovim" / "lua" / "editd" / "messages.lua"

CONTENTS = {"content", "old", "new"}  # fields that have the bytes of a file, in base64 if they are no text

TYPESCRIPT_HEAD = """\
/** The answers of the daemon, made by tests/generated from the messages. docs/protocol.md explains them. */

/** The bytes of a file: text if they are UTF-8. */
export type Content = string | { base64: string }
"""

LUA_HEAD = """\
---@meta
-- The answers of the daemon, made by tests/generated from the messages. docs/protocol.md explains them.
"""


def files() -> dict[Path, str]:
    """Return the text of each file."""
    structs = list(_structs())
    return {
        TYPESCRIPT: TYPESCRIPT_HEAD + "".join(map(_interface, structs)),
        LUA: LUA_HEAD + "".join(map(_lua_class, structs)),
    }


def _structs() -> Iterator[kinds.StructType]:
    """Yield the types of all answers, each after the types of its fields."""
    seen: set[type] = set()
    pending: list[kinds.Type] = list(kinds.multi_type_info(list(dict.fromkeys(messages.ANSWERS.values()))))
    for kind in pending:
        yield from _with_fields(kind, seen)


def _with_fields(kind: kinds.Type, seen: set[type]) -> Iterator[kinds.StructType]:
    if isinstance(kind, kinds.StructType):
        if kind.cls in seen:
            return
        seen.add(kind.cls)
        for one in kind.fields:
            yield from _with_fields(one.type, seen)
        yield kind
    elif isinstance(kind, kinds.UnionType):
        for part in kind.types:
            yield from _with_fields(part, seen)
    elif isinstance(kind, kinds.ListType):
        yield from _with_fields(kind.item_type, seen)
    elif isinstance(kind, kinds.DictType):
        yield from _with_fields(kind.value_type, seen)


# ── TypeScript ────────────────────────────────────────────────────────────────────────────────


def _interface(kind: kinds.StructType) -> str:
    head = _comment(kind.cls, "/** ", " */\n")
    lines = "".join(f"  {_typescript_field(one)}\n" for one in kind.fields)
    return f"\n{head}export interface {kind.cls.__name__} {{\n{lines}}}\n"


def _comment(cls: type, begin: str, end: str) -> str:
    own = cls.__dict__.get("__doc__")
    return "" if not own or own == "`{}`" else f"{begin}{own.partition(chr(10))[0]}{end}"


def _typescript_field(one: kinds.Field) -> str:
    parts = _parts(one.type)
    return f"{_name(one)}: {_union(_typescript(part, one.encode_name) for part in parts)}"


def _name(one: kinds.Field) -> str:
    """Return the name of a field, `?` after a field that may be left out."""
    return one.encode_name + ("?" if one.default is msgspec.UNSET else "")


def _parts(kind: kinds.Type) -> tuple[kinds.Type, ...]:
    return kind.types if isinstance(kind, kinds.UnionType) else (kind,)


def _union(names: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(names))


def _typescript(kind: kinds.Type, field: str) -> str:
    match kind:
        case kinds.StrType():
            return "Content" if field in CONTENTS else "string"
        case kinds.IntType() | kinds.FloatType():
            return "number"
        case kinds.BoolType():
            return "boolean"
        case kinds.NoneType():
            return "null"
        case kinds.LiteralType(values=values):
            return " | ".join(f"'{value}'" for value in values)
        case kinds.StructType(cls=cls):
            return cls.__name__
        case kinds.ListType(item_type=item):
            inner = _union(_typescript(part, field) for part in _parts(item))
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case kinds.DictType(value_type=value):
            inner = _union(_typescript(part, field) for part in _parts(value))
            return f"Record<string, {inner}>"
        case _:
            return "unknown"


# ── Lua ───────────────────────────────────────────────────────────────────────────────────────


def _lua_class(kind: kinds.StructType) -> str:
    head = _comment(kind.cls, "---", "\n")
    lines = "".join(f"---@field {_lua_field(one)}\n" for one in kind.fields)
    return f"\n{head}---@class editd.{kind.cls.__name__}\n{lines}"


def _lua_field(one: kinds.Field) -> str:
    parts = _parts(one.type)
    return f"{_name(one)} {_union(map(_lua, parts)).replace(' | ', '|')}"


def _lua(kind: kinds.Type) -> str:
    match kind:
        case kinds.StrType():
            return "string"
        case kinds.IntType():
            return "integer"
        case kinds.FloatType():
            return "number"
        case kinds.BoolType():
            return "boolean"
        case kinds.NoneType():
            return "vim.NIL"
        case kinds.LiteralType(values=values):
            return "|".join(f"'{value}'" for value in values)
        case kinds.StructType(cls=cls):
            return f"editd.{cls.__name__}"
        case kinds.ListType(item_type=item):
            inner = _union(map(_lua, _parts(item))).replace(" | ", "|")
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case kinds.DictType(value_type=value):
            return f"table<string, {_union(map(_lua, _parts(value))).replace(' | ', '|')}>"
        case _:
            return "any"
