"""review_policy: which edits land, which wait for a reviewer, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from editd.config.schema import AtMost
from editd.errors import PermissionDenied
from editd.review.policy import ReviewPolicy, ReviewRule, Ruling
from editd.values.content import SYMLINK, Change, FileState
from editd.values.glob import Glob
from editd.values.grant import Grant
from editd.values.path import WorkspacePath


def state(text: str | None) -> FileState | None:
    return None if text is None else FileState(text.encode())


def change(
    path: str, before: str | None = "1\n", after: str | None = "2\n", source: str | None = None
) -> Change[FileState]:
    origin = None if source is None else WorkspacePath(source)
    return Change(WorkspacePath(path), state(before), state(after), origin)


def rule(
    name: str, *globs: str, action: str = "ask", sessions: tuple[str, ...] = (), **most: int
) -> ReviewRule:
    return ReviewRule(name, tuple(map(Glob.parse, globs)), action, AtMost(**most), sessions)  # type: ignore[arg-type]


def grant(
    number: int, *globs: str, session: str | None = None, uses: int | None = None, lines: int | None = None
) -> Grant:
    return Grant(number, session, tuple(map(Glob.parse, globs)), 0, uses, lines, "ann", None)


def judged(
    policy: ReviewPolicy,
    *changes: Change[FileState],
    session: str | None = "s",
    grants: tuple[Grant, ...] = (),
    hour: int = 0,
) -> tuple[str, str | None]:
    ruling = policy.judge(changes, session, grants, lambda _: hour)
    return ruling.action, ruling.rule


def test_without_a_rule_the_default_decides() -> None:
    assert judged(ReviewPolicy(), change("a")) == ("land", None)
    assert judged(ReviewPolicy("ask"), change("a")) == ("ask", "default")
    assert ReviewPolicy().never_asks
    assert not ReviewPolicy("ask").never_asks
    assert not ReviewPolicy(rules=(rule("r", "a"),)).never_asks


def test_the_first_rule_that_fits_a_path_decides_for_it() -> None:
    policy = ReviewPolicy("ask", (rule("tests", "tests/**", action="land"), rule("rest", "**")))
    assert judged(policy, change("tests/a")) == ("land", "tests")
    assert judged(policy, change("src/a")) == ("ask", "rest")


def test_the_strictest_action_holds_for_all_paths() -> None:
    policy = ReviewPolicy(
        "land",
        (
            rule("locks", "*.lock"),
            rule("tests", "tests/**", action="land"),
            rule("no", "secret/**", action="refuse"),
        ),
    )
    assert judged(policy, change("a"), change("tests/b")) == ("land", "tests")
    assert judged(policy, change("tests/b"), change("x.lock"), change("a")) == ("ask", "locks")
    with pytest.raises(PermissionDenied, match="'no' refuses changes of secret/k") as refused:
        judged(policy, change("x.lock"), change("secret/k"))
    assert refused.value.data == {"path": "secret/k", "rule": "no"}


def test_a_move_is_judged_at_both_ends() -> None:
    policy = ReviewPolicy("land", (rule("locks", "*.lock"),))
    away = change("a.lock", after=None), change("b", before=None, source="a.lock")
    to = change("b", after=None), change("a.lock", before=None, source="b")
    assert judged(policy, *away) == judged(policy, *to) == ("ask", "locks")


@pytest.mark.parametrize(
    ("most", "within", "beyond"),
    [
        ({"lines": 2}, (change("a"),), (change("a", after="2\n3\n"),)),
        ({"files": 1}, (change("a"),), (change("a"), change("b"))),
        ({"new_files": 1}, (change("a", None),), (change("a", None), change("b", None))),
        ({"new_files": 0}, (change("a"),), (change("a", None),)),
        ({"deletes": 0}, (change("a"),), (change("a", after=None),)),
        (
            {"files": 1},
            (change("a", after=None), change("b", None, source="a")),
            (change("a", after=None), change("b", None)),
        ),
    ],
)
def test_beyond_a_limit_the_edit_waits(
    most: dict[str, Any], within: tuple[Change[FileState], ...], beyond: tuple[Change[FileState], ...]
) -> None:
    policy = ReviewPolicy("land", (rule("small", "**", action="land", **most),))
    assert judged(policy, *within) == ("land", "small")
    assert judged(policy, *beyond) == ("ask", "small")


def test_so_many_edits_an_hour() -> None:
    policy = ReviewPolicy("land", (rule("small", "**", action="land", per_hour=3),))
    assert judged(policy, change("a"), hour=2) == ("land", "small")
    assert judged(policy, change("a"), hour=3) == ("ask", "small")


def test_a_rule_for_some_sessions() -> None:
    policy = ReviewPolicy("land", (rule("claude", "**", sessions=("claude-*", "bo?")),))
    assert judged(policy, change("a"), session="claude-2") == ("ask", "claude")
    assert judged(policy, change("a"), session="bob") == ("ask", "claude")
    assert judged(policy, change("a"), session="Claude-2") == ("land", None)
    assert judged(policy, change("a"), session=None) == ("land", None)


def test_a_grant_goes_before_a_rule_that_asks_but_not_before_one_that_refuses() -> None:
    policy = ReviewPolicy("ask", (rule("locks", "*.lock"), rule("no", "secret/**", action="refuse")))
    given = grant(1, "**", session="s")
    assert judged(policy, change("a.lock"), change("b"), grants=(given,)) == ("land", "grant 1")
    assert judged(policy, change("a.lock"), session="other", grants=(given,)) == ("ask", "locks")
    with pytest.raises(PermissionDenied):
        judged(policy, change("secret/k"), grants=(given,))


@pytest.mark.parametrize(
    ("path", "target", "is_outside"),
    [
        ("a", "/etc/passwd", True),
        ("a", "../other", True),
        ("a", "..", True),
        ("d/a", "../..", True),
        ("d/a", "../../x", True),
        ("d/a", "x/../../../y", True),
        ("d/a", "x/../y", True),  # `x` may be a link to a folder elsewhere
        ("d/a", ".//../.././x", True),
        ("d/a", "../x", False),
        ("d/e/a", "../../x", False),
        ("d/a", "./x//y", False),
        ("a", "..x", False),
    ],
)
def test_neither_a_rule_nor_a_grant_lets_a_symlink_land_that_leads_out(
    path: str, target: str, is_outside: bool
) -> None:
    made = Change(WorkspacePath(path), None, FileState(target.encode(), SYMLINK))
    expected = "ask" if is_outside else "land"
    assert judged(ReviewPolicy("ask", (rule("r", "**", action="land"),)), made) == (expected, "r")
    assert judged(ReviewPolicy("ask"), made, grants=(grant(1, "**"),)) == (expected, "grant 1")
    assert judged(ReviewPolicy("land"), made) == ("land", None)
    gone = Change(WorkspacePath(path), made.after, None)
    assert judged(ReviewPolicy("ask", (rule("r", "**", action="land"),)), gone) == ("land", "r")


def test_a_check_that_has_passed_lets_no_symlink_out() -> None:
    policy = ReviewPolicy("ask", (replace(rule("r", "**", action="land"), check="pytest"),))
    made = Change(WorkspacePath("a"), None, FileState(b"/etc", SYMLINK))
    ruling = policy.judge([made], "s", (), lambda _: 0, ("pytest",))
    assert (ruling.action, ruling.checks) == ("ask", ())


def test_a_grant_that_is_used_up_asks() -> None:
    policy = ReviewPolicy("ask")
    assert judged(policy, change("a"), grants=(grant(1, "**", uses=0),)) == ("ask", "grant 1")
    assert judged(policy, change("a"), grants=(grant(1, "**", uses=1, lines=2),)) == ("land", "grant 1")
    assert judged(policy, change("a", after="2\n3\n"), grants=(grant(1, "**", lines=2),)) == (
        "ask",
        "grant 1",
    )


def test_the_ruling_says_what_each_grant_was_used_for() -> None:
    one, two = grant(1, "a/**"), grant(2, "b/**")
    ruling = ReviewPolicy("ask").judge(
        [change("a/1"), change("b/1", after="2\n3\n"), change("a/2")], "s", [one, two], lambda _: 0
    )
    assert ruling == Ruling("land", "grant 1", ((one, 4), (two, 3)))
