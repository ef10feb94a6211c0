"""What people complain of most in the approval of agents' edits; one test for each that editd removes.

Each names the complaint and where it was made. All go through the real socket.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire import messages
from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.reviewers import config_folder, reviewer_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"line {number}\n" for number in range(1, 31))
FILES = {"a.txt": LINES}


def propose(author: Client, *edits: messages.AnyEdit, **more: Any) -> int:
    made = author.apply(list(edits), propose=True, **more).proposal
    assert isinstance(made, messages.ProposedResult)
    assert made.proposal is not None
    return made.proposal


def change(number: int, text: str) -> messages.AnyEdit:
    return replace("a.txt", f"line {number}\n", f"{text}\n")


def approve(reviewer: Client, number: int) -> messages.ProposalApproveResult:
    return reviewer.proposal_approve(number, view=reviewer.proposal_get(number).view)


def text(place: Workplace, path: str = "a.txt") -> str:
    return place.files()[path].decode()


def decided_meanwhile(
    author: Client, reviewer: Client, decide: Callable[[], object], *edits: messages.AnyEdit
) -> messages.ApplyResult:
    """Let the author wait for the decision about its edit, and return what it is answered."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(author.apply, list(edits), propose=True, wait=30)
        wait_until(lambda: reviewer.proposal_list().proposals, "nothing is proposed")
        decide()
        return waiting.result(30)


