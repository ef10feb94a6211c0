"""Tests of `editd.tools.gemini`."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import fuzz_gemini
from editd.edits.replace import replace
from editd.tools.gemini import replacements_of, unescape
from tool_calls import ROOT, on

if TYPE_CHECKING:
    from editd.errors import Refused

FILE = f"{ROOT}/a.txt"


def check(text: str, old: str, new: str, expected: str, count: float = 1) -> None:
    assert replace(text, replacements_of(text, old, new, count).replacements) == expected


def call(text: str | bytes, old: str, new: str, **more: Any) -> tuple[str | None, str]:
    """The tool's answer, and the file afterwards."""
    place = on({"a.txt": text})
    made = place.call("gemini", "replace", {"file_path": FILE, "old_string": old, "new_string": new, **more})
    return made.answers[0], place.text("a.txt")


def refusal(text: str | bytes, old: object = "a", new: object = "b", **more: Any) -> Refused:
    arguments = {"file_path": FILE, "old_string": old, "new_string": new, **more}
    refused = on({"a.txt": text}).refusal("gemini", "replace", arguments)
    assert refused.hint
    return refused


def test_exact_text_is_replaced_as_often_as_it_is_expected() -> None:
    check("one two", "two", "2", "one 2")
    check("a a a", "a", "b", "b b b", count=3)
    check("aaaa", "aa", "b", "bb", count=2.0)


def test_several_places_that_overlap_others_are_taken_from_the_left_with_a_warning() -> None:
    text = "x\nx\nx\nx\nx\n"
    made = replacements_of(text, "x\nx", "y", 2)
    assert replace(text, made.replacements) == "y\ny\nx\n"
    assert made.warnings == ("overlap: old_string is also at line 4, overlapping the place at line 3.",)


def test_what_is_put_in_is_literal() -> None:
    check("pre MARK post", "MARK", "$& $1 $$ \\1 \\n", "pre $& $1 $$ \\1 \\n post")


def test_both_strings_mean_what_they_say_at_their_ends() -> None:
    check("a\nb\nc\n", "b\n", "", "a\nc\n")
    check("f:\n\tgo\n", "\tgo\n", "\t\tgo\n", "f:\n\t\tgo\n")
    check("x   \n", "x   \n", "x\n", "x\n")


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [
        ("a\\nb", "a\nb"),
        ("a\\\\\\tb", "a\tb"),
        ("\\r", "\r"),
        ('it\\\'s \\"x\\" \\`y\\`', 'it\'s "x" `y`'),
        ("k\\\nl", "k\nl"),
        ("\\\\", "\\"),
        ("\\\\\\x", "\\x"),
        ("\\x", "\\x"),
        ("\\\\n", "\n"),
        ("\\", "\\"),
    ],
)
def test_escapes_are_undone_however_many_backslashes_they_have(escaped: str, plain: str) -> None:
    assert unescape(escaped) == plain


def test_an_escaped_text_is_found_where_it_is_not_there_as_it_stands_and_said_so() -> None:
    made = replacements_of("x\nalpha\nbeta\n", "alpha\\nbeta", "a\\n", 1)
    assert replace("x\nalpha\nbeta\n", made.replacements) == "x\na\\n\n"
    assert len(made.warnings) == 1
    assert made.warnings[0].startswith("unescaped: ")
    assert "line 2" in made.warnings[0]


def test_a_text_that_is_there_as_it_stands_is_taken_so() -> None:
    text = 'a\\nb\na\nb\n"q" \\"q\\"\n'
    made = replacements_of(text, "a\\nb", "x", 1)
    assert (replace(text, made.replacements), made.warnings) == ('x\na\nb\n"q" \\"q\\"\n', ())
    assert refusal(text, '\\"q\\"', expected_replacements=2).data == {"expected": 2, "found": 1, "lines": [4]}


