"""The formats from outside: requests, answers, configuration, payloads of hooks, settings of agents."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgpack
from msgspec import UNSET
from msgspec.structs import replace

from editd.config import load, reference, toml_lines
from editd.config.load import ConfigError
from editd.wire import codec, connection, envelope, errors
from editd.wire.connection import BadRequest, ClientConnection, Connection, Request
from editd.wire.envelope import MessagePackFrames
from editd.wire.errors import Malformed
from editd.wire.limits import LIMITS
from editd_client.agents import commands, hook, jsonc, settings_edit, toml_table
from editd_client.agents.adapter import Adapter
from editd_client.agents.jsonc import UnreadableError
from editd_client.agents.settings_edit import Hooks, OwnFile, ServerEntry
from editd_client.agents.settings_file import Draft
from fuzz.fuzzer import ODD_VALUES, Format
from fuzz.stored import FOLDER, packed, packed_or_raw
from support.request_grammar import Grammar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAYLOADS = Path(__file__).parent.parent / "agents" / "payloads"


def as_json(value: Any) -> bytes:
    """Return a value as JSON, whatever is in it."""
    encoded = json.dumps(value, default=lambda raw: {"base64": b64encode(raw).decode()}, ensure_ascii=False)
    return encoded.encode("utf-8", "surrogatepass")


# ── Requests and answers ──────────────────────────────────────────────────────────────────────


METHODS = ["apply", "read", "hello", "log"]


def _requests() -> list[tuple[str, Any]]:
    grammar = Grammar(
        Random(1), {("serena", "replace_content"): {}}, methods=["apply", "read", "hello", "log"]
    )
    grammar._spoilt = lambda value: value  # type: ignore[method-assign]  # samples are right
    whole = [grammar.request() for _ in range(60)]
    return [(method, params) for method, params in whole if method in METHODS][:12]


REQUESTS = _requests()
WRITES = [
    {"op": "write", "path": "a", "content": "x\n"},
    {"op": "replace", "path": b"b\xff", "old": "x", "new": "y", "count": 2},
    {"op": "delete", "path": "c"},
]
SMALL = replace(
    LIMITS, message_bytes_max=150, header_bytes_max=30, nesting_max=1, values_max=12, name_length_max=3,
    message_length_max=8,
)  # fmt: skip
OBJECTS = [
    {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    for number, (method, params) in enumerate(REQUESTS)
] + [
    {"id": "a", "method": "read", "params": {"paths": [{"base64": "L/8="}]}},
    {"jsonrpc": "2.0", "method": "status"},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    {"id": 2, "method": "log", "params": {"filter": {"session": "s1", "actor": "me"}, "limit": 3}},
]
ARRAYS = [
    *([0, number, method, [params]] for number, (method, params) in enumerate(REQUESTS)),
    [0, 7, "apply", [{"edits": WRITES, "message": "say", "session": "s1"}]],
    [0, 8, "subscribe", [{"filter": {"session": "s1"}}]],
    [0, 9, "apply", [{"edits": WRITES[:1] * 2}]],
    [0, 13, "apply", [{"edits": WRITES[:1], "session": "x" * 2000}]],
    [0, 14, "apply", [{"edits": WRITES, "session": b"\xff"}]],
    [0, 15, "read", [{"paths": [2**63]}]],
    [0, 10, "hello", [{"client": {"a": {"b": {"c": [1, [2]]}}}}]],
    [0, 11, "read", [{b"paths": ["a"], "x": [b"\xff", b"a"]}]],
    [0, 12, "read", [{"paths": [msgpack.ExtType(5, b"x")]}]],
    [2, b"status", []], [0, 1, "status", [{}]], [0, 3, "status"], [1, 4, None, {}], [0, "x", "status", [[]]],
]  # fmt: skip


def serve(data: bytes) -> None:
    """Feed a stream to the daemon's end in pieces, and once whole; answer what comes out."""
    for pieces in ([data], [data[:7], data[7:50], data[50:]], [data, data], [data + data]):
        server = Connection()
        for piece in pieces:
            server.feed(piece)
            _take_all(server)
        server.feed_end()
        _take_all(server)
        assert server.kept <= 2 * len(data)


