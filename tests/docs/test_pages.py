"""Every page of the documentation: its commands print what it says, and its links lead somewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.console import carried_out, steps
from support.workplace import TOP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace

PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
TOLD = [page for page in PAGES if any(steps(page.read_text()))]
SPEAK_OF_OTHERS = {"glossary.md", "compare.md", "dialects.md", "architecture.md"}
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def named(pages: list[Path]) -> list[object]:
    return [pytest.param(page, id=str(page.relative_to(TOP))) for page in pages]


@pytest.mark.parametrize("page", named(TOLD))
def test_every_command_of_a_page_prints_what_the_page_says(page: Path, place: Workplace) -> None:
    for step in carried_out(place, page.read_text()):
        assert step.is_as_said(), f"$ {step.command}{step.printed}--- the page says\n{step.expected}"


def test_the_pages_that_promise_to_be_run_have_commands() -> None:
    assert {page.name for page in TOLD} >= {"README.md", "multi-agent.md"}


@pytest.mark.parametrize("page", named([*PAGES, TOP / "CHANGELOG.md"]))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    dead = [link for link in links(page) if not leads_somewhere(page, link)]
    assert not dead


def test_every_file_that_the_page_for_contributors_names_exists() -> None:
    """A word in capitals is any name: `tests/dialects/test_NAME.py`. A test is named after `::`."""
    text = (TOP / "docs/contributing.md").read_text()
    named = re.findall(
        r"(?<![\w/.…])((?:client|daemon|docs|systemd|tests|\.ci)/[\w./-]*\w)(?:::(\w+))?", text
    )
    assert len(named) > 80
    wrong = [file for file, _ in named if not any(TOP.glob(re.sub(r"\b[A-Z]+\b|(?<=_)[A-Z]+\b", "*", file)))]
    wrong += [test for file, test in named if test and f"def {test}(" not in (TOP / file).read_text()]
    assert not wrong


def test_every_page_is_reached_from_the_map_of_the_documentation() -> None:
    listed = {link.partition("#")[0] for link in links(TOP / "docs/index.md")}
    assert {page.name for page in (TOP / "docs").glob("*.md")} - listed == {"index.md"}


@pytest.mark.parametrize("page", named([page for page in PAGES if page.name not in SPEAK_OF_OTHERS]))
def test_a_page_speaks_the_language_of_the_house(page: Path) -> None:
    """The glossary's "Words we leave alone", as far as a word alone tells."""
    text = _CODE.sub("", page.read_text()).lower()
    # Only a proposal has revisions.
    text = re.sub(r"`revision`|\brevision\b(?=[^.\n]* proposal\b)", "", text)
    said = set(re.findall(r"[a-z]+", text))
    assert not said & {"checkpoint", "savepoint", "revision", "etag"}


def links(page: Path) -> Iterator[str]:
    """Where the page's links lead, those to other sites left out."""
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        if not re.match(r"https?:|mailto:", link):
            yield link


def leads_somewhere(page: Path, link: str) -> bool:
    """Is there such a file and, where the link names one, such a heading in it?"""
    name, _, anchor = link.partition("#")
    target = (page.parent / name) if name else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target)


def anchors(page: Path) -> set[str]:
    """The headings of a page as a link names them: as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
