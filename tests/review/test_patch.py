"""The rows of a diff: their numbers, their changed words, and the roles of their syntax."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from editd_client.review import patch
from editd_client.review.patch import Row, Syntax, parts_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

DIFF = """\
diff --git a/f.py b/f.py
--- a/f.py
+++ b/f.py
@@ -4,4 +4,5 @@ def load(path):
 before
-    for attempt in range(3):
+    for attempt in range(retries):
--- a comment of SQL
+++ b
+more
 after
"""


def numbered(diff: str) -> list[tuple[str, int | None, int | None]]:
    return [(row.sign + row.text, row.old, row.new) for row in rows_of(diff)]


def words(row: Row) -> list[str]:
    return [row.text[start:end] for start, end in row.changed]


def test_rows_have_the_numbers_of_their_lines() -> None:
    assert numbered(DIFF)[3:] == [
        ("@@ -4,4 +4,5 @@ def load(path):", None, None),
        (" before", 4, 4),
        ("-    for attempt in range(3):", 5, None),
        ("+    for attempt in range(retries):", None, 5),
        ("--- a comment of SQL", 6, None),
        ("+++ b", None, 6),
        ("+more", None, 7),
        (" after", 7, 8),
    ]


def test_lines_that_look_like_a_header_are_lines_of_the_hunk() -> None:
    kinds = [row.kind for row in rows_of(DIFF)]
    assert kinds[:4] == ["header", "header", "header", "place"]
    assert kinds.count("removed") == 2
    assert kinds.count("added") == 3


def test_the_changed_words_of_as_many_lines_are_marked() -> None:
    removed, added = list(rows_of("@@ -1 +1 @@\n-the old text\n+the new text\n"))[1:]
    assert (words(removed), words(added)) == (["old"], ["new"])


def test_lines_with_nothing_in_common_have_no_marked_words() -> None:
    rows = rows_of("@@ -1 +1 @@\n-alpha = beta()\n+for x in y: print(x)\n")
    assert not any(row.changed for row in rows)


def test_a_pair_of_long_lines_is_not_compared() -> None:
    old, new = (f"{end} x y " * (patch.TOKENS_MAX // 2) + end for end in ("1", "2"))
    rows = list(rows_of(f"@@ -1 +1 @@\n-{old}\n+{new}\n"))
    assert [row.kind for row in rows[1:]] == ["removed", "added"]
    assert not any(row.changed for row in rows)


def test_a_missing_newline_is_a_note_below_its_line() -> None:
    text = "@@ -1 +1 @@\n-a b\n\\ No newline at end of file\n+a c\n\\ No newline at end of file\n"
    rows = list(rows_of(text))
    assert [row.kind for row in rows] == ["place", "removed", "note", "added", "note"]
    assert (words(rows[1]), words(rows[3])) == (["b"], ["c"])


def test_a_change_of_mode_has_headers_only() -> None:
    assert [row.kind for row in rows_of("old mode 100644\nnew mode 100755\n")] == ["header", "header"]
    assert not list(rows_of(""))


def test_pieces_are_cut_at_words_and_at_roles() -> None:
    row = Row("added", "x = 'one two'", None, 1, ((9, 12),))
    pieces = [(piece.text, piece.role, piece.is_changed) for piece in parts_of(row, [(4, 13, "string")])]
    assert pieces == [
        ("x = ", "", False), ("'one ", "string", False), ("two", "string", True), ("'", "string", False),
    ]  # fmt: skip


def test_a_part_begins_with_its_role_and_ends_with_it() -> None:
    row = Row("added", "ab=cd", None, 1, ((0, 2), (3, 5)))
    roles: list[tuple[int, int, patch.Role]] = [(0, 2, "name"), (2, 3, "keyword")]
    parts = [(one.text, one.role, one.is_changed) for one in parts_of(row, roles)]
    assert parts == [("ab", "name", True), ("=", "keyword", False), ("cd", "", True)]


class CountedRoles(list[tuple[int, int, patch.Role]]):
    """The roles of a line, which count how many of them are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[tuple[int, int, patch.Role]]:
        for one in super().__iter__():
            self.looks += 1
            yield one


def test_a_long_line_takes_as_many_steps_as_it_has_roles() -> None:
    """32 KB of JavaScript in one line took 25 s: every role was looked at for every part."""
    roles = CountedRoles((at, at + 1, "number") for at in range(0, 32_768, 2))
    parts = list(parts_of(Row("added", "1+" * 16_384, None, 1), roles))
    assert len(parts) == 32_768
    assert roles.looks <= 3 * len(roles)


def test_roles_are_found_in_the_whole_text_of_a_file() -> None:
    pytest.importorskip("pygments")
    text = 'def f():\n    """One.\n    Two.\n    """\n    return 1  # three\n'
    syntax = Syntax("f.py", None, text)
    two = Row("context", "    Two.", 3, 3)
    assert {role for _, _, role in syntax.of(two)} == {"string"}
    last = Row("added", "    return 1  # three", None, 5)
    assert [role for _, _, role in syntax.of(last)] == ["keyword", "number", "comment"]
    assert not syntax.of(Row("added", "another text", None, 5))
    assert not Syntax("f.unknown-language", text, text).of(two)


def test_without_pygments_there_are_no_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygments.lexers", None)
    patch.roles_in.cache_clear()
    patch._lexer_for.cache_clear()
    try:
        assert patch.roles_in("f.py", "return 1\n") == ()
    finally:
        patch.roles_in.cache_clear()
        patch._lexer_for.cache_clear()
