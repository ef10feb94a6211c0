"""The page in Debian's Chromium: keys, the mouse, events, roles, and the policy from within."""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from support import chromium
from support.chromium import Chromium, Tab
from support.reviewers import PIN, reviewer_of
from support.web_page import web_page
from support.workplace import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.web_page import WebPage
    from support.workplace import Workplace

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="chromium is not installed")
LINES = "".join(f"x{n} = {n}\n" for n in range(1, 31))
FILES = {"a.py": LINES, "b.py": LINES}


@pytest.fixture
def page(place: Workplace, author: Client) -> Iterator[WebPage]:
    assert author.status().state == "ready"
    with web_page(place) as made:
        yield made


@pytest.fixture
def tab(window: Tab, page: WebPage) -> Iterator[Tab]:
    """A browser that has opened the printed address, with a script."""
    window.go(f"{page.address}/?t={page.token}")
    yield window
    window.leave()


def propose(author: Client, path: str = "a.py", message: str = "Words") -> None:
    edits = [replace(path, "x5 = 5\n", "x5 = 'five'\n"), replace(path, "x20 = 20\n", "x20 = 'twenty'\n")]
    author.apply(edits, propose=True, message=message)


def give_pin(tab: Tab) -> None:
    tab.until(lambda: tab.run("document.activeElement?.id") == "pin")
    tab.type(PIN)


def test_the_address_becomes_clean_and_nothing_is_refused_by_the_policy(tab: Tab, page: WebPage) -> None:
    assert tab.run("location.href") == f"{page.address}/"
    assert tab.run("document.cookie") == "", "no script reads the cookie"
    assert tab.complaints() == []


def test_a_proposal_appears_is_decided_by_keys_and_the_pin_is_asked_for(
    tab: Tab, author: Client, place: Workplace
) -> None:
    tab.until_text("Nothing waits")
    propose(author)
    tab.until_text("P1 Words", "#list")
    tab.until_text("2 of 2 hunks chosen", "#detail")
    tab.key("]")
    tab.key(" ")  # the first hunk: reject
    assert tab.run("document.querySelectorAll('input[value=reject]:checked').length") == 1
    assert "1 of 2 hunks chosen" in tab.text("#detail")
    tab.key("c")
    tab.type("not this one")
    tab.key("Escape")
    tab.key("a")
    give_pin(tab)
    assert tab.run("document.getElementById('comment').value").strip() == "not this one"
    assert tab.run("document.querySelectorAll('input[value=reject]:checked').length") == 1
    tab.click("#decide button[value=approve]")
    tab.until_text("P1 has landed as 1.", "#said")
    assert place.files()["a.py"].decode() == LINES.replace("x20 = 20\n", "x20 = 'twenty'\n")
    shown = author.proposal_get(1)
    assert (shown.state, shown.decisions[0].comment) == ("partly", "not this one")
    assert all("403" in one for one in tab.complaints()), "the answer that asks for the PIN"


def test_choices_and_words_stay_while_the_files_move(tab: Tab, author: Client, place: Workplace) -> None:
    propose(author)
    tab.until_text("2 of 2 hunks chosen", "#detail")
    tab.click("tbody[data-hunk] input[value=open]")
    tab.click("#comment")
    tab.type("half a sent")
    place.write({"a.py": "x0 = 0\n" + LINES})
    author.settle()
    tab.until(lambda: tab.run("document.querySelector('tr.del td.n').innerText") == "6")
    assert tab.run("document.querySelectorAll('input[value=open]:checked').length") == 1
    assert tab.run("document.activeElement.id") == "comment"
    tab.type("ence")
    assert tab.run("document.getElementById('comment').value").strip() == "half a sentence"


def test_a_hunk_that_nobody_has_seen_is_not_approved(tab: Tab, author: Client, place: Workplace) -> None:
    propose(author)
    tab.until_text("2 of 2 hunks chosen", "#detail")
    tab.click("tbody[data-hunk] input[value=reject]")
    view = author.proposal_get(1).view
    more = [replace("a.py", f"x{n} = {n}\n", f"x{n} = 'new'\n") for n in (5, 20, 28)]
    author.apply([replace("a.py", "x5 = 5\n", "x5 = 'five'\n"), *more[1:]], propose=True, proposal=1)
    tab.until_text("There are new hunks", "#said")
    assert author.proposal_get(1).view != view
    assert tab.run("document.querySelector('#decide [name=view]').value") == view, "the daemon refuses it"
    assert tab.run("[...document.querySelectorAll('.choice :checked')].map(one => one.value)") == [
        "reject",
        "open",
        "open",
    ]
    assert tab.run("document.querySelectorAll('.unseen').length") == 2
    tab.click("tbody[data-hunk]:last-of-type input[value=approve]")
    assert tab.run("document.querySelectorAll('.unseen').length") == 1
    tab.key("a")
    give_pin(tab)
    tab.key("Enter")
    tab.until_text("P1 has landed as 1.", "#said")
    assert place.files()["a.py"].decode() == LINES.replace("x28 = 28\n", "x28 = 'new'\n")


