"""For every stage and generation of `gemini`: the lines around a match stay, blank lines included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from editd.tool_api.tool_settings import ToolSettings
from tool_calls import ROOT, on

STAGES = {
    "exact": ("f(x, y);\nshut the box;", "f(x, y);\nshut the box;"),
    "indentation": ("    f(x, y);\n    shut the box;", "f(x, y);\nshut the box;"),
    "white_space": ("    f(x,  y);\n    shut the box;", "f( x, y );\nshut the box;"),
    "approximate": ("    the quick brown fox\n    jumps over", "the quikc brown fox\njumps over"),
}
GENERATIONS: dict[str, dict[str, Any]] = {
    "classic": {},
    "smart": {"instruction": "x"},
    "head": {"instruction": "x"},
    "head, any number": {"instruction": "x", "allow_multiple": True},
}
CASES = [(stage, name) for stage in STAGES for name in GENERATIONS if stage == "exact" or name != "classic"]
around = st.lists(st.sampled_from(["head", "", "  ", "\ttail"]), max_size=3)


@pytest.mark.parametrize(("stage", "generation"), CASES)
@given(
    before=around,
    after=around,
    new=st.sampled_from(["", "one", "one\ntwo"]),
    old_end=st.sampled_from(["", "\n"]),
    new_end=st.sampled_from(["", "\n"]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    has_blank_before=st.booleans(),
)
@example(
    before=[], after=["", "c"], new="one", old_end="\n", new_end="\n", line_end="\n", has_blank_before=False
)
@example(before=[], after=["", ""], new="", old_end="\n", new_end="", line_end="\r\n", has_blank_before=False)
@example(
    before=["a"], after=["  "], new="one", old_end="\n", new_end="", line_end="\n", has_blank_before=True
)
def test_no_stage_changes_a_line_around_the_match(
    stage: str,
    generation: str,
    before: list[str],
    after: list[str],
    new: str,
    old_end: str,
    new_end: str,
    line_end: str,
    has_blank_before: bool,
) -> None:
    target, old = STAGES[stage]
    lead = "\n" if has_blank_before else ""
    head = "".join(f"{line}\n" for line in before) + ("top\n\n" if has_blank_before else "")
    tail = "".join(f"{line}\n" for line in after)
    old, new = f"{lead}{old}{old_end}", f"{lead}{new}{new_end}" if new else lead
    after_it = content_after(f"{head}{target}\n{tail}".replace("\n", line_end), old, new, generation)
    plain = after_it.replace("\r\n", "\n")
    assert "\n" not in after_it.replace("\r\n", "") or line_end == "\n"
    if stage == "exact":
        expected_text = f"{head}{target}\n{tail}".replace(old, new)
        assert plain in (expected_text, f"{expected_text}\n")  # a file keeps the line end of its last line
        return
    assert plain.startswith(head)
    assert plain.endswith(tail)
    put_in = plain[len(head) : len(plain) - len(tail)]
    words = [line.lstrip() for line in put_in.split("\n")]
    lines = new.removeprefix(lead).removesuffix("\n")
    # Without its line end, an old line is removed or left empty, as the stage's original does.
    # A text that is removed as a whole leaves its final line end.
    may_leave_one = not old_end or not head + tail
    expected = [f"{lines}\n"] if lines else ["", "\n"] if may_leave_one else [""]
    assert "\n".join(words) in expected


def content_after(text: str, old: str, new: str, generation: str) -> str:
    name: Any = generation.partition(",")[0]
    place = on({"a.txt": text}, settings=ToolSettings(generation=name))
    args = {"file_path": f"{ROOT}/a.txt", "old_string": old, "new_string": new, **GENERATIONS[generation]}
    place.call("gemini", "replace", args)
    return place.files["a.txt"].decode()


@pytest.mark.parametrize("generation", ["smart", "head"])
def test_a_place_without_a_blank_line_after_it_is_a_place_too(generation: str) -> None:
    text = "  a = 1\n  b = 2\n\nc\n  a = 1\n  b = 2\nd\n"
    place = on({"a.txt": text}, settings=ToolSettings(generation="head" if generation == "head" else "smart"))
    args = {
        "file_path": f"{ROOT}/a.txt",
        "instruction": "x",
        "old_string": "a = 1\nb = 2\n",
        "new_string": "z",
    }
    refusal = place.refusal("gemini", "replace", args)
    assert (refusal.code, refusal.data["lines"]) == ("ambiguous", [1, 5])


@pytest.mark.parametrize("generation", ["smart", "head"])
def test_the_line_end_of_a_new_text_divides_no_line_and_adds_no_blank_one(generation: str) -> None:
    old, new = "f( x, y );\n", "g;\n"
    assert content_after("f(x,  y); more\n", old, new, generation) == "g; more\n"
    assert content_after("f(x,  y); \t\nend\n", old, new, generation) == "g; \t\nend\n"
    assert content_after("f(x,  y);  \nend\n", old, "", generation) == "end\n"
    assert content_after("f(x,  y);\nend\n", old, "g;\n\n", generation) == "g;\n\nend\n"
