"""wire.codec: values to and from the three encodings."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editd.wire import codec, messages
from editd.wire.codec import decode_json, decode_json_in_parts, encode_json, encode_msgpack, params_of, plain
from editd.wire.errors import Malformed
from editd.wire.limits import LIMITS

BYTES = st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
TEXTS = st.one_of(st.text(), BYTES)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), FINITE, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=12,
)


# Eight threads that meet a type for the first time at once, which ends some two processes of five where
# they call msgspec itself.
AT_ONCE = """
import sys, threading
from editd.wire.codec import convert
from editd.wire.messages import ApplyResult
def first():
    start.wait()
    convert({"transaction": None, "files": []}, ApplyResult)
sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_may_meet_a_type_for_the_first_time_at_once() -> None:
    children = [subprocess.Popen([sys.executable, "-c", AT_ONCE]) for _ in range(8)]
    assert [child.wait() for child in children] == [0] * 8


def unpacked(raw: bytes) -> Any:
    return plain(msgpack.unpackb(raw, unicode_errors="surrogateescape"), from_json=False)


def read(raw: bytes) -> Any:
    return plain(decode_json(raw), from_json=True)


@given(PLAIN)
def test_a_value_comes_back_from_messagepack_as_it_went(value: Any) -> None:
    assert unpacked(encode_msgpack(value)) == value


@given(st.one_of(TEXTS, st.lists(TEXTS), st.dictionaries(st.text(), TEXTS, min_size=2)))
def test_a_text_comes_back_from_json_as_it_went(value: Any) -> None:
    assert read(encode_json(value)) == value


def test_a_text_that_is_not_utf8_is_bin_in_messagepack_and_base64_in_json() -> None:
    assert msgpack.unpackb(encode_msgpack("caf\udce9")) == b"caf\xe9"
    assert json.loads(encode_json("caf\udce9")) == {"base64": "Y2Fm6Q=="}


def test_a_messagepack_string_that_is_not_utf8_is_taken_as_neovim_sends_it() -> None:
    assert unpacked(b"\xa4caf\xe9") == "caf\udce9"


@pytest.mark.parametrize(
    "value",
    [
        {"base64": "Y2Fm6Q"},
        {"base64": "Y2Fm6Q==", "path": "a"},
        {"base64": 7},
        {"base64": "é"},
        {"Base64": "Y2Fm6Q=="},
    ],
)
def test_an_object_is_bytes_only_if_it_is_exactly_valid_base64(value: Any) -> None:
    assert read(json.dumps(value).encode()) == value


def test_base64_is_a_json_form_only() -> None:
    assert plain({"base64": "Y2Fm6Q=="}, from_json=False) == {"base64": "Y2Fm6Q=="}


@pytest.mark.parametrize(
    "value", [2**70, -(2**70), math.nan, math.inf, "\ud800", {"a\udcff": 1}, b"\xff", {1: 2}]
)
def test_a_value_that_an_encoding_does_not_have_is_sent_in_some_form(value: Any) -> None:
    error = messages.Error(code=1, name="stale", message="", data={"value": value, "path": "\udcff"})
    assert msgpack.unpackb(encode_msgpack(error), strict_map_key=False)["data"]["path"] == b"\xff"
    assert json.loads(encode_json(error))["data"]["path"] == {"base64": "/w=="}


def test_nesting_ends_at_its_limit() -> None:
    value: Any = 0
    for _ in range(LIMITS.nesting_max):
        value = [value]
    assert plain(value, from_json=False) == value
    with pytest.raises(Malformed, match="nested"):
        plain([value], from_json=False)


@pytest.mark.parametrize(
    "value",
    [
        {1: 2},
        {None: 2},
        2**63,
        10**400,
        -(2**63) - 1,
        math.nan,
        math.inf,
        msgpack.ExtType(5, b""),
        msgpack.Timestamp(0),
    ],
)
def test_what_the_protocol_knows_not_is_refused(value: Any) -> None:
    with pytest.raises(Malformed) as refusal:
        plain([value], from_json=False)
    assert refusal.value.error.name == "invalid_params"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'"\xff"', b"[" * 100_000, b"NaN", b'"\\ud800"', b"{} {}", b"1e999", b"nul"]
)
def test_what_is_no_json_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(Malformed) as refusal:
        decode_json(body)
    assert refusal.value.error.name == "parse_error"
    assert not refusal.value.fatal


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("apply", {"edits": [], "bas": 1}, "`bas`"),
        ("apply", {"edits": [{"op": "write", "path": "a", "content": "", "fource": True}]}, "`fource`"),
        ("apply", {"edits": [{"op": "wrote"}]}, "'wrote'"),
        ("apply", {"edits": [{"path": "a"}]}, "`op`"),
        ("apply", {}, "`edits`"),
        ("apply", {"edits": {}}, "`$.edits`"),
        ("read", {"path": 7}, "`$.path`"),
        ("undo", {"on_conflict": "perhaps"}, "'perhaps'"),
        ("undo", {"dry_run": 1}, "`$.dry_run`"),
        ("undo", {"on_conflict": "\udcff"}, "not UTF-8"),
        ("undo", {"\udcff": 1}, "not UTF-8"),
    ],
)
def test_params_that_do_not_fit_are_refused_and_the_refusal_names_what(
    method: str, params: dict[str, Any], named: str
) -> None:
    with pytest.raises(Malformed, match=r"^" + method) as refusal:
        params_of(method, params)
    assert refusal.value.error.name == "invalid_params"
    assert named in refusal.value.error.message