def test_the_diff_can_be_changed_before_it_is_approved(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    """Cline #13252: since 4.x the diff is read-only."""
    number = propose(author, change(3, "three"))
    now = reviewer.proposal_get(number).files[0].now
    own = messages.ReviewedFile(path="a.txt", content=LINES.replace("line 3\n", "III\n"), base=now)
    landed = reviewer.proposal_approve(number, files=[own])
    assert "III\n" in text(place)
    assert "+III" in landed.reviewer_diff, "the author learns of it"


def test_a_save_while_the_question_is_open_is_not_overwritten_by_the_approval(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    """claude-code #71679: a manual edit of the file is lost on approval."""
    number = propose(author, change(3, "three"))
    place.write({"a.txt": LINES.replace("line 20\n", "mine\n")})
    author.settle()
    approve(reviewer, number)
    assert text(place) == LINES.replace("line 20\n", "mine\n").replace("line 3\n", "three\n")


def test_a_rejection_with_a_reason_settles_the_edits_that_follow(place: Workplace, author: Client) -> None:
    """claude-code #89642: rejecting edit 2 of 4 still forces decisions on 3 and 4."""
    assert author.status().state == "ready"
    with place.client() as collected, reviewer_of(place) as reviewer:
        collected.session_open("collected", propose="always", batch="session")
        for number in (3, 10, 17, 24):
            collected.apply([change(number, f"changed {number}")])
        reviewer.proposal_reject(1, comment="not this way")
        assert reviewer.proposal_list().proposals == []
    assert text(place) == LINES


def test_seven_edits_of_one_file_are_one_question(place: Workplace, author: Client) -> None:
    """claude-code #17316: seven prompts for seven edits of one file."""
    assert author.status().state == "ready"
    with place.client() as collected, reviewer_of(place) as reviewer:
        collected.session_open("collected", propose="always", batch="session")
        for number in range(1, 29, 4):
            collected.apply([change(number, f"changed {number}")])
        assert [one.proposal for one in reviewer.proposal_list().proposals] == [1]
        approve(reviewer, 1)
    assert text(place).count("changed") == 7


def test_what_waits_already_is_offered_when_edits_are_let_through(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    """codex #17449: "approve for this session" does not release what waits already."""
    number = propose(author, change(3, "three"))
    allowed = reviewer.review_allow(["a.txt"], ttl=60, session="agent")
    assert allowed.matching == [number]
    view = reviewer.proposal_get(number).view
    named = messages.ProposalView(proposal=number, view=view)
    assert reviewer.proposal_decide([named], "approve").left == []
    assert "three\n" in text(place)


def test_a_wait_that_ends_is_no_denial(place: Workplace, author: Client, reviewer: Client) -> None:
    """codex #29627: a time-out is counted as a denial."""
    waited = author.apply([change(3, "three")], propose=True, wait=0.05)
    assert isinstance(waited.proposal, messages.ProposedResult)
    assert waited.proposal.state == "open"
    assert waited.transaction is None
    approve(reviewer, 1)
    assert author.proposal_wait(1, timeout=1).state == "landed"


def test_an_approval_is_for_the_hunks_that_it_names(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    """codex #19172: no approval by file or hunk."""
    number = propose(author, change(3, "three"), change(20, "twenty"))
    _, second = reviewer.proposal_get(number).files[0].hunks
    reviewer.proposal_approve(number, hunks=[second.hunk], rest="reject")
    assert text(place) == LINES.replace("line 20\n", "twenty\n")


def test_a_question_has_the_paths_and_both_texts(author: Client, reviewer: Client) -> None:
    """codex #41105, gemini-cli #18808: the request lacks paths and patch, and no diff can be seen."""
    number = propose(author, change(3, "three"), message="Spell it out")
    shown = reviewer.proposal_get(number, content=True)
    assert shown.paths == ["a.txt"]
    assert shown.message == "Spell it out"
    assert (shown.files[0].old, shown.files[0].new) == (LINES, LINES.replace("line 3\n", "three\n"))
    assert "-line 3\n+three\n" in shown.diff


def test_a_rejection_has_words_and_its_author_is_told(author: Client, reviewer: Client) -> None:
    """gemini-cli #1879, zed #48131: no way to reject with words, and the agent is not told."""
    with pytest.raises(EditdError) as told:
        decided_meanwhile(
            author, reviewer, lambda: reviewer.proposal_reject(1, comment="use words"), change(3, "3")
        )
    assert told.value.name == "rejected"
    assert (told.value.data["comment"], told.value.data["by"]) == ("use words", "ann")


def test_what_was_rejected_is_not_gone(place: Workplace, author: Client, reviewer: Client) -> None:
    """zed #58210: rejected code cannot even be copied."""
    number = propose(author, change(3, "three"))
    reviewer.proposal_reject(number)
    again = reviewer.proposal_reopen(number).proposal.proposal
    approve(reviewer, again)
    assert "three\n" in text(place)


def test_a_rejection_touches_no_file(place: Workplace, author: Client, reviewer: Client) -> None:
    """zed #58932: reject eats the user's own edits."""
    number = propose(author, change(3, "three"), write("new.txt", "new\n"))
    mine = LINES.replace("line 3\n", "line 3, with my own words\n")
    place.write({"a.txt": mine, "new.txt": "mine\n"})
    reviewer.proposal_reject(number)
    assert place.files() == {"a.txt": mine.encode(), "new.txt": b"mine\n"}


def test_nothing_is_on_the_disk_before_it_is_accepted(place: Workplace, author: Client) -> None:
    """vscode #296141: changes are on the disk before they are accepted."""
    before = (place.root / "a.txt").stat()
    propose(author, change(3, "three"), write("new.txt", "new\n"))
    after = (place.root / "a.txt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert place.files() == {"a.txt": LINES.encode()}


def test_an_undo_takes_no_accepted_change_along(place: Workplace, author: Client, reviewer: Client) -> None:
    """vscode #260840: undo takes accepted changes along."""
    for number, said in ((3, "three"), (4, "four")):
        approve(reviewer, propose(author, change(number, said)))
    reviewer.undo(2)
    assert text(place) == LINES.replace("line 3\n", "three\n")


def test_after_a_restart_the_question_is_there_with_its_reasons(place: Workplace, author: Client) -> None:
    """vscode #294832, librefang #3611: a restart loses what waits, or why it was made."""
    number = propose(author, change(3, "three"), message="Because it is better")
    author.proposal_comment(number, "see line 3")
    view = author.proposal_get(number).view
    place.kill()
    with place.start(), reviewer_of(place) as reviewer:
        shown = reviewer.proposal_get(number)
        assert (shown.state, shown.message, shown.view) == ("open", "Because it is better", view)
        assert [one.text for one in shown.comments] == ["see line 3"]
        approve(reviewer, number)
    assert "three\n" in text(place)


def test_a_second_card_does_not_revert_what_the_first_has_landed(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    """agentric PR #756: approving a second stale card reverts what the first landed, silently."""
    first, second = propose(author, change(3, "three")), propose(author, change(20, "twenty"))
    third = propose(author, change(3, "III"))
    approve(reviewer, first)
    approve(reviewer, second)
    with pytest.raises(EditdError) as refusal:
        approve(reviewer, third)
    assert refusal.value.name == "conflict"
    assert text(place) == LINES.replace("line 3\n", "three\n").replace("line 20\n", "twenty\n")


def test_a_newer_draft_replaces_the_older_one(place: Workplace, author: Client, reviewer: Client) -> None:
    """origofs #164: rejecting the newer draft leaves the older one accept-ready."""
    number = propose(author, change(3, "three"))
    older = reviewer.proposal_get(number)
    author.apply([change(3, "III")], proposal=number)
    with pytest.raises(EditdError) as refusal:
        reviewer.proposal_approve(number, view=older.view)
    assert refusal.value.name == "stale"
    reviewer.proposal_reject(number)
    assert reviewer.proposal_list().proposals == []
    assert text(place) == LINES


def test_that_an_agent_waits_is_seen_by_all(author: Client, reviewer: Client) -> None:
    """opencode #15332, clawdboard #19: which agent waits is seen nowhere, and there is no queue over all."""
    propose(author, change(3, "three"))
    assert reviewer.status().proposals == 1
    (waiting,) = reviewer.proposal_list().proposals
    assert (waiting.actor, waiting.session) == ("claude", "agent")
    (session,) = [one for one in reviewer.session_list(activity=True).sessions if one.session == "agent"]
    assert isinstance(session.activity, messages.SessionActivity)
    assert session.activity.proposals == [1]


def test_a_long_diff_is_shown_whole(author: Client, reviewer: Client) -> None:
    """oh-my-pi #11638: the diff to be approved is cut off."""
    long = "".join(f"{number} {'x' * 80}\n" for number in range(5000))
    shown = reviewer.proposal_get(propose(author, write("long.txt", long)))
    assert shown.diff.count("\n+") >= 5000


def test_an_agent_does_not_approve_for_itself(place: Workplace, author: Client) -> None:
    """daintree #11342: an MCP client answers the question itself."""
    number = propose(author, change(3, "three"))
    with place.client() as same_process:
        for client in (author, same_process):
            with pytest.raises(EditdError) as refusal:
                approve(client, number)
            assert refusal.value.name == "permission_denied"
    assert text(place) == LINES


def test_no_file_of_the_workspace_loosens_a_rule(place: Workplace, author: Client) -> None:
    """deepagents #4844: a policy in the repository lets the repository loosen it."""
    rule = '[[review.rule]]\nname = "locks"\npaths = ["*.lock"]\n'
    (config_folder(place) / "config.toml").write_text(rule)
    author.config_reload()
    loose = '[review]\ndefault = "land"\n'
    author.apply([write("config.toml", loose), write(".editd/config.toml", loose)])
    attempts: list[list[messages.AnyEdit]] = [
        [write("x.lock", "1\n")],
        [write("x", "1\n"), messages.Move(path="x", to="x.lock")],
    ]
    for edits in attempts:
        made = author.apply(edits).proposal
        assert isinstance(made, messages.ProposedResult)
        assert made.rule == "locks"
    assert "x.lock" not in place.files()
