"""Tests of `store.proposals`: what waits for a reviewer is on the disk, whole, and has its limits."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from editd.edits.proposed_hunks import proposed_files
from editd.errors import IoError, Overloaded
from editd.store import proposals as proposals_module
from editd.store.proposals import OPEN_OF_ONE_MAX, ProposalStore
from editd.system.process import Process, line_above
from editd.values.content import EXECUTABLE, Change, FileState, version_of
from editd.values.glob import Glob
from editd.values.grant import Grant
from editd.values.path import WorkspacePath
from editd.values.proposal import Comment, Decision, ProposalNumber, Reviewer, TrialResult
from editd.values.transaction import Part, Seq
from support import injection
from support.proposals import OTHER, PATH, ids, proposal_of, split

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd.values.proposal import Proposal

ANN = Reviewer("ann", "ann-1", "review socket")
NUMBER = ProposalNumber(1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProposalStore]:
    opened = ProposalStore(str(tmp_path), 1)
    yield opened
    opened.close()


def reopened(store: ProposalStore, tmp_path: Path) -> ProposalStore:
    """The store as the next daemon finds it; the former one was not closed, as after a kill."""
    assert store.is_whole
    opened = ProposalStore(str(tmp_path), 2)
    assert opened.open == store.open
    assert opened.content_bytes == store.content_bytes
    return opened


def verdicts(store: ProposalStore) -> list[str | None]:
    """What was decided on the hunks of the first file of the first revision."""
    return [hunk.verdict for hunk in store.files(NUMBER, 1)[0].hunks]


def test_a_proposal_comes_back_whole_after_a_kill(store: ProposalStore, tmp_path: Path) -> None:
    base, after = FileState(b"a\nb\n", EXECUTABLE, 0o750), FileState(b"a\nB\n", EXECUTABLE, 0o750)
    files = proposed_files(
        [
            Change(PATH, base, None),
            Change(OTHER, None, after, PATH),
            Change(WorkspacePath("new\udcff"), None, FileState(b"\0\xff")),
        ]
    )
    scope = (Glob.parse("src/**"),)
    draft = replace(
        proposal_of("them", "claude-1"), may_write=scope, state="draft", expires_us=9, kind="undo"
    )
    added = store.add(draft, files)
    assert added == replace(draft, number=NUMBER)
    with closing(reopened(store, tmp_path)) as later:
        assert later.get(NUMBER) == added
        back = later.files(NUMBER, 1)
        assert back == files
        states = [state for state in (back[0].base, back[1].proposed) if state is not None]
        assert [state.content for state in states] == [b"a\nb\n", b"\0\xff"]
        assert [state.permissions for state in states] == [0o750, None]


def test_each_write_is_synced_before_it_returns(store: ProposalStore) -> None:
    if injection.missing() is not None:
        pytest.skip(f"system calls cannot be seen: {injection.missing()}")
    file = split(b"a\n", b"b\n")
    with injection.attached(os.getpid(), calls="fdatasync,fsync,pwrite64") as trace:
        added = store.add(proposal_of(), [file])
        store.revise(replace(added, revision=2), [split(b"a\n", b"c\n")])
        store.comment(store.open[NUMBER], Comment(1, ANN, 2, "why?"))
        store.decide(replace(store.open[NUMBER], state="withdrawn"), Decision(1, ANN, "withdraw"))
        calls = [call.name for call in trace.calls()]
    assert sum(call != "pwrite64" for call in calls) >= 4
    assert calls[-1] != "pwrite64"


def test_numbers_are_never_used_again(store: ProposalStore, tmp_path: Path) -> None:
    file = split(b"a\n", b"b\n")
    for _ in range(3):
        store.add(proposal_of(), [file])
    last = store.open[ProposalNumber(3)]
    store.decide(replace(last, state="withdrawn", changed_us=1), Decision(1, ANN, "withdraw"))
    store.forget_settled(2)
    assert store.get(ProposalNumber(3)) is None
    with closing(reopened(store, tmp_path)) as later:
        assert later.add(proposal_of(), [file]).number == 4


def test_a_decision_marks_its_hunks_and_settles_the_proposal(store: ProposalStore, tmp_path: Path) -> None:
    file = split(b"a\nb\nc\nd\ne\n", b"A\nb\nC\nd\nE\n")
    first, second, third = ids(file)
    added = store.add(proposal_of(), [file])
    partly = Decision(5, ANN, "approve", (first,), "yes", 17, is_modified=True, request_id="r")
    store.decide(replace(added, landed=(Seq(17),), changed_us=5), partly, {first: "landed"})
    assert verdicts(store) == ["landed", None, None]
    assert store.open[NUMBER].landed == (17,)
    rest = Decision(6, ANN, "reject", (second, third), "no\udcff")
    settled = replace(store.open[NUMBER], state="partly", changed_us=6)
    store.decide(settled, rest, {second: "rejected", third: "rejected"})
    assert store.open == {}
    with closing(reopened(store, tmp_path)) as later:
        assert later.get(NUMBER) == settled
        assert verdicts(later) == ["landed", "rejected", "rejected"]
        assert later.decisions(NUMBER) == [partly, rest]


def test_a_comment_stays_with_its_proposal(store: ProposalStore) -> None:
    added = store.add(proposal_of(), [split(b"a\n", b"b\n")])
    words = [Comment(at, ANN, 1, "why?", path="f", line=at) for at in (1, 2)]
    for comment in words:
        store.comment(replace(added, changed_us=comment.time_us), comment)
    assert store.comments(NUMBER) == words
    assert store.open[NUMBER].changed_us == 2


def test_each_revision_keeps_its_files(store: ProposalStore) -> None:
    first, second = split(b"a\n", b"b\n"), split(b"a\n", b"c\n")
    added = store.add(proposal_of(), [first])
    store.revise(replace(added, revision=2, at=Seq(4)), [second])
    assert store.files(NUMBER, 1) == (first,)
    assert store.files(NUMBER, 2) == (second,)
    assert store.files(NUMBER, 3) == ()
    assert store.open[NUMBER].revision == 2
    store.decide(store.open[NUMBER], Decision(1, ANN, "reject"), dict.fromkeys(ids(first), "rejected"))
    assert verdicts(store) == [None], "a verdict is on the current revision only"


def test_proposals_are_listed_by_state_session_and_path_the_newest_first(store: ProposalStore) -> None:
    for session, path in (("a", "src/x"), ("b", "src/y"), ("a", "srcs"), (None, "src")):
        change = Change(WorkspacePath(path), None, FileState(path.encode()))
        store.add(proposal_of("them", session), proposed_files([change]))
    gone = Decision(1, ANN, "withdraw")
    store.decide(replace(store.open[ProposalNumber(2)], state="withdrawn"), gone)

    def numbers(found: tuple[list[Proposal], bool]) -> list[int]:
        return [proposal.number for proposal in found[0]]

    assert numbers(store.find()) == [4, 3, 2, 1]
    assert numbers(store.find(["open"])) == [4, 3, 1]
    assert numbers(store.find(["withdrawn", "landed"])) == [2]
    assert numbers(store.find(session="a")) == [3, 1]
    assert numbers(store.find(path=WorkspacePath("src"))) == [4, 2, 1]
    assert numbers(store.find(path=WorkspacePath("src/x"))) == [1]
    found, has_more = store.find(limit=2)
    assert ([proposal.number for proposal in found], has_more) == ([4, 3], True)
    found, has_more = store.find(before=ProposalNumber(3), limit=2)
    assert ([proposal.number for proposal in found], has_more) == ([2, 1], False)


def test_equal_content_is_kept_once_and_goes_with_the_last_proposal_of_it(store: ProposalStore) -> None:
    old, new = b"a\n" * 1000, b"b\n" + b"a\n" * 999
    for path in ("f", "g"):
        store.add(
            proposal_of(), proposed_files([Change(WorkspacePath(path), FileState(old), FileState(new))])
        )
    assert store.content_bytes == len(old) + len(new)
    for number, freed in ((1, 0), (2, len(old) + len(new))):
        settled = replace(store.open[ProposalNumber(number)], state="rejected", changed_us=5)
        store.decide(settled, Decision(5, ANN, "reject"))
        assert store.forget_settled(5) == 0
        assert store.forget_settled(6) == freed
    assert (store.content_bytes, store.open) == (0, {})
    assert store.files(NUMBER, 1) == ()
    assert store.decisions(NUMBER) == []


def test_a_session_and_all_together_may_have_so_many_open_proposals(
    store: ProposalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals_module, "OPEN_OF_ONE_MAX", 2)
    monkeypatch.setattr(proposals_module, "OPEN_MAX", 4)
    files = [split(b"a\n", b"b\n")]
    for session in ("a", "a", None, None):
        store.add(proposal_of("them", session), files)
    with pytest.raises(Overloaded, match="4 proposals are open"):
        store.add(proposal_of("them", "b"), files)
    store.decide(replace(store.open[ProposalNumber(3)], state="expired"), Decision(1, ANN, "expire"))
    with pytest.raises(Overloaded, match="2 proposals of session a are open"):
        store.add(proposal_of("them", "a"), files)
    assert store.add(proposal_of("them", "b"), files).number == 5
    assert OPEN_OF_ONE_MAX == 200


def test_all_edits_without_a_session_share_the_limit_of_one(
    store: ProposalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: 1,000 proposals on a connection without a session, and `overloaded` for everybody."""
    monkeypatch.setattr(proposals_module, "OPEN_OF_ONE_MAX", 2)
    files = [split(b"a\n", b"b\n")]
    for _ in range(2):
        store.add(proposal_of("them", None), files)
    with pytest.raises(Overloaded, match="2 proposals without a session are open"):
        store.add(proposal_of("them", None), files)
    store.add(proposal_of("them", "b"), files)


