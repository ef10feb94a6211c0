"""Conversion of values to and from the three encodings, and from values to typed messages, within limits.

A text with bytes that are not UTF-8 is a `str` with surrogate escapes here, `bin` in MessagePack
and `{"base64": "…"}` in JSON. A MessagePack `str` that is not UTF-8 is accepted too, because Neovim sends
such texts. Every incoming text can go out as the same bytes again.

Never lets an unchecked type through: `params_of` returns one of `messages.REQUESTS`. Input that is not a
request of this protocol is Malformed, and is answered.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import json
import math
import re
import threading
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import astuple

from editd.wire.errors import Id, Malformed, shorten
from editd.wire.limits import KIB, LARGE_JSON_BYTES, LARGE_VALUES, LIMITS
from editd.wire.messages import REQUESTS, Apply, Params, Replace, Undo, Write
from editd.wire.raw_text import parts_of, raw_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import Message


# The names and messages in a request: valid Unicode, and of a sensible length.
#
# They go into commit messages, the index and every `log`, and the engine relies on them. Paths and content
# may be any bytes, and are not checked here.

NAMES = frozenset({
    "actor", "session", "request_id", "name", "token", "changeset", "lease", "exec", "tx", "at", "from", "to",
    "since", "until", "branch", "author",
})  # fmt: skip
TEXTS = frozenset({"message", "command"})
GROUPS = frozenset({"filter"})  # maps with names in them


def check_words(message: Message, where: str) -> None:
    """Raise Malformed (invalid_params) for an invalid name or message in `message`."""
    for attribute, name in _words_of(type(message)):
        value = getattr(message, attribute)
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str):
                _check(word, f"{where}: `{name}`", is_name=name in NAMES)
        if name in GROUPS and value is not None and not isinstance(value, list):
            check_words(value, f"{where}: {name}")


def _check(value: str, field: str, *, is_name: bool) -> None:
    shortest, longest = (1, LIMITS.name_length_max) if is_name else (0, LIMITS.message_length_max)
    if not shortest <= len(value) <= longest:
        raise Malformed("invalid_params", f"{field} is between {shortest} and {longest} characters long.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Malformed("invalid_params", f"{field} is text, and these bytes are not UTF-8.") from None


@functools.cache
def _words_of(kind: type[Message]) -> tuple[tuple[str, str], ...]:
    """Return the attribute and the wire name of each field to check."""
    fields = ((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
    return tuple(pair for pair in fields if pair[1] in NAMES | TEXTS | GROUPS)


Typed = TypeVar("Typed")

_looked_at: set[Any] = set()
_looking = threading.Lock()

# ── In ─────────────────────────────────────────────────────────────────────────────────────────


def convert(value: Any, kind: type[Typed]) -> Typed:
    """Return the value as a `kind`, from any thread. Raises ValidationError, UnicodeEncodeError.

    msgspec 0.22 reads a type's fields at its first use. If another thread uses the type meanwhile, the
    process ends by a segmentation fault. So only one thread at a time makes a first use.
    """
    if kind not in _looked_at:
        with _looking:
            msgspec.json.Decoder(kind)
            _looked_at.add(kind)
    return msgspec.convert(value, kind)


def params_of(method: str, params: dict[str, Any]) -> Params:
    """Return the typed parameters of `method`; Malformed: method_not_found or invalid_params."""
    kind = REQUESTS.get(method)
    if kind is None:
        raise Malformed(
            "method_not_found",
            f"There is no method {shorten(method)!r}. This version has {', '.join(REQUESTS)}.",
        )
    try:
        typed: Params = convert(params, kind)
    except msgspec.ValidationError as error:
        raise Malformed("invalid_params", f"{method}: {shorten(str(error))}.") from None
    except UnicodeEncodeError:
        # msgspec needs UTF-8 to compare a key or a choice.
        raise Malformed(
            "invalid_params", f"{method}: a key or a choice in its parameters is not UTF-8."
        ) from None
    check_words(typed, method)
    return typed


COMMON_BYTES_MAX = 1024 * 1024  # of a request that `decode_common` takes: no array can be over its limit
_HEAD_BYTES = 20  # of a request: its id as a number, and its method
COUNT_MAX = 2**31  # of a Replace, or the number of a transaction; more is left to `params_of`
_APPLY = msgspec.msgpack.Decoder(tuple[Literal[0], int | str, Literal["apply"], tuple[Apply]])
_UNDO = msgspec.msgpack.Decoder(tuple[Literal[0], int | str, Literal["undo"], tuple[Undo]])


def decode_common(data: bytes) -> tuple[int | str, Params] | None:
    """Return the id and the parameters if `data` is one of the commonest requests, as MessagePack; else None.

    That is one whole `apply` of writes and replacements, or one `undo` of a transaction, valid, in texts of
    UTF-8. One typed decoding takes a tenth of the time of `params_of`, which gives the same result, and the
    errors of all other requests.
    """
    decoder = _UNDO if b"\xa4undo" in data[:_HEAD_BYTES] else _APPLY
    try:
        _, call_id, _, (params,) = decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if params.wait is not UNSET:
        return None  # a number
    if isinstance(params, Undo):
        if params.last is not None or params.filter is not None or params.hunks is not UNSET:
            return None  # numbers
        if isinstance(params.tx, int) and not 0 <= params.tx < COUNT_MAX:
            return None
    else:
        if params.proposal is not UNSET:
            return None  # a number
        for edit in params.edits:
            if not (type(edit) is Write or (type(edit) is Replace and edit.count < COUNT_MAX)):
                return None
    try:
        check_words(params, params.method)
    except Malformed:
        return None
    return call_id, params


def decode_json(body: bytes | bytearray) -> Any:
    """Decode the JSON in `body`. Raises Malformed: parse_error, or too_large for too many values.

    The error has the id of the request, if that can be read.
    """
    _check_values(body)
    with _convert_json_errors(body):
        return msgspec.json.decode(body)


def decode_json_in_parts(body: bytes | bytearray) -> Any:
    """Decode a large request as `decode_json` does, with its `params` as `plain` returns them.

    msgspec keeps Python's lock while it decodes. This function decodes small parts one after the other, so
    that other threads run in between.
    """
    _check_values(body)
    with _convert_json_errors(body):
        try:
            members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:  # no object
            return msgspec.json.decode(body)
        return {
            name: _plain_in_parts(raw, 0) if name == "params" else msgspec.json.decode(raw)
            for name, raw in members.items()
        }


_PART_BYTES = 64 * KIB  # of JSON that is decoded at once
_TEXT_PART_BYTES = 1024 * KIB  # of a text
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")  # its second half must follow


def _plain_in_parts(raw: msgspec.Raw, depth: int) -> Any:
    body = memoryview(raw)
    first = bytes(body[:1])
    if first == b'"' and len(body) > _TEXT_PART_BYTES:
        return _text_in_parts(body[1:-1])
    if len(body) <= _PART_BYTES or first not in (b"[", b"{"):
        return plain(msgspec.json.decode(raw), from_json=True, depth=depth)
    if depth == LIMITS.nesting_max:
        raise too_deep()
    if first == b"[":
        return [_plain_in_parts(item, depth + 1) for item in msgspec.json.decode(raw, type=list[msgspec.Raw])]
    members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    if members.keys() == {"base64"}:
        return plain({"base64": msgspec.json.decode(members["base64"])}, from_json=True, depth=depth)
    return {name: _plain_in_parts(item, depth + 1) for name, item in members.items()}


def _text_in_parts(body: memoryview) -> str:
    """Decode a long JSON text, without its quotes. No part ends within an escape or a character."""
    parts: list[str] = []
    while body:
        part = bytes(body[:_TEXT_PART_BYTES])
        if len(part) < len(body):
            part = part[: _end_of_part(part, body[len(part)])]
        parts.append(msgspec.json.decode(b'"%b"' % part, type=str))
        body = body[len(part) :]
    return "".join(parts)


def _end_of_part(part: bytes, following: int) -> int:
    """Return the length of the longest beginning of `part` that is whole before the byte `following`."""
    end = len(part)
    if following & 0xC0 == 0x80:  # within a character of UTF-8, whose first byte is among the last three
        while part[end - 1] & 0xC0 == 0x80:
            end -= 1
        return end - 1
    escape = part.rfind(b"\\", max(0, end - 5))
    if escape >= 0 and _is_escape(part, escape):
        is_whole = escape + 2 <= end and part[escape + 1] != ord("u")
        end = end if is_whole else escape
    if _HIGH_SURROGATE.search(part, max(0, end - 6), end) and _is_escape(part, end - 6):
        end -= 6
    return end


def _is_escape(part: bytes, at: int) -> bool:
    """Return whether the backslash at `at` begins an escape, and does not end one."""
    return (at + 1 - len(part[: at + 1].rstrip(b"\\"))) % 2 == 1


@contextlib.contextmanager
def _convert_json_errors(body: bytes | bytearray) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        reason = 'it is not UTF-8. Send other bytes as {"base64": "…"}'
    except RecursionError:
        reason = "it is nested too deep"
    except msgspec.DecodeError as error:
        reason = shorten(str(error))
        if _HALF_CHARACTER.search(body):
            reason += ". Send both halves of a surrogate pair, or the character itself"
    else:
        return
    raise Malformed("parse_error", f"The message cannot be read as JSON: {reason}.", to=id_in(body))


def id_in(body: bytes | bytearray) -> Id | None:
    """Return the id of a request whose JSON `decode_json` refuses, or None if it cannot be read.

    Python's parser accepts texts that are not Unicode. If that fails too, or would take long, only an id
    before the parameters is certain to be the request's.
    """
    if is_large_json(body):
        return _first_id(body)
    try:
        message = json.loads(body.decode("utf-8", "surrogateescape"), strict=False)
    except (ValueError, RecursionError):
        return _first_id(body)
    call_id = message.get("id") if isinstance(message, dict) else None
    if isinstance(call_id, str):
        return call_id if _is_utf8(call_id) else None
    return call_id if is_id(call_id) else None


def _first_id(body: bytes | bytearray) -> Id | None:
    """Return the id of a request that has only the version and the method before it, or None."""
    match = _ID_FIRST.match(body)
    return None if match is None else msgspec.json.decode(match[1], type=int | str)


def is_id(value: object) -> TypeGuard[Id]:
    """Return whether the value is an id of a request."""
    return isinstance(value, int | str) and not isinstance(value, bool)


_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
_ID_FIRST = re.compile(
    rb'\s*\{(?:\s*"(?:jsonrpc|method)"\s*:\s*"[\w./$-]*"\s*,)*'
    rb'\s*"id"\s*:\s*(-?(?:0|[1-9][0-9]{0,17})|"[ !#-\[\]-~]{0,1000}")\s*[,}]',
    re.ASCII,
)


def is_large_json(body: bytes | bytearray) -> bool:
    """Return whether decoding takes so long that it is done off the event loop."""
    if len(body) <= LARGE_VALUES:
        return False
    return len(body) > LARGE_JSON_BYTES or sum(map(body.count, (b",", b"[", b"{"))) > LARGE_VALUES


def too_deep() -> Malformed:
    return Malformed("invalid_params", f"The message is nested more than {LIMITS.nesting_max} deep.")


def too_many_values(*, fatal: bool, to: Id | None = None) -> Malformed:
    return Malformed(
        "too_large",
        f"The arrays and maps of a message have at most {LIMITS.values_max} elements in all."
        " Send the edits in several requests.",
        fatal=fatal,
        to=to,
    )


def _check_values(body: bytes | bytearray) -> None:
    if _has_more_values(body, LIMITS.values_max):
        raise too_many_values(fatal=False, to=_first_id(body))


_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def _has_more_values(body: bytes | bytearray, most: int) -> bool:
    """Return whether JSON has more than `most` elements, by its commas and brackets outside of strings."""
    if len(body) <= most:
        return False
    for text in (body, b""):
        if sum(map((text or _STRINGS.sub(b"", body)).count, (b",", b"[", b"{"))) <= most:
            return False
    return True


_AS_IS = frozenset({str, bool, type(None)})


def plain(value: Any, *, from_json: bool, depth: int = 0) -> Any:
    """Return `value` with every text as a `str`. Raises Malformed (invalid_params) for other types."""
    kind = type(value)
    if kind in _AS_IS:
        return value
    if kind is int or kind is float:
        return _number(value)
    if kind is bytes:
        return text_of(value)
    if depth == LIMITS.nesting_max:
        raise too_deep()
    if kind is list:
        return [
            item if type(item) in _AS_IS else plain(item, from_json=from_json, depth=depth + 1)
            for item in value
        ]
    if kind is dict:
        if from_json and len(value) == 1 and (raw := _from_base64(value.get("base64"))) is not None:
            return text_of(raw)
        return {
            key if type(key) is str else _key(key): (
                item if type(item) in _AS_IS else plain(item, from_json=from_json, depth=depth + 1)
            )
            for key, item in value.items()
        }
    raise Malformed("invalid_params", "MessagePack's extension types are not part of this protocol.")


def _number(value: float) -> float:
    """Check a number: JSON has larger integers, and MessagePack has infinity, but no field takes them."""
    is_countable = -(2**63) <= value < 2**63 if isinstance(value, int) else math.isfinite(value)
    if not is_countable:
        raise Malformed("invalid_params", "Numbers are finite, and integers fit into 64 bits with a sign.")
    return value


def _key(key: Any) -> str:
    if isinstance(key, bytes):
        return text_of(key)
    raise Malformed("invalid_params", "The keys of a map are strings.")


_BASE64_PART = 256 * KIB  # of a text that is decoded at once; a multiple of four


def _from_base64(value: Any) -> bytes | None:
    if not isinstance(value, str):
        return None
    parts: list[bytes] = []
    try:
        for start in range(0, len(value) or 1, _BASE64_PART):
            part = value[start : start + _BASE64_PART]
            if "=" in part and start + _BASE64_PART < len(value):
                return None  # the padding is the end
            parts.append(base64.b64decode(part, validate=True))
    except (binascii.Error, ValueError):
        return None
    return b"".join(parts)


# ── Out ────────────────────────────────────────────────────────────────────────────────────────


def encode_msgpack(value: Any) -> bytes:
    """Return the MessagePack of `value`: plain values and messages, in any nesting."""
    try:
        return msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return msgspec.msgpack.encode(_sendable(value, to_json=False))


def encode_json(value: Any) -> bytes:
    """Return the JSON of `value`, on one line; a float that is not a number becomes null."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_sendable(value, to_json=True))


