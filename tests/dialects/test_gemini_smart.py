"""Tests of `editd.tools.gemini_smart` and `editd.tools.gemini_stages`."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import pytest

from editd.edits.replace import Replacement, replace
from editd.edits.search import Match, NeedsSearch, Search
from editd.engine import text_search
from editd.errors import TooLarge
from editd.tool_api.tool_settings import ToolSettings
from editd.tools.gemini_stages import StageCall, run_stages, with_final_newline
from tool_calls import ROOT, Workspace, on

if TYPE_CHECKING:
    from editd.errors import Refused

FILE = f"{ROOT}/a.txt"
Generation = Literal["auto", "classic", "smart", "head"]


def made(
    text: str | dict[str, str], old: str, new: str, generation: Generation = "smart", **more: Any
) -> tuple[Workspace, list[str], str]:
    """The workspace after a call, the warnings, and the tool's answer."""
    files = text if isinstance(text, dict) else {"a.txt": text}
    place = on(files, settings=ToolSettings(generation=generation))
    arguments = {"file_path": FILE, "instruction": "x", "old_string": old, "new_string": new, **more}
    outcome = place.call("gemini", "replace", arguments)
    warnings = [warning for file in outcome.reports.values() for warning in file.warnings]
    return place, warnings, str(outcome.answers[0])


def text_after(text: str, old: str, new: str, generation: Generation = "smart", **more: Any) -> str:
    return made(text, old, new, generation, **more)[0].text("a.txt")


def refusal(
    text: str | dict[str, str], old: str, new: str = "NEW", generation: Generation = "smart", **more: Any
) -> Refused:
    files = text if isinstance(text, dict) else {"a.txt": text}
    place = on(files, settings=ToolSettings(generation=generation))
    arguments: dict[str, Any] = {"file_path": FILE, "instruction": "x", "old_string": old, "new_string": new}
    arguments |= more
    refused = place.refusal("gemini", "replace", arguments)
    assert refused.hint
    return refused


def test_the_arguments_choose_the_generation_unless_it_is_configured() -> None:
    text, old = "  foo\n  foo\n", "foo "
    assert refusal(text, old, generation="classic").code == "no_match"
    assert refusal(text, old, generation="auto").message.startswith("Failed to edit, Expected 1 occurrence")
    assert text_after(text, old, "b", "auto", allow_multiple=True) == "  b\n  b\n"
    without = on({"a.txt": "a"}, settings=ToolSettings(generation="auto"))
    answer = without.call("gemini", "replace", {"file_path": FILE, "old_string": "a", "new_string": "b"})
    assert answer.answers == (f"Successfully modified file: {FILE} (1 replacements).",)


@pytest.mark.parametrize("generation", ["smart", "head"])
def test_the_first_stage_with_a_match_decides(generation: Generation) -> None:
    assert made("a\n  a\n", "a\n  a", "b", generation)[1] == []
    place, warnings, _ = made("def f():\n\tx = 1\n", "x = 1 ", "y = 2", generation)
    assert place.text("a.txt") == "def f():\n\ty = 2\n"
    assert [warning.partition(":")[0] for warning in warnings] == ["indentation"]
    place, warnings, _ = made("  if (a  ==\n b) go\n", "if(a == b)", "x\n y", generation)
    assert place.text("a.txt") == "  x\n   y go\n"
    assert [warning.partition(":")[0] for warning in warnings] == ["white_space"]
    place, warnings, _ = made("  return mesage_text\nz\n", "return message_text", "x", generation)
    assert place.text("a.txt") == "  x\nz\n"
    assert [warning.partition(":")[0] for warning in warnings] == ["approximate"]


