"""Proposals as a reviewer sees them, from a real daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from editd.wire.messages import RunningCheck
from editd_client.review import proposals
from editd_client.review.proposals import ProposalRows, shown_files
from support.workplace import replace, write

if TYPE_CHECKING:
    from editd.wire.messages import AnyEdit
    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"#{n}\n" for n in range(1, 31))
FILES = {"a": LINES, "b": LINES}


def propose(author: Client, message: str = "Words") -> int:
    edits: list[AnyEdit] = [
        replace("a", "#5\n", "#five\n"),
        replace("a", "#20\n", "#twenty\n"),
        write("new", "one\n"),
    ]
    made = author.apply(edits, propose=True, message=message)
    assert made.proposal is not None
    return int(made.proposal.proposal)  # type: ignore[union-attr, arg-type]


def test_a_proposal_has_its_files_hunks_rows_and_comments(author: Client, reviewer: Client) -> None:
    number = propose(author)
    second = reviewer.proposal_get(number).files[0].hunks[1].hunk
    reviewer.proposal_comment(number, "why?", hunk=second)
    reviewer.proposal_comment(number, "a whole file?", path="new")
    reviewer.proposal_comment(number, "well")
    shown = reviewer.proposal_get(number)
    files = shown_files(shown)
    assert [(file.title, len(file.hunks)) for file in files] == [("a", 2), ("new", 1)]
    assert [row.text for row in files[0].hunks[0].rows if row.kind == "added"] == ["#five"]
    assert [one.text for one in files[0].hunks[1].comments] == ["why?"]
    assert [one.text for one in files[1].comments] == ["a whole file?"]
    assert [one.text for one in proposals.general_comments(shown)] == ["well"]


def test_the_words_of_a_proposal(author: Client, reviewer: Client, shared: Workplace) -> None:
    number = propose(author, "Words\n\nand more")
    before = reviewer.proposal_get(number)
    assert proposals.subject(before) == "Words"
    assert proposals.author(before) == "agent"
    assert proposals.fit(before) == "fits"
    assert proposals.reason(before) == "the author asked for it"
    shared.write({"a": "#0\n" + LINES.replace("#20\n", "#XX\n")})
    reviewer.settle()
    seq = reviewer.log(limit=1).transactions[0].seq
    after = reviewer.proposal_get(number)
    assert proposals.fit(after) == "1 of 3 in conflict"
    moved, conflict = after.files[0].hunks
    assert proposals.hunk_title(moved, before.files[0].hunks[0]) == "fits, moved by +1"
    assert proposals.hunk_title(conflict) == f"conflict, in the way: {seq}"
    shown = shown_files(after)[0].hunks[1]
    assert shown.blocking == (seq,)
    assert shown.present_lines == ("#XX",)
    assert proposals.hunk_title(after.files[1].hunks[0]) == "whole file: fits"
    author.apply([replace("a", "#7\n", "#VII\n"), write("new", "one\n")], propose=True)
    assert proposals.subject(reviewer.proposal_get(number + 1)) == "a and 1 more"


def test_a_check_without_a_result_runs_or_waits() -> None:
    assert proposals.running_text(RunningCheck(name="make", seconds=4.4)) == "running for 4 s"
    assert proposals.running_text(RunningCheck(name="make", seconds=None)) == "waits for its turn"


def test_the_list_follows_events(author: Client, reviewer: Client) -> None:
    rows = ProposalRows()
    with reviewer.subscribe(events=["proposal"]) as events:
        first, second = propose(author), propose(author)
        for _ in range(2):
            happening = events.wait(20)
            assert happening is not None
            rows.take(happening.data)
        assert [one.proposal for one in rows.entries] == [second, first]
        reviewer.proposal_reject(second, comment="no")
        happening = events.wait(20)
        assert happening is not None
        assert rows.take(happening.data).state == "rejected"
    assert [one.proposal for one in rows.entries] == [first]
    assert rows.get(second) is None
    assert rows.nearest(second) == first
    assert rows.nearest(first) == first
    assert ProposalRows().nearest(1) is None


def test_a_check_says_who_ran_it_and_on_what(author: Client, reviewer: Client) -> None:
    number = propose(author)
    shown = reviewer.proposal_get(number)
    author.proposal_check(number, shown.view, "make", exit=2, seconds=1.0, output="no")
    hunks = [hunk.hunk for hunk in shown.files[0].hunks]
    author.proposal_check(number, shown.view, "lint", exit=0, seconds=1.0, output="", hunks=hunks[1:])
    author.apply([replace("a", "#5\n", "#V\n")], propose=False)
    now = reviewer.proposal_get(number)
    whole, part = now.checks
    text = "failed (2) in 1.0 s, as claude claims"
    assert proposals.check_text(whole, now) == f"{text}, on an earlier view"
    assert proposals.check_text(whole, msgspec.structs.replace(now, state="landed")) == text
    assert proposals.check_text(part, shown).startswith("passed on hunk 2 in 1.0 s")
    assert [proposals.check_name(one) for one in now.checks] == ["make", "lint in part"]
