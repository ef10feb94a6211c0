"""engine.js_regex: ECMAScript's regular expressions."""

from __future__ import annotations

import time

import pytest

from editd.edits.replace import Replacement, replace
from editd.edits.search import Match, Search
from editd.engine.js_regex import SearchLimits, find_js
from editd.errors import InvalidRegex, Timeout, TooLarge
from support.crash_checks import own_time

BOUNDS = SearchLimits(100_000, 1_000_000)


def found(pattern: str, text: str, template: str | None = None, *, ignore_case: bool = False) -> list[Match]:
    return find_js(Search("ecmascript", pattern, text, ignore_case, template), 5, BOUNDS)


def replaced(pattern: str, text: str, template: str, *, ignore_case: bool = False) -> str:
    matches = found(pattern, text, template, ignore_case=ignore_case)
    return replace(text, [Replacement(match.start, match.end, match.expansion) for match in matches])


def refusal(pattern: str, text: str = "", template: str | None = None) -> InvalidRegex:
    with pytest.raises(InvalidRegex) as caught:
        found(pattern, text, template)
    assert caught.value.hint
    return caught.value


def test_matches_come_from_the_left_with_their_groups() -> None:
    assert found("(a)|b", "xab") == [Match(1, 2, ("a",)), Match(2, 3, (None,))]
    assert found("a", "bbb") == []


def test_after_an_empty_match_the_search_moves_on_by_one() -> None:
    assert replaced("a*", "aab", "-") == "--b-"
    assert replaced("", "ab", ".") == ".a.b."
    assert replaced("(?=b)", "abb", "!") == "a!b!b"


@pytest.mark.parametrize(
    ("pattern", "text", "template", "after"),
    [
        ("b", "abc", "$$$&", "a$bc"),
        ("b", "abc", "[$`|$']", "a[a|c]c"),
        ("[ab]", "ab", "<$'|$`>", "<b|><|a>"),
        ("(b)(c)?", "ab", "$2$1$3$0$01$10", "ab$3$0bb0"),
        ("(?<n>b)", "ab", "$<n>$<m>$<n", "ab$<n"),
        ("(b)", "ab", "$<n>", "a$<n>"),
        ("b", "ab", "\\n$", "a\\n$"),
        ("b", "ab", "", "a"),
    ],
)
def test_a_template_is_the_languages_own(pattern: str, text: str, template: str, after: str) -> None:
    assert replaced(pattern, text, template) == after


@pytest.mark.parametrize(
    ("pattern", "text", "after"),
    [
        ("^b$", "a\nb", "a\nb"),  # never the flag m
        ("a.b", "a\nb a\u2028b a\rb axb", "a\nb a\u2028b a\rb -"),
        ("\\s", "\ufeff\u00a0\u180e", "--\u180e"),
        ("\\w|\\d", "é\u0660", "é\u0660"),
        ("(?<=a+)b", "aab b", "aa- b"),
        ("(?:(a)|b)*\\1c", "abc", "-"),  # a group is reset at each turn
        ("\\u{2}|\\p{1}|a{,2}", "uu p a{,2}", "- - -"),
        ("\\101", "A", "-"),
        ("\\k<x>", "k<x>", "-"),
        ("[]|[^]", "a", "-"),
    ],
)
def test_the_syntax_is_that_of_the_language_without_the_flag_u(pattern: str, text: str, after: str) -> None:
    assert replaced(pattern, text, "-") == after


def test_case_is_folded_unit_by_unit() -> None:
    assert replaced("[σ]", "ςΣx", "-", ignore_case=True) == "--x"
    assert replaced("s|k|ß|i", "\u017f\u212a\u1e9e\u0131\u0130", "-", ignore_case=True).count("-") == 0


@pytest.mark.parametrize(
    "pattern",
    ["(", "a++", "(?>a)", "(?P<n>a)", "[z-a]", "a{2,1}", "(?<=a)*", "(?<n>a)\\k<m>", "(?<n>a)(?<n>b)"],
)
def test_what_is_no_expression_is_refused_in_the_words_of_v8(pattern: str) -> None:
    said = refusal(pattern)
    assert said.message.startswith(f"Invalid regular expression: /{pattern}/g: ")
    assert said.data["pattern"] == pattern


@pytest.mark.parametrize(
    "pattern", ["(?i:a)", "(?-s:a)", "a(?im-s:b)", "(?<n>a)|(?<n>b)", "[\\k](?<n>a)", "\ud83d"]
)
def test_what_is_newer_or_other_than_node_20_is_refused(pattern: str) -> None:
    refusal(pattern, "ab")


def test_what_only_looks_newer_is_taken() -> None:
    assert replaced("[(?i:]|\\(?i:|(?:x)", "(i:x", "-") == "----"
    assert replaced("[(?<n>](?<n>b)\\k<n>", "<bb", "-") == "-"


def test_offsets_are_in_characters() -> None:
    assert found("b", "\U0001f642b\U0001f642b") == [Match(1, 2), Match(3, 4)]
    assert replaced("\U0001f642(.)", "a\U0001f642bc", "[$1$`$']") == "a[bac]c"


def test_matches_of_both_halves_of_a_character_are_one() -> None:
    assert found(".", "x\U0001f642y") == [Match(0, 1), Match(1, 2), Match(2, 3)]
    assert replaced(".", "x\U0001f642y", "-") == "----"
    assert replaced("(.)", "x\U0001f642y", "$1") == "x\U0001f642y"
    assert replaced("[\ud83d\udc00-\udfff]".encode("unicode_escape").decode(), "a\U0001f642", "-") == "a--"


def test_a_match_of_half_a_character_is_told_as_of_all_of_it_if_the_other_half_is_put_back() -> None:
    text = "a\U0001f642"
    assert found("\\ud83d", text, "$&") == [Match(1, 2, (), "\U0001f642")]
    assert found("\\ude42", text, "$&") == [Match(1, 2, (), "\U0001f642")]
    said = refusal("\\ud83d", "\n" + text, "-")
    assert "\U0001f642 at line 2" in said.message
    refusal("a.", text, "")
    refusal("(.)(.)", "\U0001f642", "$2$1")
    refusal("(\\ud83d)", text)


def test_no_empty_match_falls_between_two_halves() -> None:
    assert replaced("", "\U0001f642", "-") == "-\U0001f642-"
    assert replaced("x*", "\U0001f642x", "-") == "-\U0001f642--"


def test_a_search_takes_no_longer_than_it_may() -> None:
    start = own_time()
    with pytest.raises(Timeout) as caught:
        find_js(Search("ecmascript", "(a+)+$", "a" * 60 + "!"), 0.2, BOUNDS)
    assert own_time() - start < 1
    assert caught.value.data == {"seconds": 0.2, "pattern": "(a+)+$"}


def test_an_answer_has_an_end() -> None:
    assert len(found("", "a" * 99_999)) == 100_000
    with pytest.raises(TooLarge) as caught:
        found("", "a" * 100_000)
    assert caught.value.data == {"limit": 100_000}
    for search in (
        Search("ecmascript", "a", "a" * 5000, template="$'"),
        Search("ecmascript", "(?=(a*))", "a" * 5000),
    ):
        with pytest.raises(TooLarge):
            find_js(search, 5, BOUNDS)


def test_many_matches_in_a_long_text_take_time_in_proportion() -> None:
    def seconds(times: int) -> float:
        text = "some words \U0001f642 more\n" * times
        start = time.process_time()
        assert len(found("(\\w+) ", text, "$1$1")) == 2 * times
        return time.process_time() - start

    few = min(seconds(2_000) for _ in range(3))
    assert seconds(20_000) < 40 * few