@pytest.mark.parametrize("is_head", [False, True])
def test_a_million_equal_lines_are_searched_in_the_process_for_searches(is_head: bool) -> None:
    """The loop itself only looks whether the text is there exactly, and passes the search on."""
    text, old = "  same\n" * 1_000_000, "    same\n    same"
    asked: list[Search] = []

    def search(wanted: Search) -> tuple[()]:
        asked.append(wanted)
        raise NeedsSearch(wanted)

    start = time.thread_time()
    with pytest.raises(NeedsSearch):
        run_stages(text, StageCall(old, "new", old, is_head, 1), search)
    assert time.thread_time() - start < 0.5, "it took seconds"
    assert [wanted.language for wanted in asked] == ["lines"]
    with pytest.raises(TooLarge) as refused:
        text_search.search(asked[0])
    assert refused.value.message.startswith("The lines of the text are in the file more than 100000 times.")


def test_a_number_of_matches_that_does_not_fit_is_refused_before_any_text_is_made() -> None:
    text, old = "  same\n" * 90_000, "    same"
    result = run_stages(text, StageCall(old, "new", old, True, 2), text_search.search)
    assert result is not None
    assert (result.stage, result.occurrences, result.replacements) == ("indentation", 90_000, ())


@pytest.mark.parametrize("generation", ["smart", "head"])
def test_the_lines_around_a_tolerant_match_stay_as_they_are(generation: Generation) -> None:
    """No stage makes one line of two, and none adds a blank line."""
    assert text_after("  foo\nend\n", "foo ", "bar", generation) == "  bar\nend\n"
    assert text_after("  foo\nend\n", "foo ", "", generation) == "end\n"
    assert text_after("  foo\nend\n", "foo ", "bar\n", generation) == "  bar\nend\n"
    spaced = "a\nf(x,  y);\nend\n"
    assert text_after(spaced, "f( x, y );\n", "g(y);\n", generation) == "a\ng(y);\nend\n"
    assert text_after(spaced, "f( x, y );", "g(y);", generation) == "a\ng(y);\nend\n"
    near = "one\nthe quick brown fox jumps\nend\n"
    old = "the quikc brown fox jumps"
    assert text_after(near, f"{old}\n", "a fox\n", generation) == "one\na fox\nend\n"
    assert text_after(near, old, "a fox", generation) == "one\na fox\nend\n"
    assert text_after(spaced, "f( x, y );", "g(y);\n", generation) == "a\ng(y);\nend\n"
    assert text_after(near, old, "a fox\n", generation) == "one\na fox\nend\n"
    assert text_after(spaced, "\nf( x, y );\n", "\ng(y);\n", generation) == "a\ng(y);\nend\n"
    assert text_after("a\n\nf(x,  y);\n\nend\n", "\nf( x, y );\n\n", "\ng(y);\n\n", generation) == (
        "a\n\ng(y);\n\nend\n"
    )
    assert text_after(spaced, "f( x, y );\n", "", generation) == "a\nend\n"
    assert text_after(near, f"{old}\n", "", generation) == "one\nend\n"


@pytest.mark.parametrize("separator", ["\r", "\u2028", "\u2029"])
@pytest.mark.parametrize("generation", ["smart", "head"])
def test_text_before_a_separator_in_a_line_is_kept(generation: Generation, separator: str) -> None:
    before = f"he{separator}ad\n  foo\ne{separator}nd"
    assert text_after(before, "foo ", "bar", generation) == f"he{separator}ad\n  bar\ne{separator}nd"
    assert refusal(f"foo\nx{separator}bar\n", "foo \nbar", generation=generation).code == "no_match"
    assert text_after(f"a{separator}b{separator}c\n", "b", "B", generation) == f"a{separator}B{separator}c\n"


def test_only_the_white_space_of_ecmascript_is_white_space() -> None:
    assert refusal("a\n\x85x\n", "x ").code == "no_match"
    assert text_after("a\n\ufeff\u3000x\n", "x ", "y") == "a\ny\n"
    assert text_after("a\n\x85b\n", "\x85b", "c") == "a\nc\n"


