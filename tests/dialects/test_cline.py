"""Tests of `editd.tools.cline`: the pure core, and the tool through the real planning."""

from __future__ import annotations

import random
import time
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.edits.replace import replace
from editd.errors import MalformedEdit, NoMatch, Refused
from editd.tools.cline import DIALECT, Edits, edits_of
from fuzz_cline import calls
from tool_calls import ROOT, on

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = "alpha\nbravo\ncharlie\ndelta\necho\n"
TWINS = "x\nmiddle\nx\nlast\n"


def block(search: str, new: str) -> str:
    """A block; the texts have no final newline, and "" is no line at all."""
    sections = [f"{text}\n" if text else "" for text in (search, new)]
    return f"------- SEARCH\n{sections[0]}=======\n{sections[1]}+++++++ REPLACE\n"


def made(text: str, edits: Edits) -> str:
    return replace(text, edits.replacements)


def check(text: str, diff: str, expected: str, warnings: Sequence[str] = ()) -> None:
    """`warnings` are the kinds of those that are given."""
    edits = edits_of(text, diff)
    assert made(text, edits) == expected
    assert [warning.split(":")[0] for warning in edits.warnings] == list(warnings)


def refused(kind: type[Refused], text: str | None, diff: str) -> Refused:
    with pytest.raises(kind) as caught:
        edits_of(text, diff, "f.txt")
    assert caught.value.hint
    return caught.value


# ── Where the lines are ────────────────────────────────────────────────────────────────────────────


def test_whole_lines_are_replaced_or_deleted() -> None:
    check(TEXT, block("charlie", "C\nD"), "alpha\nbravo\nC\nD\ndelta\necho\n")
    check(TEXT, block("bravo\ncharlie", ""), "alpha\ndelta\necho\n")
    check(TEXT, block(TEXT[:-1], ""), "")
    check(TEXT, block("echo", "echo"), TEXT)


def test_part_of_a_line_is_no_place() -> None:
    refusal = refused(NoMatch, "foobar\nend\n", block("bar", "new"))
    assert refusal.hint == "It is only part of line 1: give whole lines."
    check("foobar\nbar\n", block("bar", "new"), "foobar\nnew\n")
    check("a\n\nb\n", "------- SEARCH\n\n=======\nnew\n+++++++ REPLACE", "a\nnew\nb\n")


def test_white_space_at_the_ends_of_lines_does_not_matter_where_nothing_is_exact() -> None:
    check("if:\n    a \n    b\nend\n", block("a\nb", "c"), "if:\nc\nend\n", ["line_trimmed"])
    check("\u00a0a\ufeff\nb\n", block("a", "c"), "c\nb\n", ["line_trimmed"])
    check("  a\na\n", block("a", "c"), "  a\nc\n")


def test_the_warning_names_the_lines() -> None:
    (warning,) = edits_of("one\n  two\n three\n", block("two\nthree", "2"), "f.txt").warnings
    assert warning.startswith("line_trimmed: block 1 (line 1 of the diff) matched lines 2-3 of f.txt ")


def test_an_indentation_that_only_the_search_is_without_stays() -> None:
    check("    return a;\nend\n", block("return a;", "return b;"), "    return b;\nend\n", ["line_trimmed"])
    check("    return a;\nend\n", block("return a;", "\treturn b;"), "\treturn b;\nend\n", ["line_trimmed"])
    check("    return a;\nend\n", block("return a;", ""), "end\n", ["line_trimmed"])
    check("    return a;", block("return a;", "return b;"), "return b;", ["line_trimmed"])
    check("    return a; \nend\n", block("return a;", "b"), "b\nend\n", ["line_trimmed"])


def test_three_lines_and_more_are_found_by_the_first_and_the_last() -> None:
    check("begin\none\nend\nrest\n", block("begin\ntwo\nend", "new"), "new\nrest\n", ["block_anchor"])
    refused(NoMatch, "begin\none\nmore\nend\n", block("begin\none\nend", "new"))
    refused(NoMatch, "begin\none\n", block("begin\ntwo", "new"))


