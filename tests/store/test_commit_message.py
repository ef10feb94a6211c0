"""Commit messages: a person reads them, and editd reads the same back from whatever an author wrote."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from editd.store import transaction_record
from editd.values.content import Change, Entry, Version
from editd.values.path import WorkspacePath
from editd.values.transaction import Approval, Arrival, Authorship, CommitId, TurnMark

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
names = texts.filter(bool)


def touch(path: str, *, source: str | None = None, permissions: int | None = None) -> Change[Entry]:
    after = Entry(0o100644, Version("a" * 40), permissions)
    return Change(WorkspacePath(path), None, after, None if source is None else WorkspacePath(source))


@given(actor=names, session=st.none() | names, message=texts, request=st.none() | names)
@example(actor="me", session=None, message="subject\n\nSeq: 99\nKind: baseline", request=None)
@example(actor="a\nSeq: 7", session='"quoted"', message="\n\n", request=" ")
@example(actor="\udcff", session="\udc80", message="trailing\n\n\n", request="\\")
def test_whatever_an_author_writes_is_read_back(
    actor: str, session: str | None, message: str, request: str | None
) -> None:
    said = Authorship(actor, session, message, request)
    text = transaction_record.compose(7, "undo", said, 1_700_000_000_123_456, [touch("a")], [3, 5], '{"a":1}')
    written = transaction_record.parse(text)
    assert written.authorship == said
    assert (written.seq, written.kind, written.undoes) == (7, "undo", (3, 5))
    assert written.time_us == 1_700_000_000_123_456
    assert written.notes == '{"a":1}'


@given(number=st.integers(1, 999_999_999), model=st.none() | names)
@example(number=2, model='gpt "5"\nSeq: 9')
def test_the_turn_and_the_model_of_an_agent_are_read_back(number: int, model: str | None) -> None:
    said = Authorship("a", "s", "m", turn=TurnMark(number, model))
    text = transaction_record.compose(7, "edit", said, 1, [], [])
    assert transaction_record.parse(text).authorship == said
    assert f"\nTurn: {number}\n" in text


@pytest.mark.parametrize("trailers", ["Turn: x", "Turn: 0", "Turn: -1", "Turn: 1234567890", "Model: m"])
def test_a_turn_of_another_form_is_left_out(trailers: str) -> None:
    text = transaction_record.compose(7, "edit", Authorship("a", "s", "m"), 1, [], [])
    assert transaction_record.parse(text + trailers + "\n").authorship == Authorship("a", "s", "m")
    model = transaction_record.parse(text + 'Turn: 2\nModel: "\n').authorship.turn
    assert model == TurnMark(2)


def test_the_claimed_transactions_are_read_back() -> None:
    text = transaction_record.compose(7, "claim", Authorship("a", "s", "edit"), 1, [], [], claims=[3, 5])
    assert transaction_record.parse(text).claims == (3, 5)
    assert text.startswith("edit\n\n")


@given(
    proposal=st.none() | st.integers(1, 10**9),
    hunks=st.lists(st.integers(1, 5000), max_size=5),
    actor=st.none() | names,
    session=st.none() | names,
    rule=names,
    is_modified=st.booleans(),
)
def test_an_approval_is_read_back(
    proposal: int | None,
    hunks: list[int],
    actor: str | None,
    session: str | None,
    rule: str,
    is_modified: bool,
) -> None:
    approval = Approval(
        proposal,
        None if proposal is None else 2,
        () if proposal is None else tuple(hunks),
        actor,
        session,
        rule if actor is None else None,
        is_modified,
    )
    author = Authorship("me", approval=approval)
    text = transaction_record.compose(7, "edit", author, 0, [touch("a")], [])
    assert transaction_record.parse(text).authorship == author


def test_a_person_can_read_who_approved() -> None:
    approval = Approval(7, 2, (1, 3), "ann", "ann's page", None, is_modified=True)
    text = transaction_record.compose(1, "edit", Authorship("me", approval=approval), 0, [touch("a")], [])
    assert [line for line in text.splitlines() if line.startswith(("Proposal", "Approved", "Modified"))] == [
        "Proposal: 7 2 1,3",
        "Approved-By: ann",
        "Approved-Session: ann's page",
        "Modified: by the reviewer",
    ]


def test_moves_and_odd_permissions_are_kept() -> None:
    touches = [touch("new\nname", source="old", permissions=0o600), touch("b", permissions=0o644)]
    written = transaction_record.parse(
        transaction_record.compose(1, "edit", Authorship("me"), 0, touches, [])
    )
    assert written.moves == (("old", "new\nname"),)
    assert written.permissions == (("new\nname", 0o600),)


@pytest.mark.parametrize(
    ("touches", "subject"),
    [
        ([touch("src/a.py")], "add src/a.py"),
        ([touch("a"), touch("b"), touch("c")], "add a and 2 more"),
        (
            [
                Change(WorkspacePath("old"), Entry(0o100644, Version("a" * 40)), None),
                touch("new", source="old"),
            ],
            "move new",
        ),
    ],
)
def test_a_transaction_without_a_message_gets_a_subject(touches: list[Change[Entry]], subject: str) -> None:
    assert transaction_record.compose(1, "edit", Authorship("me"), 0, touches, []).splitlines()[0] == subject


def test_the_subject_of_many_deletions_is_not_looked_for_among_all_of_them() -> None:
    entry = Entry(0o100644, Version("a" * 40))
    gone = [Change(WorkspacePath(f"gone/{number}"), entry, None) for number in range(20_000)]
    began = time.process_time()
    assert transaction_record.summary("outside", gone) == "outside: delete gone/0 and 19999 more"
    assert time.process_time() - began < 5  # it took a minute once, and every edit waited


def test_a_subject_stays_short() -> None:
    subject = transaction_record.summary("edit", [touch("x" * 300), touch("y")])
    assert len(subject) == transaction_record.SUBJECT_CHARACTERS
    assert subject.endswith("… and 1 more")


@pytest.mark.parametrize(
    "text", ["", "hello", "a\n\nSeq: 1", "a\n\nSeq: x\nKind: edit\nActor: me\nTime: now"]
)
def test_a_message_that_is_not_ours_is_told_apart(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        transaction_record.parse(text)


@pytest.mark.parametrize("actor", ["Ann Lee", "a <b> c\n", "", "…", "agent/7"])
def test_an_actor_is_an_identity_that_git_takes(actor: str) -> None:
    name, _, mail = transaction_record.ident(actor).rpartition(" ")
    assert name
    assert mail.startswith("<")
    assert mail.endswith("@editd.invalid>")
    assert not set("<>\n") & set(name + mail[1:-1])


def test_times_are_read_back() -> None:
    assert (
        transaction_record.microseconds(transaction_record.rfc3339(1_234_567_890_000_001))
        == 1_234_567_890_000_001
    )
    assert transaction_record.rfc3339(0) == "1970-01-01T00:00:00.000000Z"


@given(number=st.integers(0, 10**9), host=names, is_own=st.booleans(), time_us=st.integers(0, 2**52))
def test_the_place_in_the_log_of_several_hosts_is_read_back(
    number: int, host: str, is_own: bool, time_us: int
) -> None:
    arrival = Arrival(number, host, None if is_own else CommitId("c" * 40), time_us)
    author = Authorship("me", "types@laptop", arrival=arrival)
    text = transaction_record.compose(7, "edit", author, 0, [touch("a")], [])
    assert transaction_record.parse(text).authorship == author


@pytest.mark.parametrize("line", ["Moved: " + "[" * 9000, "Moved: [1, 2]", "Moved: {}", 'Moved: ["a"]'])
def test_a_trailer_with_another_value_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        transaction_record.parse(f"x\n\nSeq: 1\nKind: edit\nActor: a\nTime: 2026-01-01T00:00:00Z\n{line}\n")
