"""Every action of the page in Chromium, once by its key and once with the mouse.

The short form has one of the two, by the seed of the commit.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from editd_client.review.actions import ACTIONS
from support import chromium
from support.chromium import Tab
from support.reviewers import PIN, author_of, set_pin
from support.seeds import one_of
from support.web_page import web_page
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client
    from support.chromium import Chromium

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="chromium is not installed")
LINES = "".join(f"x{n} = {n}\n" for n in range(1, 31))
FILES = {"a.py": LINES, "b.py": LINES}
KEYS = {one.name: {"space": " "}.get(one.key, one.key) for one in ACTIONS}
CONTROLS = {  # what the mouse clicks in place of a key; other actions have a button or a link of their own
    "next": "#options a[aria-selected=true] + a",
    "previous": "#options a:has(+ a[aria-selected=true])",
    "help": "#keys [data-action=help]",
    "filter": "#filter",
    "choose": "tbody.current input[value=reject]",
    "mark": "tbody[data-hunk]:last-of-type input[name=hunk]",
    "next-hunk": "#keys [data-action=next-hunk]",
    "previous-hunk": "#keys [data-action=previous-hunk]",
    "next-file": "#keys [data-action=next-file]",
    "previous-file": "#keys [data-action=previous-file]",
    "edit": "details.own summary",
    "revoke": "button[data-does=revoke]",
}


class Hand:
    """A reviewer at the page, who uses keys or the mouse."""

    def __init__(self, tab: Tab, *, uses_keys: bool) -> None:
        self.tab = tab
        self.uses_keys = uses_keys
        self.done: set[str] = set()

    def act(self, name: str) -> None:
        """Carry out an action of the page."""
        self.done.add(name)
        if self.uses_keys:
            self.tab.key(KEYS[name])
        else:
            self.tab.click(CONTROLS.get(name, f"[data-does={name}]"))

    def answer(self, key: str, words: str) -> None:
        """Press the button of a question, by its key or by its words."""
        if self.uses_keys:
            self.tab.key(key)
        else:
            marked = "[...document.querySelectorAll('#detail button, #detail a')]"
            self.tab.run(f"{marked}.find(one => one.textContent.startsWith({words!r})).id = 'answer'")
            self.tab.click("#answer")

    def send(self, text: str) -> None:
        """Type into the focused field, and send its form."""
        self.tab.type(text)
        self.tab.key("Enter")

    def until_focus(self, ident: str) -> None:
        self.tab.until(lambda: self.tab.run("document.activeElement?.id") == ident)

    @property
    def hunk(self) -> str:
        return str(self.tab.run("document.querySelector('tbody.current')?.id ?? ''"))


@pytest.mark.parametrize("uses_keys", one_of([False, True]))
def test_every_action(tmp_path: Path, browser: Chromium, *, uses_keys: bool) -> None:
    with workplace(tmp_path / "place") as place, closing(Tab(browser)) as tab:
        set_pin(place)
        place.write(FILES)
        place.git("init", "-q", "-b", "main")
        place.git("config", "user.name", "Ann")
        place.git("config", "user.email", "ann@example.org")
        place.git("add", "-A")
        place.git("commit", "-q", "-m", "First")
        with author_of(place, FILES) as author, web_page(place) as page:
            prepare(author)
            tab.go(f"{page.address}/?t={page.token}")
            person = Hand(tab, uses_keys=uses_keys)
            in_the_proposals(person, author, place.root)
            in_the_timeline(person, place.root)
            among_the_agents(person, author)
            assert person.done == set(KEYS), "no action is left out"
            assert all("403" in one for one in tab.complaints())  # the question for the PIN


def prepare(author: Client) -> None:
    author.apply([replace("a.py", "x9 = 9\n", "x9 = 'nine'\n")], message="Nine")
    some = [replace("b.py", "x3 = 3\n", "x3 = 'three'\n"), replace("b.py", "x25 = 25\n", "x25 = '25'\n")]
    author.apply(some, message="Two hunks")
    author.lease_acquire(["docs/**"], 600)
    both = [replace(f"{name}.py", "x15 = 15\n", "x15 = 'fifteen'\n") for name in "ab"]
    more = [replace("a.py", "x28 = 28\n", "x28 = 'end'\n")]
    author.apply([*both, *more], propose=True, message="First")
    author.apply([replace("a.py", "x1 = 1\n", "x1 = 'one'\n")], propose=True, message="Second")


def in_the_proposals(person: Hand, author: Client, root: Path) -> None:
    tab = person.tab
    tab.until_text("P2 Second", "h2")
    person.act("next")
    tab.until_text("P1 First", "h2")
    person.act("previous")
    tab.until_text("P2 Second", "h2")
    person.act("help")
    tab.until_text("land the chosen hunks", "#help")
    tab.key("Escape") if person.uses_keys else tab.click("#help button")
    tab.until(lambda: not tab.run("document.getElementById('help').open"))
    person.act("filter")
    person.until_focus("filter")
    person.send("First")
    tab.until_text("P1 First", "h2")
    assert tab.run("document.querySelectorAll('#options a').length") == 1
    tab.key("Escape")
    steps = []
    for name in ("next-hunk", "next-file", "previous-file", "next-hunk", "previous-hunk"):
        person.act(name)
        steps.append(person.hunk)
    assert steps[0] == steps[2] == steps[4]
    assert len({*steps}) == 3
    person.act("choose")
    assert tab.run("document.querySelector('tbody.current input[value=reject]').checked")
    person.act("comment")
    person.until_focus("comment")
    tab.type("well")
    tab.click("button[formaction]")
    tab.until_text("The comment is added.", "#said")
    (said,) = author.proposal_get(1).comments
    assert (said.text, said.hunk) == ("well", person.hunk.removeprefix("hunk-") if person.uses_keys else None)
    assert tab.run("document.querySelector('tbody.current input[value=reject]').checked"), "it stays"
    person.act("try")
    person.until_focus("command")
    person.send("grep -c fifteen a.py")
    tab.until_text("failed (1)", "#detail")  # the hunk of a.py is to be rejected
    person.act("edit")
    tab.until(lambda: tab.run("document.querySelector('details.own').open"))
    if not person.uses_keys:
        tab.click("details.own input.land")
    tab.until(lambda: tab.run("document.querySelector('details.own input.land').checked"))
    tab.run("document.querySelector('details.own textarea').select()")
    tab.type("mine\n")
    tab.key("Escape")
    person.act("approve")
    person.until_focus("pin")
    person.send(PIN)
    tab.until_text("P1 has landed as 3.", "#said")
    assert (root / "a.py").read_text() == "mine\n"
    tab.until_text("P2 Second", "#list")
    tab.click("#options a")
    tab.until_text("P2 Second", "h2")
    person.act("reject")
    tab.until_text("Reject all that is left of P2?", "#decide")
    if person.uses_keys:
        person.until_focus("reject")
    assert author.proposal_get(2).state == "open", "the key only asks"
    tab.key("Enter") if person.uses_keys else tab.click("#reject")
    tab.until_text("P2 is rejected.", "#said")
    assert author.proposal_get(2).state == "rejected"
    author.apply([write("c.py", "new\n")], propose=True, message="Third")
    tab.click("#views a[href='/']")
    tab.until_text("P3 Third", "h2")
    person.act("allow")
    if not person.uses_keys:
        tab.until_text("Paths", "#allow")
        tab.click("#paths")
    person.until_focus("paths")
    person.send("tests/**")
    tab.until_text("Grant 1 is made.", "#said")


def in_the_timeline(person: Hand, root: Path) -> None:
    tab = person.tab
    tab.click("#views a[href='/timeline']")
    tab.until_text("2 Two hunks", "#list")
    tab.click("#t2")
    tab.until_text("2 Two hunks", "h2")
    person.act("next-hunk")
    person.act("next-hunk")
    person.act("mark")
    person.act("undo")
    tab.until_text("Undo 1 hunk of 2?", "h2")
    person.answer("u", "Undo it")
    tab.until_text("Transaction 4 is made.", "#said")
    assert "x25 = 25\n" in (root / "b.py").read_text()
    person.act("redo")
    tab.until_text("Redo the newest undo?", "h2")
    person.answer("Escape", "Leave it")
    tab.until_text("No transaction is selected", "#detail")
    person.act("redo")
    tab.until_text("Redo the newest undo?", "h2")
    person.answer("u", "Redo it")
    tab.until_text("Transaction 5 is made.", "#said")
    assert "x25 = '25'\n" in (root / "b.py").read_text()
    tab.click("#t1")
    tab.until_text("1 Nine", "h2")
    person.act("review")
    tab.until_text("is marked as reviewed.", "#said")
    tab.until_text("reviewed by", "#detail")
    person.act("blame")
    tab.until_text("a.py", "h2")
    tab.until_text("mine", "table.blame")
    tab.click("table.blame a")
    tab.until_text("3 First", "h2")
    person.act("restore")
    tab.until_text("Put all files back to the state after 3?", "h2")
    tab.until_text("would change nothing", "#detail")
    person.answer("Escape", "Leave it")
    tab.until_text("3 First", "h2")
    person.act("rollback")
    tab.until_text("Roll back all the work of agent?", "h2")
    person.answer("Escape", "Leave it")
    tab.until_text("Grants", "#detail")


def among_the_agents(person: Hand, author: Client) -> None:
    tab = person.tab
    tab.click("#views a[href='/timeline']")
    tab.until_text("No transaction is selected", "#detail")
    tab.click("#views a[href='/agents']")
    tab.until_text("Grants", "#detail")
    person.act("revoke")
    if person.uses_keys:
        person.until_focus("revoke-1")
        tab.key("Enter")
    tab.until_text("Grant 1 has ended.", "#said")
    person.act("pause")
    tab.until_text("Pause agent?", "h2")
    person.answer("r", "Refuse its edits")
    tab.until_text("agent is paused.", "#said")
    tab.until_text("edits are refused", "#detail")
    person.act("pause")
    tab.until_text("agent goes on.", "#said")
    person.act("publish")
    tab.until_text("Publish the work of agent?", "h2")
    tab.fill("#message", "The work")
    tab.click("#detail button[value=make]")
    tab.until_text("Published as", "#said")
    person.act("leases")
    tab.until_text("End the leases of agent?", "h2")
    person.answer("L", "End them")
    tab.until_text("have ended", "#said")
    assert not author.lease_list().leases
    person.act("close")
    tab.until_text("Close the session agent?", "h2")
    person.answer("K", "Close it")
    tab.until_text("agent is closed.", "#said")
