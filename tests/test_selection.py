"""`python -m tests`: the tests of what a change touches, nearest first."""

from __future__ import annotations

import ast

from support.selection import FAR, TOP, imported_modules, nearest_tests, within


def hops(changed: str) -> dict[str, int]:
    return {str(test.relative_to(TOP)): hops for test, hops in nearest_tests([TOP / changed]).items()}


def test_the_test_of_the_same_name_is_nearest_and_then_those_that_import_the_file() -> None:
    touched = hops("daemon/editd/edits/merge.py")
    assert next(iter(touched)) == "tests/edits/test_merge.py"
    assert touched["tests/edits/test_line_changes.py"] == 1
    assert list(touched.values()) == sorted(touched.values())


def test_a_test_that_only_starts_a_daemon_is_far_and_none_is_lost() -> None:
    touched = hops("daemon/editd/store/journal.py")
    assert touched["tests/cli/test_tour.py"] >= FAR
    assert touched["tests/crash/test_recovery.py"] < FAR


def test_an_import_for_types_alone_is_none() -> None:
    module = "import os\nif TYPE_CHECKING:\n    import json\ndef late():\n    from editd.values import glob\n"
    assert set(imported_modules(ast.parse(module).body)) == {"os", "editd.values", "editd.values.glob"}


def test_a_file_that_is_no_python_is_touched_by_the_tests_that_name_it() -> None:
    assert "tests/docs/test_pages.py" in hops("docs/hosts.md")
    assert "tests/test_protocol_page.py" not in hops("CHANGELOG.md")


def test_the_budget_counts_and_a_long_file_leaves_room_for_others() -> None:
    tests = [TOP / "a", TOP / "b", TOP / "c"]
    assert within(10.0, tests, {"a": 4.0, "b": 9.0, "c": 6.0}) == [TOP / "a", TOP / "c"]
    assert within(3.0, tests, {"a": 4.0, "b": 9.0, "c": 6.0}) == [TOP / "a"], "the nearest runs in any case"