def serve_in_pieces(pieces: Iterable[bytes]) -> None:
    """Feed pieces to the daemon's end, and answer what comes out after each."""
    server = Connection()
    for piece in pieces:
        server.feed(piece)
        _take_all(server)


def serve_all(data: bytes) -> None:
    """Serve a stream with the limits of the wire, and with smaller ones that short inputs reach."""
    serve(data)
    small_parts = patch.object(codec, "_PART_BYTES", 8)
    with patch.object(codec, "LARGE_VALUES", 5), patch.object(envelope, "LARGE_VALUES", 5), small_parts:
        serve(data)
    with patch.object(codec, "LIMITS", SMALL), patch.object(envelope, "LIMITS", SMALL):
        serve(data)
        with suppress(Malformed):
            frames = MessagePackFrames(60)
            for at in range(0, len(data), 50):
                frames.feed(data[at : at + 50])
                list(frames)


def _take_all(server: Connection) -> None:
    for incoming in server.receive(b""):
        if isinstance(incoming, BadRequest):
            assert incoming.error.name != "internal_error"
            assert incoming.answer
        elif isinstance(incoming, Request):
            assert server.refuse(incoming.id, errors.error("stale", "as a test")) or incoming.id is None


def as_line(value: Any) -> bytes:
    return as_json(value) + b"\n"


def with_header(value: Any) -> bytes:
    body = as_json(value)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def receive(data: bytes) -> None:
    client = ClientConnection()
    for piece in (data[:9], data[9:]):
        client.receive(piece)


ANSWERS: list[Any] = [
    [1, 1, None, {"seq": 3, "text": b"\xff", "files": [{"path": "a"}]}],
    [2, "event", [{"seq": 3}]],
    [1, 2, {"code": 1, "name": "stale", "message": "it is", "data": {}}, None],
    [1, None, {"code": 1, "name": "stale", "message": "it is", "data": {"hint": "read"}}, None],
]
FRAMES = "MessagePackFrames.*|_checked_id|_is_id|_only_map|_call|_invalid|_unreadable|_too_large"
DECODED = "params_of|plain|text_of|_number|check_words|_check|_key|decode_common"
OPENED = "Connection.(receive|feed|feed_end|take|enter|_enter|_bad)|LargeMessage.*|_parse|_msgpack|_headers|_lines|_unknown"

NEARLY_ANSWERS = [
    b"\x94\x01\x02\xc0\x81\x80\x01",
    b"\xc1",
    [1, 2, {"na\udcffe": 3}, None],
    [1, True, None, None],
    [0, 1, "status", {}, {}],
    [7],
]

# ── The configuration ─────────────────────────────────────────────────────────────────────────


KEYS = list(load.keys())


def _configurations() -> Iterator[bytes]:
    lines = ["# all keys", ""]
    tables: dict[str, list[str]] = {}
    for key in KEYS:
        table, _, name = key.name.rpartition(".")
        if key.example is not UNSET and not load._item_section(load._type_of(key.type)[0]):
            tables.setdefault(table, []).append(f"{name} = {reference.toml(key.example)}")
    for table, assigned in sorted(tables.items()):
        lines += [f"[{table}]"] * bool(table) + assigned + [""]
    yield "\n".join(lines).encode()
    yield b'publish = "rename"\nidle_seconds = 9\nhistory.keep = { count = 3 }\n[serena]\nignored_paths = ["a"]\n'
    yield (
        b'[[hook]]\nname = "a"\nglob = ["*.py"]\ncommand = ["true"]\n[[hook]]\nname = "b"\nglob = ["*.md"]\ncommand = ["cat", "{path}"]\n'
        b'[[review.check]]\nname = "t"\ncommand = ["true"]\n'
        b'[[review.rule]]\nname = "r"\npaths = ["*.md"]\naction = "land"\ncheck = "t"\n'
    )


