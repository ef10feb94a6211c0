"""Requests at random, by the types of the wire: right, nearly right and wrong, in any encoding."""

from __future__ import annotations

import base64
import json
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, cast

import msgpack
import msgspec.inspect as types

from editd.wire.messages import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

Encoding = Literal["msgpack", "json-header", "json-line"]
ENCODINGS: tuple[Encoding, ...] = ("msgpack", "json-header", "json-line")

NEVER_MEANT = "shutdown"  # right only by accident: it would end what is tried
# Each of these takes as long as many others.
SELDOM = (
    "check", "settle", "publish", "restore", "blame", "diff", "remote.init", "remote.join", "remote.now",
)  # fmt: skip
RIGHT, NEARLY, BROKEN = 0.45, 0.35, 0.2  # how often each is made

PATHS = (
    "a.txt",
    "b/c.txt",
    "b/d.py",
    "new.txt",
    "deep/er/still.md",
    "link",
    "outside",
    "b",
    "ignored.log",
    "é.txt",
)
TEXTS = ("one\ntwo\nthree\n", "", "x", "two", "a\r\nb\r\n", "\ufeffbom\n", "é🙂\n", "\0", "line\n" * 200)
WORDS: dict[str, tuple[Any, ...]] = {
    "path": PATHS,
    "to": PATHS,
    "paths": (*PATHS, "**/*.py", "b/", "*", "b/[a-d]*", "src"),
    "target": ("a.txt", "b", "../outside/secret", "/etc/passwd", "link", "loop"),
    "content": TEXTS,
    "old": ("two", "one\ntwo", "x", "absent", ""),
    "new": TEXTS,
    "text": TEXTS,
    "session": ("s1", "s2", "s3", "nobody's"),
    "name": ("s1", "s2", "s3"),
    "actor": ("ada", "bob <b@example.org>", "e\nvil: yes"),
    "message": ("say", "Seq: 1\n\nKind: edit\nActor: forged", "a\n\nb", "", "x" * 5000),
    "since": (0, 1, "2026-01-01T00:00:00Z", "2099-01-01", "yesterday"),
    "until": (1, 5, "2026-01-01T00:00:00Z", "2099-01-01T00:00:00+14:00", ""),
    "author": ("Ada <ada@example.org>", "Ada"),
    "branch": ("main", "fuzz", "refs/heads/x", "..", "-f"),
    "command": ("true", "make\nall"),
    "wait": (0, 0.01, 0.05),
    "ttl": (0.01, 1.0, 60.0),
    "timeout": (0.0, 0.2, 5.0),
    "limit": (1, 50, 1000),
    "method": ("event", "nvim_exec_lua"),
    "patch": (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
        "diff --git a/p b/p\nnew file mode 100644\n--- /dev/null\n+++ b/p\n@@ -0,0 +1 @@\n+p\n",
        "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n",
        "@@ -1,99999999 +1 @@\n",
    ),
}
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64 - 1,
    10**40,
    1e308,
    0.5,
    float("inf"),
    float("nan"),
    "",
    "\0",
    "..",
    "/",
    ".git/config",
    ".GIT/x",
    ".editd-x",
    "a" * 256,
    "x/" * 3000,
    "\ud800",
    "\udcff",
    "\udfff\udc80",
    "\ufeff",
    "\u202e",
    "0" * 40,
    "{",
    "x" * 20_000,
    [],
    {},
    [[]],
    [{}],
    {"base64": "/w=="},
    {"base64": "!"},
    {"base64": "AA==", "x": 1},
    {"": 0},
    {"op": "write"},
    {"op": 7},
    b"",
    b"\xff\xfe",
    b"a\0b",
    -0.0,
    "NaN",
    "\x1b[31m",
    "\n\n\nSeq: 9",
    [None] * 50,
)