def test_the_answers_are_those_of_the_original() -> None:
    assert (
        call("a a", "a", "b", expected_replacements=2)[0]
        == f"Successfully modified file: {FILE} (2 replacements)."
    )
    told = " User modified the `new_string` content to be: b."
    meant: list[object] = [True, "yes", [], {}]
    for said in meant:
        assert str(call("a", "a", "b", modified_by_user=said)[0]).endswith(told)
    not_meant: list[object] = [False, None, 0, ""]
    for said in not_meant:
        assert str(call("a", "a", "b", modified_by_user=said)[0]).endswith("(1 replacements).")


def test_the_file_keeps_its_line_ends() -> None:
    assert call("1\r\n2\r\n3\r\n", "1\n2", "x\ny")[1] == "x\r\ny\r\n3\r\n"
    assert call("1\r\n2\r\n3\r\n", "1\r\n2", "x\r\ny")[1] == "x\r\ny\r\n3\r\n"
    assert call("1\n2\n", "2", "x\r\ny")[1] == "1\nx\ny\n"
    assert call("1\r\n2\n3\r\n", "2\n3", "x")[1] == "1\r\nx\r\n"


def test_a_lone_cr_is_a_character() -> None:
    assert call("a\rb\n", "a\rb", "x")[1] == "x\n"
    assert refusal("a\rb\n", "a\nb").code == "no_match"


def test_the_file_keeps_its_encoding() -> None:
    place = on({"a.txt": b"\xff\xfea\0\n\0"})
    place.call("gemini", "replace", {"file_path": FILE, "old_string": "a", "new_string": "é"})
    assert place.files["a.txt"] == b"\xff\xfe\xe9\0\n\0"
    assert refusal(b"\xffa").code == "not_text"


def test_a_text_that_is_not_there_is_answered_with_the_nearest_passage() -> None:
    refused = refusal("harbor\nlantern light\nmeadow\n", "lantern  light")
    assert refused.code == "no_match"
    assert refused.data["nearest"]["start_line"] == 2
    assert refused.data["differs"] == ["whitespace"]


def test_a_text_that_is_there_more_often_is_refused_by_its_lines() -> None:
    refused = refusal("a\nb\na\n")
    assert (refused.code, refused.data) == ("ambiguous", {"found": 2, "lines": [1, 3]})
    assert "lines 1, 3" in refused.message
    refused = refusal('"q"\n"q"\n', '\\"q\\"')
    assert (refused.code, refused.data) == ("ambiguous", {"found": 2, "lines": [1, 2]})
    assert "backslashes undone" in refused.message


def test_a_count_that_is_not_met_is_refused_with_both_counts() -> None:
    refused = refusal("a\nb\na\n", expected_replacements=3)
    assert (refused.code, refused.data) == ("count_mismatch", {"expected": 3, "found": 2, "lines": [1, 3]})
    assert refusal("a", expected_replacements=1.5).code == "count_mismatch"
    assert refusal("b", expected_replacements=3).code == "no_match"


def test_an_edit_that_changes_nothing_is_refused() -> None:
    assert refusal("a", "a", "a").code == "no_change"
    assert refusal("b", "a", "a").code == "no_match"
    assert refusal("a\r\nb\r\n", "a\nb", "a\r\nb").code == "no_change"
    assert refusal("a\nb", "a\\nb", "a\\nb").code == "no_change"
    assert refusal("a\nb", "a\\nb", "a\nb").code == "no_change"


@pytest.mark.parametrize("name", ["file_path", "old_string", "new_string"])
def test_an_argument_that_is_missing_or_no_text_is_named(name: str) -> None:
    given: dict[str, Any] = {"file_path": FILE, "old_string": "a", "new_string": "b"}
    for wrong in ({}, {name: None}, {name: ["x"]}):
        given.pop(name, None)
        refused = on({"a.txt": "a"}).refusal("gemini", "replace", given | wrong)
        assert (refused.code, refused.data) == ("invalid_params", {"argument": name})


def test_a_count_below_one_or_of_another_kind_is_refused() -> None:
    counts: list[object] = [0, -3, 0.5, float("nan"), True, "1", None, []]
    for count in counts:
        assert refusal("a", expected_replacements=count).data == {"argument": "expected_replacements"}