NEARLY_CONFIGURATIONS = [
    b'[[hook]]\nname = "a"\nglob = ["*"]\ncommand = ["x"]\n[[hook]]\nname = "a"\nglob = ["*"]\ncommand = ["x"]\n',
    b'[[review.check]]\nname = "t"\ncommand = ["x"]\n[[review.rule]]\nname = "r"\npaths = ["*"]\naction = "land"\n'
    b'check = "u"\n',
    b'[[review.rule]]\nname = "r"\npaths = ["*"]\ncheck = "abc"\n[[review.rule]]\npaths = 3\nnmae = "x"\n',
    b"hook = 3\nserena = 3\nqouta = 1\nxyzzy = 1\nreview = {rule = [3]}\nidle_seconds = 9223372036854775808\n",
    b"x = " + b"[" * 2000 + b"\n", b"a = 1\nx = " + b"9" * 5000 + b"\n[q]\nx = " + b"{a = " * 400,
    b'a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1\nx = [[1], {y = 1}]\npublish = "renam"\nencoding = "klingon"\n',
]  # fmt: skip
CONFIGURATION_WORDS = (
    b'"""', b"[[hook]]\n", b"[history]\n", b"= ", b"{}", b"[" * 2000, b"[[review.rule]]\nname = 'r'\n",
    b'check = "u"\n', b'action = "review"\n', b"hook = 3\n", b"serena = 3\n", b"qouta = 1\n", b"xyzzy = 1\n",
    b"9" * 5000, b"= 9223372036854775808\n", b"\\u", b"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s = 1\n", b"x = [[1], {y = 1}]\n",
)  # fmt: skip


def read_configuration(data: bytes) -> None:
    """Read a file of configuration, and the same text as a draft."""
    path = os.path.join(FOLDER.name, "config.toml")
    with open(path, "wb") as file:
        file.write(data)
    with suppress(ConfigError):
        load._read_all([path, FOLDER.name])
    if not len(data) % 9:
        with suppress(ConfigError), patch.object(load, "FILE_BYTES_MAX", len(data) - 1):
            load._read_all([path])
    loaded = load._read_all([path])
    for key in KEYS:
        load.value_of(loaded.config, key.name)


# ── Payloads of hooks ─────────────────────────────────────────────────────────────────────────


def _payloads() -> list[Any]:
    samples = []
    for file in sorted(PAYLOADS.glob("*.jsonl")):
        lines = file.read_text().replace("@ROOT@", "/nowhere/w").splitlines()
        samples += [{"agent": file.stem, "payload": json.loads(line)["payload"]} for line in lines]
    return samples


def _called(agent: str, moment: str, tool: str, **arguments: str) -> dict[str, Any]:
    """Return a payload in the form that Claude Code and Codex share."""
    names = {"session_id": "3f2a9c1e", "cwd": "/nowhere/w", "hook_event_name": moment, "tool_name": tool}
    return {"agent": agent, "payload": {**names, "tool_input": arguments}}


NEARLY_PAYLOADS: list[Any] = [
    _called("claude", "PreToolUse", "Edit", file_path="a\0b"),
    _called("claude", "PreToolUse", "Edit", file_path="a\udcffb\ud800"),
    *(
        _called("claude", "PreToolUse", "Bash", command=command)
        for command in ("sed -n '1,2p' x && sort -o x", "git log | head", "cat a 'b' > c", "", 'echo "a; $b" \\x')
    ),
    {"agent": "gemini", "payload": {
        "session_id": "x", "cwd": "/", "hook_event_name": "AfterTool", "tool_name": "run_shell_command",
        "tool_input": {"command": "make"}, "tool_response": {"llmContent": "Exit Code: "}}},
    {"agent": "codex", "payload": {**_called("codex", "PostToolUse", "Bash", command="make")["payload"],
        "tool_response": {"exit_code": 3, "metadata": {"exit_code": 3}}}},
    *({"agent": "cursor", "payload": payload} for payload in ODD_VALUES[:6]),
    {"agent": "cline", "payload": []},
]  # fmt: skip