def test_a_method_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(Malformed, match=r"'proposal\.lost'.* hello, status,") as refusal:
        params_of("proposal.lost", {})
    assert refusal.value.error.name == "method_not_found"


def test_a_refusal_says_back_only_so_much() -> None:
    for method, params in (("x" * 10_000, {}), ("read", {"x" * 10_000: 1})):
        with pytest.raises(Malformed) as refusal:
            params_of(method, params)
        assert len(refusal.value.error.message) < LIMITS.text_length_max + 1000


def kinds(top: type[messages.Message]) -> list[type[messages.Message]]:
    return [kind for sub in top.__subclasses__() for kind in (sub, *kinds(sub)) if kind.__struct_fields__]


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a wire type, by what msgspec says of it."""
    return _values(msgspec.inspect.type_info(kind))


def _values(info: Any) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.StrType():
            return TEXTS
        case msgspec.inspect.IntType():
            return st.integers(-(2**63), 2**63 - 1)
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.AnyType():
            return st.one_of(st.none(), st.integers(0, 9), st.text())
        case msgspec.inspect.LiteralType():
            return st.sampled_from(info.values)
        case msgspec.inspect.ListType():
            return st.lists(_values(info.item_type), max_size=2)
        case msgspec.inspect.DictType():
            return st.dictionaries(st.text(max_size=3), _values(info.value_type), max_size=2)
        case msgspec.inspect.UnionType():
            return st.one_of([_values(item) for item in info.types])
        case msgspec.inspect.StructType():
            fields = {field.name: _field(field) for field in info.fields}
            return st.fixed_dictionaries(fields).map(lambda made: info.cls(**made))
        case _:
            raise AssertionError(info)


def _field(field: msgspec.inspect.Field) -> st.SearchStrategy[Any]:
    return (
        _values(field.type) | st.just(msgspec.UNSET)
        if field.default is msgspec.UNSET
        else _values(field.type)
    )


@pytest.mark.parametrize("kind", kinds(messages.Message), ids=lambda kind: kind.__name__)
@settings(max_examples=settings().max_examples // 3)  # 3 in the gate, for each of 140 kinds
@given(data=st.data())
def test_every_message_comes_back_from_every_encoding_as_it_went(
    kind: type[messages.Message], data: st.DataObject
) -> None:
    message = data.draw(values_of(kind))
    assert msgspec.convert(unpacked(encode_msgpack(message)), kind) == message
    assert msgspec.convert(read(encode_json(message)), kind) == message


def decoded_in_one(body: bytes) -> Any:
    value = decode_json(body)
    if isinstance(value, dict) and "params" in value:
        value["params"] = plain(value["params"], from_json=True)
    return value


def result_of(decode: Any, body: bytes) -> Any:
    """Return the value, or the name of the error: its text may name another place."""
    try:
        return decode(body)
    except Malformed as malformed:
        return malformed.error.name


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), FINITE, st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(), inner, max_size=4),
        st.fixed_dictionaries({"base64": st.one_of(inner, st.sampled_from(["", "/w==", "eA==", "not"]))}),
    ),
    max_leaves=12,
)


@given(JSON_VALUES, st.binary(max_size=3), st.integers(0, 100))
def test_json_in_parts_is_decoded_as_in_one(value: Any, spoiling: bytes, at: int) -> None:
    body = json.dumps({"id": 1, "method": "x", "params": value}).encode()
    at = min(at, len(body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_PART_BYTES", 8)
        patch.setattr(codec, "_TEXT_PART_BYTES", 16)
        for one in (body, body[:at] + spoiling + body[at + len(spoiling) :], json.dumps(value).encode()):
            assert result_of(decode_json_in_parts, one) == result_of(decoded_in_one, one)


TEXT_PARTS = (
    "\\\\",
    "\\n",
    "\\u0001",
    "\\ud83d\\ude00",
    "\u00e9",
    "\U0001f600",
    "a",
    '\\"',
    "\\/",
    "\\\\u",
    "d83d",
)


@given(st.lists(st.sampled_from(TEXT_PARTS)), st.integers(13, 40))
def test_a_long_json_text_is_cut_within_no_escape_and_no_character(texts: list[str], part: int) -> None:
    body = f'"{"".join(texts)}"'.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_TEXT_PART_BYTES", part)
        assert codec._text_in_parts(memoryview(body)[1:-1]) == json.loads(body)


@pytest.mark.parametrize("text", ["\\u0001", "\\ud83d\\ude00", "\\\\u0001", "\\\\\\ud83d\\ude00"])
def test_a_long_json_text_is_cut_at_each_place_of_an_escape(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "_TEXT_PART_BYTES", 13)
    for before in range(27):
        body = f'"{"a" * before}{text}{"b" * 30}"'.encode()
        assert codec._text_in_parts(memoryview(body)[1:-1]) == json.loads(body), before


def test_json_in_parts_has_the_same_limit_of_nesting() -> None:
    nested = b"[" * (LIMITS.nesting_max + 1) + b'"' + b"x" * 100_000 + b'"' + b"]" * (LIMITS.nesting_max + 1)
    deep = b'{"params":' + nested + b"}"
    assert result_of(decode_json_in_parts, deep) == result_of(decoded_in_one, deep) == "invalid_params"