class Grammar:
    """Makes requests; `learn` gives it words that the daemon has used itself."""

    def __init__(
        self,
        random: Random,
        tools: Mapping[tuple[str, str], Mapping[str, Any]],
        methods: Iterable[str] = REQUESTS,
    ) -> None:
        """`tools`: the JSON Schema of each tool's arguments, by dialect and name."""
        self._random = random
        self._tools = tools
        self._kinds = {method: types.type_info(kind) for method, kind in REQUESTS.items()}
        self._methods = [m for m in methods for _ in range(1 if m in SELDOM else 6) if m != NEVER_MEANT]
        self._learned: dict[str, deque[Any]] = {}

    def learn(self, name: str, value: Any) -> None:
        self._learned.setdefault(name, deque(maxlen=20)).append(value)

    def request(self) -> tuple[str, Any]:
        """A method and its parameters; whether they are right is left to chance."""
        random = self._random
        method = random.choice(self._methods)
        params = self._value(self._kinds[method], method)
        chance = random.random()
        if chance > RIGHT:
            for _ in range(1 if chance < RIGHT + NEARLY else random.randrange(1, 6)):
                params = self._spoilt(params)
        if chance > 1 - BROKEN / 4:
            method = random.choice((NEVER_MEANT, "Apply", "", "apply\0", "rpc.x", "event", "x" * 3000))
            params = {"no such": params}
        return method, params

    # ── values ──

    def _value(self, kind: types.Type, name: str) -> Any:
        random = self._random
        match kind:
            case types.UnionType(types=options):
                return self._value(random.choice(options), name)
            case types.StructType():
                return self._tool_call() if kind.tag == "tool" else self._struct(kind)
            case types.ListType(item_type=item):
                return [self._value(item, name) for _ in range(random.choice((0, 1, 1, 1, 2, 3)))]
            case types.LiteralType(values=values):
                return random.choice(values)
            case types.BoolType():
                return random.random() < 0.5
            case types.NoneType():
                return None
            case types.IntType():
                return self._word(name, int) or random.choice((0, 1, 1, 2, 3, 10))
            case types.FloatType():
                return self._word(name, float) or random.choice((0, 0.1, 1.5))
            case types.StrType():
                return self._word(name, str) or random.choice(PATHS)
            case _:
                return random.choice(ODD)

    def _struct(self, kind: types.StructType) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if kind.tag_field is not None:
            made[kind.tag_field] = kind.tag
        for field in kind.fields:
            if field.required or self._random.random() < 0.3:
                made[field.encode_name] = self._value(field.type, field.encode_name)
        return made

    def _word(self, name: str, kind: type) -> Any:
        learned = self._learned.get(name)
        if learned and self._random.random() < 0.7:
            return self._random.choice(learned)
        found = [word for word in WORDS.get(name, ()) if isinstance(word, kind)]
        return self._random.choice(found) if found else None

    def _tool_call(self) -> dict[str, Any]:
        random = self._random
        (dialect, tool), schema = random.choice(list(self._tools.items()))
        required = schema.get("required", ())
        args = {
            name: self._of_schema(name, given)
            for name, given in schema.get("properties", {}).items()
            if name in required or random.random() < 0.4
        }
        return {"op": "tool", "dialect": dialect, "tool": tool, "args": args}

    def _of_schema(self, name: str, schema: Any) -> Any:
        random = self._random
        if not isinstance(schema, dict):
            return random.choice(ODD)
        if "enum" in schema:
            return random.choice(schema["enum"])
        match schema.get("type"):
            case "string":
                lowered = name.lower()
                word = (
                    "path" if "path" in lowered or "file" in lowered else "old" if "old" in lowered else "new"
                )
                return random.choice((*WORDS[word], "(a+)+$", "*** Begin Patch\n*** End Patch"))
            case "boolean":
                return random.random() < 0.5
            case "integer" | "number":
                return random.choice((0, 1, 2, -1, 10**9))
            case "array":
                return [self._of_schema(name, schema.get("items")) for _ in range(random.randrange(3))]
            case "object":
                inner: Mapping[str, Any] = schema.get("properties", {})
                return {key: self._of_schema(key, value) for key, value in inner.items()}
            case _:
                return random.choice(ODD)

    # ── spoiling ──

    def _spoilt(self, value: Any) -> Any:
        """The same with one place in it changed for something else."""
        random = self._random
        if isinstance(value, dict) and value and random.random() < 0.85:
            key = random.choice(list(value))
            match random.randrange(6):
                case 0:
                    return {name: held for name, held in value.items() if name != key}
                case 1:
                    return {
                        **value,
                        random.choice(("extra", "Path", "", "op", "base64", "\ud800")): random.choice(ODD),
                    }
                case _:
                    return {**value, key: self._spoilt(value[key])}
        if isinstance(value, list) and value and random.random() < 0.8:
            at = random.randrange(len(value))
            if random.random() < 0.2:
                return [*value, *value[at:]] * random.randrange(1, 4)
            return [*value[:at], self._spoilt(value[at]), *value[at + 1 :]]
        if isinstance(value, str) and value and random.random() < 0.4:
            at = random.randrange(len(value))
            return (
                value[:at]
                + random.choice(("", "\0", "/", "..", "\ud800", "é", " ", "\\", '"', "*"))
                + value[at + 1 :]
            )
        if random.random() < 0.05:
            for _ in range(random.choice((5, 31, 33, 200))):
                value = [value] if random.random() < 0.5 else {"x": value}
            return value
        return random.choice(ODD)


# ── bytes ──


def encoded(encoding: Encoding, call_id: int | None, method: str, params: Any) -> bytes:
    """The bytes of a request; with no `call_id`, of a notification."""
    if encoding == "msgpack":
        return _packed([2, method, [params]] if call_id is None else [0, call_id, method, [params]])
    told = (
        {"method": method, "params": params}
        if call_id is None
        else {"id": call_id, "method": method, "params": params}
    )
    body = json.dumps(told, default=_as_base64, ensure_ascii=bool(call_id is None or call_id % 2)).encode(
        "utf-8", "surrogatepass"
    )
    return body + b"\n" if encoding == "json-line" else b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _packed(value: Any) -> bytes:
    try:
        return cast("bytes", msgpack.packb(value, unicode_errors="surrogatepass"))
    except OverflowError:
        return cast("bytes", msgpack.packb(value, unicode_errors="surrogatepass", default=str))
    except ValueError:  # nested deeper than the packer goes
        return b"\x94\x00\x01\xa6status\x91" + b"\x91" * 1500 + b"\x80"


def _as_base64(value: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(value).decode()}


def mangled(data: bytes, random: Random) -> bytes:
    """The bytes with something done to them."""
    at = random.randrange(len(data) + 1)
    match random.randrange(7):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[:at] + random.randbytes(random.randrange(1, 20)) + data[at:]
        case 3:
            return data[:at] + data[random.randrange(len(data) + 1) :]
        case 4:
            flips = {random.randrange(max(1, len(data))): 1 << random.randrange(8) for _ in range(3)}
            return bytes(byte ^ flips.get(place, 0) for place, byte in enumerate(data))
        case 5:
            return (
                random.choice((b"\x94", b"\xdc\xff\xff", b"{", b"C", b"", b"\xdd\xff\xff\xff\xff"))
                + data[at:]
            )
        case _:
            return (
                data[:at]
                + random.choice((b"\xc1", b"\xdf\xff\xff\xff\xff", b"\n", b"\r\n\r\n", b"\0", b"]}" * 9))
                + data[at:]
            )