def read_payload(data: bytes) -> None:
    """Read the payload of any agent, as the program does before it speaks to the daemon."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    agent = value.get("agent") if isinstance(value, dict) else None
    adapters = [hook.adapter_of(str(name)) for name in (agent,) if name in AGENTS] or ADAPTERS
    payload = json.dumps(value.get("payload")) if isinstance(value, dict) else data
    for adapter in adapters:
        assert isinstance(adapter, Adapter)
        try:
            event = hook.Event(adapter, hook.decoded(payload))
        except ValueError:  # it is no JSON
            return
        hook.workspace_root(event.folder)
        for is_strict in (False, True):
            event.request("/nowhere/w", is_strict=is_strict)
        assert isinstance(event.is_in_background, bool)


AGENTS = [file.stem for file in sorted(PAYLOADS.glob("*.jsonl"))]
ADAPTERS = [hook.adapter_of(name) for name in AGENTS]
PAYLOAD_WORDS = (
    b"Exit Code: ", b"Exit Code: 3", b"*** Begin Patch\\n*** Add File: a\\n", b"apply_patch <<EOF\\n*** Begin Patch\\n",
    b"cat a b", b"\\u0000", b"\\ud800", b"[1, 2]", b"{}", b"7", b"null", b"true", b"sed -n '1,2p' x", b"\"$(x)\"", b"&",
)  # fmt: skip

# ── Settings of agents ────────────────────────────────────────────────────────────────────────

OURS: dict[str, Any] = {"matcher": "x|y", "hooks": [{"command": "editd-hook codex"}]}
JSON_SETTINGS: list[bytes] = [
    b'{\n  // mine\n  "theme": "dark",\n  "hooks": {\n    "PreToolUse": [\n      {"matcher": "x", "hooks":'
    b' [{"type": "command", "command": "theirs"}]}, // last\n    ],\n  },\n}\n',
    b'{"hooks": {"PreToolUse": [{"hooks": [{"command": "/x/editd-hook claude"}]}, 7]}, "mcpServers": {"editd":'
    b' {"type": "stdio", "command": "/x/editctl", "args": ["mcp"]}, "b": {}}}',
    b"{}",
    b'\xef\xbb\xbf{\r\n\t"a": [1, -2.5e3, true, null, "\\u00e9"], /* b */\r\n\t"hooks": {}\r\n}\r\n',
    b'{"hooks": {"PreToolUse": [\n  // one\n  {"hooks": [{"command": "editd-hook claude"}]}\n  // two\n  , {}]}}',
]  # fmt: skip
JSON_WORDS = (
    b"/*", b"*/", b"// x\n", b'"hooks": ', b'"PreToolUse": ', b"[" * 250, b"{", b"}", b",", b"\r\n", b"1" * 5000,
    b'{"command": "editd-hook"}', b'"mcpServers": ', b'"editd": ', b"\\ud800", b"\n",
)  # fmt: skip
TOML_SETTINGS = [
    b'model = "x"\n\n[mcp_servers.other]\ncommand = "a"\n\n[mcp_servers.editd]\ncommand = "/x/editctl"\nargs = ["mcp"]\n',
    b'[mcp_servers.editd]\r\ncommand = "/x/editctl"\r\nargs = ["mcp"]\r\n\r\n# note\r\n[[list]]\r\nx = """\r\n[a]\r\n"""\r\n',
    b"a = [\n  [1, 2], # [x]\n  {b = 'c'},\n]\n[z]\n",
    b"",
]
NEARLY_TOML = [
    b"mcp_servers = 3\n", b'mcp_servers.editd.command = "x"\n', b"[mcp_servers.editd]\na = 1\n[mcp_servers.editd.b]\n",
    b"x = " + b"[" * 2000, b"x = " + b"9" * 5000, b"[z]", b"a = 1\n\n[z]\nb = 1", b"a = 1\r\n\r\n[z]\r\nb = 1",
]  # fmt: skip
TOML_WORDS = (
    b"[mcp_servers.editd]\n", b"[mcp_servers]\n", b'"""', b"'''", b"[[", b"]]", b"\r\n", b"\n\n", b"[" * 2000,
    b"mcp_servers = 3\n", b"mcp_servers.editd.command = 'x'\n", b"9" * 5000, b"# x\n", b"editd = {command = []}\n",
)  # fmt: skip
SERVER = {"command": "/y/editctl", "args": ["mcp"]}


