"""The cause of a text that is not found: the kind of the difference, and its bytes."""

from __future__ import annotations

from typing import Any

import pytest

from editd.edits.replace import replace_exactly
from editd.errors import NoMatch, Refused
from tool_calls import ROOT, on


def refused(text: str, old: str) -> NoMatch:
    with pytest.raises(NoMatch) as refusal:
        replace_exactly(text, old, "NEW TEXT", path="a.txt")
    assert refusal.value.hint
    return refusal.value


CASES = {
    "escaped newline": ("def f():\n    return 1\n", "def f():\\n    return 1", ["escapes"]),
    "escaped quotes": ('say("hi")\n', 'say(\\"hi\\")', ["escapes"]),
    "doubled backslash": ("path = 'C:\\dir\\new'\n", "path = 'C:\\\\dir\\\\new'", ["escapes"]),
    "entities": ("if (a < b && c > d) {\n", "if (a &lt; b &amp;&amp; c &gt; d) {", ["entities"]),
    "entities in the file": ("<p>a &lt; b &amp;&amp; c</p>\n", "a < b && c", ["entities"]),
    "escaped character": ("total = caf\xe9 + th\xe9\n", "total = caf\\u00e9 + th\\u00e9", ["escapes"]),
    "composed": ("cafe\u0301 = 1\n", "caf\xe9 = 1", ["unicode form"]),
    "no-break space": ("let a\xa0= 1;\n", "let a = 1;", ["invisible character"]),
    "zero width": ("user\u200bname = 1\n", "username = 1", ["invisible character"]),
    "zero width, short": ("a\u200bb\n", "ab", ["invisible character"]),
    "zero width in the sent text": ("ab\n", "a\u200bb", ["invisible character"]),
    "en dash": ("pages 3\u20135\n", "pages 3-5", ["dashes"]),
    "em dash": ("it \u2014 is\n", "it - is", ["dashes"]),
    "minus sign, alone": ("\u2212\n", "-", ["dashes"]),
    "en dash in the sent text": ("a - b\n", "a \u2013 b", ["dashes"]),
    "curly quotes": ("say \u201chi\u201d\n", 'say "hi"', ["quotes"]),
    "curly quotes and a dash": ("\u2018a\u2019 \u2013 b\n", "'a' - b", ["quotes", "dashes"]),
    "part of a line": ("call(one, two)\nend\n", "call(one,\n", ["part of a line"]),
    "no final newline": ("first\nlast line", "last line\n", ["line ends"]),
    "spaces": ("let a  = 1;\n", "let a = 1;", ["whitespace"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_names_the_cause(name: str) -> None:
    text, old, differs = CASES[name]
    refusal = refused(text, old)
    assert refusal.data["differs"] == differs
    assert differs[0] in refusal.hint


@pytest.mark.parametrize(
    ("name", "sent", "there"),
    [
        ("composed", "c3 a9", "65 cc 81"),
        ("no-break space", "20", "c2 a0"),
        ("entities", "26 6c 74 3b", "3c"),
        ("spaces", "", "20"),
        ("en dash", "2d", "e2 80 93"),
        ("zero width, short", "", "e2 80 8b"),
    ],
)
def test_the_differing_bytes_are_data(name: str, sent: str, there: str) -> None:
    text, old, _ = CASES[name]
    difference = refused(text, old).data["difference"]
    assert (difference["sent_bytes"], difference["file_bytes"]) == (sent, there)
    assert bytes.fromhex(difference["file_bytes"]).decode() == difference["file"]


def test_an_empty_file_has_a_hint_that_can_be_followed() -> None:
    place = on({"a.txt": ""})
    with pytest.raises(Refused) as refusal:
        replace_exactly("", "", "new")
    assert "`write`" in refusal.value.hint
    assert "`write`" in refused("", "x").hint
    args: dict[str, Any] = {"file_path": f"{ROOT}/a.txt", "old_string": "", "new_string": "x"}
    assert "`write`" in place.refusal("gemini", "replace", args).hint
    assert "`write`" in place.refusal("gemini", "replace", args | {"instruction": "x"}).hint
    args = {"relative_path": "a.txt", "needle": "", "repl": "x", "mode": "literal"}
    assert (
        "`write`"
        in place.refusal("serena", "replace_content", args | {"allow_multiple_occurrences": True}).hint
    )
    args = {"command": "str_replace", "path": "a.txt", "old_str": "", "new_str": "x"}
    assert "`insert`" in place.refusal("claude", "str_replace_based_edit_tool", args).hint
    args = {"command": "insert", "path": "a.txt", "insert_line": 0, "insert_text": "x"}
    place.call("claude", "str_replace_based_edit_tool", args)
    assert place.text("a.txt")


PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-a\n+a\n*** End Patch"
SAME: dict[str, tuple[str, dict[str, Any]]] = {
    "claude": (
        "str_replace_based_edit_tool",
        {"command": "str_replace", "path": "a.txt", "old_str": "a", "new_str": "a"},
    ),
    "serena": ("replace_content", {"relative_path": "a.txt", "needle": "a", "repl": "a", "mode": "literal"}),
    "codex": ("apply_patch", {"input": PATCH}),
    "cline": ("replace_in_file", {"path": "a.txt", "diff": "------- SEARCH\na\n=======\na\n+++++++ REPLACE"}),
    "gemini": ("replace", {"file_path": f"{ROOT}/a.txt", "old_string": "a", "new_string": "a"}),
    "roo": ("search_and_replace", {"path": "a.txt", "search": "a", "replace": "a"}),
    "wcgw": (
        "FileWriteOrEdit",
        {
            "file_path": f"{ROOT}/a.txt", "percentage_to_change": 100,
            "text_or_search_replace_blocks": "a\n", "thread_id": "t",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", SAME)
def test_an_edit_that_changes_nothing_says_so(dialect: str) -> None:
    place = on({"a.txt": "a\n"})
    place.read("t", "a.txt")
    if dialect in ("gemini", "roo"):
        assert place.refusal(dialect, *SAME[dialect]).code == "no_change"
        return
    made = place.call(dialect, *SAME[dialect])
    warnings = [warning for file in made.reports.values() for warning in file.warnings]
    assert any(warning.startswith("no_change:") for warning in warnings)
