"""The request methods of the clients, made from the messages of the protocol.
Each message of parameters gives one function: its fields are the parameters, its docstring is the function's,
and `ANSWERS` has its result. What a Python caller writes in another way is in the tables of this module.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parents[2]
FILE = TOP / "client" / "editd_client" / "requests.py"

HIDDEN = {"hello": {"protocol", "errors", "seen"}, "subscribe": {"notify"}}
"""Fields that the client itself fills in."""

POSITIONAL = {
    "hello": ["client", "session", "token"],
    "settle": ["timeout"],
    "document.hold": ["path", "base", "content"],
    "undo": ["tx"],
    "diff": ["from_", "to"],
    "session.close": ["session"],
    "exec.end": ["exec", "status"],
    "claim": ["paths", "since", "command"],
    "proposal.check": ["proposal", "view", "name"],
    "remote.land": ["tx"],
    "forget": ["paths"],
}
"""Parameters that a caller may give by position, where these are not just those without a default."""

ON_A_LINE_MAX = 3  # parameters

RENAMED = {
    ("exec.end", "exec"): "name", ("exec.end", "all"): "every", ("exec.begin", "call"): "tool_call",
    ("turn.note", "call"): "tool_call",
}  # fmt: skip

CONVERTED = {
    ("hello", "client"): ("str | None = None", "{0} or current_actor()"),
    ("undo", "hunks"): (
        "Mapping[str, Sequence[int]] | None = None", "UNSET if {0} is None else hunks_by_path({0})",
    ),
}  # fmt: skip
"""The type of a parameter, and the field made from it, where they differ."""

HEAD = '''\
"""The requests of the protocol: the parameters of each method, and the type of its result.

Made by tests/generated from `editd.wire.messages`: change that, not this. One function for each
method, with its name (`session.open` is `session_open`). Sends nothing: `Client` and `AsyncClient` inherit
`RequestMethods`, so that both have the same methods. They raise EditdError for a refusal, and Unreachable if
no daemon answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET

from editd.wire import messages
from editd_client.locate import current_actor
from editd_client.prepared_call import (
    PreparedCall,
    call,
    call_without_result,
    hunks_by_path,
    one_or_list,
    optional,
    request_method,
    to_list,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
'''


def text() -> str:
    """Return the text of the module."""
    parts = [HEAD, *map(_function, messages.ANSWERS), "\n".join(_methods())]
    return subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"],
        input="\n\n".join(parts), capture_output=True, check=True, text=True, cwd=TOP,
    ).stdout  # fmt: skip


def _function(kind: type[messages.Params]) -> str:
    method, answer = kind.method, messages.ANSWERS[kind]
    result = "None" if answer is messages.Empty else f"messages.{answer.__name__}"
    fields = {one.name: one for one in msgspec.structs.fields(kind) if one.name not in HIDDEN.get(method, ())}
    required = [name for name, one in fields.items() if one.required]
    positional = POSITIONAL.get(method, required)
    named = [name for name in fields if name not in positional]
    parameters = [_parameter(kind, fields[name]) for name in positional]
    if named:
        parameters += ["*", *(_parameter(kind, fields[name]) for name in named)]
    values = ", ".join(f"{name}={_value(kind, one)}" for name, one in fields.items())
    asked = f"messages.{kind.__name__}({values})"
    body = f"call({asked}, {result})" if answer is not messages.Empty else f"call_without_result({asked})"
    comma = "," if len(parameters) > 3 else ""
    lines = [f"def {_name(method)}(", *(f"    {one}," for one in parameters), f") -> PreparedCall[{result}]:"]
    signature = (
        "\n".join(lines)
        if comma or any("#" in one for one in parameters)
        else (f"def {_name(method)}({', '.join(parameters)}) -> PreparedCall[{result}]:")
    )
    return f"{signature}\n{textwrap.indent(_docstring(kind), '    ')}\n    return {body}"


def _listing(parameters: list[str]) -> str:
    """Return parameters as they stand in a signature: each in its line if they are many."""
    if len(parameters) <= ON_A_LINE_MAX:
        return ", ".join(parameters)
    return "\n" + "".join(f"    {one},\n" for one in parameters)


def _name(method: str) -> str:
    return method.replace(".", "_")


def _docstring(kind: type[messages.Params]) -> str:
    """Return the docstring, with the names that Python code has for methods and fields."""
    text = inspect.cleandoc(kind.__doc__ or "")
    for method in messages.REQUESTS:
        if "." in method:
            text = text.replace(f"`{method}`", f"`{_name(method)}`")
    for one in msgspec.structs.fields(kind):
        if one.name != one.encode_name:
            text = text.replace(f"`{one.encode_name}`", f"`{one.name}`")
    end = '\n"""' if "\n" in text else '"""'
    return f'"""{text}{end}'


def _parameter(kind: type[messages.Params], one: msgspec.structs.FieldInfo) -> str:
    method = kind.method
    name = RENAMED.get((method, one.name), one.name)
    if (method, one.name) in CONVERTED:
        return f"{name}: {CONVERTED[method, one.name][0]}"
    text, default = _annotation(kind, one.name), ""
    if "UnsetType" in text:
        text = text.replace(" | UnsetType", "").replace(" | None", "") + " | None"
        default = " = None"
    elif one.default_factory is not msgspec.NODEFAULT:
        default = " = ()"
    elif one.default is not msgspec.NODEFAULT:
        default = f" = {one.default!r}".replace("'", '"')
    return f"{name}: {_qualified(text)}{default}"


def _annotation(kind: type[messages.Params], field: str) -> str:
    """Return the annotation of a field as the messages write it."""
    own = (inspect.get_annotations(owner) for owner in kind.__mro__)
    return str(next(fields[field] for fields in own if field in fields))


def _qualified(annotation: str) -> str:
    """Return an annotation of the messages as a caller's, who may give any sequence for a list."""
    names = re.sub(r'(?<!")\b[A-Z]\w+\b', _qualified_name, annotation)
    return names.replace("list[", "Sequence[")


def _qualified_name(name: re.Match[str]) -> str:
    return name[0] if name[0] in ("None", "Literal", "Any") else f"messages.{name[0]}"


def _value(kind: type[messages.Params], one: msgspec.structs.FieldInfo) -> str:
    name = RENAMED.get((kind.method, one.name), one.name)
    if (kind.method, one.name) in CONVERTED:
        return CONVERTED[kind.method, one.name][1].format(name)
    annotation = _annotation(kind, one.name)
    if "UnsetType" in annotation:
        return f"optional({name})"
    if re.match(r"\w+ \| list\[", annotation):
        return f"one_or_list({name})"
    if annotation.startswith("list["):
        return f"to_list({name})" if "None" in annotation else f"list({name})"
    return name


def _methods() -> Iterator[str]:
    yield "class RequestMethods:"
    yield '    """The methods of both clients that are one request each."""'
    yield ""
    for method in messages.REQUESTS:
        if method != "subscribe":  # the clients return its events
            yield f"    {_name(method)} = request_method({_name(method)})"
