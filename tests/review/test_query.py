"""The query of a timeline: its words, and what it asks the daemon for."""

from __future__ import annotations

import pytest

from editd_client.review.query import QueryError, TransactionQuery, exactly, is_named


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("", {}),
        ("session:claude", {"session": ["claude*"]}),
        ("session:=claude", {"session": ["claude"]}),
        ("session:'=a[1]*'", {"session": ["a[[]1][*]"]}),
        ("actor:c*e", {"actor": ["c*e"]}),
        ("session:a session:b kind:undo", {"session": ["a*", "b*"], "kind": ["undo"]}),
        ("path:src/ retry loop", {"path": ["src"], "grep": "retry loop"}),
        ("path:'a file.py' actor:ann", {"path": ["a file.py"], "actor": ["ann*"]}),
        ("is:unreviewed session:a", {"session": ["a*"], "unreviewed": True}),
        ("http://example.org kind:", {"grep": "http://example.org kind:"}),
    ],
)
def test_a_query_asks_the_daemon_for_its_words(text: str, params: dict[str, object]) -> None:
    query = TransactionQuery.parse(text)
    assert {name: value for name, value in query.params.items() if value} == params
    assert TransactionQuery.parse(query.text) == query
    assert query.is_empty == (not params)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind:edits", "'edits' is not a kind"),
        ("'a", "not finished"),
        ("is:old", "'old' is not a state"),
    ],
)
def test_a_wrong_query_is_refused_with_its_reason(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        TransactionQuery.parse(text)


def test_a_name_matches_by_its_beginning_and_exactly_when_asked() -> None:
    assert is_named("claude-2", ["claude"])
    assert not is_named("claude-2", [exactly("claude")])
    assert is_named("[x]", [exactly("[x]")])
    assert not is_named("x", [exactly("[x]")])
    assert is_named(None, []), "without a word every name matches"
    assert not is_named(None, ["claude"])