def test_the_line_after_the_final_newline_is_one_only_where_no_other_is_there() -> None:
    check("a\nb\n", block("b\n", "B"), "a\nB\n", ["line_trimmed"])
    check("a\n", block("  ", "b"), "a\nb\n", ["line_trimmed"])
    check("a\n\nb\n", block("  ", "X"), "a\nX\nb\n", ["line_trimmed"])
    check("a\nx\n", block("a\nb\n", "X"), "X\n", ["block_anchor"])
    check("a\n\n", block("a\n", "A"), "A\n")


def test_a_missing_final_newline_stays_missing() -> None:
    check("a\nb", block("b", "B"), "a\nB")
    check("a\nb", block("a\nb", "A\nB"), "A\nB")
    check("a\nb", block("a", "A"), "A\nb")
    check("a\nb", block("b", ""), "a\n")


def test_every_block_sees_the_file_as_it_was() -> None:
    refused(NoMatch, "a\n", block("a", "b") + block("b", "c"))
    check("a\nb\n", block("a", "b") + block("b", "a"), "b\na\n")


def test_exact_blocks_may_come_out_of_order() -> None:
    check(
        TEXT,
        block("delta", "D") + block("bravo", "B") + block("echo", "E"),
        "alpha\nB\ncharlie\nD\nE\n",
    )


def test_what_is_not_exact_is_not_looked_for_above_and_the_refusal_says_where_it_is() -> None:
    refusal = refused(NoMatch, "b \na\n", block("a", "A") + block("b", "B"))
    assert "line 1" in refusal.hint
    assert refusal.data["block"] == 2
    assert refusal.data["line"] == 6


@given(st.permutations(range(8)), st.integers(1, 8), st.booleans())
def test_blocks_of_different_lines_are_made_in_any_order(order: list[int], count: int, is_open: bool) -> None:
    lines = [f"line {number}" for number in range(8)]
    chosen = order[:count]
    diff = "".join(block(lines[number], f"new {number}") for number in chosen)
    expected = "\n".join(f"new {n}" if n in chosen else line for n, line in enumerate(lines))
    end = "" if is_open else "\n"
    check("\n".join(lines) + end, diff, expected + end)


def test_lines_that_are_not_there_are_refused_with_what_is_nearest() -> None:
    refusal = refused(NoMatch, "def f():\n    return 1\n", block("def g():\n    return 1\n    pass", "x"))
    assert refusal.message == "The lines of block 1 (line 1 of the diff) are not in f.txt."
    assert refusal.data["nearest"]["start_line"] == 1
    refusal = refused(NoMatch, None, block("a", "b"))
    assert refusal.message.startswith("f.txt does not exist")


# ── M1: the first match ────────────────────────────────────────────────────────────────────────────


def check_first(text: str, diff: str, expected: str, others: Sequence[int], *kinds: str) -> None:
    """`others` are the lines of the other matches that the last warning names."""
    edits = edits_of(text, diff, "f.txt")
    assert made(text, edits) == expected
    assert [warning.split(":")[0] for warning in edits.warnings] == [*kinds, "first_match"]
    places = f"{len(others)} other {'place' if len(others) == 1 else 'places'} of f.txt as well, at line"
    assert places in edits.warnings[-1]
    named = edits.warnings[-1].partition(" as well, at line")[2].partition(";")[0].removeprefix("s")
    assert [int(number) for number in named.split(",")] == list(others)


def test_a_block_replaces_only_the_first_match_and_the_answer_warns_how_many_others_there_are() -> None:
    check_first(TWINS, block("x", "y"), "y\nmiddle\nx\nlast\n", [3])
    check_first("x\nx\nx\n", block("x", "y"), "y\nx\nx\n", [2, 3])
    check_first(" x\nx \n", block("x", "y"), " y\nx \n", [2], "line_trimmed")
    check_first("a\nq\nb\na\nr\nb\n", block("a\nz\nb", "y"), "y\na\nr\nb\n", [4], "block_anchor")
    check_first("a\na\na\n", block("a\na", "y"), "y\na\n", [2])
    check_first("x\ny\nx", block("x", "y"), "y\ny\nx", [3])
    check_first(" x\ny\nx", block("x", "y"), " y\ny\nx", [3], "line_trimmed")