def edit_json(data: bytes) -> None:
    """Make each change of a settings file in JSON, alone; what is readable stays so."""
    text = data.decode("utf-8", "surrogateescape")
    node = jsonc.parse(text)
    for path in ((), ("hooks",), ("hooks", "PreToolUse")):
        _edited(jsonc.set_member, text, path, "new", OURS)
        _edited(jsonc.add_element, text, (*path, "PreToolUse"), OURS)
        inner = node.at(path)
        for key in inner.keys if inner is not None else []:
            _edited(jsonc.set_member, text, path, key, OURS)
            _edited(jsonc.remove_member, text, path, key)
        for index in range(len(inner.elements) if inner is not None and not inner.keys else 0):
            _edited(jsonc.replace_element, text, path, index, OURS)
            _edited(jsonc.remove_element, text, path, index)


def _edited(change: Any, text: str, *arguments: Any) -> None:
    try:
        splices = change(text, *arguments)
    except UnreadableError:
        return
    for splice in splices if isinstance(splices, list) else [splices]:
        text = splice.of(text)
    jsonc.parse(text)


def edit_toml(data: bytes) -> None:
    """Make each change of a settings file in TOML, alone; what is readable stays so."""
    text = data.decode("utf-8", "surrogateescape")
    toml_table.load(text)
    for path in (("mcp_servers", "editd"), ("z",), ("mcp_servers", "other")):
        for change, values in (
            (toml_table.add_table, (SERVER,)), (toml_table.replace_table, (SERVER,)), (toml_table.remove_table, ()),
        ):  # fmt: skip
            try:
                splice = change(text, path, *values)
            except UnreadableError:
                continue
            if change is not toml_table.replace_table:
                toml_table.load(splice.of(text))


CLAUDE = hook.adapter_of("claude")
CURSOR = hook.adapter_of("cursor")
assert isinstance(CLAUDE, Adapter)
assert isinstance(CURSOR, Adapter)
OWN = b"// editd's own\n\nconst STRICT = 1\n"
ODD_SETTINGS = [
    b'{"hooks": {"PreToolUse": 3}, "mcpServers": {"editd": 3}}',
    b'{"hooks": {"PreToolUse": [{"hooks": [{"command": "editd-hook claude"}]}]}}',
]
EDITS: tuple[tuple[str, Any], ...] = (
    ("a.json", Hooks(CLAUDE, "/y/editd-hook claude", start=True)),
    ("a.json", Hooks(CLAUDE, "editd-hook claude", start=False)),
    ("a.json", Hooks(CURSOR, "editd-hook cursor", start=True)),
    ("a.json", ServerEntry(("mcpServers",), {"type": "stdio", **SERVER})),
    ("a.toml", ServerEntry(("mcp_servers",), SERVER)),
    ("a.js", OwnFile(OWN.decode(), 0o644)),
)


def edit_settings(data: bytes) -> None:
    """Add editd to a settings file, look for it, and remove it."""
    text = data.decode("utf-8", "surrogateescape")
    for path, edit in EDITS:
        for step in ("state", "add", "remove"):
            draft = Draft(path, data or None, text, 0o644, [])
            try:
                getattr(edit, step)(draft)
                if step == "add":
                    draft.original = data
                    assert edit.state(draft) in ("yes", "old")
            except UnreadableError:
                continue