def is_large_answer(answer: object) -> bool:
    """Return whether encoding takes so long that it is done off the event loop, by values and texts."""
    left = ANSWER_BYTES
    values = [answer]
    while values:
        value = values.pop()
        if isinstance(value, _TEXTS):
            left -= len(value)
        elif isinstance(value, Struct):
            left -= VALUE_BYTES * len(value.__struct_fields__)
            values += astuple(value)
        elif isinstance(value, _CONTAINERS):
            left -= VALUE_BYTES * len(value)
            if left >= 0:
                values += value.values() if isinstance(value, dict) else value
        if left < 0:
            return True
    return False


ANSWER_BYTES = 256 * KIB  # of an answer that the loop encodes itself, which takes about a millisecond
VALUE_BYTES = 16  # of each value, beside the length of a text
_TEXTS, _CONTAINERS = (str, bytes), (list, tuple, dict)  # a union in `isinstance` is made anew each time


def _sendable(value: Any, *, to_json: bool) -> Any:
    """Return `value` with bytes for texts that are not UTF-8, and digits for integers beyond 64 bits."""
    return _replace(msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True), to_json)


def _replace(value: Any, to_json: bool) -> Any:
    match value:
        case dict():
            return {_sendable_key(key): _replace(item, to_json) for key, item in value.items()}
        case list() | tuple():
            return [_replace(item, to_json) for item in value]
        case str() if not _is_utf8(value):
            raw = _sendable_raw(value)
            return {"base64": base64.b64encode(raw).decode("ascii")} if to_json else raw
        case int() if not to_json and not -(2**63) <= value < 2**64:
            return str(value)
        case _:
            return value


def _sendable_key(key: str) -> str:
    """Return a key as UTF-8: JSON has no bytes for keys, so they are written as escapes."""
    return key if _is_utf8(key) else key.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or all(part.encode() is not None for part in parts_of(text))
    except UnicodeEncodeError:
        return False


def _sendable_raw(text: str) -> bytes:
    try:
        return raw_of(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