def test_a_text_that_is_written_while_others_edit_is_merged(
    tab: Tab, author: Client, place: Workplace
) -> None:
    propose(author)
    tab.until_text("2 of 2 hunks chosen", "#detail")
    tab.key("e")
    tab.run("document.querySelector('details.own textarea').setSelectionRange(0, 0)")
    tab.type("# mine\n")
    place.write({"a.py": LINES.replace("x28 = 28\n", "x28 = 'theirs'\n")})
    author.settle()
    tab.until(lambda: "shown on 1" in tab.text("#detail"))
    assert tab.run("document.querySelector('details.own textarea').value").startswith("# mine\n")
    tab.key("Escape")
    tab.key("a")
    give_pin(tab)
    tab.key("Enter")
    tab.until_text("P1 has landed as 2.", "#said")
    text = place.files()["a.py"].decode()
    assert text.startswith("# mine\n")
    assert "x28 = 'theirs'\n" in text
    assert "x5 = 'five'\n" in text


def test_the_list_is_moved_through_by_keys_and_the_selection_stays(tab: Tab, author: Client) -> None:
    propose(author, "a.py", "First")
    tab.until_text("P1 First", "h2")
    propose(author, "b.py", "Second")
    tab.until_text("P2 Second", "#list")
    tab.until_text("P1 First", "h2")  # a newer one does not take its place
    tab.key("k")
    tab.until_text("P2 Second", "h2")
    tab.key("j")
    tab.until_text("P1 First", "h2")
    assert tab.run("location.pathname") == "/proposals/1"
    propose(author, "a.py", "Third")
    tab.until_text("P3 Third", "#list")
    assert tab.run("document.querySelector('[aria-selected=true]').id") == "p1"
    assert tab.run("document.getElementById('options').getAttribute('aria-activedescendant')") == "p1"
    tab.key("k")
    tab.until_text("P2 Second", "h2")
    tab.run("history.back()")
    tab.until_text("P1 First", "h2")


def test_another_reviewer_s_decision_is_seen(tab: Tab, author: Client, place: Workplace) -> None:
    propose(author)
    tab.until_text("P1 Words", "h2")
    with reviewer_of(place) as reviewer:
        reviewer.proposal_reject(1, comment="use the helper")
    tab.until_text("Nothing waits", "#list")


def test_a_click_is_not_lost_to_a_part_that_comes_in_the_middle_of_it(tab: Tab, author: Client) -> None:
    """A link that is replaced between the two halves of a click gets none of it."""
    listen(tab)
    author.apply([replace("a.py", "x5 = 5\n", "x5 = V\n")], message="Five")
    tab.until_text("Timeline 1", "#views")
    release = tab.press("#views a[href='/timeline']")
    author.apply([replace("a.py", "x6 = 6\n", "x6 = VI\n")], message="Six")
    until_sent(tab, "Timeline 2")
    release()
    tab.until_text("2 Six", "#list")


def test_what_came_while_the_mouse_was_down_is_shown_afterwards(tab: Tab, author: Client) -> None:
    listen(tab)
    release = tab.press("h1")
    author.apply([replace("a.py", "x5 = 5\n", "x5 = V\n")], message="Five")
    until_sent(tab, "Timeline 1")
    release()
    tab.until_text("Timeline 1", "#views")


def listen(tab: Tab) -> None:
    """Keep the parts that the server sends, by a second stream in the page."""
    tab.run(
        "window.sent = []; new EventSource('/events?page=%2F&version=')"
        ".addEventListener('part', one => window.sent.push(JSON.parse(one.data)))"
    )


def until_sent(tab: Tab, text: str) -> None:
    """Wait until a part with this text has come to the page, which may not show it yet."""
    shown = "window.sent.some(one => one.html.replace(/<[^>]*>/g, '').includes(%r))"
    tab.until(lambda: tab.run(shown % text))


def test_a_transaction_is_undone_after_its_preview(tab: Tab, author: Client, place: Workplace) -> None:
    author.apply([replace("a.py", "x5 = 5\n", "x5 = V\n")], message="Five")
    tab.click("#views a[href='/timeline']")
    tab.until_text("1 Five", "#list")
    tab.key("j")
    tab.click("#options a")
    tab.until_text("x5 = V", "#detail")
    tab.key("u")
    tab.until_text("Undo 1?", "h2")
    assert b"x5 = V" in place.files()["a.py"]
    tab.click("button[value=make]")
    tab.until_text("Transaction 2 is made.", "#said")
    assert place.files()["a.py"].decode() == LINES