RECEIVED = (
    Format(
        "JSON in lines",
        OBJECTS,
        serve_all,
        (),
        {
            codec: "decode_json|decode_json_in_parts|is_large_json",  # parts are larger than these inputs
            envelope: r"LineFrames.*|_call|_checked_id|_invalid|_too_large",
        },
        encode=as_line,
        words=(
            b'"base64": ',
            b"[" * 1200,
            b"\n",
            b"\xff",
            b'"method"',
            b"1e999",
            b"\xef\xbb\xbf",
            b"9" * 400,
        ),
    ),
    Format(
        "JSON after Content-Length",
        OBJECTS,
        serve_all,
        (),
        {envelope: r"HeaderFrames.*|_content_length|JsonRpc\.open"},
        encode=with_header,
        words=(
            b"\r\n\r\n",
            b"Content-Length: 5\r\n\r\n",
            b":",
            b"X: y\r\n",
            b"\n",
            b" " * 5000,
            b"\xb2",
            b"9" * 5000,
        ),
    ),
    Format(
        "MessagePack",
        ARRAYS,
        serve_all,
        (),
        {envelope: rf"{FRAMES}|MessagePackRpc\.open"},
        encode=packed,
        words=(
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\xdb\xff\xff\xff\xff",
            b"\xc7\x02\x01ab",
            b"\xc1",
            b"\x91" * 1500,
            b"\x81\x90\x01",
            b"\x81\x01\x01",
            b"\xd4\x01\x01",
        ),
    ),
    Format(
        "streams",
        [*map(as_line, OBJECTS), *map(with_header, OBJECTS), *map(packed, ARRAYS)],
        serve_all,
        (),
        {connection: OPENED, codec: DECODED},
        words=(b"{", b"C", b"\x94", b"\n", b"\xc1"),
        nearly=[b"GET / HTTP/1.1\r\n\r\n", b" ", b""],
    ),
    Format(
        "answers",
        ANSWERS,
        receive,
        (Malformed,),
        {
            connection: r"ClientConnection.*|_error",
            envelope: r"MessagePackRpc\.open",
        },
        encode=packed_or_raw,
        nearly=NEARLY_ANSWERS,
        words=(
            b"\xdd\x3f\xff\xff\xff",
            b"\xdf\x3f\xff\xff\xff",
            b"\xdb\x3f\xff\xff\xff",
            b"\x91" * 1500,
            b"\xc1",
        ),
    ),
    Format(
        "configuration",
        list(_configurations()),
        read_configuration,
        (ConfigError,),
        {
            toml_lines: "lines_of|_names",
            load: "_read_all|check_text|keys|_unknown_checks|_read|_check|_check_list|_convert"
            "|_without_none|_build|_type_of|_item_section|_is_section|_syntax_problem|_first_unread|_nearest|_nearest_in|_keys_of"
            "|_choices|_fact|_format",
        },
        words=CONFIGURATION_WORDS,
        nearly=NEARLY_CONFIGURATIONS,
    ),
    Format(
        "hook payloads",
        _payloads(),
        read_payload,
        (),
        {
            hook: r"decoded|Event\.(?!session).*|inside|_is_path|_wire|_wire_text",
            commands: "only_reads|_without_marks|_part_reads|shown_files|patch_folder|patched_paths",
        },
        encode=as_json,
        words=PAYLOAD_WORDS,
        nearly=NEARLY_PAYLOADS,
    ),
    Format(
        "settings in JSON",
        JSON_SETTINGS,
        edit_json,
        (UnreadableError,),
        {jsonc: ".*"},
        nearly=[b"[" * 600, b'{"a":' * 600],
        words=JSON_WORDS,
    ),
    Format(
        "settings in TOML",
        TOML_SETTINGS,
        edit_toml,
        (UnreadableError,),
        {toml_table: ".*"},
        words=TOML_WORDS,
        nearly=NEARLY_TOML,
    ),
    Format(
        "changes of settings",
        [*JSON_SETTINGS, *TOML_SETTINGS, OWN, b"// theirs\n", *ODD_SETTINGS],
        edit_settings,
        (),
        {settings_edit: r"(Hooks|ServerEntry|OwnFile)\.(?!lines).*|_commands|_runs|is_ours"},
        words=JSON_WORDS + TOML_WORDS,
    ),
)