@pytest.mark.parametrize("generation", ["smart", "head"])
def test_new_string_is_literal_in_every_stage(generation: Generation) -> None:
    new = "$1 $& $$ $` $' \\1"
    for text, old in (("abc\n", "abc"), (" abc\n", "abc "), ("f( a )\n", "f(a)")):
        assert new in text_after(text, old, new, generation)


def test_no_place_is_guessed() -> None:
    assert refusal("f( a )\nf( a )\n", "f(a)").data == {"found": 2, "lines": [1, 2]}
    assert refusal("  p\n  p\n", "p ", "a\nb").code == "ambiguous"  # the original skips the second
    assert refusal("  p\n  p\n", "p ", "a\nb", expected_replacements=2).code == "count_mismatch"
    assert refusal("f( a )\nf( a )\n", "f(a)", generation="head").code == "ambiguous"
    both = text_after("f( a )\n f( a )\n", "f(a)", "g", "head", allow_multiple=True)
    assert both == "g\n g\n"


def test_a_wrong_number_of_matches_is_refused_in_the_words_of_the_original() -> None:
    refused = refusal("a\na\n", "a", expected_replacements=3)
    assert (refused.code, refused.data["found"], refused.data["expected"]) == ("count_mismatch", 2, 3)
    assert refused.message == (
        f"Failed to edit, Expected 3 occurrences but found 2 for old_string in file: {FILE}"
    )
    refused = refusal("a\na\n", "a", generation="head")
    assert refused.message.endswith(
        f"in file: {FILE}. If you intended to replace multiple occurrences, set 'allow_multiple' to true."
    )


def test_strings_that_are_equal_change_nothing() -> None:
    assert refusal("a\r\nb\n", "a\nb", "a\r\nb").code == "no_change"
    assert refusal("a\na\n", "a", "a").code == "ambiguous"


def test_a_final_newline_stays_missing_or_present() -> None:
    assert text_after("a\nb\n", "b\n", "B") == "a\nB\n"
    assert text_after("a\nb", "b", "B\n") == "a\nB"
    assert text_after("a\nb\n", "a\nb\n", "") == "\n"
    assert text_after("a\nb", "b", "") == "a"
    assert text_after("xx\n\nxx", "xx", "", expected_replacements=2) == "\n"


def test_the_final_newline_of_random_replacements_is_that_of_the_text() -> None:
    random = Random(3)
    for _ in range(2000):
        text = "".join(random.choices("a\n", k=random.randint(1, 6)))
        cuts = sorted(random.sample(range(len(text) + 1), k=min(len(text) + 1, random.choice([2, 4]))))
        pairs = zip(cuts[::2], cuts[1::2], strict=False)
        edits = [Replacement(a, b, random.choice(["", "x", "\n", "x\n"])) for a, b in pairs]
        plain, kept = replace(text, edits), replace(text, with_final_newline(text, edits))
        if text.endswith("\n") == plain.endswith("\n"):
            assert kept == plain
        elif text.endswith("\n"):
            assert kept == plain + "\n"
        else:
            assert kept == plain[:-1]


def test_a_relative_path_is_found_by_its_end() -> None:
    files = {"a.txt": "x", "d/one/b.txt": "x", "d/two/b.txt": "x"}
    place, _, answer = made(files, "x", "y", file_path="one/b.txt")
    assert place.text("d/one/b.txt") == "y"
    assert answer == f"Successfully modified file: {ROOT}/d/one/b.txt (1 replacements)."
    refused = refusal(files, "x", file_path="b.txt")
    assert refused.message.endswith(f"Matches: {ROOT}/d/one/b.txt, {ROOT}/d/two/b.txt")
    assert refusal(files, "x", file_path="c.txt").data == {"argument": "file_path"}
    assert made(files, "", "y", "head", file_path="c.txt")[0].text("c.txt") == "y"
    assert refusal(files, "x", file_path="../c.txt").code == "path_outside"
    assert (
        made({"a%20b.txt": "x"}, "x", "y", "head", file_path=f"{ROOT}/a%20b.txt")[0].text("a%20b.txt") == "y"
    )


