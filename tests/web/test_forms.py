"""The page without a script: reading, deciding by forms, and undoing, over real HTTP and a real daemon."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import BlameLine
from editd_client.locate import current_actor
from editd_client.web.blame_page import LINES_MAX, blame_detail
from editd_client.web.proposal_page import proposal_list
from editd_client.web.site import PROPOSALS, ROWS
from editd_client.web.timeline_page import transaction_list
from support.reviewers import PIN, author_of, next_author_of, number_of, reviewer_of, set_pin
from support.web_page import PART, web_page
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import AnyEdit
    from editd_client.client import Client
    from support.web_page import Answer, WebPage
    from support.workplace import Workplace

LINES = "".join(f"#{n}\n" for n in range(1, 31))
FILES = {"a": LINES, "b": LINES, "crlf": "one\r\ntwo\r\n", "mixed": "one\r\ntwo\n", "cr": "one\rtwo\r"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, WebPage]]:
    """One daemon and one server for the tests of this module that need no empty history."""
    with workplace(tmp_path_factory.mktemp("forms") / "place", FILES) as place:
        set_pin(place)
        with place.start() as client, web_page(place) as page:
            client.settle()
            yield place, page
        place.stop()


@pytest.fixture
def shared(served: tuple[Workplace, WebPage]) -> Workplace:
    return served[0]


@pytest.fixture
def author(shared: Workplace) -> Iterator[Client]:
    with next_author_of(shared, FILES) as made:
        yield made


@pytest.fixture
def page(served: tuple[Workplace, WebPage], author: Client) -> WebPage:
    """A browser of a test's own, which has entered and has not given the PIN."""
    assert author.status().state == "ready"
    return served[1].another().enter()


@pytest.fixture
def own(place: Workplace) -> Iterator[tuple[Client, WebPage]]:
    """The author and the page of a workspace without a history."""
    with author_of(place, FILES) as author, web_page(place) as page:
        yield author, page.enter()


def propose(author: Client, *edits: AnyEdit) -> int:
    """Propose edits, by default two hunks of a file; return the number of the proposal."""
    two = [replace("a", "#5\n", "#five\n"), replace("a", "#20\n", "#twenty\n")]
    return number_of(author.apply(list(edits) or two, propose=True, message="Words"))


def change(author: Client, *edits: AnyEdit) -> int:
    """Apply edits; return the number of the transaction."""
    made = author.apply(list(edits)).transaction
    assert made is not None
    return made.seq


def decide(page: WebPage, number: int, verdict: str, **given: str) -> Answer:
    path = f"/proposals/{number}"
    return page.post(f"{path}/decide", {**page.form(path), "do": verdict, "pin": PIN, **given})


def hunks(author: Client, number: int) -> list[str]:
    return [hunk.hunk for file in author.proposal_get(number).files for hunk in file.hunks]


def test_pages_can_be_read(own: tuple[Client, WebPage]) -> None:
    author, page = own
    propose(author)
    author.apply([replace("b", "#5\n", "#V\n")], message="Landed\n\nand why")
    listed = page.get("/").text
    assert "P1 Words" in listed
    assert "1 file" in listed
    assert "fits" in listed
    proposal = page.get("/proposals/1").text
    assert "#five" in proposal
    assert "2 of 2 hunks chosen" in proposal
    timeline = page.get("/timeline").text
    assert "1 Landed" in timeline
    transaction = page.get("/transactions/1").text
    assert "edit by claude in agent" in transaction
    assert "and why" in transaction
    assert "#V" in transaction
    agents = page.get("/agents").text
    assert "agent" in agents
    assert "P1" in agents


def test_without_proposals_the_page_says_how_to_get_some(own: tuple[Client, WebPage]) -> None:
    _, page = own
    assert "editctl config set review.default ask" in page.get("/").text


