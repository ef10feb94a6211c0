"""JSON with comments, changed as text: a member or an element is added or removed, all else keeps its bytes.

The parser keeps the place of each value. It takes comments and trailing commas, as agents do in their
settings. Each function returns a `Splice`, so that a change can be taken back byte for byte.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_INDENT = re.compile(r"\n([ \t]+)\S")
_DEPTH_MAX = 200
BOM = "\ufeff"


class UnreadableError(Exception):
    """A text that is not JSON with comments, with the reason."""


@dataclass(frozen=True, slots=True)
class Splice:
    """The replacement of `text[start:end]` by `new`."""

    start: int
    end: int
    new: str

    def of(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def inverse(self, text: str) -> Splice:
        """Return the splice that takes this one back in the changed text."""
        return Splice(self.start, self.start + len(self.new), text[self.start : self.end])


@dataclass(slots=True)
class Node:
    """A value and its place; of an object or an array also its elements, a member with its key's place."""

    start: int
    end: int
    value: Any
    elements: list[tuple[int, Node]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def member(self, key: str) -> Node | None:
        """Return the value of a key; of a key that is there twice the last one, as parsers do."""
        values = [node for name, (_, node) in zip(self.keys, self.elements, strict=False) if name == key]
        return values[-1] if values else None

    def at(self, path: Sequence[str]) -> Node | None:
        node: Node | None = self
        for key in path:
            node = None if node is None else node.member(key)
        return node


def parse(text: str) -> Node:
    """Return the value of the whole text. Raises UnreadableError."""
    start = _gap(text, len(BOM) if text.startswith(BOM) else 0)
    node = _value(text, start, 0)
    if _gap(text, node.end) != len(text):
        raise UnreadableError(f"line {_line(text, node.end)}: there is more after the end")
    return node


def set_member(text: str, path: Sequence[str], key: str, value: object) -> Splice:
    """Return the splice that gives the object at `path` this member; it makes the objects on the way."""
    node = parse(text)
    for number, name in enumerate(path):
        inner = node.member(name)
        if inner is None:
            for outer in reversed([*path[number + 1 :], key]):
                value = {outer: value}
            return _insert(text, node, value, name)
        node = inner
    _must_be(text, node, dict)
    known = node.member(key)
    if known is None:
        return _insert(text, node, value, key)
    return Splice(known.start, known.end, _render(text, value, _base_indent(text, known.start)))


def add_element(text: str, path: Sequence[str], value: object) -> Splice:
    """Return the splice that appends to the array at `path`; it makes what is missing on the way."""
    node = parse(text).at(path)
    if node is None:
        return set_member(text, path[:-1], path[-1], [value])
    _must_be(text, node, list)
    return _insert(text, node, value)


def replace_element(text: str, path: Sequence[str], index: int, value: object) -> Splice:
    """Return the splice that replaces an element of the array at `path`."""
    node = parse(text).at(path)
    assert node is not None, "the caller has found the element"
    element = node.elements[index][1]
    return Splice(element.start, element.end, _render(text, value, _base_indent(text, element.start)))


def remove_element(text: str, path: Sequence[str], index: int) -> list[Splice]:
    """Return the splices, to be made in this order, that remove an element of the array at `path`."""
    node = parse(text).at(path)
    assert node is not None, "the caller has found the element"
    return _removal(text, node, index)


def remove_member(text: str, path: Sequence[str], key: str) -> list[Splice]:
    """Return the splices, to be made in this order, that remove a member of the object at `path`."""
    node = parse(text).at(path)
    assert node is not None, "the caller has found the member"
    return _removal(text, node, len(node.keys) - 1 - node.keys[::-1].index(key))


# ── The parser ────────────────────────────────────────────────────────────────────────────────


def _gap(text: str, at: int) -> int:
    match = _GAP.match(text, at)
    return at if match is None else match.end()


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _value(text: str, at: int, depth: int) -> Node:
    if depth > _DEPTH_MAX:
        raise UnreadableError("it is nested too deeply")
    if text[at : at + 1] in ("{", "["):
        return _container(text, at, depth)
    match = _STRING.match(text, at) or _SCALAR.match(text, at)
    if match is None:
        raise UnreadableError(f"line {_line(text, at)}: a value is missing")
    try:
        return Node(at, match.end(), json.loads(match[0]))
    except ValueError as error:
        raise UnreadableError(f"line {_line(text, at)}: {error}") from None


def _container(text: str, start: int, depth: int) -> Node:
    is_object = text[start] == "{"
    close = "}" if is_object else "]"
    node = Node(start, start, {} if is_object else [])
    at = _gap(text, start + 1)
    while text[at : at + 1] != close:
        first = at
        if is_object:
            key = _value(text, at, depth + 1)
            colon = _gap(text, key.end)
            if not isinstance(key.value, str) or text[colon : colon + 1] != ":":
                raise UnreadableError(f"line {_line(text, at)}: a key is missing")
            at = _gap(text, colon + 1)
            element = _value(text, at, depth + 1)
            node.keys.append(key.value)
            node.value[key.value] = element.value
        else:
            element = _value(text, at, depth + 1)
            node.value.append(element.value)
        node.elements.append((first, element))
        at = _gap(text, element.end)
        if text[at : at + 1] == ",":
            at = _gap(text, at + 1)
        elif text[at : at + 1] != close:
            raise UnreadableError(f"line {_line(text, at)}: `{close}` is missing")
    node.end = at + 1
    return node


# ── The splices ───────────────────────────────────────────────────────────────────────────────


def _must_be(text: str, node: Node, kind: type) -> None:
    if not isinstance(node.value, kind):
        wanted = "an object" if kind is dict else "an array"
        raise UnreadableError(f"line {_line(text, node.start)}: it is not {wanted}")


def _insert(text: str, node: Node, value: object, key: str | None = None) -> Splice:
    """Return the splice that adds the value at the end of the object or array.

    The comma goes right behind the last element, so that a comment there keeps its line.
    """
    _must_be(text, node, list if key is None else dict)
    close = node.end - 1
    inner = text[node.start + 1 : close]
    newline = "\r\n" if "\r\n" in text else "\n"
    base = _base_indent(text, node.start)
    is_inline = bool(node.elements) and "\n" not in inner
    indent = base + _unit(text)
    if node.elements and not is_inline:
        indent = _own_indent(text, node.elements[-1][0], indent)
    name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    piece = name + (json.dumps(value, ensure_ascii=False) if is_inline else _render(text, value, indent))
    if not inner.strip():
        return Splice(node.start + 1, close, f"{newline}{indent}{piece}{newline}{base}")
    at = node.start + 1 + len(inner.rstrip(" \t\r\n"))
    lead = " " if is_inline else newline + indent
    if not node.elements:  # a comment alone
        return Splice(at, at, f"{newline}{indent}{piece}" + ("" if "\n" in text[at:close] else newline))
    last = node.elements[-1][1].end
    comma = _gap(text, last)
    if text[comma] == ",":
        return Splice(at, at, f"{lead}{piece},")
    return Splice(last, at, f",{text[last:at]}{lead}{piece}")


def _removal(text: str, node: Node, index: int) -> list[Splice]:
    """Remove the element with the space before it and one comma, which is that after it if there is one."""
    start, element = node.elements[index]
    begin = len(text[:start].rstrip(" \t\r\n"))
    after = _gap(text, element.end)
    previous_end = node.elements[index - 1][1].end if index else node.start + 1
    if text[after] == ",":
        between = text[element.end : after] if text[element.end : after].strip() else ""
        whole = Splice(begin, after + 1, _newline_for(text, previous_end, start, after + 1) + between)
        return [_tidy(text, node, index, whole)]
    newline = _newline_for(text, previous_end, start, element.end)
    whole = _tidy(text, node, index, Splice(begin, element.end, newline))
    if index == 0:
        return [whole]
    previous = node.elements[index - 1][1].end
    comma = _gap(text, previous)
    return [whole, Splice(comma, comma + 1, "")]


def _newline_for(text: str, previous: int, start: int, end: int) -> str:
    """Return the newline that must stay behind a `//` comment right before the removed element, if any."""
    comments = re.findall(r"//[^\n]*|/\*.*?\*/", text[previous:start], re.DOTALL)
    if not comments or not comments[-1].startswith("//") or re.match(r"[ \t\r]*\n", text[end:]):
        return ""
    is_last = text[previous:start].rstrip(" \t\r\n").endswith(comments[-1].rstrip(" \t\r"))
    return "\n" if is_last else ""  # a comma behind it is on its own line


def _tidy(text: str, node: Node, index: int, splice: Splice) -> Splice:
    """Take along the space of an object or array that the removal leaves empty."""
    is_last = len(node.elements) == 1 and index == 0
    left = text[node.start + 1 : splice.start] + splice.new + text[splice.end : node.end - 1]
    if is_last and not left.strip():
        return Splice(node.start + 1, node.end - 1, "")
    return splice


def _render(text: str, value: object, indent: str) -> str:
    """Return the value in the file's own style: its indentation and its line ends."""
    if "\n" not in text.strip() and len(text.strip()) > len("{}"):
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return ("\r\n" if "\r\n" in text else "\n").join([lines[0], *(indent + line for line in lines[1:])])


def _unit(text: str) -> str:
    match = _INDENT.search(text)
    return "  " if match is None else match[1]


def _base_indent(text: str, at: int) -> str:
    """Return the indentation of the line with this place."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))].lstrip(BOM)


def _own_indent(text: str, at: int, otherwise: str) -> str:
    """Return the indentation of an element that begins its line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line if not line.strip(" \t") else otherwise
