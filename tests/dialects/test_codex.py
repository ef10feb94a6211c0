"""Tests of `editd.tools.codex`: the pure core, and the tool through the real planning."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from editd.edits import replace as line_search
from editd.edits.replace import replace
from editd.errors import Ambiguous, MalformedEdit, NoMatch, TooLarge
from editd.tool_api.tool_text import ToolText
from editd.tools.codex import TOOL, place
from editd.tools.codex_patch import CodexHunk, CodexSection, parse
from editd.values.path import WorkspacePath
from tool_calls import ROOT, Workspace, on

if TYPE_CHECKING:
    from editd.errors import Refused

TEXT = "def f():\n    return 1\n\ndef g():\n    return 1\n"


def patch_of(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def update(*lines: str, path: str = "a.txt") -> str:
    return patch_of(f"*** Update File: {path}", *lines)


def hunks_of(*lines: str) -> tuple[CodexHunk, ...]:
    (section,) = parse(update(*lines))
    return section.hunks


def patched(text: str, *lines: str) -> str:
    replacements, warnings = place(text, hunks_of(*lines), "a.txt")
    assert warnings == []
    return replace(text, replacements)


def raw_patched(raw: str, *lines: str) -> str:
    page = ToolText(WorkspacePath.parse("a.txt"), raw)
    return page.with_replacements(place(page.text, hunks_of(*lines))[0])


def unplaced(text: str, *lines: str) -> NoMatch:
    with pytest.raises(NoMatch) as caught:
        place(text, hunks_of(*lines), "a.txt")
    assert caught.value.hint
    return caught.value


def doubtful(text: str, *lines: str) -> Ambiguous:
    with pytest.raises(Ambiguous) as caught:
        place(text, hunks_of(*lines), "a.txt")
    assert caught.value.hint
    return caught.value


def malformed(patch: str) -> MalformedEdit:
    with pytest.raises(MalformedEdit) as caught:
        parse(patch)
    assert caught.value.hint
    assert f"line {caught.value.data['line']} of the patch" in caught.value.message
    return caught.value


# ── Reading a patch ────────────────────────────────────────────────────────────────────────────────


def test_a_patch_is_read_section_by_section() -> None:
    patch = patch_of(
        "*** Add File: new.txt", "+one", "+", "*** Delete File: old.txt", "*** Update File: a.txt",
        "*** Move to: b.txt", "@@ def f():", "-x", "+y", " z", "*** End of File",
    )  # fmt: skip
    hunk = CodexHunk(8, ("def f():",), (("-", "x"), ("+", "y"), (" ", "z")), is_at_end=True)
    assert parse(patch) == (
        CodexSection("Add", "new.txt", 2, text="one\n\n"),
        CodexSection("Delete", "old.txt", 5),
        CodexSection("Update", "a.txt", 6, "b.txt", hunks=(hunk,)),
    )


def test_the_first_hunk_may_do_without_its_header() -> None:
    assert hunks_of(" x", "-y", "@@", "+z") == (
        CodexHunk(3, (), ((" ", "x"), ("-", "y"))), CodexHunk(5, (), (("+", "z"),)),
    )  # fmt: skip


def test_an_empty_line_of_a_hunk_is_an_empty_context_line() -> None:
    assert hunks_of("@@", "-x", "", "-y") == (CodexHunk(3, (), (("-", "x"), (" ", ""), ("-", "y"))),)


def test_blank_lines_between_sections_and_before_hunks_are_left_out() -> None:
    patch = patch_of(
        "", "*** Add File: a", "+x", "", "*** Update File: b", "", "@@", "+x", "", "@@", "+y", " "
    )
    added, updated = parse(patch)
    assert added.text == "x\n"
    assert [hunk.lines for hunk in updated.hunks] == [(("+", "x"),), (("+", "y"),)]


def test_white_space_around_the_markers_does_not_matter() -> None:
    patch = " \n *** Begin Patch \n  *** Delete File: a b.txt \n*** End Patch  \n\n"
    assert parse(patch) == (CodexSection("Delete", "a b.txt", 3),)


def test_a_patch_with_crlf_is_read_as_one_with_lf() -> None:
    patch = patch_of("*** Add File: a", "+x", "*** Update File: b", "@@ c", "-d", "*** End of File")
    assert parse(patch.replace("\n", "\r\n")) == parse(patch)


@pytest.mark.parametrize(
    "first", ["<<EOF", "<<'EOF'", '<<"EOF"', "apply_patch <<'EOF'", "applypatch <<EOF", "<< 'EOF'"]
)
def test_a_here_document_around_the_patch_is_taken_off(first: str) -> None:
    assert parse(f"{first}\n{patch_of('*** Delete File: a')}\nEOF\n") == (CodexSection("Delete", "a", 3),)


def test_a_header_with_a_space_before_it_is_a_context_line_within_an_update() -> None:
    (section,) = parse(update("@@", "-x", " *** Delete File: b"))
    assert section.hunks[0].lines == (("-", "x"), (" ", "*** Delete File: b"))


@pytest.mark.parametrize(
    ("patch", "line"),
    [
        ("", 1),
        ("\n\n", 3),
        ("\n\n--- a/x", 3),
        ("--- a/x\n+++ b/x\n", 1),
        ("\n*** Begin Patch\n*** Delete File: a", 3),
        ("*** Begin Patch", 1),
        ("*** Begin Patch\n*** End Patch", 2),
        ("<<EOF\n*** Delete File: a\nEOF", 2),
        (patch_of("*** Delete File: a", "*** End Patch"), 3),
        (patch_of("*** Rename File: a"), 2),
        (patch_of("*** Add File:"), 2),
        (patch_of("*** Add File: a", "x"), 3),
        (patch_of("*** Add File: a", "+x", "", "+y"), 5),
        (patch_of("*** Delete File: a", "-x"), 3),
        (patch_of("*** Update File: a"), 2),
        (patch_of("*** Update File: a", "", "*** Delete File: b"), 2),
        (update("x"), 3),
        (update("@@", "x"), 3),
        (update("@@"), 3),
        (update("@@", "*** End of File"), 3),
        (update("@@", "-x", "y"), 5),
        (update("@@", "-x", "*** End of File", "-y"), 6),
        (update("@@x", "-y"), 3),
        (update("@@", "-x", "*** Move to: b"), 5),
        (update("@@ def f():", "+x"), 3),
    ],
)
def test_a_patch_that_cannot_be_read_is_refused_with_its_line(patch: str, line: int) -> None:
    assert malformed(patch).data == {"line": line}


def test_a_new_files_line_without_its_plus_is_told_of() -> None:
    assert "`+`, an empty one too" in malformed(patch_of("*** Add File: a", "+x", "", "+y")).hint


# ── Finding the places ─────────────────────────────────────────────────────────────────────────────


def test_a_hunk_stands_where_its_old_lines_are() -> None:
    assert patched("a\nb\nc\n", "@@", " a", "-b", "+B", "+B2", " c") == "a\nB\nB2\nc\n"
    assert patched("a\nb\nc\n", "@@", "-a", "@@", "-c") == "b\n"
    assert patched("a\nb\n", "@@", "-a", "-b") == ""
    assert patched("a\n\nb\n", "@@", " a", "", "-b", "+c") == "a\n\nc\n"


def test_a_context_line_alone_changes_nothing() -> None:
    assert patched("a\nb\n", "@@", " a") == "a\nb\n"


def test_the_line_after_the_sign_says_after_which_line_the_hunk_is_looked_for() -> None:
    assert patched(TEXT, "@@ def g():", "-    return 1", "+    return 2") == (
        "def f():\n    return 1\n\ndef g():\n    return 2\n"
    )
    assert patched(TEXT, "@@ def f():", "-    return 1", "+    return 2") == (
        "def f():\n    return 2\n\ndef g():\n    return 1\n"
    )


def test_several_of_them_lead_from_one_to_the_next() -> None:
    text = "class A:\n  def m():\n    x\nclass B:\n  def m():\n    x\n  def n():\n    x\n"
    changed = text[:44] + text[44:].replace("    x\n", "    y\n", 1)
    assert patched(text, "@@ class B:", "@@   def m():", "-    x", "+    y") == changed
    assert patched(text, "@@ class B:", "@@ def m():", "-    x", "+    y") == changed


def test_hunks_without_a_name_are_placed_together_in_their_order() -> None:
    text = "x\n1\nx\n2\nx\n"
    assert patched(text, "@@", "-x", "+y", "@@", "-x", "+y", "@@", "-x", "+y") == text.replace("x", "y")
    assert patched(text, "@@", " 1", "@@", "-x", "+y", "@@", " 2") == "x\n1\ny\n2\nx\n"


def test_a_hunk_that_fits_two_places_is_refused_with_their_lines() -> None:
    refusal = doubtful("x\n1\nx\n", "@@", "-x")
    assert refusal.data == {"path": "a.txt", "line": 3, "found": 2, "lines": [1, 3]}
    assert "lines 1, 3" in refusal.message


def test_hunks_that_can_be_placed_in_two_ways_are_all_told_of() -> None:
    refusal = doubtful("x\nx\nx\n", "@@", "-x", "@@", "-x")
    assert refusal.data["lines"] == [1, 2]
    assert "line 3 of the patch could be applied at lines 1, 2" in refusal.message
    assert "line 5 of the patch could be applied at lines 2, 3" in refusal.message


def test_a_name_that_is_there_twice_is_ambiguous_only_if_it_leads_to_two_places() -> None:
    assert doubtful("f\na\nf\na\n", "@@ f", "-a").data["lines"] == [2, 4]
    assert patched("f\nf\na\n", "@@ f", "-a") == "f\nf\n"


def test_the_strictest_match_is_the_one() -> None:
    assert patched("  x\nx\n x\n", "@@", "-x", "+y") == "  x\ny\n x\n"


@pytest.mark.parametrize(
    ("text", "old", "kind"),
    [
        ("a \n\tb\t\n", ("a", "\tb"), "whitespace"),
        ("  a\n\tb\n", ("a", "    b"), "indentation"),
        ("\u201ca\u201d \u2013 b\u2019s\u00a0c\nb\n", ('"a" - b\'s c', "b"), "look-alikes"),
    ],
)
def test_an_approximate_match_is_taken_if_it_is_the_only_one_and_told_of(
    text: str, old: tuple[str, str], kind: str
) -> None:
    hunks = hunks_of("@@", f" {old[0]}", f"-{old[1]}", "+new")
    replacements, (warning,) = place(text, hunks, "a.txt")
    assert replace(text, replacements) == text.split("\n", maxsplit=1)[0] + "\nnew\n"
    assert warning.startswith(f"{kind}: the hunk at line 3 of the patch was applied at line 1 of a.txt")
    with pytest.raises(Ambiguous):
        place(text + text, hunks)


def test_a_hunk_of_the_end_stands_only_there() -> None:
    assert patched("x\ny\nx\n", "@@", "-x", "+z", "*** End of File") == "x\ny\nz\n"
    assert patched("x\ny\nx", "@@", "-x", "+z", "*** End of File") == "x\ny\nz"
    refusal = unplaced("x\ny\n", "@@", "-x", "*** End of File")
    assert refusal.data["lines"] == [1]
    assert "not at its end" in refusal.message


def test_an_empty_last_line_may_be_no_more_than_a_line_end() -> None:
    assert patched("a\nb\n", "@@", " a", "-b", "+c", "") == "a\nc\n"
    assert patched("a\nb\n", "@@", " a", "-b", "+c", " ", " ") == "a\nc\n"
    unplaced("a\nb\n", "@@", " a", "-b", "-")
    unplaced("a\nb\n", "@@", " a", "-b", "-", " ")


def test_new_lines_alone_are_added_at_the_end() -> None:
    assert patched("a\n", "@@", "+b", "+c") == "a\nb\nc\n"
    assert patched("a\n\n", "@@", "+b") == "a\n\nb\n"
    assert patched("", "@@", "+b") == "b\n"
    assert patched("a\nb\n", "@@", "+1", "@@", "-a", "@@", "+2") == "b\n1\n2\n"
    assert patched("a\nb\n", "@@", "-b", "+c", "@@", "+d") == "a\nc\nd\n"
    assert patched("a\nb\n", "@@", "+d", "@@", " b", "+c") == "a\nb\nc\nd\n"


def test_a_hunk_that_is_nowhere_is_refused_with_what_is_nearest() -> None:
    refusal = unplaced(TEXT, "@@", " def f():", "-    return 2")
    assert refusal.data["line"] == 3
    assert refusal.data["nearest"]["start_line"] == 1
    assert unplaced("a\nB\n", "@@", "-b", "+B").data["nearest"] == {
        "start_line": 2,
        "end_line": 2,
        "text": "B\n",
    }
    assert unplaced(TEXT, "@@ def h():", "-x").data["nearest"]["text"] == "def f():\n"


def test_a_hunk_out_of_order_is_refused_with_where_it_stands() -> None:
    refusal = unplaced("a\nb\n", "@@", "-b", "@@", "-a")
    assert refusal.data == {"path": "a.txt", "line": 5, "lines": [1]}
    assert "is at line 1 of a.txt, above line 3, but the hunk must" in refusal.message
    assert "above line 2, but the hunk must" in unplaced("a\nb\n", "@@ a", " a", "-b").message
    assert "above line 3, but the hunk must" in unplaced("a\nb\n", "@@", "-b", "@@ a", "-b").message


def test_a_second_name_that_is_nowhere_is_the_one_that_is_told_of() -> None:
    assert "`@@ def h():`" in unplaced(TEXT, "@@ def f():", "@@ def h():", "-x").message


def test_line_numbers_are_no_name() -> None:
    assert "line numbers are ignored" in unplaced("a\n", "@@ -1,3 +1,4 @@", "-a").hint


def test_a_hunk_that_is_applied_already_is_told_of() -> None:
    refusal = unplaced("a\nB\nc\n", "@@", " a", "-b", "+B", " c")
    assert refusal.data["already_applied"]
    assert refusal.data["applied_at_line"] == 1


# ── Bytes that are not to change ───────────────────────────────────────────────────────────────────


def test_context_lines_keep_their_bytes() -> None:
    hunks = hunks_of("@@", " a", "-b", "+B", " c")
    replacements, _ = place("a \nb\n\tc\t\n", hunks)
    assert replace("a \nb\n\tc\t\n", replacements) == "a \nB\n\tc\t\n"


def test_line_ends_stay_the_files_own() -> None:
    assert raw_patched("a\r\nb\r\n", "@@", "-b", "+c", "+d") == "a\r\nc\r\nd\r\n"
    assert raw_patched("a\r\nb\nc\r\n", "@@", "-b", "+B", "@@", "-c", "+C") == "a\r\nB\nC\r\n"
    assert raw_patched("a\rb\r", "@@", " a", "-b", "+c") == "a\rc\r"
    assert raw_patched("a\r\nb", "@@", "+c") == "a\r\nb\r\nc"


def test_a_carriage_return_within_a_line_is_matched_and_kept() -> None:
    assert raw_patched("a\rb\nc\n", "@@", " a\rb", "-c", "+x\ry") == "a\rb\nx\ry\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("-b", "+c"), "a\nc"),
        (("-b",), "a"),
        (("-a",), "b"),
        (("-a", "-b"), ""),
        (("-a", "@@", "-b"), ""),
        (("-a", "@@", "-b", "@@", "+c"), "c"),
        (("+c",), "a\nb\nc"),
        ((" b", "+c"), "a\nb\nc"),
        ((" a", "+x", "@@", "-b"), "a\nx"),
        ((" a", "+x", " b"), "a\nx\nb"),
    ],
)
def test_a_missing_final_newline_stays_missing(lines: tuple[str, ...], expected: str) -> None:
    assert patched("a\nb", "@@", *lines) == expected


# ── The tool ───────────────────────────────────────────────────────────────────────────────────────


def call(place_: Workspace, patch: str, name: str = "input") -> str:
    (answer,) = place_.call("codex", "apply_patch", {name: patch}).answers
    assert answer is not None
    return answer


def refused(place_: Workspace, code: str, patch: str) -> Refused:
    refusal = place_.refusal("codex", "apply_patch", {"input": patch})
    assert refusal.code == code, refusal.text()
    assert refusal.hint
    return refusal


def test_one_patch_adds_updates_moves_and_deletes() -> None:
    here = on({"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
    answer = call(
        here,
        patch_of(
            "*** Delete File: a.txt", "*** Update File: b.txt", "@@", "-b", "+B", "*** Add File: n/e/w.txt",
            "+x", "*** Update File: c.txt", "*** Move to: d/c.txt", "@@", "+d",
        ),
    )  # fmt: skip
    assert answer == "Success. Updated the following files:\nA n/e/w.txt\nM b.txt\nM d/c.txt\nD a.txt\n"
    assert here.files == {"b.txt": b"B\n", "n/e/w.txt": b"x\n", "d/c.txt": b"c\nd\n"}


def test_the_patch_may_be_given_by_another_name() -> None:
    here = on({"a.txt": "a\n"})
    call(here, update("@@", "-a", "+b"), "patch")
    assert here.text("a.txt") == "b\n"


def test_a_patch_is_made_whole_or_not_at_all() -> None:
    here = on({"a.txt": "a\n", "b.txt": "b\n"})
    refused(here, "no_match", patch_of("*** Delete File: a.txt", "*** Update File: b.txt", "@@", "-x"))


def test_sections_of_one_file_are_made_one_after_the_other() -> None:
    here = on({"a.txt": "a\n", "b.txt": "b\n"})
    answer = call(
        here,
        patch_of(
            "*** Update File: a.txt", "@@", "-a", "+b", "*** Update File: a.txt", "@@", "-b", "+c",
            "*** Delete File: b.txt", "*** Add File: b.txt", "+new",
        ),
    )  # fmt: skip
    assert here.files == {"a.txt": b"c\n", "b.txt": b"new\n"}
    assert answer == "Success. Updated the following files:\nA b.txt\nM a.txt\nD b.txt\n"


def test_a_file_may_be_moved_as_it_is() -> None:
    here = on({"a.txt": b"\x00\xff"})
    call(here, update("*** Move to: b.txt"))
    assert here.files == {"b.txt": b"\x00\xff"}


def test_a_move_to_where_the_file_is_changes_its_lines_only() -> None:
    here = on({"a.txt": "a\n"})
    call(here, update("*** Move to: ./a.txt", "@@", "-a", "+b"))
    assert here.files == {"a.txt": b"b\n"}


def test_paths_may_be_absolute_and_have_spaces() -> None:
    here = on({"a b.txt": "a\n"})
    answer = call(here, update("@@", "-a", "+b", path=f"{ROOT}/a b.txt"))
    assert answer.endswith(f"M {ROOT}/a b.txt\n")


def test_mark_encoding_and_line_ends_stay_the_files_own() -> None:
    here = on({"a.txt": "\ufeffa\r\nb\r\n".encode("utf-16-le")})
    call(here, update("@@", "-a", "+x", "+y"))
    assert here.files["a.txt"] == "\ufeffx\r\ny\r\nb\r\n".encode("utf-16-le")


def test_an_approximate_match_is_among_the_warnings() -> None:
    result = on({"a.txt": "\ta\n"}).call("codex", "apply_patch", {"input": update("@@", "-a", "+b")})
    (report,) = result.reports.values()
    assert [warning.split(":")[0] for warning in report.warnings] == ["indentation"]


def test_what_exists_is_not_written_over() -> None:
    here = on({"a.txt": "a\n", "b.txt": "b\n"})
    refused(here, "file_exists", patch_of("*** Add File: a.txt", "+x"))
    refused(here, "file_exists", update("*** Move to: b.txt", "@@", "-a", "+x"))


def test_what_is_missing_is_neither_updated_nor_deleted_nor_moved() -> None:
    here = on({"a.txt": "a\n"})
    assert refused(here, "file_missing", update("@@", "-a", path="b.txt")).data["line"] == 2
    refused(here, "file_missing", patch_of("*** Delete File: b.txt"))
    refused(here, "file_missing", update("*** Move to: c.txt", path="b.txt"))


def test_folders_binary_files_and_paths_outside_are_refused() -> None:
    here = on({"a/b.txt": "a\n", "binary": b"\x00\xff"})
    refused(here, "not_a_file", patch_of("*** Delete File: a"))
    refused(here, "not_text", update("@@", "-a", path="binary"))
    for lines in (["*** Add File: {}", "+x"], ["*** Delete File: {}"], ["*** Update File: {}", "@@", "+x"]):
        for path, code in (
            ("../x", "path_outside"),
            ("/etc/x", "path_outside"),
            (".git/x", "path_protected"),
        ):
            refused(here, code, patch_of(*(line.format(path) for line in lines)))


@pytest.mark.parametrize("args", [{}, {"input": 1}, {"input": "x", "patch": "x"}, {"input": "x", "cwd": "/"}])
def test_an_argument_that_makes_no_sense_is_refused(args: dict[str, Any]) -> None:
    assert on({}).refusal("codex", TOOL.name, args).code == "invalid_params"


def test_a_file_of_a_megabyte_is_patched_in_well_under_a_tenth_of_a_second() -> None:
    lines = [f"line {number} of a file that is rather long" for number in range(25_000)]
    hunks = hunks_of("@@", f" {lines[19_998]}", f" {lines[19_999]}", f"-{lines[20_000]}", "+new")

    def took() -> float:
        start = perf_counter()
        place("\n".join(lines), hunks)
        return perf_counter() - start

    assert min(took() for _ in range(5)) < 0.15  # 50 ms, three times over since other tests share the cores


def test_a_long_text_at_many_places_is_refused_and_holds_nobody_up() -> None:
    """The attack: 20,000 of 1,200,000 equal lines kept the edits of all others waiting for minutes."""
    with pytest.raises(TooLarge) as refusal:
        place("same\n" * 100_000, hunks_of("@@", *[" same"] * 20_000, "+x"))
    assert "has only once" in refusal.value.hint


def test_many_hunks_in_a_large_file_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: 30,000 hunks in a file of 6 MB took a minute. All of them search the rest of the file."""
    text = "".join(f"line {number}\n" for number in range(1000))
    hunks = hunks_of(*(line for number in range(0, 1000, 10) for line in ("@@", f"-line {number}", "+x")))
    assert len(place(text, hunks)[0]) == 100
    monkeypatch.setattr(line_search, "MATCH_WORK_MAX", len(text) * 20)
    with pytest.raises(TooLarge, match="there are many texts to find in it"):
        place(text, hunks)