def test_an_approval_asks_for_the_pin_and_keeps_what_was_given(
    page: WebPage, author: Client, shared: Workplace
) -> None:
    number = propose(author)
    first, second = hunks(author, number)
    form = page.form(f"/proposals/{number}")
    given = {**form, f"hunk-{first}": "reject", "comment": "so so", "do": "approve"}
    asked = page.post(f"/proposals/{number}/decide", given)
    assert asked.status == 403
    assert "only with the PIN" in asked.text
    assert 'type="password"' in asked.body
    assert "so so" in asked.body
    assert f'id="reject-{first}" checked' in asked.body
    assert shared.files()["a"].decode() == LINES
    wrong = page.post(f"/proposals/{number}/decide", {**given, "pin": "0000"})
    assert wrong.status == 403
    assert "not the PIN" in wrong.text
    done = page.post(f"/proposals/{number}/decide", {**given, "pin": PIN})
    assert (done.status, done.headers["location"]) == (303, f"/proposals/{number}")
    assert shared.files()["a"].decode() == LINES.replace("#20\n", "#twenty\n")
    shown = author.proposal_get(number)
    assert shown.state == "partly"
    assert shown.decisions[0].comment == "so so"
    assert shown.decisions[0].by.actor == current_actor()
    assert f'name="hunk-{second}"' not in page.get(f"/proposals/{number}").body


def test_enter_in_the_field_of_the_pin_repeats_what_was_refused(page: WebPage, author: Client) -> None:
    """A browser presses the first button of the form for it."""
    number = propose(author)
    for verdict in ("reject", "approve"):
        asked = page.post(f"/proposals/{number}/decide", {**page.form(f"/proposals/{number}"), "do": verdict})
        _, _, form = asked.body.partition('<form id="decide"')
        assert re.findall(r'<button name="do" value="(\w+)"', form)[0] == verdict


def test_a_pin_admits_one_browser_only(page: WebPage, author: Client) -> None:
    number = propose(author)
    other_path = f"/proposals/{propose(author, replace('b', '#5', '#V'))}"
    assert decide(page, number, "reject").status == 303
    second = page.form(other_path)
    other = page.another().enter()
    assert other.post(f"{other_path}/decide", {**second, "do": "reject"}).status == 403
    assert page.post(f"{other_path}/decide", {**second, "do": "reject"}).status == 303


def test_a_page_of_one_file_decides_about_that_file_only(page: WebPage, author: Client) -> None:
    number = propose(author, replace("a", "#5\n", "#V\n"), replace("b", "#5\n", "#V\n"))
    form = {**page.form(f"/proposals/{number}?path=b"), "do": "approve", "pin": PIN}
    assert page.post(f"/proposals/{number}/decide", form).status == 303
    shown = author.proposal_get(number)
    assert [(file.path, file.hunks[0].state) for file in shown.files] == [("a", "fits"), ("b", "landed")]


def test_an_undo_that_waits_is_decided_as_a_whole(page: WebPage, author: Client, shared: Workplace) -> None:
    seq = change(author, replace("a", "#5\n", "#V\n"), replace("b", "#5\n", "#V\n"))
    number = number_of(author.undo(seq, propose=True))
    assert "Approve this undo" in page.get(f"/proposals/{number}").text
    assert decide(page, number, "approve").status == 303
    assert shared.files()["b"].decode() == LINES


def test_hunks_that_are_in_the_file_already_count_as_landed(page: WebPage, author: Client) -> None:
    number = propose(author)
    author.apply([replace("a", "#5\n", "#five\n")])
    assert decide(page, number, "approve").status == 303
    assert author.proposal_get(number).state == "landed"


def test_a_form_sent_twice_lands_once(page: WebPage, author: Client) -> None:
    number = propose(author)
    form = {**page.form(f"/proposals/{number}"), "do": "approve", "pin": PIN}
    assert [page.post(f"/proposals/{number}/decide", form).status for _ in range(2)] == [303, 303]
    assert author.proposal_get(number).landed == [author.status().head]


def test_a_page_that_is_older_than_the_proposal_lands_nothing(
    page: WebPage, author: Client, shared: Workplace
) -> None:
    number = propose(author)
    form = {**page.form(f"/proposals/{number}"), "do": "approve", "pin": PIN}
    author.apply([replace("a", "#5\n", "#other\n")], propose=True, proposal=number)
    refused = page.post(f"/proposals/{number}/decide", form)
    assert refused.status == 409
    assert "has changed" in refused.text
    assert "#other" in refused.text
    assert shared.files()["a"].decode() == LINES


def test_a_proposal_that_somebody_else_has_decided_says_so(
    page: WebPage, author: Client, shared: Workplace
) -> None:
    number = propose(author)
    form = {**page.form(f"/proposals/{number}"), "do": "approve", "pin": PIN}
    with reviewer_of(shared) as reviewer:
        reviewer.proposal_reject(number, comment="no")
    refused = page.post(f"/proposals/{number}/decide", form)
    assert refused.status == 409
    assert "rejected" in refused.text


