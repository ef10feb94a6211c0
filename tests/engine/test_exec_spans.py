"""engine.exec_spans: the rule by which a change that did not go through the daemon gets its author."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.engine.commands import reader_of
from editd.engine.exec_spans import Claims, ExecSpans, changes_since, new_span
from editd.errors import InvalidParams
from editd.values.content import Change, FileState
from editd.values.transaction import Attribution, Seq
from support.harness import Harness, path_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ONE, TWO = FileState(b"1"), FileState(b"2")


def modified(path: str) -> Change[FileState]:
    return Change(path_of(path), ONE, TWO)


def deleted(path: str) -> Change[FileState]:
    return Change(path_of(path), ONE, None)


def added(path: str, source: str | None = None) -> Change[FileState]:
    return Change(path_of(path), None, ONE, None if source is None else path_of(source))


def spans(*opened: tuple[str, str | None]) -> ExecSpans:
    """Spans of these sessions, with paths between spaces or None for a command."""
    made = ExecSpans()
    for session, paths in opened:
        named = None if paths is None else frozenset(map(path_of, paths.split()))
        made.add(new_span(1, reader_of(session), "agent", session, "it", named))
    return made


ANY, A, B = ("shell", None), ("ann", "a"), ("bob", "b")

RULE: Mapping[
    str, tuple[Sequence[tuple[str, str | None]], Sequence[Change[FileState]], Mapping[str, str]]
] = {
    "a named path is its span's": ([A], [modified("a")], {"a": "ann by path"}),
    "another path is nobody's": ([A], [modified("c")], {"c": "nobody"}),
    "a path goes before a command": ([ANY, A], [modified("a")], {"a": "ann by path"}),
    "the rest is the command's": (
        [A, ANY], [modified("a"), modified("c")], {"a": "ann by path", "c": "shell by time"},
    ),
    "each has its own": ([A, B], [modified("a"), modified("b")], {"a": "ann by path", "b": "bob by path"}),
    "one path of two": ([A, ("bob", "a b")], [modified("a")], {"a": "ann or bob by path"}),
    "two commands": ([ANY, ("ci", None)], [modified("c")], {"c": "shell or ci by time"}),
    "two of one session": ([ANY, ANY], [modified("c")], {"c": "shell by time"}),
    "two paths of one session": ([A, ("ann", "a b")], [modified("a")], {"a": "ann by path"}),
    "a move goes with its target": (
        [("ann", "a"), ("bob", "b")], [deleted("a"), added("b", "a")], {"a b": "bob by path"},
    ),
    "a move whose source alone is named": (
        [A, ANY], [deleted("a"), added("c", "a")], {"a c": "ann by path"},
    ),
    "a file in place of a folder": (
        [("ann", "a/x"), ANY], [added("a"), deleted("a/x"), modified("c")],
        {"a a/x": "ann by path", "c": "shell by time"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RULE)
def test_a_change_is_by_the_spans_that_name_it_or_by_the_commands_or_by_nobody(case: str) -> None:
    opened, changes, expected = RULE[case]
    result = spans(*opened).attribute(changes)
    assert result is not None
    found: dict[str, str] = {}
    for kind, author, made in result:
        evidence = author.attribution
        who = author.session or " or ".join(evidence.candidates if evidence else ()) or "nobody"
        assert (kind == "exec") == (author.session is not None)
        by = "" if evidence is None else " by path" if evidence.is_by_path else " by time"
        found[" ".join(change.path.text for change in made)] = who + by
    assert found == expected


def test_without_a_span_nothing_is_divided() -> None:
    assert ExecSpans().attribute([modified("a")]) is None


def test_a_span_knows_the_transactions_that_were_attributed_to_it(tmp_path: Path) -> None:
    place = Harness(tmp_path / "place")
    place.baseline({"a": "1", "b": "1", "c": "1"})
    with place.engine() as engine:
        open_spans = spans(A, ("bob", "a b"), ANY)
        engine.recorder.outside_authorship = open_spans.attribute
        engine.recorder.on_recorded.append(open_spans.recorded)
        place.write({"a": "2", "b": "2", "c": "2"})
        engine.recorder.look_at(map(path_of, "abc"))
        numbers = {one.session: len(one.seqs) for one in open_spans.open.values()}
        assert numbers == {"ann": 1, "bob": 2, "shell": 1}
        ambiguous = engine.history.find(1)
        assert ambiguous.authorship.attribution == Attribution(True, ("ann", "bob"))
        assert ambiguous.kind == "outside"


def test_a_change_of_other_files_too_is_neither_the_asked_tools_nor_claimed(tmp_path: Path) -> None:
    place = Harness(tmp_path / "place")
    place.baseline({"a": "1", "b": "1"})
    asked = frozenset({path_of("a")})
    with place.engine() as engine:
        for names in ("ab", "a", "b"):
            place.write(dict.fromkeys(names, names))
            engine.recorder.look_at(map(path_of, names))
        history = engine.history
        assert [one.seq for one in changes_since(history, 0, asked)] == [2]
        assert [one.seq for one in changes_since(history, 2, asked)] == []
        assert [one.seq for one in changes_since(history, 0, frozenset(map(path_of, "ab")))] == [1, 2, 3]
        assert [one.seq for one in changes_since(history, 0, None)] == [1, 2, 3]
        assert Claims.of(history, "session", asked, 0) == Claims(free=(Seq(2),), own=())


def test_a_key_is_of_one_session_and_returns_its_span() -> None:
    open_spans = ExecSpans()
    mine = open_spans.add(new_span(1, reader_of("ann"), "agent", "ann", "it", None, "k"))
    assert open_spans.add(new_span(2, reader_of("ann"), "agent", "ann", "again", None, "k")) is mine
    with pytest.raises(InvalidParams, match="in use by session 'ann'"):
        open_spans.add(new_span(2, reader_of("bob"), "agent", "bob", "it", None, "k"))
    with pytest.raises(InvalidParams, match="needs a session"):
        new_span(1, "connection 1", "agent", None, "it", None, "k")
    for key in ("", "k" * 1001):
        with pytest.raises(InvalidParams, match="1 to 1000"):
            new_span(1, reader_of("ann"), "agent", "ann", "it", None, key)