def test_the_warning_names_the_lines_of_the_other_matches() -> None:
    (warning,) = edits_of(TWINS, block("x", "y"), "f.txt").warnings
    assert warning == (
        "first_match: block 1 (line 1 of the diff) matches 1 other place of f.txt as well, at line 3; "
        "only line 1 changed."
    )
    many = edits_of("x\n" * 1000, block("x", "y"), "f.txt").warnings[0]
    assert "100 or more other places of f.txt as well, at lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …;" in many


def test_the_first_match_is_looked_for_after_the_block_before_it() -> None:
    check(TWINS, block("x", "1") + block("x", "2"), "1\nmiddle\n2\nlast\n")
    check_first(TWINS, block("middle", "m") + block("x", "2"), "x\nm\n2\nlast\n", [1])
    check("x \ny\nx", block("x", "1") + block("y\nx", "2"), "1\n2", ["line_trimmed"])
    check("x\nx\nx\n", block("x", "1") + block("x", "2"), "1\n2\nx\n", ["first_match", "first_match"])
    check_first(TWINS, block("last", "l") + block("x", "1"), "1\nmiddle\nx\nl\n", [3])


def test_an_approximate_match_below_goes_before_an_exact_one_above_and_the_warning_names_that() -> None:
    check_first("b\na\n b\n", block("a", "A") + block("b", "B"), "b\nA\n B\n", [1], "line_trimmed")
    check("b\n b\n", block("b", "A") + block("b", "B"), "A\n B\n", ["line_trimmed"])


def test_many_blocks_with_the_same_old_lines_take_little_time() -> None:
    text, diff = "x\n" * 2_000, block("x", "y") * 2_000
    before = time.thread_time()
    edits_of(text, diff)
    assert time.thread_time() - before < 3


def test_two_blocks_of_the_same_lines_are_refused() -> None:
    refusal = refused(MalformedEdit, TEXT, block("charlie", "1") + block("charlie", "2"))
    assert refusal.message == (
        "Block 1 (line 1 of the diff) and block 2 (line 6 of the diff) both replace line 3 of f.txt."
    )
    assert refusal.data == {"line": 6}
    refused(MalformedEdit, "a\nb\nc\n", block("b\nc", "X") + block("a\nb", "Y"))


# ── M3: the diff ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("start", ["--- SEARCH", "<<<<<<< SEARCH", "------------ SEARCH>", "<<< SEARCH>"])
@pytest.mark.parametrize("separator", ["===", "============"])
@pytest.mark.parametrize("end", ["+++ REPLACE", ">>>>>>>>> REPLACE", "+++++++ REPLACE>"])
def test_markers_have_two_styles_and_any_length_from_three(start: str, separator: str, end: str) -> None:
    check(TEXT, f"{start}\ncharlie\n{separator}\nC\n{end}", "alpha\nbravo\nC\ndelta\necho\n")


def test_text_around_blocks_does_not_matter() -> None:
    diff = f"Here it is:\n{block('alpha', 'A')}and also\n\n{block('echo', 'E')}\n---"
    check(TEXT, diff, "A\nbravo\ncharlie\ndelta\nE\n")


def test_what_only_begins_like_a_marker_is_text() -> None:
    check("- a\n- b\n", block("- a", "- A\n+ x\n> y\n< z\n= w"), "- A\n+ x\n> y\n< z\n= w\n- b\n")
    check("a\n", block("a", "$& $1 \\1 $$"), "$& $1 \\1 $$\n")


def test_a_diff_with_cr_lf_is_read_like_one_with_lf() -> None:
    check(TEXT, block("bravo", "B\nC").replace("\n", "\r\n"), "alpha\nB\nC\ncharlie\ndelta\necho\n")


def test_the_end_of_the_diff_may_stand_for_the_last_marker() -> None:
    check("a\nb\n", "------- SEARCH\na\n=======\nA", "A\nb\n", ["unclosed"])
    check("a\nb\n", "------- SEARCH\na\n=======\nA\n- item", "A\n- item\nb\n", ["unclosed"])
    check("a\nb\n", "------- SEARCH\na\n=======\nA\n", "A\n\nb\n", ["unclosed"])
    check("a\nb\n", "------- SEARCH\na\n=======", "b\n", ["unclosed"])


