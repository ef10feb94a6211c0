"""The choices of a reviewer: by hunk, kept while the files move, lost with a hunk that was altered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Move
from editd_client.errors import EditdError
from editd_client.review import actions
from editd_client.review.choices import HunkChoices
from support.reviewers import number_of
from support.workplace import replace

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"#{n}\n" for n in range(1, 31))
FILES = {"a": LINES, "b": LINES}


def propose(author: Client) -> int:
    edits = [
        replace("a", "#5\n", "#five\n"),
        replace("a", "#20\n", "#twenty\n"),
        replace("b", "#9\n", "#IX\n"),
    ]
    return number_of(author.apply(edits, propose=True))


def ids(choices: HunkChoices) -> list[str]:
    return [hunk.hunk for file in choices.shown.files for hunk in file.hunks]


def send(reviewer: Client, choices: HunkChoices, comment: str | None = None) -> None:
    for call in actions.decision_of(choices).calls(comment=comment, request_id=f"{choices.shown.proposal}"):
        reviewer.ask(call)


def test_what_fits_is_to_land_at_first(author: Client, reviewer: Client, shared: Workplace) -> None:
    choices = HunkChoices(reviewer.proposal_get(propose(author)))
    assert choices.count() == (3, 3)
    assert choices.count("a") == (2, 2)
    send(reviewer, choices)
    assert reviewer.proposal_get(choices.shown.proposal).state == "landed"
    assert b"#IX" in shared.files()["b"]


def test_a_hunk_turns_from_approve_to_reject_to_open(author: Client, reviewer: Client) -> None:
    choices = HunkChoices(reviewer.proposal_get(propose(author)))
    hunk = ids(choices)[0]
    assert [choices.turn(hunk) for _ in range(3)] == ["reject", "open", "approve"]
    assert choices.turn("nothing") is None


def test_the_chosen_land_and_the_rejected_are_rejected_in_one_request(
    author: Client, reviewer: Client, shared: Workplace
) -> None:
    choices = HunkChoices(reviewer.proposal_get(propose(author)))
    choices.set_all("reject", "a")
    assert len(actions.decision_of(choices).calls(comment="no", request_id="one")) == 1
    send(reviewer, choices, "not these")
    assert reviewer.proposal_get(choices.shown.proposal).state == "partly"
    assert shared.files()["a"].decode() == LINES


def test_a_hunk_that_is_left_open_stays_open(author: Client, reviewer: Client, shared: Workplace) -> None:
    choices = HunkChoices(reviewer.proposal_get(propose(author)))
    first, second, third = ids(choices)
    choices.set(first, "reject")
    choices.set(second, "open")
    send(reviewer, choices, "not the first")
    shown = reviewer.proposal_get(choices.shown.proposal)
    assert [hunk.state for file in shown.files for hunk in file.hunks] == ["rejected", "fits", "landed"]
    assert [one.comment for one in shown.decisions] == ["not the first", "not the first"]
    later = HunkChoices(shown)
    assert [later.of(hunk) for hunk in (first, second, third)] == [None, "approve", None]


def test_all_that_is_rejected_is_one_rejection(author: Client, reviewer: Client) -> None:
    choices = HunkChoices(reviewer.proposal_get(propose(author)))
    choices.set_all("reject")
    send(reviewer, choices, "no")
    assert reviewer.proposal_get(choices.shown.proposal).state == "rejected"


def test_without_a_choice_nothing_is_sent(author: Client, reviewer: Client) -> None:
    choices = HunkChoices(reviewer.proposal_get(propose(author)))
    choices.set_all("open")
    with pytest.raises(EditdError, match="No hunk is chosen"):
        send(reviewer, choices)


def test_choices_stay_while_the_lines_move_and_go_with_what_conflicts(
    author: Client, reviewer: Client, shared: Workplace
) -> None:
    choices = HunkChoices(reviewer.proposal_get(propose(author)))
    first, second, third = ids(choices)
    choices.set(first, "reject")
    shared.write({"a": "#0\n" + LINES.replace("#20\n", "#XX\n")})
    reviewer.settle()
    assert choices.replace(reviewer.proposal_get(choices.shown.proposal)) == [second]
    assert [choices.of(hunk) for hunk in (first, second, third)] == ["reject", "open", "approve"]
    assert not choices.set(second, "approve")
    assert choices.turn(second) == "reject"


def test_an_approved_view_does_not_land_what_was_revised(author: Client, reviewer: Client) -> None:
    choices = HunkChoices(reviewer.proposal_get(propose(author)))
    author.apply([replace("a", "#5\n", "#other\n")], propose=True, proposal=choices.shown.proposal)
    with pytest.raises(EditdError) as refused:
        send(reviewer, choices)
    assert refused.value.name == "stale"


def test_lines_of_a_moved_file_need_its_move(author: Client, reviewer: Client) -> None:
    made = author.apply([Move(path="a", to="c"), replace("c", "#5\n", "#five\n")], propose=True)
    choices = HunkChoices(reviewer.proposal_get(number_of(made)))
    move, lines = ids(choices)
    choices.set(move, "open")
    assert choices.hunks_with("approve") == []
    choices.set(lines, "approve")
    assert choices.hunks_with("approve") == [move, lines]


def test_an_undo_is_decided_as_a_whole(author: Client, reviewer: Client) -> None:
    made = author.apply([replace("a", "#5\n", "#V\n"), replace("b", "#5\n", "#V\n")])
    assert made.transaction is not None
    undo = author.undo(made.transaction.seq, propose=True)
    choices = HunkChoices(reviewer.proposal_get(number_of(undo)))
    choices.set(ids(choices)[0], "reject")
    assert choices.count() == (0, 2)
    assert choices.hunks_with("reject") == ids(choices)