def test_only_the_first_folders_are_searched_for_a_relative_path() -> None:
    files = {f"d{number:02}/x": "x" for number in range(60)}
    assert made(files | {"d10/b.txt": "x"}, "x", "y", file_path="b.txt")[0].text("d10/b.txt") == "y"
    assert refusal(files | {"d59/b.txt": "x"}, "x", file_path="b.txt").code == "invalid_params"


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("// rest of code ...", True),
        ("( Unchanged   METHODS ...... )", True),
        ("//(rest of...)", True),
        ("rest of methods ... below", False),
        ("# rest of code ...", False),
        ("// remaining lines ...", False),
        ("// // rest of code ...", False),
        ("rest of code", False),
    ],
)
def test_a_placeholder_for_omitted_lines_is_refused_unless_it_was_there(line: str, is_refused: bool) -> None:
    if is_refused:
        assert refusal("x\n", "x", f"y\n{line}").data == {"argument": "new_string"}
    else:
        assert line in text_after("x\n", "x", f"y\n{line}")
    assert text_after(f"x\n{line}\n", f"x\n{line}", f"y\n{line}") == f"y\n{line}\n"


@pytest.mark.parametrize("name", ["file_path", "instruction", "old_string", "new_string"])
@pytest.mark.parametrize("generation", ["smart", "head"])
def test_an_argument_that_is_missing_or_no_text_is_named(generation: Generation, name: str) -> None:
    arguments = {"file_path": FILE, "instruction": "x", "old_string": "a", "new_string": "b"}
    place = on({"a.txt": "a"}, settings=ToolSettings(generation=generation))
    wrong: list[object] = [None, ["x"], 1]
    for value in wrong:
        refused = place.refusal("gemini", "replace", {**arguments, name: value})
        assert refused.data == {"argument": name}
    del arguments[name]
    assert place.refusal("gemini", "replace", arguments).data == {"argument": name}


def test_the_number_of_matches_is_checked_as_in_the_original() -> None:
    counts: list[object] = [0, 0.5, True, "1", None]
    for count in counts:
        assert refusal("a", "a", expected_replacements=count).data == {"argument": "expected_replacements"}
        assert refusal("a", "a", generation="head", expected_replacements=count).data == {
            "argument": "expected_replacements", "similar": "allow_multiple",
        }  # fmt: skip
    choices: list[object] = [0, "true", None]
    for choice in choices:
        assert refusal("a", "a", generation="head", allow_multiple=choice).data == {
            "argument": "allow_multiple"
        }
    assert refusal("a", "a", expected_replacements=1.5).code == "count_mismatch"


def test_half_of_a_surrogate_pair_matches_nothing_and_is_not_written() -> None:
    assert refusal("🙂", "\ud83d", "").code == "no_match"
    assert refusal("a", "a", "\ud83d").data == {"argument": "new_string"}


def test_the_file_keeps_its_line_ends_and_its_mark() -> None:
    assert text_after("1\r\n  2\r\n3\r\n", "1\n 2", "x\ny", "head") == "x\r\ny\r\n3\r\n"
    assert text_after("\ufeff1\n2\n", "1", "x", "head") == "\ufeffx\n2\n"


def test_planning_makes_no_expression_of_the_old_text() -> None:
    """The attack: an old text of 6 MB of parentheses held the status of others up for a second."""
    searches: list[Search] = []

    def search(wanted: Search) -> tuple[Match, ...]:
        searches.append(wanted)
        return ()

    assert run_stages("a (b)\n", StageCall("a(b )", "c", "a(b )", True, None), search) is None
    assert [(wanted.language, wanted.pattern) for wanted in searches] == [("tokens", "a(b )")]
    assert run_stages("a\n", StageCall(" \n\t", "c", " \n\t", True, None), search) is None