@pytest.mark.parametrize(
    "cut", ["+++", "+++++++", "+++++++ ", "+++++++ R", ">>>>>>> REPLAC", "+++++++ REPLACE "]
)
def test_a_last_marker_that_was_cut_off_is_no_text(cut: str) -> None:
    check("a\nb\n", f"------- SEARCH\na\n=======\nA\n{cut}", "A\nb\n", ["unclosed"])


@pytest.mark.parametrize("last", ["+", "++ REPLACE", "------- REPLACE", "+++++++REPLACE", "---", "=="])
def test_a_last_line_that_may_be_a_broken_marker_is_refused(last: str) -> None:
    assert refused(MalformedEdit, "a\n", f"------- SEARCH\na\n=======\nA\n{last}").data == {"line": 5}


@pytest.mark.parametrize(
    ("diff", "line"),
    [
        ("no block at all", 1),
        ("------- SEARCH\ncharlie", 1),
        ("------- SEARCH\ncharlie\n+++++++ REPLACE", 3),
        ("+++++++ REPLACE", 1),
        (block("charlie", "C") + "more\n+++++++ REPLACE", 7),
        ("------- SEARCH\nalpha\n=======\nA\n" + block("charlie", "C"), 5),
        ("------- SEARCH\nalpha\n=======\nA\n=======\nB\n+++++++ REPLACE", 5),
        (block("alpha", "A") + "------- SEARCH\ncharlie", 6),
        ("\n=======\nC\n+++++++ REPLACE", 2),
        (block("", "C"), 1),
    ],
)
def test_what_is_not_blocks_through_and_through_is_refused(diff: str, line: int) -> None:
    assert refused(MalformedEdit, TEXT, diff).data == {"line": line}


@pytest.mark.parametrize(
    ("diff", "nearly"),
    [
        ("------- SEARCH\ncharlie\n======= \nC\n+++++++ REPLACE", "Line 3 ('======= ')"),
        (" ------- SEARCH\ncharlie\n=======\nC\n+++++++ REPLACE", "Line 1 (' ------- SEARCH')"),
        ("-------SEARCH\ncharlie\n=======\nC\n+++++++ REPLACE", "Line 1 ('-------SEARCH')"),
        ("text\n-- SEARCH\ncharlie\n=======\nC\n+++++++ REPLACE", "Line 2 ('-- SEARCH')"),
        ("------- search\ncharlie", "Line 1 ('------- search')"),
        ("------- SEARCH\na\n=======\nA\n++ REPLACE\n------- SEARCH", "Line 5 ('++ REPLACE')"),
    ],
)
def test_the_hint_points_at_a_line_that_is_nearly_the_marker(diff: str, nearly: str) -> None:
    text = "a\ncharlie\n"
    assert refused(MalformedEdit, text, diff).hint.startswith(f"{nearly} is nearly a marker, but not one.")


def test_what_is_wrong_first_is_what_is_refused() -> None:
    refused(NoMatch, TEXT, block("zulu", "z") + "+++++++ REPLACE")
    refused(MalformedEdit, TEXT, "+++++++ REPLACE\n" + block("zulu", "z"))
    refused(NoMatch, TWINS, block("x", "1") + block("zulu", "z"))


def test_a_search_section_that_begins_again_counts_from_there() -> None:
    check(
        "a\nb\n", "------- SEARCH\na\n------- SEARCH\nb\n=======\nB\n+++++++ REPLACE", "a\nB\n", ["restarted"]
    )


def test_an_empty_search_section_is_for_an_empty_file() -> None:
    check("", block("", "one") + block("", "two"), "one\ntwo\n")
    check("", "=======\none\n+++++++ REPLACE", "one\n")
    refused(MalformedEdit, "\n", block("", "one"))
    assert made("", edits_of(None, block("", "one"))) == "one\n"


# ── The tool ───────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_is_the_originals_and_the_content_comes_with_it() -> None:
    place = on({"a/f.txt": TEXT})
    plan = place.call(
        "cline", "replace_in_file", {"path": f"{ROOT}/a/../a/f.txt", "diff": block("alpha", "A")}
    )
    assert plan.answers == ("The content was successfully saved to a/f.txt.",)
    assert place.text("a/f.txt") == "A\nbravo\ncharlie\ndelta\necho\n"
    assert DIALECT.tools[0].returns_content


