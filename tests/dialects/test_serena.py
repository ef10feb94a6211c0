"""Tests of `editd.tools.serena`."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import fuzz_serena
from editd.edits.replace import replace
from editd.edits.search import Match
from editd.errors import Ambiguous, InvalidParams
from editd.tool_api.tool_settings import ToolSettings
from editd.tools.serena import literal_matches, replacements_of
from editd.values.content import version_of
from editd.values.transaction import Base
from tool_calls import ROOT, Workspace, on

if TYPE_CHECKING:
    from editd.errors import Refused

CODE = "try {\n  a();\n} catch (e) {\n  log(1);\n}\ntry {\n  b();\n} catch (e) {\n  log(2);\n}\n"


def args(needle: str, repl: str, mode: str = "literal", path: str = "a.txt", **more: Any) -> dict[str, Any]:
    return {"relative_path": path, "needle": needle, "repl": repl, "mode": mode, **more}


def check(text: str, expected: str, needle: str, repl: str, mode: str = "literal", **more: Any) -> None:
    place = on({"a.txt": text})
    made = place.call("serena", "replace_content", args(needle, repl, mode, **more))
    assert place.text("a.txt") == expected
    assert made.answers == ("OK",)


def refusal(place: Workspace, needle: str, repl: str = "x", mode: str = "literal", **more: Any) -> Refused:
    refused = place.refusal("serena", "replace_content", args(needle, repl, mode, **more))
    assert refused.hint
    return refused


def test_the_core_puts_the_template_at_each_match() -> None:
    text = "ab\nb\n"
    matches = [Match(0, 2, ("a", None)), Match(3, 4, (None, "b"))]
    made = replacements_of(text, matches, "[$!0$!1$!2]", is_literal=False)
    assert replace(text, made) == "[aba]\n[bb]\n"
    assert replace(text, replacements_of(text, matches, "$!1", is_literal=True)) == "$!1\n$!1\n"


def test_a_match_that_holds_another_is_refused_before_its_template_is_read() -> None:
    with pytest.raises(Ambiguous):
        replacements_of("a\nb", [Match(0, 3, has_inner=True)], "$!9", is_literal=False)
    with pytest.raises(InvalidParams):
        replacements_of("a\nb", [Match(0, 1), Match(0, 3, has_inner=True)], "$!9", is_literal=False)


def test_literal_places_do_not_overlap() -> None:
    assert literal_matches("aaaaa", "aa") == [Match(0, 2), Match(2, 4)]
    assert literal_matches("b", "a") == []


def test_a_literal_needle_is_no_expression_and_its_replacement_no_template() -> None:
    check("f(x).*\n", "$!1 \\1\n", "f(x).*", "$!1 \\1")
    check("a.b a+b", "- a+b", "a.b", "-")


def test_an_expression_takes_line_ends_by_a_dot_and_lines_by_anchors() -> None:
    check("a\nb\nc\n", "x\nc\n", "^a.*b$", "x", "regex")
    check("a\nb", "a;\nb;", "$", ";", "regex", allow_multiple_occurrences=True)


def test_groups_are_put_in_by_number_once() -> None:
    check("$!1 x\n", "$!1 y\n", "(\\S+) x", "$!1 y", "regex")
    check("ab", "ab b  $!first", "(?P<first>ab)|(c)|(d)", "$!1 b $!3 $!first", "regex")
    check("ab", "a", "(a)b", "$!١", "regex")


def test_a_group_that_is_not_there_is_named() -> None:
    for repl in ("$!2", "$!99999999999999999999"):
        refused = refusal(on({"a.txt": "aa"}), "(a)", repl, "regex")
        assert (refused.code, refused.data["groups"]) == ("invalid_params", 1)
        assert refused.data["group"] in refused.message


def test_several_places_are_refused_by_their_lines_or_all_taken() -> None:
    refused = refusal(on({"a.txt": "cat\ndog\ncat\n"}), "cat")
    assert refused.data == {"found": 2, "lines": [1, 3]}
    assert "lines 1, 3" in refused.message
    check("cat dog cat", "cow dog cow", "cat", "cow", allow_multiple_occurrences="Yes")


def test_an_expression_that_begins_too_early_is_refused_with_the_lines_of_its_match() -> None:
    refused = refusal(on({"a.txt": CODE}), "catch.*?log\\(2\\)", "x", "regex")
    assert refused.code == "ambiguous"
    assert (refused.data["start_line"], refused.data["end_line"]) == (3, 9)
    assert "lines 3-9" in refused.message


def test_all_literal_places_are_taken_from_the_left_with_a_warning_of_one_that_overlaps() -> None:
    place = on({"a.txt": "x\nx\nx\n"})
    made = place.call("serena", "replace_content", args("x\nx", "y", allow_multiple_occurrences=True))
    assert place.text("a.txt") == "y\nx\n"
    (report,) = made.reports.values()
    assert report.warnings == ("overlap: the needle is also at line 2, overlapping the place at line 1.",)


def test_a_warning_names_a_match_of_an_expression_that_overlaps_the_last() -> None:
    place = on({"a.txt": "x\nx\nx\n"})
    given = args(r"x\nx", "y", "regex", allow_multiple_occurrences=True)
    (report,) = place.call("serena", "replace_content", given).reports.values()
    assert place.text("a.txt") == "y\nx\n"
    assert report.warnings == ("overlap: the needle is also at line 2, overlapping the place at line 1.",)


@pytest.mark.parametrize(
    ("needle", "expected"),
    [("a+", "x  b c d\n"), ("a.*d", "x\n"), (r"\s*b c", "aax d\n"), (r"a+\s*b", "x c d\n")],
)
def test_a_later_beginning_within_a_match_is_no_second_place(needle: str, expected: str) -> None:
    check("aa  b c d\n", expected, needle, "x", "regex")


def test_an_edit_that_changes_nothing_is_made() -> None:
    check("a\n", "a\n", "a", "a")


def test_what_is_put_in_takes_the_line_ends_of_the_file() -> None:
    check("one\r\ntwo\r\n", "one\r\n2\r\n3\r\n", "two\n", "2\n3\n")
    check("one\r\ntwo\r\n", "1\r\n", "one\r\ntwo", "1")
    check("one\r\ntwo\r\n", "one\r\nTWO\r\n", "two\\r?\\n", "TWO\n", "regex")
    check("one\ntwo\n", "one\n2\n3\n", "two\n", "2\r\n3\n")


def test_a_needle_with_other_line_ends_than_a_file_of_lf_is_not_there() -> None:
    refused = refusal(on({"a.txt": "one\ntwo\n"}), "one\r\ntwo")
    assert refused.code == "no_match"
    assert refused.data["nearest"]["start_line"] == 1


def test_the_mark_stays_and_is_no_part_of_the_text() -> None:
    place = on({"a.txt": b"\xef\xbb\xbfone\n"})
    place.call("serena", "replace_content", args("^one", "ONE", "regex"))
    assert place.files["a.txt"] == b"\xef\xbb\xbfONE\n"


def test_a_text_that_is_not_there_is_answered_with_the_nearest_passage() -> None:
    refused = refusal(on({"a.txt": CODE}), "  log( 2);\n")
    assert refused.code == "no_match"
    assert refused.data["nearest"]["start_line"] == 9


def test_an_expression_that_should_have_been_literal_is_told_so() -> None:
    refused = refusal(on({"a.txt": CODE}), "catch (e)", "x", "regex")
    assert refused.data == {"literal_lines": [3, 8]}
    assert 'mode "literal"' in refused.hint


def test_an_expression_that_matches_nothing_is_answered_with_the_nearest_passage() -> None:
    refused = refusal(on({"a.txt": CODE}), "catch \\(e\\) \\{\\s+log\\(3\\)", "x", "regex")
    assert refused.data["nearest"]["start_line"] in (3, 8)
    refused = refusal(on({"a.txt": CODE}), "zebra\\d", "x", "regex")
    assert refused.data == {"nearest": None, "differs": []}


def test_an_expression_that_cannot_be_read_is_refused() -> None:
    for pattern in ("a(", "a**", "a{3,2}", "(?<=a+)b", "a{99999999999}"):
        assert refusal(on({"a.txt": "ab"}), pattern, "x", "regex").code == "invalid_regex"


def test_an_empty_needle_is_refused() -> None:
    assert refusal(on({"a.txt": "a\nb"}), "").data == {"found": 4, "lines": [1, 1, 2, 2]}
    assert refusal(on({"a.txt": "ab"}), "", mode="regex").code == "ambiguous"
    assert refusal(on({"a.txt": ""}), "").code == "invalid_params"
    assert refusal(on({"a.txt": "ab"}), "", allow_multiple_occurrences=True).code == "invalid_params"


@pytest.mark.parametrize("name", ["relative_path", "needle", "repl", "mode"])
def test_an_argument_that_is_missing_or_no_text_is_named(name: str) -> None:
    given = args("a", "b")
    for wrong in ({}, {name: None}, {name: 7}):
        given.pop(name, None)
        refused = on({"a.txt": "a"}).refusal("serena", "replace_content", given | wrong)
        assert (refused.code, refused.data) == ("invalid_params", {"argument": name})


def test_a_mode_or_a_boolean_of_another_name_is_refused() -> None:
    for more in ({"mode": "Literal"}, {"mode": ""}):
        refused = on({"a.txt": "a"}).refusal("serena", "replace_content", args("a", "b") | more)
        assert refused.data == {"argument": "mode"}
    words: list[object] = ["maybe", "", 2, None, []]
    for word in words:
        refused = refusal(on({"a.txt": "a"}), "a", allow_multiple_occurrences=word)
        assert refused.data == {"argument": "allow_multiple_occurrences"}


def test_a_boolean_may_be_a_word() -> None:
    check("a", "b", "a", "b", allow_multiple_occurrences="OFF")


def test_half_of_a_surrogate_pair_is_not_written() -> None:
    assert refusal(on({"a.txt": "a"}), "a", "\ud83d").data == {"argument": "repl"}
    assert refusal(on({"a.txt": "🙂"}), "\ud83d").code == "no_match"


@pytest.mark.parametrize(
    "path", ["./d/a.txt", "d//a.txt", "d/../d/a.txt", f"{ROOT}/d/a.txt", "link/a.txt", "l.txt"]
)
def test_a_path_may_be_written_in_any_way(path: str) -> None:
    place = on({"d/a.txt": "a"}, links={"link": "d", "l.txt": "d/a.txt"})
    place.call("serena", "replace_content", args("a", "b", path=path))
    assert place.text("d/a.txt") == "b"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("b.txt", "file_missing"),
        ("no/../a.txt", "file_missing"),
        ("a.txt/../a.txt", "file_missing"),
        ("a.txt/b", "file_missing"),
        ("gone", "file_missing"),
        (" a.txt", "file_missing"),
        ("~/a.txt", "file_missing"),
        ("", "not_a_file"),
        (".", "not_a_file"),
        ("d", "not_a_file"),
        ("d/", "not_a_file"),
        ("a.txt/", "not_a_file"),
        (ROOT, "not_a_file"),
        ("../a.txt", "path_outside"),
        ("/etc/passwd", "path_outside"),
        ("out/a.txt", "path_outside"),
        (".git/config", "path_protected"),
        ("d/../.git/config", "path_protected"),
        ("a\0b", "invalid_params"),
    ],
)
def test_a_path_that_leads_to_no_file_is_refused(path: str, code: str) -> None:
    place = on(
        {"a.txt": "a", "d/b.txt": "a", ".git/config": "a"}, links={"gone": "nothing", "out": "../outside"}
    )
    assert place.refusal("serena", "replace_content", args("a", "b", path=path)).code == code


@pytest.mark.parametrize(
    "path", ["a.log", "d/a.log", f"{ROOT}/d/a.log", "d/e/x", "build", "build/x", "gen/x"]
)
def test_an_ignored_file_is_refused(path: str) -> None:
    files = {".gitignore": "*.log\nbuild/\n", "d/.gitignore": "/e\n"}
    held = ("a.log", "d/a.log", "d/e/x", "build/x", "gen/x")
    place = on(files | dict.fromkeys(held, "a"), settings=ToolSettings(ignored_paths=("gen",)))
    assert place.refusal("serena", "replace_content", args("a", "b", path=path)).code == "path_ignored"


def test_what_is_missing_is_missing_before_it_is_ignored() -> None:
    place = on({".gitignore": "*.log\n"})
    assert place.refusal("serena", "replace_content", args("a", "b", path="a.log")).code == "file_missing"


def test_an_ignore_file_speaks_for_the_folder_that_it_lies_in() -> None:
    place = on({"real/.gitignore": "a.txt\n", "real/a.txt": "a", "a.txt": "a"}, links={"link": "real"})
    place.call("serena", "replace_content", args("a", "b"))
    place.call("serena", "replace_content", args("a", "b", path="link/a.txt"))
    assert place.text("a.txt") == place.text("real/a.txt") == "b"


def test_an_ignore_file_that_cannot_be_read_says_nothing() -> None:
    place = on({"a.txt": "a", "d/.gitignore": b"\xff", "d/a.txt": "a"}, links={".gitignore": "../outside"})
    place.call("serena", "replace_content", args("a", "b"))
    place.call("serena", "replace_content", args("a", "b", path="d/a.txt"))
    assert place.text("a.txt") == place.text("d/a.txt") == "b"


def test_the_base_of_a_call_is_that_of_the_file_and_not_of_ignore_files() -> None:
    place = on({".gitignore": "b.txt\n", "a.txt": "a"})
    made = place.call("serena", "replace_content", args("a", "b"), base=Base(version_of(b"a")))
    assert [path.text for path in made.reports] == ["a.txt"]


def test_random_calls_come_out_as_the_original_s_own_lines_have_it() -> None:
    seen = {fuzz_serena.check(text, given) for text, given in islice(fuzz_serena.calls(Random(1)), 2000)}
    assert seen >= {"ok", "no_match", "ambiguous", "invalid_regex", "invalid_params"}