def test_a_rejection_is_not_final(page: WebPage, author: Client) -> None:
    number = propose(author)
    assert decide(page, number, "reject", comment="use the helper").status == 303
    assert author.proposal_get(number).state == "rejected"
    assert "use the helper" in page.get(f"/proposals/{number}").text
    assert page.post(f"/proposals/{number}/decide", {"do": "reopen"}).status == 303
    assert author.proposal_get(number + 1).state == "open"


def test_a_comment_is_added_to_the_proposal(page: WebPage, author: Client) -> None:
    number = propose(author)
    assert page.post(f"/proposals/{number}/comment", {"comment": "why?\r\nand how?"}).status == 303
    assert author.proposal_get(number).comments[0].text == "why?\nand how?"
    assert page.post(f"/proposals/{number}/comment", {"comment": " "}).status == 400


def test_the_reviewers_own_text_lands_with_the_line_ends_of_the_file(
    page: WebPage, author: Client, shared: Workplace
) -> None:
    number = propose(author, replace("crlf", "two", "three"), replace("a", "#5\n", "#V\n"))
    files = [file.path for file in author.proposal_get(number).files]
    at, other = files.index("crlf"), files.index("a")
    texts = {f"text-{at}": "one\r\nfour\r\n", f"text-{other}": "x\r\n"}
    done = decide(page, number, "approve", **texts, **{f"own-{at}": "crlf", f"own-{other}": "a"})
    assert done.status == 303
    assert shared.files()["crlf"] == b"one\r\nfour\r\n"
    assert shared.files()["a"] == b"x\n"
    assert author.proposal_get(number).decisions[0].modified


def test_no_own_text_is_offered_for_line_ends_that_a_browser_would_change(
    page: WebPage, author: Client
) -> None:
    number = propose(author, *(replace(name, "two", "three") for name in ("crlf", "mixed", "cr")))
    offered = [
        name for name in FILES if f'id="own:{name}"' in page.get(f"/proposals/{number}?path={name}").body
    ]
    assert offered == ["crlf"]


def test_the_question_for_the_pin_keeps_the_reviewers_own_text(page: WebPage, author: Client) -> None:
    number = propose(author, replace("a", "#5\n", "#V\n"), replace("b", "#5\n", "#V\n"))
    form = {**page.form(f"/proposals/{number}?path=b"), "own-0": "b", "text-0": "<mine>", "do": "approve"}
    asked = page.post(f"/proposals/{number}/decide", form)
    assert asked.status == 403
    assert "\n&lt;mine&gt;</textarea>" in asked.body
    assert re.search(r'value="b" form="decide" class="land" id="own:b" checked', asked.body)
    assert f'value="{form["base-0"]}" form="decide" id="base:b"' in asked.body
    (first, second) = hunks(author, number)
    assert f'id="open-{first}" checked' in asked.body, "the page had another file only"
    assert f'id="approve-{second}" checked' in asked.body


def test_a_conflict_names_the_transaction_in_the_way(page: WebPage, author: Client) -> None:
    number = propose(author)
    seq = change(author, replace("a", "#20\n", "#XX\n"))
    shown = page.get(f"/proposals/{number}")
    assert f"conflict, in the way: {seq}" in shown.text
    assert f'href="/transactions/{seq}"' in shown.body
    assert "1 of 2 in conflict" in page.get("/").text
    assert decide(page, number, "approve").status == 303
    assert author.proposal_get(number).counts["conflict"] == 1


def test_an_undo_of_some_hunks_is_shown_before_it_is_made(
    page: WebPage, author: Client, shared: Workplace
) -> None:
    seq = change(author, replace("a", "#5\n", "#V\n"), replace("a", "#20\n", "#XX\n"))
    marked = [("seq", str(seq)), ("hunk", "2:a")]
    asked = page.post("/undo", [*marked, ("do", "preview")])
    assert asked.status == 200
    assert f"Undo 1 hunk of {seq}?" in asked.text
    assert "Nothing is changed yet" in asked.text
    assert "#XX" in shared.files()["a"].decode()
    made = page.post("/undo", [*marked, ("do", "make"), ("request_id", "one")])
    assert (made.status, made.headers["location"]) == (303, f"/transactions/{seq}")
    assert shared.files()["a"].decode() == LINES.replace("#5\n", "#V\n")
    page.post("/undo", [*marked, ("do", "make"), ("request_id", "one")])
    assert author.status().head == seq + 1