def test_a_new_file_is_made_with_its_folders() -> None:
    place = on({})
    place.call("cline", "replace_in_file", {"path": "a/b/c.txt", "diff": block("", "deep")})
    assert place.files == {"a/b/c.txt": b"deep\n"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\nthree\r\n", b"one\r\n2\r\nII\r\nthree\r\n"),
        (b"one\r\ntwo", b"one\r\n2\r\nII"),
        (b"one\rtwo\rthree", b"one\r2\rII\rthree"),
        (b"\xef\xbb\xbftwo\nthree\n", b"\xef\xbb\xbf2\nII\nthree\n"),
        (b"one\r\ntwo\nthree\r\n", b"one\r\n2\nII\nthree\r\n"),
        ("\ufefftwo\r\nö".encode("utf-16-le"), "\ufeff2\r\nII\r\nö".encode("utf-16-le")),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_line_ends_mark_and_encoding_stay_as_they_are(before: bytes, after: bytes, line_end: str) -> None:
    place = on({"f.txt": before})
    diff = block("two", "2\nII").replace("\n", line_end)
    place.call("cline", "replace_in_file", {"path": "f.txt", "diff": diff})
    assert place.files == {"f.txt": after}


@pytest.mark.parametrize(
    ("code", "args"),
    [
        ("invalid_params", {"diff": "x"}),
        ("invalid_params", {"path": "", "diff": "x"}),
        ("invalid_params", {"path": "f.txt"}),
        ("invalid_params", {"path": "f.txt", "diff": ""}),
        ("invalid_params", {"path": "f.txt", "diff": ["x"]}),
        ("path_outside", {"path": "../f.txt", "diff": block("a", "b")}),
        ("path_protected", {"path": ".git/config", "diff": block("", "b")}),
        ("not_a_file", {"path": "d", "diff": block("a", "b")}),
        ("not_text", {"path": "latin.txt", "diff": block("x", "b")}),
        ("no_match", {"path": "missing.txt", "diff": block("a", "b")}),
        ("malformed_edit", {"path": "f.txt", "diff": "b"}),
    ],
)
def test_a_call_that_is_refused_changes_nothing(code: str, args: dict[str, object]) -> None:
    place = on({"f.txt": TWINS, "d/g.txt": "", "latin.txt": b"caf\xe9\nx\n"})
    refusal = place.refusal("cline", "replace_in_file", args)
    assert refusal.code == code, refusal.text()
    assert refusal.hint


def test_nearly_valid_calls_are_made_or_refused_and_leave_the_line_ends_alone() -> None:
    outcomes = set()
    for text, args in islice(calls(random.Random(4)), 3000):
        place = on({"notes.txt": text})
        try:
            place.call("cline", "replace_in_file", args)
            outcomes.add("made")
        except Refused as refusal:
            outcomes.add(refusal.code)
            assert place.files == {"notes.txt": text.encode()}
        if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
            assert "\n" not in place.text("notes.txt").replace("\r\n", "")
    assert outcomes == {"made", "no_match", "malformed_edit"}


def test_a_block_in_a_large_file_takes_little_time() -> None:
    lines = [f"    line {number} of the file" for number in range(40_000)]
    text = "\n".join(lines) + "\n"
    assert len(text) > 1_000_000
    for search in (lines[30_000], lines[30_000].strip(), f"{lines[3]}\nother\n{lines[5]}"):
        taken = []
        for _ in range(5):
            before = time.thread_time()
            edits_of(text, block(search, "new"))
            taken.append(time.thread_time() - before)
        assert min(taken) < 0.15  # 50 ms, three times over since other tests share the cores


CLOSINGS = (
    "  +++++++ REPLACE", "\t+++++++ REPLACE", "+++++++ REPLACE</diff>", "+++++++REPLACE", "+++++++ replace",
    "+++++++ Replace", "+++++++ REPL", "+++++++", ">>>>>>> REPLACE</diff>", ">>>>>>>REPLACE",
    "+++++++  REPLACE",
    "+++++++ REPLACE</diff>\n</replace_in_file>", "+++++++ REPLACE</diff>\n\n",
    "> +++++++ REPLACE", "**+++++++ REPLACE**", "\u200b+++++++ REPLACE", "12 | +++++++ REPLACE",
    "+++++++ REPLACED", "+++++++_REPLACE", "+++++++ UPDATED", ">>>>>>> UPDATED",
    "&gt;&gt;&gt;&gt;&gt;&gt;&gt; REPLACE", "\uff0b" * 7,
)  # fmt: skip


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("end", ["", "\n"], ids=["cut", "newline"])
def test_the_text_of_a_badly_written_last_marker_is_never_saved(closing: str, end: str) -> None:
    if not end and closing in ("+++++++ REPL", "+++++++"):
        check("a\nb\n", f"------- SEARCH\na\n=======\nA\n{closing}", "A\nb\n", ["unclosed"])
    else:
        refusal = refused(MalformedEdit, "a\nb\n", f"------- SEARCH\na\n=======\nA\n{closing}{end}")
        assert refusal.data == {"line": 5}
        assert "+++++++ REPLACE" in refusal.hint
    place = on({})
    args = {"path": "new.txt", "diff": f"------- SEARCH\n=======\nA\n{closing}{end}"}
    assert place.refusal("cline", "replace_in_file", args).code == "malformed_edit"
    assert place.files == {}


@pytest.mark.parametrize(
    "closing",
    [
        "</diff>", "  </diff >", "</replace_in_file>", "```", "~~~", "REPLACE", "replace", "+ + + REPLACE",
        "]]>", "```\n</diff>", "    return compute(alpha, beta, gamma, delta) +++++++ REPLACE",
        "x" * 300 + ">>>>>>> REPLACE",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "\n", "\n\n"], ids=["cut", "newline", "blank line"])
def test_what_stands_in_place_of_the_last_marker_is_never_saved(closing: str, end: str) -> None:
    refusal = refused(MalformedEdit, "a\nb\n", f"------- SEARCH\na\n=======\nA\n{closing}{end}")
    assert refusal.data == {"line": 5 + closing.count("\n")}
    place = on({})
    args = {"path": "new.txt", "diff": f"------- SEARCH\n=======\nA\n{closing}{end}"}
    assert place.refusal("cline", "replace_in_file", args).code == "malformed_edit"
    assert place.files == {}
    within = f"A\n{closing.splitlines()[0]}\nB"
    check("a\nb\n", block("a", within), f"{within}\nb\n")  # in a closed block it is text


def test_a_last_block_without_its_marker_makes_no_file_if_the_diff_ends_with_a_line_end() -> None:
    place = on({})
    args = {"path": "new.txt", "diff": "------- SEARCH\n=======\nA\n"}
    refusal = place.refusal("cline", "replace_in_file", args)
    assert (refusal.code, refusal.data) == ("malformed_edit", {"line": 1})
    assert place.files == {}


def test_the_empty_line_of_a_diff_that_ends_with_a_line_end_is_named() -> None:
    diff = "------- SEARCH\na\n=======\nA"
    warnings = {end: edits_of("a\nb\n", diff + end).warnings for end in ("", "\n")}
    assert "empty line" not in warnings[""][0]
    assert "its last line end for an empty line" in warnings["\n"][0]


@pytest.mark.parametrize(
    "opening", ["  ------- SEARCH", "-------SEARCH", "------- search", "<<<<<<< SEARCH:"]
)
def test_a_block_with_a_badly_written_first_marker_is_never_left_out(opening: str) -> None:
    second = f"{opening}\nb\n  =======\nB\n  +++++++ REPLACE"
    text = f"------- SEARCH\na\n=======\nA\n+++++++ REPLACE\n{second}"
    assert refused(MalformedEdit, "a\nb\n", text).data
    args = {"path": "new.txt", "diff": f"{opening}\n=======\nA\n+++++++ REPLACE\n"}
    place = on({})
    assert place.refusal("cline", "replace_in_file", args).code == "malformed_edit"
    assert place.files == {}
