"""Settings as text: what is put into JSON, JSONC and TOML comes out again, and nothing else moves."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from editd_client.agents import jsonc, toml_table
from editd_client.agents.jsonc import UnreadableError
from support.settings_documents import NAMES, documents

OURS: dict[str, object] = {"matcher": "x|y", "hooks": [{"command": "editd-hook codex"}]}


@given(documents())
def test_the_parser_reads_comments_and_trailing_commas(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    assert jsonc.parse(text).value == value


@given(documents(), st.lists(NAMES, min_size=1, max_size=3), NAMES)
def test_a_member_that_is_set_and_taken_back_leaves_every_byte(
    document: tuple[str, dict[str, Any]], path: list[str], key: str
) -> None:
    text, value = document
    try:
        splice = jsonc.set_member(text, path, key, OURS)
    except UnreadableError:
        assert not all_objects(value, path)
        return
    made = splice.of(text)
    expected = json.loads(json.dumps(value))
    inner = expected
    for name in path:
        inner = inner.setdefault(name, {})
    inner[key] = OURS
    assert jsonc.parse(made).value == expected
    assert splice.inverse(text).of(made) == text


def all_objects(value: Any, path: list[str]) -> bool:
    for name in path:
        if not isinstance(value, dict):
            return False
        value = value.get(name, {})
    return isinstance(value, dict)


@given(documents(), NAMES)
@example(('{"a":[null // c\n,]}', {"a": [None]}), "a")
def test_an_element_comes_last_and_is_removed_without_a_record(
    document: tuple[str, dict[str, Any]], name: str
) -> None:
    text, value = document
    before = value.get(name, [])
    if not isinstance(before, list):
        with pytest.raises(UnreadableError):
            jsonc.add_element(text, (name,), OURS)
        return
    made = jsonc.add_element(text, (name,), OURS).of(text)
    assert jsonc.parse(made).value == {**value, name: [*before, OURS]}
    removed = made
    for splice in jsonc.remove_element(made, (name,), len(before)):
        removed = splice.of(removed)
    assert jsonc.parse(removed).value == {**value, name: before}
    if before:
        assert removed == text, "no container was made or left empty, so that nothing else has moved"


@given(documents())
def test_each_member_can_be_removed_and_the_others_stay(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    for key in value:
        left = text
        for splice in jsonc.remove_member(text, (), key):
            left = splice.of(left)
        assert jsonc.parse(left).value == {name: inner for name, inner in value.items() if name != key}


@pytest.mark.parametrize(
    "text",
    ["", "{", "}", "{]", '{"a" 1}', "{a: 1}", '{"a": 01}', "{'a': 1}", '{"a": 1 "b": 2}', "[1,,2]", "{} x",
     "[" * 5000, '{"a": "\\x"}', '{"a": "\n"}', "// only a comment", "/* open", "{,}", '{"a":}', "NaN"],
)  # fmt: skip
def test_what_is_no_json_is_said_to_be_none(text: str) -> None:
    with pytest.raises(UnreadableError):
        jsonc.parse(text)


def test_a_key_that_is_there_twice_counts_as_parsers_count_it() -> None:
    text = '{"hooks": {"a": [1]}, "hooks": {"b": [2]}}'
    made = jsonc.add_element(text, ("hooks", "b"), 3).of(text)
    assert json.loads(made) == {"hooks": {"b": [2, 3]}}


def test_the_style_of_the_file_is_kept() -> None:
    text = '\ufeff{\r\n\t"a": [\r\n\t\t1\r\n\t] // why\r\n}\r\n'
    made = jsonc.add_element(text, ("a",), {"b": 2}).of(text)
    assert made == '\ufeff{\r\n\t"a": [\r\n\t\t1,\r\n\t\t{\r\n\t\t\t"b": 2\r\n\t\t}\r\n\t] // why\r\n}\r\n'
    assert jsonc.set_member(made, (), "c", True).of(made).endswith('\t], // why\r\n\t"c": true\r\n}\r\n')
    assert jsonc.set_member('{"a":1}', (), "b", [1]).of('{"a":1}') == '{"a":1, "b": [1]}'


# ── TOML ──

PATH = ("mcp_servers", "editd")
ENTRY: dict[str, object] = {"command": '/opt/"x"/editctl', "args": ["mcp"], "required": True, "n": 30}
LINES = st.lists(
    st.sampled_from(
        [
            "", "# [mcp_servers.editd]", "[other]", "[[list]]", "[mcp_servers.docs]", "  ",
            '[projects."/a b"]',
            'KEY = """\n[mcp_servers.editd]\n"""', "KEY = '''\n[x]\n'''", "KEY = [\n  [1], # ]\n]",
            "KEY = {a = [1]}",
            'KEY = "[x]" # c', "KEY = 1", "KEY = '\"'", 'KEY = "\\""', "[ spaced . name ]",
        ]
    ),
    max_size=12,
)  # fmt: skip


@given(LINES, st.booleans(), st.booleans())
def test_a_table_that_is_added_and_removed_leaves_every_byte(
    lines: list[str], is_crlf: bool, ends: bool
) -> None:
    numbered = [line.replace("KEY", f"k{number}") for number, line in enumerate(lines)]
    text = "\n".join(numbered) + ("\n" if ends and lines else "")
    text = text.replace("\n", "\r\n") if is_crlf else text
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # such as a table that is there twice
        with pytest.raises(UnreadableError):
            toml_table.add_table(text, PATH, ENTRY)
        return
    made = toml_table.add_table(text, PATH, ENTRY).of(text)
    after = tomllib.loads(made)
    assert after["mcp_servers"].pop("editd") == ENTRY
    assert after["mcp_servers"] == before.get("mcp_servers", {})
    assert toml_table.remove_table(made, PATH).of(made) == text
    other = toml_table.replace_table(made, PATH, {"command": "x"}).of(made)
    assert tomllib.loads(other)["mcp_servers"]["editd"] == {"command": "x"}


def test_a_table_is_removed_from_among_others_with_their_comments_kept() -> None:
    text = '[a]\nx = 1\n\n[mcp_servers.editd]\ncommand = "x"\n\n# about b\n[b]\ny = 2\n'
    assert toml_table.remove_table(text, PATH).of(text) == "[a]\nx = 1\n\n# about b\n[b]\ny = 2\n"


@pytest.mark.parametrize("text", ["mcp_servers = {}", "[mcp_servers]\neditd = {}", "a = ", "mcp_servers = 1"])
def test_a_file_that_can_have_no_such_table_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        toml_table.add_table(text, PATH, ENTRY)


@pytest.mark.parametrize("text", ["x = " + "[" * 2000, "x = " + "9" * 5000], ids=["deep", "digits"])
def test_toml_that_python_refuses_to_read_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        toml_table.load(text)
    with pytest.raises(UnreadableError):
        toml_table.add_table(text, ("a",), {})
