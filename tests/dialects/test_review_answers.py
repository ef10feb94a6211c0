"""What the tools of other systems answer when a reviewer approves, changes or rejects their edit.

One daemon, one author and one reviewer serve the file. Each test begins with the same files, and with no
proposal open.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from editd.tool_api import review_answers
from editd.tools.gemini import TEXT_CHARACTERS_MAX
from editd.wire.messages import ApplyResult, ProposedResult, ReviewedFile, Tool
from support.reviewers import author_of, reviewer_of, set_pin
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.wire.messages import ProposalGetResult
    from editd_client.client import Client
    from support.workplace import Workplace

TEXT = "one\ntwo\nthree\n"
FILES = {"a.txt": TEXT, "b.txt": TEXT}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemini": ("replace", {"file_path": "{ROOT}/a.txt", "old_string": "two", "new_string": "2"}),
    "roo": ("search_and_replace", {"path": "a.txt", "search": "two", "replace": "2"}),
    "cline": (
        "replace_in_file",
        {"path": "a.txt", "diff": "------- SEARCH\ntwo\n=======\n2\n+++++++ REPLACE"},
    ),
    "serena": (
        "replace_content", {"relative_path": "a.txt", "needle": "two", "repl": "2", "mode": "literal"},
    ),
    "claude": (
        "str_replace_based_edit_tool",
        {"command": "str_replace", "path": "a.txt", "old_str": "two", "new_str": "2"},
    ),
    "codex": (
        "apply_patch",
        {"input": "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+2\n*** End Patch"},
    ),
    "wcgw": (
        "FileWriteOrEdit",
        {
            "file_path": "{ROOT}/a.txt", "percentage_to_change": 1, "thread_id": "t1",
            "text_or_search_replace_blocks": "<<<<<<< SEARCH\ntwo\n=======\n2\n>>>>>>> REPLACE",
        },
    ),
}  # fmt: skip
DIFF = """\
diff --git a/a.txt b/a.txt
index f04eb265eb..640a48ebc0 100644
--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,3 @@
 one
-2
+II
 three
"""  # from what was proposed to what landed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("answers") / "place") as made:
        set_pin(made)
        yield made


@pytest.fixture(scope="module")
def author(place: Workplace) -> Iterator[Client]:
    with author_of(place, FILES) as made:
        yield made


@pytest.fixture(scope="module")
def reviewer(place: Workplace, author: Client) -> Iterator[Client]:
    assert author.status().state == "ready"
    with reviewer_of(place) as made:
        yield made


@pytest.fixture(autouse=True)
def beginning(place: Workplace, author: Client, reviewer: Client) -> None:
    """Put the files back, and reject what a test has left open."""
    for left in reviewer.proposal_list().proposals:
        reviewer.proposal_reject(left.proposal)
    place.write(FILES)
    author.settle()


def call_of(place: Workplace, dialect: str, **more: Any) -> Tool:
    tool, args = CALLS[dialect]
    root = str(place.root.resolve())
    rooted = {
        name: value.replace("{ROOT}", root) if isinstance(value, str) else value
        for name, value in args.items()
    }
    return Tool(dialect=dialect, tool=tool, args=rooted | more)


def own_answer(place: Workplace, author: Client, dialect: str) -> str:
    """Return what the tool answers where nobody reviews."""
    author.read("a.txt", session="t1")
    said = author.apply([call_of(place, dialect)], dry_run=True).answers
    assert isinstance(said, list)
    assert said[0] is not None
    return said[0]


def answered(
    author: Client, reviewer: Client, calls: list[Tool], decide: Callable[[ProposalGetResult], object]
) -> ApplyResult:
    """Propose the calls in one edit, let the reviewer decide, and return the answer to the author."""
    author.read("a.txt", session="t1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(author.apply, calls, propose=True, wait=30)
        until = time.monotonic() + 30
        while not (proposals := reviewer.proposal_list().proposals):
            assert time.monotonic() < until, "nothing is proposed"
            time.sleep(0.01)
        decide(reviewer.proposal_get(proposals[0].proposal, content=True))
        return waiting.result(30)


def approve(reviewer: Client) -> Callable[[ProposalGetResult], object]:
    return lambda shown: reviewer.proposal_approve(shown.proposal, view=shown.view)


def approve_own(reviewer: Client, **texts: str) -> Callable[[ProposalGetResult], object]:
    """Approve the whole, with the reviewer's own text of the files of these stems."""

    def decide(shown: ProposalGetResult) -> object:
        now = {file.path: file.now for file in shown.files}
        files = [
            ReviewedFile(path=f"{stem}.txt", content=text, base=now[f"{stem}.txt"])
            for stem, text in texts.items()
        ]
        return reviewer.proposal_approve(shown.proposal, view=shown.view, files=files)

    return decide


