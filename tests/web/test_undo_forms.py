"""What takes back, without a script: redo, restore, blame, and the ways out of a conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.reviewers import author_of
from support.web_page import web_page
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.web_page import WebPage
    from support.workplace import Workplace

LINES = "".join(f"#{n}\n" for n in range(1, 31))


class Served:
    """One page for all tests of this module: each has a file of its own."""

    def __init__(self, place: Workplace, author: Client, page: WebPage) -> None:
        self.place, self.author, self.page = place, author, page

    def edit(self, path: str, old: str, new: str) -> int:
        made = self.author.apply([replace(path, old, new)], message=f"Change {path}").transaction
        assert made is not None
        return made.seq

    def text(self, path: str) -> str:
        return self.place.files()[path].decode()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    files = {f"{name}.txt": LINES for name in "abcdefg"}
    with (
        workplace(tmp_path_factory.mktemp("undo") / "place") as place,
        author_of(place, {**files, "binary": "x\0y"}) as author,
        web_page(place) as page,
    ):
        yield Served(place, author, page.enter())


def test_a_redo_is_shown_and_made(served: Served) -> None:
    seq = served.edit("a.txt", "#5\n", "#V\n")
    served.author.undo(seq)
    assert "Redo the newest undo" in served.page.get("/timeline").text
    asked = served.page.post("/redo", {"do": "preview"})
    assert "Redo the newest undo?" in asked.text
    assert "Changes of a.txt" in asked.text
    assert "#V" not in served.text("a.txt")
    made = served.page.post("/redo", {"do": "make", "request_id": "redo"})
    assert (made.status, made.headers["location"]) == (303, "/timeline")
    assert "#V" in served.text("a.txt")
    served.page.post("/redo", {"do": "make", "request_id": "redo"})
    assert served.author.log(limit=1).transactions[0].seq == seq + 2


def test_a_restore_takes_some_files_back_with_the_later_changes_of_others(served: Served) -> None:
    seq = served.edit("b.txt", "#5\n", "#V\n")
    served.edit("b.txt", "#9\n", "#IX\n")
    served.edit("c.txt", "#9\n", "#IX\n")
    page = served.page.get(f"/transactions/{seq}")
    assert "Put all or the marked files back to this state" in page.text
    given = {"to": str(seq), "path": "b.txt"}
    asked = served.page.post("/restore", {**given, "do": "preview"})
    assert f"Put 1 file back to the state after {seq}?" in asked.text
    assert "becomes as it was" in asked.text
    assert "by any author" in asked.text
    assert served.page.post("/restore", {**given, "do": "make"}).status == 303
    assert served.text("b.txt") == LINES.replace("#5\n", "#V\n")
    assert "#IX" in served.text("c.txt")
    assert "would change nothing" in served.page.post("/restore", {**given, "do": "preview"}).text


def test_what_is_in_the_way_can_be_undone_first(served: Served) -> None:
    first = served.edit("d.txt", "#5\n", "#V\n")
    later = served.edit("d.txt", "#V\n", "#five\n")
    asked = served.page.post("/undo", {"seq": str(first), "do": "preview"})
    assert f"Undo {later} first" in asked.text
    made = served.page.post(
        "/undo", {"seq": str(first), "do": "needed", "needed": str(later), "request_id": "first"}
    )
    assert made.status == 303
    assert served.text("d.txt") == LINES
    assert [one.undoes for one in served.author.log(limit=2).transactions] == [[first], [later]]


def test_an_undo_can_be_forced_or_proposed(served: Served) -> None:
    first = served.edit("e.txt", "#5\n", "#V\n")
    served.edit("e.txt", "#V\n", "#five\n")
    asked = served.page.post("/undo", {"seq": str(first), "do": "propose"})
    assert asked.status == 409
    assert served.page.post("/undo", {"seq": str(first), "do": "force"}).status == 303
    assert served.text("e.txt") == LINES
    second = served.edit("g.txt", "#9\n", "#IX\n")
    assert served.page.post("/undo", {"seq": str(second), "do": "propose"}).status == 303
    assert "#IX" in served.text("g.txt")
    (waiting,) = served.author.proposal_list().proposals
    assert waiting.kind == "undo"


@pytest.mark.parametrize("form", ["/undo", "/redo", "/restore", "/rollback"])
def test_a_form_without_an_action_changes_nothing(served: Served, form: str) -> None:
    head = served.author.status().head
    answer = served.page.post(form, {"seq": "0", "to": "0", "session": "agent", "do": "x"})
    assert answer.status == 400
    assert served.author.status().head == head


def test_each_line_of_a_file_has_its_author(served: Served) -> None:
    seq = served.edit("f.txt", "#5\n", "#five & <six>\n")
    served.author.apply([write("f g.txt", "one\n")])
    page = served.page.get("/blame?path=f.txt")
    assert page.status == 200
    assert "the author of each line of f.txt, 30 lines" in page.text.lower()
    row = page.text.partition("#five & <six>")[0][-80:]
    assert f"{seq}agent" in row
    assert f"/transactions/{seq}" in page.body
    assert "f+g.txt" in served.page.get(f"/transactions/{seq + 1}").body
    assert "one" in served.page.get("/blame?path=f+g.txt").text


@pytest.mark.parametrize("path", ["nothing", "../../etc/passwd", "binary", ""])
def test_a_file_without_lines_is_refused_in_words(served: Served, path: str) -> None:
    answer = served.page.get(f"/blame?path={path}")
    assert 400 <= answer.status < 500
    assert "." in answer.text
