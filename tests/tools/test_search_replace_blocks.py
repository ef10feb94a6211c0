"""Tests of `tools.search_replace_blocks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from editd.edits.replace import replace
from editd.errors import Ambiguous, MalformedEdit, NoMatch
from editd.tools.search_replace_blocks import apply_blocks, begins_block, parse, with_plain_quotes

if TYPE_CHECKING:
    from editd.errors import Refused


def block(search: str, new: str | None) -> str:
    """A block as it is written; `new` None puts nothing there."""
    return f"<<<<<<< SEARCH\n{search}\n=======\n{'' if new is None else new + chr(10)}>>>>>>> REPLACE\n"


def check(text: str, argument: str, expected: str, *kinds: str) -> tuple[int, ...]:
    applied = apply_blocks(text, parse(argument))
    assert replace(text, applied.replacements) == expected
    assert [warning.partition(":")[0] for warning in applied.warnings] == list(kinds)
    for line, origin in zip(expected.split("\n"), applied.origins, strict=True):
        assert origin < 0 or line == text.split("\n")[origin]
    return applied.origins


def refusal(kind: type[Refused], text: str, argument: str) -> Refused:
    with pytest.raises(kind) as caught:
        apply_blocks(text, parse(argument), path="f.txt")
    assert caught.value.hint
    return caught.value


def malformed(argument: str) -> dict[str, Any]:
    with pytest.raises(MalformedEdit) as caught:
        parse(argument)
    assert caught.value.hint
    return caught.value.data


# ── How blocks are written ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "marker",
    [
        "<<<<<< SEARCH", "<<<<<<<<<<<< SEARCH", "<<<<<<<SEARCH", "<<<<<<< SEARCH>", "<<<<<<< SEARCH \t\r",
        "<<<<<<<\u00a0SEARCH",
    ],
)  # fmt: skip
def test_a_marker_may_be_written_in_several_ways(marker: str) -> None:
    assert begins_block(marker)
    (found,) = parse(f"{marker}\na\n=====\n>>>>>>REPLACE")
    assert (found.search, found.replacement) == (("a",), ())


@pytest.mark.parametrize(
    "line",
    ["<<<<< SEARCH", " <<<<<<< SEARCH", "<<<<<<< search", "<<<<<<< SEARCH>>", "<<<<<<< SEARCH a", ""],
)
def test_what_is_nearly_a_marker_is_a_line_like_others(line: str) -> None:
    assert not begins_block(line)
    (found,) = parse(block(f"{line}\na", line))
    assert (found.search, found.replacement) == ((line, "a"), (line,))


def test_what_stands_around_blocks_is_passed_over() -> None:
    first, second = parse(f"\n\nFirst:\n{block('a', 'b')}and then\n{block('c', None)}done\n")
    assert (first.number, first.line, first.search, first.replacement) == (1, 4, ("a",), ("b",))
    assert (second.number, second.line, second.search, second.replacement) == (2, 10, ("c",), ())


def test_a_return_before_a_line_feed_is_no_part_of_a_line() -> None:
    (found,) = parse(block("a", "b").replace("\n", "\r\n"))
    assert (found.search, found.replacement) == (("a",), ("b",))


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("", 1),
        ("no block", 1),
        ("\n\n=======\n", 3),
        (">>>>>>> REPLACE", 1),
        ("<<<<<<< SEARCH", 1),
        ("text\n<<<<<<< SEARCH\na\n", 2),
        ("<<<<<<< SEARCH\na\n=======\nb", 1),
        ("<<<<<<< SEARCH\n=======\nb\n>>>>>>> REPLACE", 2),
        ("<<<<<<< SEARCH\na\n<<<<<<< SEARCH", 3),
        ("<<<<<<< SEARCH\na\n>>>>>>> REPLACE", 3),
        ("<<<<<<< SEARCH\na\n=======\nb\n=======\n", 5),
        ("\n \n<<<<<<< SEARCH\na\n=======\nb\n<<<<<<< SEARCH", 7),
    ],
)
def test_what_is_not_written_as_blocks_are_is_refused_with_its_line(argument: str, line: int) -> None:
    assert malformed(argument) == {"line": line}


def test_quotes_lose_their_backslash_but_where_the_replacement_has_others_too() -> None:
    (found,) = with_plain_quotes(parse(block(r"a(\"x\")", r"b(\"x\")")))
    assert (found.search, found.replacement) == (('a("x")',), ('b("x")',))
    (found,) = with_plain_quotes(parse(block(r"a(\"x\")", r'b("say \"x\"")')))
    assert (found.search, found.replacement) == (('a("x")',), (r'b("say \"x\"")',))


# ── What a text becomes ────────────────────────────────────────────────────────────────────────────


def test_lines_are_replaced_taken_out_and_put_in() -> None:
    assert check("a\nb\nc\n", block("b", "x\ny"), "a\nx\ny\nc\n") == (0, -1, -1, 2, 3)
    check("a\nb\nc\n", block("b", None), "a\nc\n")
    check("a\nb\nc\n", block("b\nc", None), "a\n")
    check("a\nb", block("b", None), "a")
    check("a\nb", block("a\nb", None), "")
    check("", block("", "first"), "first")
    check("a\nb\n", block("b", ""), "a\n\n")


def test_blocks_side_by_side_are_made_as_one() -> None:
    applied = apply_blocks("a\nb\nc", parse(block("b", None) + block("c", None)))
    assert replace("a\nb\nc", applied.replacements) == "a"
    assert len(applied.replacements) == 1
    check("a\nb\nc\nd", block("a", "1") + block("b", None) + block("d", "4"), "1\nc\n4")


def test_a_replacement_is_indented_as_what_it_replaces() -> None:
    text = "if a:\n    if b:\n        c()\n"
    check(
        text,
        block("if b:\n    c()", "if d:\n\n    e()"),
        "if a:\n    if d:\n    \n        e()\n",
        "indentation",
    )
    check(text, block("            c()", "            d()\n             e()"),
          "if a:\n    if b:\n        d()\n         e()\n", "indentation")  # fmt: skip
    check("\t  x\n", block("x", "y\nz"), "\t  y\n\t  z\n", "indentation")


def test_a_replacement_is_left_as_it_is_where_the_difference_is_not_one() -> None:
    text = "if a:\n    if b:\n        c()\n"
    check(text, block("  if b:\n    c()", "  if d:\n    e()"), "if a:\n  if d:\n    e()\n", "indentation")
    check("  a\n", block("    a", "    b\n c"), "    b\n c\n", "indentation")
    check("    a\n", block("\t\t\t\ta", "\t\t\t\tb"), "\t\t\t\tb\n", "indentation")
    check("  a\n", block("a", None), "", "indentation")


def test_line_numbers_are_taken_out_of_the_replacement_too() -> None:
    check("a\n  b\n", block("1 a\n2   b", "1 a2 \n2   b2\nc"), "a2\n  b2\nc\n", "line_numbers")


def test_a_match_without_blank_lines_puts_in_none_at_its_ends() -> None:
    check("\np\n\n\nq\n\n", block("p\nq", "\n \nP\n\nQ\n"), "\nP\n\nQ\n\n")
    check("p\nq\nr\n", block("\nq\n", "\n\n"), "p\nr\n")


def test_each_place_gets_the_replacement_as_it_was_written() -> None:
    text = "    f(1)\n    g(2)\nmid\n  f(1)\ng(2)\n"
    check(text, block("f(1)\ng(2)", "F\nG"), "    f(1)\n    g(2)\nmid\nF\nG\n", "indentation")


def test_blocks_out_of_order_are_made_one_at_a_time() -> None:
    text = "a\n  b\nc\n"
    check(text, block("c", "C") + block("b", "B") + block("a", "A"), "A\n  B\nC\n", "indentation")
    check("one\n", block("one", "two\nthree") + block("three", "four"), "two\nfour\n")
    check("one\n", block("one", None) + block("", None) + block("", "new"), "new")


def test_blocks_that_cost_too_much_together_may_do_one_at_a_time() -> None:
    lines = [f"v{number}=1" for number in range(24)]
    spaced = [line.replace("=", " = ") for line in lines]
    argument = block("\n".join(spaced[:12]), "A") + block("\n".join(spaced[12:]), "B")
    check("\n".join(lines), argument, "A\nB", "all_spaces")


def test_a_warning_names_the_blocks() -> None:
    applied = apply_blocks("  a\nb\n  c", parse("".join(block(line, "x") for line in "abc")))
    assert applied.warnings[0].startswith("indentation: blocks 1, 3 matched without regard to indentation")


# ── Refusals ───────────────────────────────────────────────────────────────────────────────────────


def test_a_block_in_several_places_is_refused_with_their_lines() -> None:
    refused = refusal(Ambiguous, "top\ncat\ndog\ncat\n", block("top", "t") + block("cat", "c"))
    assert refused.message == "Block 2 (line 6 of the argument) fits f.txt in 2 places, at lines 2, 4."
    assert refused.data == {"block": 2, "line": 6, "found": 2, "lines": [2, 4]}


def test_a_block_that_is_not_there_is_refused_with_the_nearest_passage() -> None:
    refused = refusal(NoMatch, "def f():\n    return one\n", block("def f():\n    return two", "x"))
    assert refused.message == "Block 1 (line 1 of the argument) is not in f.txt."
    assert refused.data["block"] == refused.data["line"] == 1
    assert refused.data["nearest"]["start_line"] == 1


def test_of_several_blocks_the_one_that_is_nowhere_is_named() -> None:
    refused = refusal(NoMatch, "a\nb\n", block("b", "B") + block("a", "A") + block("nowhere", "x"))
    assert refused.data["block"] == 3


def test_a_block_out_of_order_in_several_places_is_not_found_after_the_others() -> None:
    refused = refusal(NoMatch, "x\nx\nend\n", block("end", "END") + block("x", "X"))
    assert refused.message == (
        "Block 2 (line 6 of the argument) is not in f.txt after the blocks before it. Applied one at a "
        "time, Block 2 (line 6 of the argument) fits f.txt in 2 places, at lines 1, 2."
    )
    assert "order of the file" in refused.hint


def test_blocks_out_of_order_that_are_too_many_to_try_alone_are_to_be_sent_otherwise() -> None:
    lines = [f"line {number}" for number in range(20_000)]
    argument = "".join(block(line, "x") for line in reversed(lines[::20]))
    refused = refusal(NoMatch, "\n".join(lines), argument)
    assert refused.message == "Block 2 (line 6 of the argument) is not in f.txt after the blocks before it."
    assert refused.hint.startswith("Send the blocks in the order of the file, or fewer at once. The nearest")


def test_too_many_differences_are_refused_with_their_points() -> None:
    text = "\n".join(f"    v{number}" for number in range(101))
    refused = refusal(NoMatch, text, block("\n".join(f"v{number}" for number in range(101)), "x"))
    assert "they cost 1010 points, and 1000 are allowed" in refused.message
    assert refused.data["nearest"]["start_line"] == 1