@pytest.mark.parametrize("dialect", CALLS)
def test_an_approved_call_answers_as_if_nobody_had_reviewed_it(
    place: Workplace, author: Client, reviewer: Client, dialect: str
) -> None:
    expected = own_answer(place, author, dialect)
    result = answered(author, reviewer, [call_of(place, dialect)], approve(reviewer))
    assert result.answers == [expected]
    assert result.transaction is not None
    assert place.files()["a.txt"] == b"one\n2\nthree\n"


@pytest.mark.parametrize("dialect", CALLS)
def test_a_call_whose_text_the_reviewer_changed_says_so_as_the_original_does(
    place: Workplace, author: Client, reviewer: Client, dialect: str
) -> None:
    own = own_answer(place, author, dialect)
    decide = approve_own(reviewer, a="one\nII\nthree\n")
    (said,) = answered(author, reviewer, [call_of(place, dialect)], decide).answers or [None]
    if dialect == "gemini":
        assert said == f"{own} User modified the `new_string` content to be: one\nII\nthree\n."
    elif dialect == "roo":
        told = json.loads(said or "")
        assert (told["path"], told["operation"], told["user_edits"]) == ("a.txt", "modified", DIFF)
        assert told["notice"].startswith("You do not need to re-read the file")
    elif dialect == "cline":
        assert said is not None
        assert said.startswith(f"The user made the following updates to your content:\n\n{DIFF}\n\n")
        assert said.endswith('<final_file_content path="a.txt">\none\nII\nthree\n\n</final_file_content>')
    else:
        assert said == f"{own}\n\nChanged by the reviewer:\n{DIFF}"


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("comment", ["", "use words"])
def test_a_rejected_call_answers_as_if_the_user_had_denied_it(
    place: Workplace, author: Client, reviewer: Client, dialect: str, comment: str
) -> None:
    result = answered(
        author, reviewer, [call_of(place, dialect)],
        lambda shown: reviewer.proposal_reject(shown.proposal, comment=comment or None),
    )  # fmt: skip
    denied = "The user denied this operation."
    words = f"\nThe user provided the following feedback:\n<feedback>\n{comment}\n</feedback>"
    expected = {
        "gemini": f"[Operation Cancelled] Reason: User denied execution. {comment}".strip(),
        "roo": json.dumps(
            {"status": "denied", "feedback": comment} if comment else {"status": "denied", "message": denied}
        ),
        "cline": denied + words if comment else denied,
    }
    others = f"Rejected by the reviewer: {comment}" if comment else "Rejected by the reviewer."
    assert result.answers == [expected.get(dialect, others)]
    assert result.transaction is None
    assert isinstance(result.proposal, ProposedResult)
    assert result.proposal.state == "rejected"
    assert place.files()["a.txt"] == TEXT.encode()


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("wait", [None, 0.05])
def test_a_call_that_still_waits_says_that_nothing_is_written(
    place: Workplace, author: Client, dialect: str, wait: float | None
) -> None:
    author.read("a.txt", session="t1")
    result = author.apply([call_of(place, dialect)], propose=True, wait=wait)
    assert isinstance(result.proposal, ProposedResult)
    assert result.proposal.state == "open"
    number = result.proposal.proposal
    assert result.answers == [
        f"Proposal {number} waits for review (rule: request). Nothing is written. Go on with other work."
    ]
    assert place.files()["a.txt"] == TEXT.encode()