def test_all_sessions_of_one_program_share_the_limits_of_one(
    store: ProposalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: five sessions of one agent fill the queue of all."""
    monkeypatch.setattr(proposals_module, "OPEN_OF_ONE_MAX", 2)
    monkeypatch.setattr(proposals_module, "CONTENT_OF_ONE_MAX", 300)
    line = (Process(7, 70, 7, "agent"),)
    for session in ("a", "b"):
        store.add(proposal_of("them", session), [split(b"a" * 10, b"b" * 20)], line, (7, 70))
    with pytest.raises(Overloaded, match="2 proposals of all sessions of this program are open"):
        store.add(proposal_of("them", "c"), [split(b"a", b"b")], line, (7, 70))
    store.close()
    again = ProposalStore(str(tmp_path), 0)
    with pytest.raises(Overloaded, match="of all sessions of this program"):
        again.add(proposal_of("them", "c"), [split(b"a", b"b")], line, (7, 70))
    for number in (1, 2):
        again.decide(replace(again.open[ProposalNumber(number)], state="expired"), Decision(1, ANN, "expire"))
    with pytest.raises(Overloaded, match="of all sessions of this program may have 300 bytes"):
        again.add(proposal_of("them", "c"), [split(b"c" * 100, b"d" * 200)], line, (7, 70))
    again.add(proposal_of("them", "c"), [split(b"c" * 100, b"d" * 200)], (), (8, 80))
    again.close()


def test_the_contents_of_one_session_leave_room_for_others(
    store: ProposalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals_module, "CONTENT_OF_ONE_MAX", 1_000)
    first = store.add(proposal_of("them", "a"), [split(b"a" * 400, b"b" * 400)])
    with pytest.raises(Overloaded, match="of session a may have 1000 bytes"):
        store.add(proposal_of("them", "a"), [split(b"c" * 200, b"d" * 200)])
    store.decide(replace(first, state="withdrawn"), Decision(1, ANN, "withdraw"))
    with pytest.raises(Overloaded, match="of session a may have 1000 bytes"):
        store.add(proposal_of("them", "a"), [split(b"c" * 200, b"d" * 200)])
    made = store.add(proposal_of("them", "b"), [split(b"c" * 200, b"d" * 200)])
    with pytest.raises(Overloaded, match="of session b may have 1000 bytes"):
        store.revise(replace(made, revision=2), [split(b"e" * 400, b"f" * 400)])


def test_the_stored_bytes_grow_with_each_row_and_an_empty_store_has_none(
    store: ProposalStore, tmp_path: Path
) -> None:
    assert store.stored_bytes == 0
    made = store.add(proposal_of(), [split(b"", b"b" * 100_000)])
    first = store.stored_bytes
    assert 90_000 < first < 150_000
    store.comment(made, Comment(1, ANN, 1, "x" * 50_000))
    assert store.stored_bytes > first + 40_000
    with closing(reopened(store, tmp_path)) as later:
        assert later.stored_bytes == store.stored_bytes


def test_too_much_content_is_refused_and_nothing_of_it_stays(
    store: ProposalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(proposals_module, "CONTENT_BYTES_MAX", 1_000)
    first = store.add(proposal_of(), [split(b"a" * 400, b"b" * 400)])
    with pytest.raises(Overloaded, match="1000 bytes of content"):
        store.add(proposal_of(), [split(b"c" * 200, b"d" * 200)])
    with pytest.raises(Overloaded):
        store.revise(replace(first, revision=2), [split(b"c" * 200, b"d" * 200)])
    assert store.add(proposal_of(), [split(b"a" * 400, b"c" * 200)]).number == 2
    with closing(reopened(store, tmp_path)) as later:
        assert later.content_bytes == 1_000
        assert later.open[NUMBER].revision == 1


def test_content_that_is_damaged_is_refused_by_its_version(store: ProposalStore, tmp_path: Path) -> None:
    store.add(proposal_of(), [split(b"a\n", b"b\n")])
    with closing(sqlite3.connect(tmp_path / "proposals.db")) as other:
        other.execute("update content set bytes = x'78' where version = ?", (version_of(b"a\n"),))
        other.commit()
    with pytest.raises(IoError, match="is damaged"):
        store.files(NUMBER, 1)
    assert store.get(NUMBER) is not None


def test_only_the_user_may_read_it(store: ProposalStore, tmp_path: Path) -> None:
    store.add(proposal_of(), [split(b"a\n", b"b\n")])
    assert {name: os.stat(tmp_path / name).st_mode & 0o777 for name in os.listdir(tmp_path)} == {
        "proposals.db": 0o600,
        "proposals.db-wal": 0o600,
        "proposals.db-shm": 0o600,
    }


def test_a_list_of_1000_open_proposals_of_ten_files_takes_no_time_that_anybody_notices(
    store: ProposalStore,
) -> None:
    """20 ms are promised for a page of 50. The bound is for a loaded machine."""
    for number in range(1_000):
        changes = [
            Change(WorkspacePath(f"{number}/{name}"), FileState(b"a\n"), FileState(b"%d\n" % number))
            for name in range(10)
        ]
        store.add(proposal_of("them", f"session {number % 10}"), proposed_files(changes))
    for path in (None, WorkspacePath("5")):
        began = time.thread_time()
        found, has_more = store.find(["open"], path=path)
        assert time.thread_time() - began < 0.1
        assert (len(found), has_more) == ((1, False) if path else (50, True))


def test_a_grant_comes_back_after_a_kill_with_what_is_left_of_it(
    store: ProposalStore, tmp_path: Path
) -> None:
    granted = store.add_grant(Grant(0, "s", (Glob.parse("src/**"),), 9, 2, 50, "ann", "ann-1"))
    other = store.add_grant(Grant(0, None, (Glob.parse("**"),), 9, None, None, "ann", None))
    assert (granted.number, other.number) == (1, 2)
    left = granted.after(10)
    assert left is not None
    assert (left.uses, left.lines) == (1, 40)
    store.put_grants([left], [other.number])
    with closing(reopened(store, tmp_path)) as later:
        assert later.grants == store.grants == {1: left}
        assert later.add_grant(other).number == 3, "numbers are never used again"
    assert left.after(10) is None, "it was the last use"
    assert replace(left, uses=None).after(40) is None, "there are no lines left"


def test_results_of_checks_are_kept_with_their_view(store: ProposalStore, tmp_path: Path) -> None:
    added = store.add(proposal_of(), [split(b"a\n", b"b\n")])
    results = [TrialResult(at, ANN, "pytest", f"view {at}", at, 0.5, "no\udcff") for at in (1, 2)]
    for result in results:
        store.check(replace(added, changed_us=result.time_us), result)
    with closing(reopened(store, tmp_path)) as later:
        assert later.checks(NUMBER) == results
        assert later.open[NUMBER].changed_us == 2


def test_the_daemons_own_result_replaces_its_last_one_and_others_have_a_limit(store: ProposalStore) -> None:
    added = store.add(proposal_of(), [split(b"a\n", b"b\n")])
    claim = TrialResult(1, ANN, "pytest", "view", 0, 0.5, "")
    own = replace(claim, exit=1, command=("pytest", "-q"))
    for result in (claim, own, replace(own, exit=2), replace(own, name="lint"), claim):
        store.check(added, result)
    assert store.checks(NUMBER) == [claim, replace(own, exit=2), replace(own, name="lint"), claim]
    for _ in range(proposals_module.CHECKS_MAX - 4):
        store.check(added, claim)
    with pytest.raises(Overloaded):
        store.check(added, claim)
    store.check(added, own)
    assert store.checks(NUMBER)[-1] == own


def test_the_line_of_an_authors_process_comes_back_within_the_same_boot(
    store: ProposalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, other = line_above(os.getpid()), line_above(os.getpid())[1:]
    added = store.add(proposal_of(), [split(b"a\n", b"b\n")], line)
    store.revise(replace(added, revision=2), [split(b"a\n", b"c\n")], line)
    store.revise(replace(added, revision=3), [split(b"a\n", b"d\n")], other)
    with closing(reopened(store, tmp_path)) as later:
        assert later.lines(NUMBER) == [line, other]
        monkeypatch.setattr(proposals_module, "boot_name", lambda: "another")
        assert later.lines(NUMBER) == []


def test_a_database_of_an_earlier_version_opens(store: ProposalStore, tmp_path: Path) -> None:
    added = store.add(proposal_of(), [split(b"a\n", b"b\n")])
    store.close()
    with closing(sqlite3.connect(tmp_path / "proposals.db")) as database:
        for table in ("author", "intent"):
            database.execute(f"drop table {table}")
        database.commit()
    with closing(ProposalStore(str(tmp_path), 2)) as later:
        assert later.is_whole
        assert later.open == {NUMBER: added}
        assert (later.lines(NUMBER), later.intent(NUMBER)) == ([], None)


def test_an_undo_comes_back_with_what_it_undoes(store: ProposalStore, tmp_path: Path) -> None:
    parts = (Part(Seq(3), PATH, (1, 2)), Part(Seq(3), WorkspacePath("x\udcff")))
    undo = replace(proposal_of(), kind="undo", undoes=(Seq(3), Seq(4)), parts=parts)
    added = store.add(undo, [split(b"a\n", b"b\n")])
    with closing(reopened(store, tmp_path)) as later:
        assert later.get(NUMBER) == added
        assert added.parts == parts


def test_a_damaged_database_costs_the_grants_too(store: ProposalStore, tmp_path: Path) -> None:
    store.add_grant(Grant(0, None, (Glob.parse("**"),), 9, None, None, "ann", None))
    store.close()
    for name in ("proposals.db-wal", "proposals.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "proposals.db").write_bytes(b"damaged" * 1_000)
    with closing(ProposalStore(str(tmp_path), 5_000_000)) as later:
        assert not later.is_whole
        assert later.grants == {}
        assert later.add_grant(Grant(0, None, (Glob.parse("a"),), 9, None, None, "ann", None)).number == 6