def test_without_a_script_a_proposal_is_read_and_decided(
    browser: Chromium, page: WebPage, author: Client, place: Workplace
) -> None:
    propose(author)
    with closing(Tab(browser, script=False)) as tab:
        tab.go(f"{page.address}/?t={page.token}")
        assert "x5 = 'five'" in tab.text("#detail")
        tab.click("#decide button[value=approve]")
        tab.until_text("only with the PIN")
        tab.fill("#pin", PIN)
        tab.click("#decide button[value=approve]")
        tab.until_text("landed", "#detail")
    assert b"x5 = 'five'" in place.files()["a.py"]


ATTACKS = {
    "an inline script": "(() => { const one = document.createElement('script'); one.text = 'window.hit = 1';"
    " document.body.append(one); })()",
    "eval": "eval('window.hit = 1')",
    "a function of a text": "new Function('window.hit = 1')()",
    "markup without the policy": "document.body.innerHTML = '<img src=x onerror=\"window.hit = 1\">'",
    "another policy": "trustedTypes.createPolicy('other', { createHTML: text => text })",
    "a second policy of that name": "trustedTypes.createPolicy('editd', { createHTML: text => text })",
    "a script from elsewhere": "(() => { const one = document.createElement('script');"
    " one.src = 'http://127.0.0.1:1/x.js'; document.body.append(one); })()",
    "an inline style": "(() => { const one = document.createElement('style');"
    " one.textContent = 'body { outline: 7px solid red }'; document.head.append(one);"
    " if (getComputedStyle(document.body).outlineWidth === '7px') window.hit = 1; })()",
    "a style of an attribute": "document.body.setAttribute('style', 'outline: 7px solid red');"
    " if (getComputedStyle(document.body).outlineWidth === '7px') window.hit = 1",
    "a handler of an attribute": "document.body.setAttribute('onclick', 'window.hit = 1');"
    " document.body.click()",
    "a frame": "(() => { const one = document.createElement('iframe');"
    " one.src = '/agents'; document.body.append(one); })()",
    "a base for addresses": "(() => { const one = document.createElement('base');"
    " one.href = 'http://127.0.0.1:1/'; document.head.append(one);"
    " if (document.baseURI === one.href) window.hit = 1; })()",
    "a request elsewhere": "fetch('http://127.0.0.1:1/').then(() => window.hit = 1)",
    "an address as a script": "location.href = 'javascript:window.hit = 1'",
}


def complaints_after(tab: Tab, count: int) -> list[str]:
    return tab.complaints()[count:]


def test_the_policy_stops_attacks_from_within(tab: Tab, page: WebPage) -> None:
    """As though markup of an agent had become part of the page, which the tests of the guard exclude."""
    for attack, code in ATTACKS.items():
        tab.go(f"{page.address}/")
        before = len(tab.complaints())
        try:
            tab.run(code)
        except RuntimeError as error:
            refusal = str(error)
        else:
            refusal = " ".join(tab.until(partial(complaints_after, tab, before)))
        words = ("security policy", "trustedhtml", "trustedscript", "policy", "fetch")
        assert any(word in refusal.lower() for word in words), f"{attack}: {refusal}"
        assert tab.run("window.hit") is None, attack


def test_a_page_of_another_server_gets_and_changes_nothing(page: WebPage, tab: Tab, author: Client) -> None:
    """The browser has the cookie. The attack is a page of an agent's server on the same machine."""
    propose(author)
    target = page.address
    evil = f"""<!doctype html><title>evil</title>
      <form id=f method=post action="{target}/proposals/1/decide"><input name=do value=reject></form>
      <iframe name=i id=i></iframe><img src="{target}/static/review.css"><script>
      window.seen = [];
      fetch("{target}/", {{credentials: "include"}}).then(answer => answer.text())
        .then(text => seen.push(text), () => seen.push("refused"));
      new EventSource("{target}/events").onmessage = e => seen.push(e.data);
      f.target = "i"; f.submit();
      const frame = document.createElement("iframe"); frame.src = "{target}/"; document.body.append(frame);
      </script>"""
    cookies: list[str] = []

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(evil.encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab.go(f"http://127.0.0.1:{server.server_port}/")
        tab.until(lambda: "refused" in tab.run("window.seen"))
        server.shutdown()
    assert tab.run("window.seen") == ["refused"]
    assert not any(cookies), "it has another address, so it gets no cookie"
    assert author.proposal_get(1).state == "open"
    tab.go(f"{page.address}/")
    tab.until_text("P1 Words", "#list")