@pytest.mark.parametrize("dialect", ["gemini", "roo", "cline", "serena"])
def test_nobody_denied_what_its_author_takes_back(place: Workplace, reviewer: Client, dialect: str) -> None:
    session = f"helper-{dialect}"
    with place.client() as author, place.client() as same:
        opened = author.session_open(session)
        same.hello(session=session, token=opened.token)
        calls = [call_of(place, dialect)]
        result = answered(author, reviewer, calls, lambda shown: same.proposal_withdraw(shown.proposal))
    assert isinstance(result.proposal, ProposedResult)
    assert result.answers == [f"Proposal {result.proposal.proposal} was withdrawn. Nothing was changed."]


def test_each_call_is_told_of_its_own_file(place: Workplace, author: Client, reviewer: Client) -> None:
    calls = [
        call_of(place, "cline"),
        call_of(place, "gemini", file_path=f"{place.root.resolve()}/b.txt"),
        call_of(place, "roo", search="three", replace="3"),
    ]
    decide = approve_own(reviewer, b="one\nzwei\nthree\n")
    cline, gemini, roo = answered(author, reviewer, calls, decide).answers or [None] * 3
    assert cline is not None
    assert "The user made" not in cline
    assert roo is not None
    assert "user_edits" not in roo
    assert gemini is not None
    assert gemini.endswith("User modified the `new_string` content to be: one\nzwei\nthree\n.")


def test_a_long_text_is_told_by_its_difference(place: Workplace, author: Client, reviewer: Client) -> None:
    long = "".join(f"line {number}\n" for number in range(TEXT_CHARACTERS_MAX))
    place.write({"a.txt": TEXT + long})
    author.settle()
    decide = approve_own(reviewer, a="one\nII\nthree\n" + long)
    (said,) = answered(author, reviewer, [call_of(place, "gemini")], decide).answers or [None]
    assert said is not None
    assert said.endswith("-2\n+II\n three\n line 0\n line 1\n.")
    assert len(said) < TEXT_CHARACTERS_MAX


def test_that_a_user_changed_the_text_is_not_for_an_agent_to_say(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    call = call_of(place, "gemini", modified_by_user=True)
    result = author.apply([call], propose=True)
    assert isinstance(result.proposal, ProposedResult)
    assert result.proposal.proposal is not None
    shown = reviewer.proposal_get(result.proposal.proposal)
    assert shown.state == "open"
    landed = reviewer.proposal_approve(shown.proposal, view=shown.view)
    assert landed.transaction is not None
    assert landed.transaction.modified is not True
    assert landed.reviewer_diff == ""


def test_the_part_of_a_diff_about_a_file_is_found_by_its_header_alone() -> None:
    other = DIFF.replace("a.txt", "b.txt").replace(" three", "-diff --git a/a.txt b/a.txt")
    assert review_answers.part_of(other + DIFF, "a.txt") == DIFF
    assert review_answers.part_of(other + DIFF, "b.txt") == other
    assert review_answers.part_of(other, "a.txt") == ""


@pytest.mark.parametrize("dialect", CALLS)
def test_a_call_that_is_sent_again_to_wait_has_the_same_words(
    place: Workplace, author: Client, reviewer: Client, dialect: str
) -> None:
    said = own_answer(place, author, dialect)
    calls, request_id = [call_of(place, dialect)], f"again-{dialect}"
    author.apply(calls, propose=True, request_id=request_id)
    waits = author.apply(calls, propose=True, request_id=request_id, wait=0.1)
    assert isinstance(waits.proposal, ProposedResult)
    number = waits.proposal.proposal
    assert number is not None
    assert isinstance(waits.answers, list)
    assert f"Proposal {number} waits for review" in str(waits.answers[0])
    reviewer.proposal_approve(number, view=reviewer.proposal_get(number).view)
    assert author.apply(calls, propose=True, request_id=request_id, wait=1).answers == [said]