def test_an_undo_with_a_conflict_names_what_to_undo_first(page: WebPage, author: Client) -> None:
    seq = str(change(author, replace("a", "#5\n", "#V\n"), write("new", "x\n")))
    later = change(author, replace("a", "#V\n", "#five\n"))
    asked = page.post("/undo", {"seq": seq, "do": "preview"})
    assert f"in the way: {later} by agent, line 5" in asked.text
    assert "undone first" in asked.text
    assert "Undo it" not in asked.text
    assert page.post("/undo", {"seq": seq, "do": "make"}).status == 409
    assert page.post("/undo", {"seq": seq, "do": "fitting"}).status == 303
    assert author.log(limit=1).transactions[0].kind == "undo"


def test_a_session_is_rolled_back(page: WebPage, shared: Workplace) -> None:
    with shared.client() as other:
        other.session_open("wrong", actor="codex")
        other.apply([replace("a", "#5\n", "#V\n")])
    asked = page.post("/rollback", {"session": "wrong", "do": "preview"})
    assert "Roll back all the work of wrong?" in asked.text
    assert shared.files()["a"].decode() != LINES
    assert page.post("/rollback", {"session": "wrong", "do": "make"}).status == 303
    assert shared.files()["a"].decode() == LINES


def test_a_grant_asks_for_the_pin_is_listed_and_ended(page: WebPage, author: Client) -> None:
    propose(author)
    given = {
        "paths": "a  tests/**",
        "session": "agent",
        "ttl": "10m",
        "uses": "2",
        "lines": "",
        "do": "allow",
    }
    asked = page.post("/allow", given)
    assert asked.status == 403
    assert 'type="password"' in asked.body
    assert page.post("/allow", {**given, "pin": PIN}).status == 303
    (grant,) = author.review_grants().grants
    assert (grant.paths, grant.session, grant.uses, grant.lines) == (["a", "tests/**"], "agent", 2, None)
    assert "a tests/** of agent" in page.get("/agents").text
    assert page.post("/allow", {"do": "revoke", "grant": str(grant.grant)}).status == 303
    assert not author.review_grants().grants


WRONG = [  # NUMBER is that of an open proposal
    ("/allow", {"paths": "a", "ttl": "soon", "do": "allow"}),
    ("/allow", {"paths": "a", "ttl": "1h", "uses": "many", "do": "allow"}),
    ("/undo", {"seq": "x", "do": "make"}),
    ("/undo", {"do": "make"}),
    ("/undo", {"seq": "1", "hunk": "x:a", "do": "make"}),
    ("/undo", {"seq": "99999", "do": "preview"}),
    ("/rollback", {"session": "nobody", "do": "preview"}),
    ("/proposals/NUMBER/decide", {"do": "nothing"}),
    ("/proposals/999/decide", {"do": "approve"}),
    ("/proposals/999/comment", {"comment": "x"}),
]


def test_a_wrong_field_is_refused_in_words(page: WebPage, author: Client) -> None:
    number = propose(author)
    head = author.status().head
    for path, fields in WRONG:
        answer = page.post(path.replace("NUMBER", str(number)), fields)
        assert 400 <= answer.status < 500, (path, fields)
        assert "." in answer.text
        assert author.status().head == head


def test_a_wrong_filter_is_named_on_the_page(page: WebPage, author: Client) -> None:
    author.apply([replace("a", "#5\n", "#V\n")], message="Five")
    assert f"{author.status().head} Five" in page.get("/timeline?q=session:agent").text
    assert "No transaction matches" in page.get("/timeline?q=session:nobody").text
    assert "is not a kind" in page.get("/timeline?q=kind:nothing").text


def test_a_script_gets_the_parts_of_a_page(page: WebPage, author: Client) -> None:
    number = propose(author)
    answer = page.get(f"/proposals/{number}", Accept=PART)
    assert answer.headers["content-type"] == PART
    assert set(answer.parts["parts"]) == {"views", "list", "detail", "keys"}
    given = {**page.form(f"/proposals/{number}"), "do": "approve"}
    asked = page.post(f"/proposals/{number}/decide", given, Accept=PART)
    assert asked.status == 403
    assert asked.parts["page"] is None, "an event would take the question away"
    done = page.post(f"/proposals/{number}/decide", {**given, "pin": PIN}, Accept=PART)
    assert done.status == 200
    assert done.parts["said"] == f"P{number} has landed as {author.status().head}."
    assert done.parts["page"] == f"/proposals/{number}"


