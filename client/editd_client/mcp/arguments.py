"""Arguments of a tool call: any form with one plain meaning is accepted, others are refused.

Models send a list as a JSON string, one edit in place of a list, or a number in quotes. An unknown name
is never ignored: the refusal lists the valid names and the nearest.
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from editd.wire import messages
from editd.wire.codec import convert, plain
from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from editd_client.errors import EditdError

EDITS: dict[str, type[messages.Edit]] = {
    "replace": messages.Replace,
    "write": messages.Write,
    "patch": messages.Patch,
    "delete": messages.Delete,
    "move": messages.Move,
    "chmod": messages.Chmod,
}
"""The operations of `apply_edits`, by name."""

SYNONYMS = {
    "create": "write", "add": "write", "overwrite": "write", "insert": "replace", "edit": "replace",
    "update": "replace", "modify": "replace", "str_replace": "replace", "search_replace": "replace",
    "remove": "delete", "rm": "delete", "rename": "move", "mv": "move", "diff": "patch",
    "apply_patch": "patch", "old_string": "old", "old_str": "old", "old_text": "old", "search": "old",
    "new_string": "new", "new_str": "new", "new_text": "new", "file": "path", "file_path": "path",
    "filename": "path", "text": "content", "contents": "content", "destination": "to", "new_path": "to",
    "start": "start_line", "end": "end_line",
}  # fmt: skip
"""Other systems' names for editd's arguments, which models use."""

SIMILARITY = 0.6

Typed = TypeVar("Typed", bound=messages.Params)


def checked(tool: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of editd's own tool, in the form of its schema.

    Raises EditdError (`invalid_params`) for an unknown or missing name.
    """
    known = schema["properties"]
    arguments = {name: value for name, value in given.items() if value is not None}  # null means left out
    for name in arguments:
        if name not in known:
            hint = f"It takes {', '.join(known) or 'no argument'}."
            raise _refused(f"{tool} has no argument `{name}`.", name, hint=nearest(name, known) + hint)
    for name in schema.get("required", ()):
        if name not in arguments:
            raise _refused(f"{tool} needs the argument `{name}`.", name)
    return {name: _fitted(value, known[name]) for name, value in arguments.items()}


def edits_of(given: object, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the edits of a call, with operations and fields checked against `schema`, that of one edit.

    Raises EditdError (`invalid_params`) with the valid names and the nearest.
    """
    if not isinstance(given, list):
        raise _refused("`edits` must be a list of edits.", "edits", hint=_ops())
    return [_edit(edit, f"edits[{place}]", schema["properties"]) for place, edit in enumerate(given)]


def typed(arguments: Mapping[str, Any], kind: type[Typed]) -> Typed:
    """Return the arguments as that request. Raises EditdError (`invalid_params`) with the field's name."""
    try:
        return convert(arguments, kind)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$.")
        field = place.removesuffix("`")
        where = f" (argument `{field}`)" if field else ""
        raise _refused(f"{said}{where}.", field) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known name, and a space; empty if none is near."""
    names = list(known)
    near = [SYNONYMS[name]] if SYNONYMS.get(name) in names else get_close_matches(name, names, 1, SIMILARITY)
    return f"Did you mean `{near[0]}`? " if near else ""


def _edit(given: object, where: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    edit = _from_json(given)
    if not isinstance(edit, dict):
        raise _refused(f"`{where}` must be an object with `op`.", where, hint=_ops())
    op = edit.get("op")
    if not isinstance(op, str) or op not in EDITS:
        what = (
            f"There is no operation {op!r}, as in `{where}.op`."
            if "op" in edit
            else f"`{where}` has no `op`."
        )
        hint = nearest(op, EDITS) if isinstance(op, str) else ""
        raise _refused(what, f"{where}.op", hint=hint + _ops())
    fields = {field.encode_name: field.required for field in msgspec.structs.fields(EDITS[op])}
    shown = [name for name in properties if name in fields]
    # Null means left out, but a null `base` means that there is no such file.
    edit = {name: value for name, value in edit.items() if value is not None or name not in properties}
    for name in edit:
        if name != "op" and name not in fields:
            hint = f"{nearest(name, shown)}The operation {op} takes {', '.join(shown)}."
            raise _refused(f"`{where}`: {op} has no field `{name}`.", f"{where}.{name}", hint=hint)
    for name, is_required in fields.items():
        if is_required and name not in edit:
            hint = f"The operation {op} takes {', '.join(shown)}."
            raise _refused(f"`{where}`: {op} needs `{name}`.", f"{where}.{name}", hint=hint)
    return {name: _fitted(value, properties.get(name, {})) for name, value in edit.items()}


def _fitted(value: object, schema: Mapping[str, Any]) -> object:
    """Return the value in the type of its schema, if its text or its shape makes that clear."""
    match schema.get("type"), value:
        case "array", str():
            found = _from_json(value)
            is_text = found is value and schema.get("items", {}).get("type") == "string"
            return [found] if is_text or isinstance(found, dict) else found
        case "array", dict():
            return [value]
        case "integer", str() if re.fullmatch(r"-?\d{1,18}", value):
            return int(value)
        case "integer", float() if value.is_integer():
            return int(value)
        case "number", str() if re.fullmatch(r"-?\d{1,18}(\.\d{1,9})?", value):
            return float(value)
        case "boolean", "true" | "True" | "false" | "False":
            return value in ("true", "True")
        case _:
            return value


def _from_json(value: object) -> object:
    """Return the object or list that a text holds as JSON; otherwise the value itself."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return plain(json.loads(value), from_json=True)
        except (ValueError, RecursionError):
            return value
    return value


def _ops() -> str:
    return f"The operations are {', '.join(EDITS)}."


def _refused(message: str, field: str, *, hint: str = "") -> EditdError:
    return refusal("invalid_params", message, hint=hint, data={"field": field} if field else {})


def unknown_name(what: str, name: str, known: Sequence[str]) -> EditdError:
    """Return the refusal of an unknown name; `what` is its kind."""
    hint = f"{nearest(name, known)}There are {', '.join(known)}."
    return refusal("invalid_params", f"There is no {what} {name!r}.", hint=hint)
