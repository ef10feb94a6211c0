"""The page for everybody: roles and names, focus, contrast, and axe, in light, dark and narrow windows."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from support import chromium
from support.axe import violations
from support.reviewers import author_of, reviewer_of, set_pin
from support.seeds import seed
from support.web_page import web_page
from support.workplace import replace, workplace, write
from web_pictures import SIZES, picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.chromium import Chromium, Tab

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="chromium is not installed")
LINES = "".join(f"x{n} = {n}\n" for n in range(1, 31))
FILES = {"a.py": LINES, "b.py": LINES}
PAGES = ("/", "/proposals/2", "/timeline", "/transactions/1", "/blame?path=a.py", "/agents")
LOOKS = {  # the width of the window, and whether it is dark
    "light": (1280, False), "dark": (1280, True), "narrow": (360, False), "narrow and dark": (360, True),
}  # fmt: skip


def prepare(author: Client, reviewer: Client) -> None:
    """Make one of everything that a page can show."""
    author.apply([replace("a.py", "x20 = 20\n", "x20 = 0  # a comment\n"), write("w.txt", "w" * 3000)])
    made = author.apply([replace("a.py", "x9 = 9\n", "x9 = 'nine'\n")]).transaction
    assert made is not None
    author.undo(made.seq)
    author.lease_acquire(["src/**"], 600)
    edits = [replace("b.py", "x5 = 5\n", "x5 = 'five'\n"), replace("b.py", "x20 = 20\n", "x20 = '20'\n")]
    author.apply(edits, propose=True, message="W" * 200)
    shown = author.proposal_get(1)
    reviewer.proposal_comment(1, "why?", hunk=shown.files[0].hunks[0].hunk)
    reviewer.proposal_check(1, shown.view, "pytest", exit=1, seconds=1.5, output="failed")
    reviewer.apply([replace("b.py", "x5 = 5\n", "x5 = 0\n")])
    reviewer.review_allow(["tests/**"], 600)
    author.apply([write("new.py", "new = 1\n")], propose=True, message="Decided")
    reviewer.proposal_reject(2, comment="no")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with workplace(tmp_path_factory.mktemp("all") / "place") as place:
        set_pin(place)
        with author_of(place, FILES) as author, reviewer_of(place) as reviewer, web_page(place) as page:
            prepare(author, reviewer)
            yield f"{page.address}/?t={page.token}"


@pytest.fixture
def tab(window: Tab, address: str) -> Iterator[Tab]:
    window.show(width=1280, is_dark=False)
    window.go(address)
    yield window
    window.leave()


def pages_of(look: str, *, is_long: bool) -> list[str]:
    """Return the pages that are seen in a look: all in the long form.

    The seed of the commit draws three for a light window, two for each other look, and one for a window that
    is narrow and dark.
    """
    if is_long:
        return list(PAGES)
    count = {"light": 3, "narrow and dark": 1}.get(look, 2)
    first = seed() + 2 * list(LOOKS).index(look)
    return [PAGES[(first + number) % len(PAGES)] for number in range(count)]


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_every_text_has_contrast_and_no_page_is_larger_than_its_window(
    tab: Tab, look: str, *, is_long: bool
) -> None:
    width, is_dark = LOOKS[look]
    tab.show(width=width, is_dark=is_dark)
    origin = tab.run("location.origin")
    root = "document.documentElement"
    for path in pages_of(look, is_long=is_long):
        tab.go(f"{origin}{path}")
        assert tab.run(CONTRAST) == [], path
        assert tab.run(f"{root}.scrollWidth <= innerWidth && {root}.scrollHeight <= innerHeight"), path
        assert violations(tab) == [], path
    is_white = tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert is_white != tab.run("matchMedia('(prefers-color-scheme: dark)').matches")
    assert is_white != is_dark


def test_a_picture_of_the_page_is_as_large_as_its_window(browser: Chromium, address: str) -> None:
    """The README has pictures, which a script makes."""
    made = picture(browser, address, "web-narrow")
    assert made.startswith(b"\x89PNG")
    assert struct.unpack(">II", made[16:24]) == SIZES["web-narrow"]


def test_axe_finds_nothing_in_a_question_and_in_the_help(tab: Tab, *, is_long: bool) -> None:
    """In a light window, in the long form in all looks."""
    for width, is_dark in LOOKS.values() if is_long else [LOOKS["light"]]:
        tab.show(width=width, is_dark=is_dark)
        check_questions(tab)


def check_questions(tab: Tab) -> None:
    origin = tab.run("location.origin")
    tab.go(f"{origin}/transactions/1")
    tab.click("[data-does=undo]")
    tab.until_text("Undo 1?", "h2")
    assert violations(tab) == []
    tab.key("?")
    tab.until_text("Keys of the timeline", "#help")
    assert violations(tab) == []
    tab.go(f"{origin}/agents")
    tab.fill("#paths", "docs/**")
    tab.key("Enter")
    tab.until_text("only with the PIN", "#detail")
    assert violations(tab) == []


CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = text => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgb(getComputedStyle(document.body).backgroundColor);
  };
  const poor = [];
  for (const one of document.querySelectorAll('body *')) {
    if (![...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    if (!one.checkVisibility()) continue;
    const [x, y] = [light(rgb(getComputedStyle(one).color)), light(ground(one))];
    const ratio = (Math.max(x, y) + .05) / (Math.min(x, y) + .05);
    if (ratio < 4.5) poor.push(`${one.tagName} ${one.className} ${one.textContent.slice(0, 30)}: ${ratio}`);
  }
  return poor;
})()
"""


def test_roles_and_names_are_those_of_lists_tables_and_choices(tab: Tab) -> None:
    roles = tab.roles()
    assert ("listbox", "Proposals") in roles
    assert any(role == "option" and name.startswith("P1 WWW") for role, name in roles)
    assert ("table", "Changes of b.py") in roles
    assert ("columnheader", "Old line") in roles
    assert ("group", "Decision about hunk 1") in roles
    assert [name for role, name in roles if role == "radio"] == ["approve", "reject", "leave open"] * 2
    assert any(role == "status" for role, _ in roles)
    assert any(role == "main" for role, _ in roles)
    assert ("navigation", "Views") in roles
    unnamed = [
        role
        for role, name in roles
        if role in ("button", "textbox", "link", "checkbox", "radio") and not name
    ]
    assert unnamed == []


def test_the_focus_is_seen_and_the_tab_key_reaches_all_fields(tab: Tab) -> None:
    reached = set()
    for _ in range(40):
        tab.key("Tab")
        found = tab.run(FOCUS)
        assert found[2] != "none", found
        reached.add((found[0], found[1].strip()))
        if ("SUMMARY", "Reject all of it…") in reached:
            break
    assert ("DIV", "options") in reached
    assert ("INPUT", "approve") in reached
    assert ("TEXTAREA", "comment") in reached
    assert ("BUTTON", "approve") in reached


FOCUS = """
(() => {
  const one = document.activeElement;
  const name = one.value || one.id || one.textContent.slice(0, 20);
  return [one.tagName, name, getComputedStyle(one).outlineStyle];
})()
"""