def test_a_daemon_that_is_gone_is_named(own: tuple[Client, WebPage], place: Workplace) -> None:
    author, page = own
    propose(author)
    assert page.get("/").status == 200
    place.stop()
    place.root.rename(place.folder / "elsewhere")
    answer = page.get("/")
    (place.folder / "elsewhere").rename(place.root)
    assert answer.status == 503
    assert "daemon" in answer.text


def test_every_proposal_is_in_the_list_and_found_by_the_filter(own: tuple[Client, WebPage]) -> None:
    author, page = own
    author.apply([replace("b", "#5\n", "#V\n")], propose=True, message="The oldest")
    for number in range(PROPOSALS + 2):
        edit = replace("a", "#5\n", f"#{number}!\n")
        author.apply([edit], propose=True, session=f"agent-{number % 2}", message=f"Another {number}")
    newest = page.get("/").body
    assert newest.count('role="option"') == PROPOSALS
    assert "The oldest" not in newest
    (older,) = links_to_more(newest)
    assert "The oldest" in page.get(older).text
    found = page.get("/?q=oldest")
    assert found.body.count('role="option"') == 1
    assert "P1 The oldest" in found.text


def test_the_link_to_older_transactions_keeps_the_query(own: tuple[Client, WebPage]) -> None:
    author, page = own
    for session, message in (("agent-0", "The oldest of it"), ("agent-1", "Of another")):
        author.apply([write(session, "0\n")], session=session, message=message)
    for number in range(ROWS):
        edit = write("agent-0", f"{number + 1}\n", force=True)
        author.apply([edit], session="agent-0", message=f"Another {number}")
    newest = page.get("/timeline?q=session:agent-0").body
    assert newest.count('role="option"') == ROWS
    assert "The oldest of it" not in newest
    (older,) = links_to_more(newest)
    text = page.get(older).text
    assert "The oldest of it" in text
    assert "Of another" not in text


def test_each_link_to_a_next_page_keeps_what_the_page_is_about() -> None:
    lines = [
        BlameLine(line=number, seq=1, actor="ann", session=None, time="2026-01-02T03:04:05Z")
        for number in (1, LINES_MAX + 1)
    ]
    pages = {
        "/timeline?before=7&q=session%3Aa+b": transaction_list([], None, query="session:a b", older=7),
        "/?q=session%3Aa+b&before=7": proposal_list([], None, query="session:a b", older=7),
        f"/blame?path=a%26b&from={LINES_MAX + 1}": blame_detail("a&b", lines, ["x"]),
    }
    assert {link: links_to_more(page) for link, page in pages.items()} == {link: [link] for link in pages}
    assert links_to_more(transaction_list([], None, query="x", older=None)) == []
    assert links_to_more(proposal_list([], None, query="x")) == []


def links_to_more(page: str) -> list[str]:
    """Return the addresses of the links to a next page."""
    return [html.unescape(link) for link in re.findall(r'<a href="([^"]*)" class="older">', page)]


def test_a_filter_by_the_beginning_of_a_session_lists_its_work(page: WebPage, shared: Workplace) -> None:
    with shared.client() as client:
        client.session_open("claude-7f3a", actor="claude")
        client.apply([replace("b", "#5\n", "#V\n")], message="Landed")
        client.apply([replace("b", "#9\n", "#IX\n")], propose=True, message="Waits")
    assert "Landed" in page.get("/timeline?q=session:claude").text
    assert "Waits" in page.get("/?q=session:claude").text
    assert "Landed" not in page.get("/timeline?q=session:%3Dclaude").text, "a whole name is asked for"


def test_a_closed_session_whose_work_waits_is_among_the_agents(page: WebPage, shared: Workplace) -> None:
    with shared.client() as client:
        client.session_open("only-proposals", actor="codex")
        number = propose(client)
        client.session_close()
    shown = page.get("/agents").text
    assert "only-proposals" in shown
    assert f"waits for you: P{number}" in shown
