"""Tests of `edits.diff`, some against the real `patch`."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from editd.edits.diff import apply_hunks
from editd.edits.patch import parse
from editd.errors import NoMatch

if TYPE_CHECKING:
    from pathlib import Path

    from editd.edits.diff import AppliedPatch


def put(content: bytes, hunks: str, fuzz: int = 0) -> AppliedPatch:
    (file,) = parse(f"--- a/f\n+++ b/f\n{hunks}")
    return apply_hunks(content, file.hunks, fuzz=fuzz, path="f")


def check(content: bytes, hunks: str, expected: bytes, fuzz: int = 0) -> tuple[str, ...]:
    applied = put(content, hunks, fuzz)
    assert applied.content == expected
    return applied.warnings


def refusal(content: bytes, hunks: str, fuzz: int = 0) -> tuple[str, dict[str, Any]]:
    with pytest.raises(NoMatch) as caught:
        put(content, hunks, fuzz)
    return caught.value.message, caught.value.data


def test_a_hunk_is_put_where_it_says() -> None:
    assert check(b"a\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", b"a\nB\nc\n") == ()


def test_a_hunk_is_found_elsewhere_nearest_first_and_that_is_said() -> None:
    content = b"x\n" + b"0\n" * 9 + b"x\n" + b"0\n" * 3
    warnings = check(content, "@@ -9 +9 @@\n-x\n+y\n", b"x\n" + b"0\n" * 9 + b"y\n" + b"0\n" * 3)
    assert warnings == ("Hunk 1 of f was applied at line 11 (+2 lines from its header's line, fuzz 0).",)


def test_a_hunk_that_begins_with_its_change_goes_to_the_start_only_if_its_header_names_that() -> None:
    content = b"a\nb\n-\n-\n-\na\nb\n"
    check(content, "@@ -5,2 +5,3 @@\n+new\n a\n b\n", b"a\nb\n-\n-\n-\nnew\na\nb\n")


def test_the_next_hunk_is_moved_by_as_much_as_the_last() -> None:
    content = b"new\na\n" + b"-\n" * 5 + b"a\n-\n"
    check(content, "@@ -1 +1 @@\n-a\n+A\n@@ -7 +7 @@\n-a\n+B\n", b"new\nA\n" + b"-\n" * 5 + b"B\n-\n")


def test_hunks_are_put_in_their_order_never_before_the_last() -> None:
    refusal(b"a\nb\n", "@@ -2 +2 @@\n-b\n+B\n@@ -1 +1 @@\n-a\n+A\n")


def test_a_hunk_of_the_files_end_goes_to_the_end() -> None:
    content = b"a\nb\n-\na\nb\n"
    check(content, "@@ -3,2 +3,3 @@\n a\n b\n+new\n", content + b"new\n")


def test_an_uneven_hunk_may_stand_in_the_middle() -> None:
    check(b"0\na\nb\n1\n2\n", "@@ -9,2 +9,3 @@\n a\n b\n+new\n", b"0\na\nb\nnew\n1\n2\n")


def test_fuzz_leaves_out_context_at_the_ends() -> None:
    hunk = "@@ -1,5 +1,5 @@\n a\n b\n-c\n+C\n d\n e\n"
    content = b"other\nb\nc\nd\nother\n"
    refusal(content, hunk)
    assert check(content, hunk, b"other\nb\nC\nd\nother\n", fuzz=1) == (
        "Hunk 1 of f was applied at line 2 (+0 lines from its header's line, fuzz 1).",
    )
    refusal(content.replace(b"c", b"x"), hunk, fuzz=9)


def test_context_lines_keep_the_bytes_of_the_file() -> None:
    check(b"a\r\nb\r\nc\r\n", "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+BB\n c\n", b"a\r\nB\r\nBB\r\nc\r\n")
    check(b"a\nb\r\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", b"a\nB\r\nc\n")
    check(b"a\nb\n", "@@ -1,2 +1,3 @@\n a\r\n+x\r\n b\r\n", b"a\nx\nb\n")


def test_a_patch_that_names_the_line_ends_decides_them() -> None:
    check(b"a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+b\n", b"a\r\nb\n")


def test_a_missing_final_newline_stays_missing_unless_the_patch_says_otherwise() -> None:
    check(b"a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n", b"a\nB")
    check(b"a\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n", b"a\nb\nc")
    check(b"a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n", b"a\nb\n")
    check(b"a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n", b"a\nb")
    check(b"a\r\n", "@@ -1,0 +2 @@\n+b\n\\ No newline at end of file\n", b"a\r\nb")


def test_lines_are_never_run_together() -> None:
    check(b"a\nb\nc\n", "@@ -2 +2 @@\n-b\n+B\n\\ No newline at end of file\n", b"a\nB\nc\n")
    check(b"a", "@@ -1,0 +2 @@\n+b\n", b"a\nb")


def test_a_hunk_without_old_lines_goes_by_its_line_alone() -> None:
    check(b"", "@@ -0,0 +1,2 @@\n+a\n+b\n", b"a\nb\n")
    check(b"a\r\nb\r\n", "@@ -1,0 +2 @@\n+x\n", b"a\r\nx\r\nb\r\n")
    refusal(b"a\n", "@@ -7,0 +8 @@\n+x\n")


def test_a_hunk_that_is_applied_already_is_called_that() -> None:
    message, data = refusal(b"a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n")
    assert "applied already" in message
    assert data["already_applied"]
    assert data["applied_at_line"] == 1


def test_a_hunk_that_has_no_place_names_itself_and_the_nearest_passage() -> None:
    message, data = refusal(
        b"first\ndef f(x):\n    return x\n", "@@ -7,2 +7,2 @@\n def f(x):\n-  return x\n+  return y\n"
    )
    assert message == "Hunk 1 (line 3 of the patch) does not apply to f."
    assert data == {
        "path": "f", "hunk": 1, "line": 3, "expected_line": 7, "differs": ["indentation"],
        "difference": {"sent": "", "sent_bytes": "", "file": "  ", "file_bytes": "20 20"},
        "nearest": {"start_line": 2, "end_line": 3, "text": "def f(x):\n    return x\n"},
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch(1) is not installed")
def test_what_patch_applies_comes_out_the_same(tmp_path: Path) -> None:
    dice = random.Random(4)
    agreed = 0
    for _ in range(150):
        before = [b"%d\n" % dice.randrange(12) for _ in range(dice.randint(6, 30))]
        after = list(before)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(after))
            after[at : at + dice.randint(0, 2)] = [
                b"n%d\n" % dice.randrange(9) for _ in range(dice.randint(0, 2))
            ]
        other = list(before)
        at = dice.randrange(len(other))
        other[at:at] = [b"o%d\n" % dice.randrange(9) for _ in range(dice.randint(1, 4))]
        for name, lines in (("a", before), ("b", after), ("f", other)):
            (tmp_path / name).write_bytes(b"".join(lines))
        context = dice.choice(["-U1", "-U2", "-U3"])
        diff = subprocess.run(
            ["diff", context, "a", "b"], cwd=tmp_path, capture_output=True, check=False
        ).stdout
        if not diff:
            continue
        patched = subprocess.run(
            ["patch", "-s", "-F0", "--no-backup-if-mismatch", "-r-", "f"], cwd=tmp_path, input=diff,
            capture_output=True, check=False,
        )  # fmt: skip
        if patched.returncode == 0:
            (file,) = parse(diff.decode())
            assert apply_hunks(b"".join(other), file.hunks).content == (tmp_path / "f").read_bytes(), diff
            agreed += 1
    assert agreed > 60


def test_the_next_hunk_is_looked_for_where_the_last_one_was_moved_to_though_its_own_line_matches_too() -> (
    None
):
    lines = ["n"] * 5 + ["A"] + ["p"] * 14
    lines[10] = lines[15] = "X"
    moved = [*lines]
    moved[5], moved[15] = "B", "Y"
    hunks = "@@ -1 +1 @@\n-A\n+B\n@@ -11 +11 @@\n-X\n+Y\n"
    check("".join(f"{line}\n" for line in lines).encode(), hunks, "".join(f"{m}\n" for m in moved).encode())


def test_a_hunk_of_the_files_end_goes_to_the_end_though_it_matches_nearer_to_its_line() -> None:
    content = b"a\nb\n-\n-\n-\n-\n-\na\nb\n"
    check(content, "@@ -3,2 +3,3 @@\n a\n b\n+new\n", content + b"new\n")
