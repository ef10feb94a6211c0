"""A command on the files as a proposal would leave them, started from the page."""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING

import pytest

from support.web_page import SECONDS_MAX, web_page
from support.workplace import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client
    from support.web_page import Answer, WebPage
    from support.workplace import Workplace

LINES = "".join(f"#{n}\n" for n in range(1, 31))
FILES = {"a": LINES}
TRY = "/proposals/1/try"


def propose(author: Client) -> list[str]:
    """Propose two hunks; return their ids."""
    author.apply([replace("a", "#5\n", "#five\n"), replace("a", "#20\n", "#twenty\n")], propose=True)
    return [hunk.hunk for hunk in author.proposal_get(1).files[0].hunks]


def until(page: WebPage, is_so: Callable[[Answer], bool]) -> Answer:
    end = time.monotonic() + SECONDS_MAX
    while not is_so(answer := page.get("/proposals/1")):
        assert time.monotonic() < end, answer.text
        time.sleep(0.05)
    return answer


def test_a_command_sees_the_proposal_and_its_result_is_kept(page: WebPage, author: Client) -> None:
    _, second = propose(author)
    assert page.post(TRY, {"command": "grep -c 'five\\|twenty' a"}).status == 303
    shown = until(page, lambda answer: "passed in" in answer.text and "runs since" not in answer.text).text
    assert "grep -c 'five\\|twenty' a" in shown
    (check,) = author.proposal_get(1).checks
    assert (check.exit, check.output) == (0, "2\n")
    assert page.post(TRY, {"command": "sh -c 'cat a; exit 3'", "hunk": second}).status == 303
    until(page, lambda answer: "failed (3)" in answer.text)
    output = author.proposal_get(1).checks[-1].output
    assert "#twenty" in output
    assert "#five" not in output


def test_a_command_is_shown_while_it_runs_and_can_be_stopped(
    page: WebPage, author: Client, place: Workplace
) -> None:
    propose(author)
    page.post(TRY, {"command": "sh -c 'trap : TERM; sleep 70'"})
    assert "runs since" in page.get("/proposals/1").text
    again = page.post(TRY, {"command": "true"})
    assert again.status == 429
    assert "runs on P1 already" in again.text
    assert page.another().enter().post(TRY, {"do": "stop"}).status == 303
    until(page, lambda answer: "runs since" not in answer.text)
    assert place.files()["a"].decode() == LINES


def test_no_command_is_refused(page: WebPage, author: Client) -> None:
    propose(author)
    assert [page.post(TRY, {"command": command}).status for command in ("", "'", "  ")] == [400] * 3
    assert page.post("/proposals/9/try", {"command": "true"}).status == 404


def test_the_end_of_the_server_ends_the_command(place: Workplace, author: Client) -> None:
    propose(author)
    with web_page(place) as page:
        page.enter().post(TRY, {"command": f"sh -c 'echo $$ > {place.folder}/pid; sleep 70'"})
        pid = place.folder / "pid"
        until(page, lambda _: pid.exists() and pid.read_text().strip() != "")
    number = int(pid.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_command_that_does_not_listen_is_killed_with_all_that_it_has_started(
    page: WebPage, author: Client, place: Workplace
) -> None:
    propose(author)
    pid = place.folder / "pid"
    script = (
        f"trap : INT TERM; setsid sh -c 'trap : INT TERM; echo $$ >{pid}; sleep 600' & sleep 600 & wait; wait"
    )
    page.post(TRY, {"command": shlex.join(["sh", "-c", script])})
    until(page, lambda _: pid.exists() and pid.read_text().strip() != "")
    page.post(TRY, {"do": "stop"})
    until(page, lambda answer: "runs since" not in answer.text)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
