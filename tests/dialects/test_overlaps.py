"""Matches that overlap: a text that begins at two places is at two places, for every tool."""

from __future__ import annotations

from typing import Any

import pytest

from editd.edits.replace import replace_exactly
from editd.errors import Ambiguous
from editd.tool_api.tool_settings import ToolSettings
from tool_calls import ROOT, on

FILE = f"{ROOT}/a.txt"
THREE = "foo\nfoo\nfoo\n"
OLD, NEW = "foo\nfoo\n", "bar\n"
GEMINI = {"file_path": FILE, "old_string": OLD, "new_string": NEW}
PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-foo\n-foo\n+bar\n*** End Patch"
BLOCKS = "<<<<<<< SEARCH\nfoo\nfoo\n=======\nbar\n>>>>>>> REPLACE"
CALLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "claude": (
        "claude",
        "str_replace_based_edit_tool",
        {"command": "str_replace", "path": "a.txt", "old_str": OLD, "new_str": NEW},
    ),
    "classic": ("gemini", "replace", GEMINI),
    "smart": ("gemini", "replace", GEMINI | {"instruction": "x", "expected_replacements": 1}),
    "head": ("gemini", "replace", GEMINI | {"instruction": "x"}),
    "serena": (
        "serena",
        "replace_content",
        {"relative_path": "a.txt", "needle": OLD, "repl": NEW, "mode": "literal"},
    ),
    "serena_regex": (
        "serena",
        "replace_content",
        {"relative_path": "a.txt", "needle": "foo\\nfoo\\n", "repl": NEW, "mode": "regex"},
    ),
    "codex": ("codex", "apply_patch", {"input": PATCH}),
    "wcgw": (
        "wcgw",
        "FileWriteOrEdit",
        {
            "file_path": FILE, "percentage_to_change": 1, "text_or_search_replace_blocks": BLOCKS,
            "thread_id": "t1",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_first_of_two_overlapping_matches_is_never_taken(name: str, end: str) -> None:
    place = on({"a.txt": THREE.replace("\n", end)})
    place.read("t1", "a.txt")
    refusal = place.refusal(*CALLS[name])
    assert refusal.code == "ambiguous", refusal.text()
    assert refusal.hint


@pytest.mark.parametrize("generation", ["smart", "head"])
@pytest.mark.parametrize(
    ("text", "old"),
    [("  foo\n  foo\n  foo\n", "foo\nfoo"), ("  f(x,  y)\n  f(x,  y)\n  f(x,  y)\n", "f( x, y )\nf( x, y )")],
    ids=["indentation", "white_space"],
)
def test_tolerant_stages_count_overlapping_matches(generation: Any, text: str, old: str) -> None:
    place = on({"a.txt": text}, settings=ToolSettings(generation=generation))
    args = {"file_path": FILE, "instruction": "x", "old_string": old, "new_string": NEW}
    assert place.refusal("gemini", "replace", args).code == "ambiguous"


@pytest.mark.parametrize(
    ("text", "old", "after", "stage"),
    [
        ("foo\nfoo\nfoo\n", "foo\nfoo\n", "bar\nfoo\n", None),
        ("  foo\n  foo\n  foo\n", "foo\nfoo", "  bar\n  foo\n", "indentation"),
        ("  foo\n" * 5, "foo\nfoo", "  bar\n  bar\n  foo\n", "indentation"),
        ("f(x,  y)\n" * 3, "f( x, y )\nf( x, y )\n", "bar\nf(x,  y)\n", "white_space"),
    ],
)
def test_every_match_that_head_replaces_is_named_and_one_that_overlaps_is_warned_of(
    text: str, old: str, after: str, stage: str | None
) -> None:
    place = on({"a.txt": text}, settings=ToolSettings(generation="head"))
    args = {
        "file_path": FILE, "instruction": "x", "old_string": old, "new_string": NEW, "allow_multiple": True,
    }  # fmt: skip
    outcome = place.call("gemini", "replace", args)
    assert place.text("a.txt") == after
    warnings = [warning for report in outcome.reports.values() for warning in report.warnings]
    kinds = [warning.partition(":")[0] for warning in warnings]
    assert kinds == ([] if stage is None else [stage]) + ["overlap"]
    count = after.count("bar")
    last = 2 * count - 1
    assert f"at line {last + 1}, overlapping the place at line {last}." in warnings[-1]
    if stage is not None:
        assert warnings[0].endswith(f"at line{'s' if count > 1 else ''} {', '.join('135'[:count])}.")


def test_a_first_match_of_cline_names_the_overlapping_one() -> None:
    place = on({"a.txt": THREE})
    diff = "------- SEARCH\nfoo\nfoo\n=======\nbar\n+++++++ REPLACE"
    made = place.call("cline", "replace_in_file", {"path": "a.txt", "diff": diff})
    warnings = [warning for file in made.reports.values() for warning in file.warnings]
    assert [warning.split(":")[0] for warning in warnings] == ["first_match"]


@pytest.mark.parametrize("text", [THREE, "foo\r\nfoo\nfoo\r\n", "foo\nfoo\r\nfoo\n"])
def test_the_edit_replace_counts_them_whatever_the_line_ends_are(text: str) -> None:
    with pytest.raises(Ambiguous, match="2 times"):
        replace_exactly(text, OLD, NEW)


def test_a_text_that_cannot_overlap_itself_is_unique() -> None:
    assert replace_exactly("ab\nab\nx\n", "ab\nx", "y") == "ab\ny\n"
    assert replace_exactly("aXa\n", "aXa", "y") == "y\n"


def test_roo_replaces_every_match_and_names_one_that_overlaps() -> None:
    place = on({"a.txt": THREE})
    args = {"path": "a.txt", "search": "foo\nfoo", "replace": "bar"}
    outcome = place.call("roo", "search_and_replace", args)
    assert place.text("a.txt") == "bar\nfoo\n"
    warnings = [warning for report in outcome.reports.values() for warning in report.warnings]
    assert [warning.partition(":")[0] for warning in warnings] == ["overlap"]