def test_an_argument_of_the_client_does_not_matter() -> None:
    assert call("a", "a", "b", wait_for_previous=True, ai_proposed_content=7)[1] == "b"


@pytest.mark.parametrize("new", ["", "no newline", "$& \\n\r\n"])
def test_an_empty_old_string_makes_a_file_that_holds_new_string(new: str) -> None:
    place = on({})
    arguments = {
        "file_path": f"{ROOT}/d/e/new.txt",
        "old_string": "",
        "new_string": new,
        "expected_replacements": 7,
    }
    made = place.call("gemini", "replace", arguments)
    assert place.files == {"d/e/new.txt": new.encode()}
    assert made.answers == (f"Created new file: {ROOT}/d/e/new.txt with provided content.",)


def test_a_file_that_is_there_is_not_made() -> None:
    assert refusal("a", "", "new").code == "file_exists"
    assert refusal("", "", "").code == "file_exists"


@pytest.mark.parametrize(
    ("path", "old", "code"),
    [
        ("", "a", "invalid_params"),
        ("a.txt", "a", "invalid_params"),
        ("~/a.txt", "a", "invalid_params"),
        (f"{ROOT}/b.txt", "a", "file_missing"),
        (f"{ROOT}/no/b.txt", " ", "file_missing"),
        (f"{ROOT}/../b.txt", "", "path_outside"),
        (f"{ROOT}-more/b.txt", "", "path_outside"),
        ("/etc/passwd", "a", "path_outside"),
        (f"{ROOT}/a.txt/b", "", "path_outside"),
        (f"{ROOT}/a.txt/b/c", "a", "path_outside"),
        (f"{ROOT}/gone", "", "path_outside"),
        (f"{ROOT}/gone/b", "", "path_outside"),
        (f"{ROOT}/out/b", "a", "path_outside"),
        (ROOT, "a", "not_a_file"),
        (f"{ROOT}/d", "a", "not_a_file"),
        (f"{ROOT}/d", "", "not_a_file"),
        (f"{ROOT}/.git/config", "a", "path_protected"),
    ],
)
def test_a_path_that_leads_to_no_file_is_refused(path: str, old: str, code: str) -> None:
    place = on(
        {"a.txt": "a", "d/b.txt": "a", ".git/config": "a"}, links={"gone": "nothing", "out": "../outside"}
    )
    refused = place.refusal("gemini", "replace", {"file_path": path, "old_string": old, "new_string": "x"})
    assert refused.code == code
    assert refused.hint


@pytest.mark.parametrize("path", ["/./a.txt", "//a.txt", "/d/../a.txt", "/link.txt"])
def test_a_path_may_be_written_in_any_way_below_the_root(path: str) -> None:
    place = on({"a.txt": "a", "d/b.txt": ""}, links={"link.txt": "a.txt"})
    made = place.call("gemini", "replace", {"file_path": ROOT + path, "old_string": "a", "new_string": "b"})
    assert place.text("a.txt") == "b"
    assert str(made.answers[0]).startswith(f"Successfully modified file: {ROOT}{path} ")


def test_half_of_a_surrogate_pair_is_not_written_and_matches_nothing() -> None:
    assert refusal("a", "a", "\ud83d").data == {"argument": "new_string"}
    assert refusal("🙂", "\ud83d", "").code == "no_match"
    refused = on({}).refusal(
        "gemini", "replace", {"file_path": FILE, "old_string": "", "new_string": "\udc00"}
    )
    assert refused.data == {"argument": "new_string"}


def test_random_calls_come_out_as_another_reading_of_the_page_has_it() -> None:
    seen = {fuzz_gemini.check(text, given) for text, given in islice(fuzz_gemini.calls(Random(1)), 2000)}
    assert seen >= {"ok", "made", "no_match", "ambiguous", "count_mismatch", "no_change", "file_exists"}
