"""`editctl review` through Textual's pilot on a real daemon: decisions, undo, the mouse, and the terminal."""

from __future__ import annotations

import asyncio
import io
import itertools
import re
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from editd.wire.messages import CheckReport, Decider, ProposalListResult, RunningCheck, Show
from editd_client.errors import EditdError
from editd_client.screen.detail import Lighting
from editd_client.screen.lines import TextSpan, wrap
from editd_client.screen.patch_lines import LINES_MAX, DiffForm, ProposalDrawing, proposal_lines
from editd_client.screen.programs import edit_text
from editd_client.screen.proposal_work import ShownProposal
from support.reviewers import PIN, reviewer_of
from support.screens import LINES, SIZES, Seen, on_screen, propose
from support.workplace import Workplace, replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client

_numbers = itertools.count(1000)


def fresh() -> str:
    """Return a text that no file has."""
    return f"{next(_numbers)}\n"


async def unlock(seen: Seen) -> None:
    """Give the PIN: the test is kin of the author."""
    await seen.until("PIN")
    await seen.type(PIN)


sizes = pytest.mark.parametrize("size", SIZES, ids=["80x24", "140x40", "59x24"])


# ── proposals ──


@pytest.mark.parametrize("size", [*SIZES, (34, 12)])
def test_the_timeline_never_cuts_the_end_of_a_path(
    place: Workplace, author: Client, size: tuple[int, int]
) -> None:
    author.apply([write("src/a/long/path/through/many/folders/to/cart.py", fresh(), force=True)])

    async def steps(seen: Seen) -> None:
        await seen.press("2")
        await seen.until(lambda: re.search(r"…\S*/cart\.py\b", seen.text))

    on_screen(place, size, steps)


def test_a_list_that_is_older_than_an_event_hides_no_proposal(place: Workplace, author: Client) -> None:
    async def steps(seen: Seen) -> None:
        await seen.idle()
        view, ask = seen.app.proposals, seen.app.ask
        numbers: list[int] = []

        async def late(call: Any) -> Any:
            """Let the answer with the list wait behind the event of a new proposal."""
            answer = await ask(call)
            if isinstance(answer, ProposalListResult) and not numbers:
                numbers.append(await asyncio.to_thread(propose, author, write("late", fresh())))
                await seen.until(lambda: view.list.get(numbers[0]))
            return answer

        seen.app.ask = late  # type: ignore[method-assign]
        view.reload()
        seen.app.redraw()
        await seen.until(lambda: numbers and not view._is_fetching)
        assert view.list.get(numbers[0])

    on_screen(place, (140, 40), steps)


@sizes
def test_chosen_hunks_land_and_rejected_ones_do_not(
    place: Workplace, author: Client, size: tuple[int, int]
) -> None:
    number = propose(author)

    async def steps(seen: Seen) -> None:
        await seen.until(f"P{number}")
        assert "Three words" in seen.text
        await seen.press("]", "space")  # the second hunk: to be rejected
        await seen.until("[-] 2")
        await seen.press("]", "space", "space")  # the third: left open
        await seen.until("[ ] 3")
        await seen.press("a")
        await seen.until("Reject 1 hunk")
        await seen.type("not this one")
        await unlock(seen)
        await seen.until(f"P{number} has landed as")

    on_screen(place, size, steps)
    text = place.files()["src/f1.py"].decode()
    assert "five\n" in text
    assert "twenty" not in text
    assert "thirty-five" not in text
    assert place.files()["src/new.py"] == b"a = 1\nb = 2\n"
    shown = author.proposal_get(number)
    assert shown.counts["fits"] == 1
    assert shown.counts["rejected"] == 1
    assert [one.comment for one in shown.decisions][-1] == "not this one"


def test_a_proposal_is_rejected_with_a_comment_and_esc_sends_nothing(
    place: Workplace, author: Client
) -> None:
    number = propose(author)

    async def steps(seen: Seen) -> None:
        await seen.press("x")
        await seen.until("Reject all that is left")
        await seen.press("esc")
        assert author.proposal_get(number).state == "open"
        await seen.press("x")
        await seen.type("use the helper")
        await unlock(seen)
        await seen.until(f"P{number} is rejected")
        await seen.until("Nothing waits")

    on_screen(place, (80, 24), steps)
    shown = author.proposal_get(number)
    assert shown.state == "rejected"
    assert shown.decisions[-1].comment == "use the helper"


def test_a_wrong_pin_decides_nothing(place: Workplace, author: Client) -> None:
    number = propose(author)

    async def steps(seen: Seen) -> None:
        await seen.press("a")
        await seen.until("PIN")
        await seen.type("0000")
        await seen.until(lambda: len(seen.app.screen_stack) == 1)
        await seen.until("PIN")

    on_screen(place, (80, 24), steps)
    assert author.proposal_get(number).state == "open"


def test_a_comment_is_about_the_hunk_at_the_cursor(place: Workplace, author: Client) -> None:
    number = propose(author)

    async def steps(seen: Seen) -> None:
        await seen.press("]", "c")
        await seen.until(f"Comment on hunk 2 of P{number}")
        await seen.type("why?")
        await seen.until(": why?")

    on_screen(place, (140, 40), steps)
    shown = author.proposal_get(number)
    assert [(one.text, one.hunk) for one in shown.comments] == [("why?", shown.files[0].hunks[1].hunk)]


def test_a_reader_whose_ground_moves_keeps_its_choices_and_loses_that_of_an_altered_hunk(
    place: Workplace, author: Client
) -> None:
    number = propose(author)

    async def steps(seen: Seen) -> None:
        await seen.press("]", "space")
        await seen.until("[-] 2")
        author.apply([replace("src/f1.py", "1\n2\n", "0\n1\n2\n")], message="above")
        await seen.until("moved by +1")
        assert "[-] 2" in seen.text
        author.apply([replace("src/f1.py", "\n5\n", "\n5!\n")], message="in the way")
        await seen.until("[!] 1")
        await seen.until("conflict, in the way")
        assert "choose again" in seen.text
        assert "[-] 2" in seen.text

    on_screen(place, (80, 24), steps)
    assert author.proposal_get(number).state == "open"


def test_what_another_reviewer_has_decided_leaves_the_list(place: Workplace, author: Client) -> None:
    first, second = propose(author, message="first"), propose(author, write("z", fresh()), message="second")

    async def steps(seen: Seen) -> None:
        await seen.until(f"P{second}")
        with reviewer_of(place) as other:
            other.proposal_approve(second, view=other.proposal_get(second).view)
            await seen.gone("second")
            other.proposal_approve(first, view=other.proposal_get(first).view)
        await seen.until("Nothing waits")

    on_screen(place, (80, 24), steps)


def test_the_reviewers_own_text_lands(
    place: Workplace, author: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = propose(author)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/five/FIVE/ "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", str(editor))

    async def steps(seen: Seen) -> None:
        await seen.press("e")
        await seen.until(f"Land your text of src/f1.py for P{number}?")
        assert "FIVE" in seen.text
        await seen.press("a")
        await unlock(seen)
        await seen.until("Your text of")

    on_screen(place, (80, 24), steps)
    assert b"FIVE\n" in place.files()["src/f1.py"]
    assert "src/new.py" in place.files()
    assert author.proposal_get(number).decisions[-1].modified


@pytest.mark.parametrize("name", ["nvim", "code", "other"])
def test_an_editor_that_can_shows_the_present_text_beside_the_proposed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The last word is the file to be saved; without a present text, it is the only one."""
    editor = tmp_path / name
    editor.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" > "$last"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("VISUAL", f"{editor} --wait")
    both, alone = edit_text("src/a.py", "new\n", "old\n"), edit_text("src/a.py", "new\n", None)
    assert both is not None
    assert alone is not None
    words = [word.rpartition("/editd-review-")[2].partition("/")[2] or word for word in both.split()]
    assert words == ["--wait", *{
        "nvim": ["-d", "-c", "wincmd", "l", "now/a.py"], "code": ["--diff", "now/a.py"], "other": [],
    }[name], "proposed/a.py"]  # fmt: skip
    assert [word[-13:] for word in alone.split()] == ["--wait", "proposed/a.py"]


def test_single_lines_of_a_hunk_land_with_the_chosen_hunks(place: Workplace, author: Client) -> None:
    three = replace("src/f1.py", "5\n6\n7\n", "five\nsix\nseven\n")
    other = replace("src/f1.py", "\n20\n", "\ntwenty\n")
    number = propose(author, three, other, replace("src/f1.py", "\n35\n", "\nthirty-five\n"))

    async def steps(seen: Seen) -> None:
        await seen.press("]", "]", "space", "[", "[", "v")
        await seen.until(f"Lines of hunk 1 of P{number}")
        assert "6 of 6 taken" in seen.text
        await seen.press("j", "space", "j", "j", "j", "space")  # not six for 6
        await seen.until("4 of 6 taken")
        await seen.press("enter")
        await seen.until("Land your text of src/f1.py")
        await seen.press("a")
        await unlock(seen)
        await seen.until("Your text of")

    on_screen(place, (80, 24), steps)
    lines = place.files()["src/f1.py"].decode().split("\n")
    assert lines[4:7] == ["five", "6", "seven"]
    assert (lines[19], lines[34]) == ("twenty", "35")
    assert "rejected" not in author.proposal_get(number).counts


def test_both_sides_stand_beside_each_other(place: Workplace, author: Client) -> None:
    propose(author, replace("src/f1.py", "5\n6\n", "five\nsix\nseven\n"))

    async def steps(seen: Seen) -> None:
        await seen.press("s")
        await seen.until("│")
        rows = [line.split("│") for line in seen.lines if "│" in line]
        cells = [tuple(part.split() for part in row) for row in rows]
        assert (["5", "-5"], ["5", "+five"]) in cells
        assert ([], ["7", "+seven"]) in cells
        assert (["4", "4"], ["4", "4"]) in cells
        await seen.press("s")
        await seen.gone("│")

    on_screen(place, (80, 24), steps)


def test_keywords_have_their_colour_in_a_line_that_is_not_changed(place: Workplace, author: Client) -> None:
    author.apply([write("src/f3.py", "import os\nx = 1\nreturn 'a'\n")])
    propose(author, replace("src/f3.py", "x = 1", "x = None"))

    def colours(seen: Seen) -> dict[str, str | None]:
        return {
            part.text: part.style.color.name if part.style and part.style.color else None
            for strip in seen.picture
            for part in strip
        }

    async def steps(seen: Seen) -> None:
        await seen.until(lambda: colours(seen).get("import") == "magenta")
        assert colours(seen)["None"] == "green"
        await seen.press("2")
        await seen.until("[ ] 1")
        await seen.press("tab", "G")
        await seen.until(lambda: "import" in colours(seen))
        await seen.until(lambda: colours(seen)["import"] == "green")

    on_screen(place, (80, 24), steps)


def test_words_of_a_removed_and_of_an_added_line_have_the_weight_of_their_own_text(
    place: Workplace, author: Client
) -> None:
    author.apply([write("src/f3.py", "lambda_ = 1\nx = lambda: 1\n")])
    propose(author, replace("src/f3.py", "x = lambda: 1\n", "y = 1\ny = 2 if y else 3\n"))

    def bold(seen: Seen) -> set[str]:
        return {part.text for strip in seen.picture for part in strip if part.style and part.style.bold}

    async def steps(seen: Seen) -> None:
        await seen.until(lambda: {"lambda", "if", "else"} <= bold(seen))
        assert "lambda_" not in bold(seen)

    on_screen(place, (80, 24), steps)


def test_a_trial_has_its_result_on_the_screen(
    place: Workplace, author: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    number = propose(author)

    async def steps(seen: Seen) -> None:
        await seen.press("t")
        await seen.until("Command to try")
        await seen.type("grep -q five src/f1.py")
        await seen.until("passed on")

    on_screen(place, (80, 24), steps)
    assert [one.exit for one in author.proposal_get(number).checks] == [0]
    assert b"five" not in place.files()["src/f1.py"]


def test_a_check_that_runs_and_its_purpose_are_below_the_hunks(author: Client) -> None:
    shown = msgspec.structs.replace(
        author.proposal_get(propose(author)),
        running=[RunningCheck(name="pytest", seconds=3.2)],
        lands_after=["pytest"],
    )
    one = ShownProposal(shown)
    drawing = ProposalDrawing(shown, one.files, one.choices, one.first)
    text = [patch.line.text for patch in proposal_lines(drawing, DiffForm(80))]
    assert text[-2:] == [" … pytest: running for 3 s", " lands by itself after pytest"]


def test_of_a_check_that_failed_the_last_six_lines_are_shown(author: Client) -> None:
    output = "".join(f"line {number}\n" for number in range(1, 11))
    by = Decider(actor="ann", session=None, via="socket")
    checks = [
        CheckReport(name=name, view="", exit=status, seconds=1.0, output=output, by=by, is_current=True)
        for name, status in (("lint", 0), ("pytest", 1))
    ]
    shown = msgspec.structs.replace(author.proposal_get(propose(author)), checks=checks)
    one = ShownProposal(shown)
    drawing = ProposalDrawing(shown, one.files, one.choices, one.first)
    text = [patch.line.text for patch in proposal_lines(drawing, DiffForm(80))]
    assert text[-8].startswith(" ✓ lint: "), "a check that passed has no lines"
    assert text[-7].startswith(" ✗ pytest: ")
    assert text[-6:] == [f"     line {number}" for number in range(5, 11)]


def test_a_grant_is_made_shown_and_taken_back(place: Workplace, author: Client) -> None:
    propose(author)

    async def steps(seen: Seen) -> None:
        await seen.press("A")
        await seen.until("src/f1.py src/new.py")
        await seen.press("ctrl+u")
        await seen.type("src/**")
        await seen.until("For how long")
        await seen.press("ctrl+u")
        await seen.type("30m")
        await unlock(seen)
        await seen.until("Grant")
        await seen.press("3")
        await seen.until("Grants: these edits")
        assert "src/**" in seen.text
        await seen.press("X")
        await seen.until("has ended")
        await seen.gone("Grants: these edits")

    on_screen(place, (80, 24), steps)
    assert author.review_grants().grants == []


def test_the_three_texts_of_a_file(place: Workplace, author: Client) -> None:
    propose(author)

    async def steps(seen: Seen) -> None:
        await seen.press("o")
        await seen.until("── base: src/f1.py")
        await seen.press("G")
        assert "40" in seen.lines[-2]
        for up, down in (("g", "G"), ("home", "end")):
            await seen.press(up)
            await seen.until("── base: src/f1.py")
            await seen.press(down)
            await seen.gone("── base: src/f1.py")
            assert "40" in seen.lines[-2]
        await seen.press("esc")
        await seen.until("[1 Proposals")

    on_screen(place, (80, 24), steps)


def test_the_texts_of_a_new_file_are_two_that_are_none_and_its_own(place: Workplace, author: Client) -> None:
    propose(author, write("src/new.py", "a = 1\n"))

    async def steps(seen: Seen) -> None:
        await seen.press("o")
        await seen.until("── proposed: src/new.py")
        assert seen.text.count("no file") == 2
        assert "1 a = 1" in seen.text

    on_screen(place, (80, 24), steps)


def test_each_file_of_a_long_diff_has_its_title_and_one_is_open(place: Workplace, author: Client) -> None:
    text = "".join(f"line {number}\n" for number in range(LINES_MAX // 2))
    propose(author, *(write(f"src/long{number}", text) for number in range(3)))

    async def steps(seen: Seen) -> None:
        await seen.until("file 1/3")
        await seen.press("tab", "G")
        await seen.until("file 3/3")
        assert "} and { open a file" in seen.text

    on_screen(place, (80, 24), steps)


# ── the timeline ──


@sizes
def test_the_timeline_scrolls_filters_and_goes_to_a_transaction(
    place: Workplace, author: Client, size: tuple[int, int]
) -> None:
    head = author.status().head

    async def steps(seen: Seen) -> None:
        await seen.press("2")
        await seen.until(f"▌{head:>6}")
        await seen.press("j", "j", "k")
        await seen.until(f"▌{head - 1:>6}")
        await seen.press("G")
        await seen.until("▌     0")
        await seen.press("g")
        await seen.until(f"▌{head:>6}")
        await seen.press(":")
        await seen.type("17")
        await seen.until("▌    17")
        await seen.press("/")
        await seen.type("session:robot edit 1")
        await seen.until("edit 10")
        assert " 11" in seen.lines[0]
        assert "edit 20" not in seen.text
        await seen.press("esc")
        await seen.until(f"▌{head:>6}")
        await seen.press("/")
        await seen.type("kind:nothing")
        await seen.until("not a kind")

    on_screen(place, size, steps)


def test_an_undo_is_shown_before_it_is_made_and_a_redo_takes_it_back(
    place: Workplace, author: Client
) -> None:
    made = author.apply([write("shown", fresh())], message="to be undone").transaction
    assert made is not None

    async def steps(seen: Seen) -> None:
        await seen.press("2")
        await seen.until("to be undone")
        await seen.press("u")
        await seen.until("Nothing is changed yet")
        assert "shown  goes" in seen.text
        await seen.press("esc")
        assert "shown" in place.files()
        await seen.press("u")
        await seen.until("Nothing is changed yet")
        await seen.press("u")
        await seen.until(f"~{made.seq + 1}")
        assert "shown" not in place.files()
        await seen.press("r")
        await seen.until("Redo the newest undo?")
        await seen.press("u")
        await seen.until(f"Transaction {made.seq + 2} is made")
        assert "shown" in place.files()

    on_screen(place, (80, 24), steps)


def test_the_diff_says_that_another_client_has_undone_or_redone_its_transaction(
    place: Workplace, author: Client
) -> None:
    made = author.apply([write("taken-back", fresh())], message="the one below").transaction
    author.apply([write("above", fresh())], message="the one above")
    assert made is not None

    async def steps(seen: Seen) -> None:
        await seen.press("2", "j")
        await seen.until(f"▌{made.seq:>6}")
        await seen.idle()  # its diff is there
        author.undo(made.seq)
        await seen.until(f"undone by {made.seq + 2}")
        author.redo()
        await seen.gone(f"undone by {made.seq + 2}")

    on_screen(place, (140, 40), steps)


def test_a_hunk_is_undone_alone(place: Workplace, author: Client) -> None:
    author.apply(
        [replace("src/f3.py", "5\n6", "five\n6"), replace("src/f3.py", "\n30\n", "\nthirty\n")], message="two"
    )

    async def steps(seen: Seen) -> None:
        await seen.press("2")
        await seen.until("[ ] 1")
        await seen.press("enter", "]", "space")
        await seen.until("[u] 2")
        await seen.press("u")
        await seen.until("Undo 1 hunk of")
        await seen.press("u")
        await seen.until("is made")

    on_screen(place, (80, 24), steps)
    assert place.files()["src/f3.py"] == LINES.replace("5\n6", "five\n6").encode()


def test_a_file_is_put_back_to_an_earlier_state_after_a_preview(place: Workplace, author: Client) -> None:
    made = author.apply([write("back", "1\n"), write("back2", "1\n")]).transaction
    author.apply([write("back", "2\n"), write("back2", "2\n")], message="later")
    assert made is not None

    async def steps(seen: Seen) -> None:
        await seen.press("2", "j")
        await seen.until(f"▌{made.seq:>6}")
        for answer in ("esc", "u"):
            await seen.press("S")
            await seen.until(f"Put back to the state after {made.seq}")
            await seen.press("f")
            await seen.until("back  becomes as it was")
            await seen.press(answer)
        await seen.until(f"Transaction {made.seq + 2} is made")

    on_screen(place, (80, 24), steps)
    assert (place.files()["back"], place.files()["back2"]) == (b"1\n", b"2\n")


def test_work_is_listed_as_unreviewed_until_it_is_marked(place: Workplace, author: Client) -> None:
    for number in range(3):
        author.apply([write(f"seen{number}", fresh())], message=f"to be seen {number}")
    name = author.log(limit=1).transactions[0].session

    async def steps(seen: Seen) -> None:
        await seen.press("2", "/")
        await seen.until("Filter")
        await seen.type(f"is:unreviewed session:{name}")
        await seen.until("to be seen 0")
        await seen.press("M")
        await seen.gone("to be seen 2")
        await seen.until("to be seen 1")
        await seen.press("space", "j", "space", "M")
        await seen.until("no transaction matches")
        await seen.press("esc")
        await seen.until("to be seen 2")
        await seen.until("✓")
        await seen.press("M")
        await seen.until("not marked as reviewed any more")

    on_screen(place, (80, 24), steps)
    assert author.log_count(session=name, unreviewed=True).count == 1


def test_a_refusal_is_a_row_of_the_timeline_between_the_transactions_of_its_time(
    place: Workplace, author: Client
) -> None:
    author.apply([write("refused", fresh())], message="below the refusal")
    with pytest.raises(EditdError):
        author.apply([replace("refused", "nothing like that", "x")])
    author.apply([write("refused", fresh())], message="above the refusal")

    async def steps(seen: Seen) -> None:
        def row_of(text: str) -> int:
            return next((number for number, line in enumerate(seen.lines[:10]) if text in line), -1)

        await seen.press("2")
        await seen.until(lambda: min(map(row_of, ("above the", "was refused: ", "below the"))) > 0)
        assert row_of("above the") + 1 == row_of("was refused: ") == row_of("below the") - 1
        await seen.press("g", *"j" * row_of("above the"))
        await seen.until("apply of")
        assert seen.lines[row_of("was refused: ")].startswith("▌     !")
        await seen.press("j")
        await seen.until(lambda: seen.lines[row_of("below the")].startswith("▌"))

    on_screen(place, (80, 24), steps)


def test_a_filter_has_the_refusals_that_match_it(place: Workplace, author: Client) -> None:
    name = author.session_open("lucky", actor="claude", fresh=True).session
    author.apply([write("kept", fresh())], message="kept below")
    for path in ("kept", "other"):
        with pytest.raises(EditdError):
            author.apply([replace(path, "nothing like that", "x")])
    author.apply([write("kept", fresh())], message="kept above")
    with place.client() as unlucky:
        unlucky.session_open("unlucky", actor="codex", fresh=True)
        with pytest.raises(EditdError):
            unlucky.apply([replace("kept", "nothing like that", "x")])

    async def steps(seen: Seen) -> None:
        def rows() -> list[str]:
            return [line for line in seen.lines[1:8] if "kept" in line or "   ! " in line]

        async def filtered(text: str) -> None:
            await seen.press("2", "esc", "/")
            await seen.until("Filter")
            await seen.type(text)

        await filtered(f"session:{name} path:kept")
        await seen.until(lambda: len(rows()) == 3)
        assert ["above" in rows()[0], "was refused: " in rows()[1], "below" in rows()[2]] == [True] * 3
        assert " 2 of" in seen.lines[0]
        await filtered(f"session:{name}")
        await seen.until("There is no file other")
        with pytest.raises(EditdError):
            author.apply([replace("kept", "nothing like that", "x")])
        await seen.until(lambda: "was refused: " in rows()[0])
        await seen.pilot.resize_terminal(59, 24)
        await seen.until(lambda: "lucky was refused: " in rows()[0])
        await seen.pilot.resize_terminal(80, 24)
        await filtered("session:unlucky")  # which has no transaction
        await seen.until("apply of unlucky was refused")
        assert rows()[0].startswith("▌     !")
        await filtered("kind:edit kept")
        await seen.until("kept above")
        assert not [row for row in rows() if "refused" in row]

    on_screen(place, (80, 24), steps)


def test_the_diff_of_the_next_row_is_there_before_its_key(place: Workplace, author: Client) -> None:
    seqs = [one.seq for one in author.log(session="robot", limit=4).transactions]
    asked: list[int] = []

    async def steps(seen: Seen) -> None:
        ask = seen.app.source.ask

        async def noted(call: Any) -> Any:
            if isinstance(call.params, Show):
                asked.append(int(call.params.tx))
            return await ask(call)

        seen.app.source.ask = noted  # type: ignore[method-assign]
        await seen.press("2", "/")
        await seen.until("Filter")
        await seen.type("session:robot")
        await seen.until(f"▌{seqs[0]:>6}")
        for key, expected in (("", seqs[:1]), ("j", seqs[:3]), ("j", seqs), ("k", seqs)):
            await seen.press(*key)
            await seen.idle()
            assert asked[-len(expected) :] == expected

    on_screen(place, (80, 24), steps)


def test_the_syntax_of_a_file_that_the_cursor_has_left_is_not_looked_for() -> None:
    """Each key moves the cursor on: only the file where it rests is lit."""
    at, lit = 0, list[int]()

    async def light(path: int) -> None:
        lit.append(path)

    async def steps() -> None:
        nonlocal at
        begun: list[asyncio.Task[None]] = []
        desk = SimpleNamespace(begin=lambda work: begun.append(asyncio.create_task(work())), redraw=int)
        lighting = Lighting(cast("Any", desk), lambda: None if at in lit else (at,), light)
        for _ in range(5):
            lighting.pump()
            await asyncio.sleep(0.01)
            at += 1
        await asyncio.gather(*begun)
        assert len(begun) == 1

    asyncio.run(steps())
    assert lit[-1] == 5
    assert len(lit) < 5


def test_an_undo_in_the_way_of_another_is_offered_with_it(place: Workplace, author: Client) -> None:
    first = author.apply([replace("src/f2.py", "\n20\n", "\ntwenty\n")], message="first").transaction
    author.apply([replace("src/f2.py", "\ntwenty\n", "\nTWENTY\n")], message="second")
    assert first is not None

    async def steps(seen: Seen) -> None:
        await seen.press("2")
        await seen.until("second")
        await seen.press("j", "u")
        await seen.until("in the way")
        await seen.until(f"n undo {first.seq + 1} first")
        await seen.press("n")
        await seen.until(f"Undone {first.seq + 1}")

    on_screen(place, (80, 24), steps)
    assert place.files()["src/f2.py"] == LINES.encode()


def test_marked_transactions_are_undone_one_after_another(place: Workplace, author: Client) -> None:
    for name in ("m1", "m2", "m3"):
        author.apply([write(name, "1\n")], message=name)

    async def steps(seen: Seen) -> None:
        await seen.press("2")
        await seen.until("m3")
        await seen.press("space", "j", "j", "space")
        await seen.until("undo 2 marked")
        await seen.press("u")
        await seen.until("one of 2")
        await seen.press("u")
        await seen.until("Nothing is changed yet")
        await seen.press("u")
        await seen.until(lambda: not {"m1", "m3"} & place.files().keys())

    on_screen(place, (80, 24), steps)
    assert "m2" in place.files()


def test_a_reader_stays_while_others_work_and_follows_again_at_the_top(
    place: Workplace, author: Client
) -> None:
    head = author.status().head

    async def steps(seen: Seen) -> None:
        await seen.press("2", "j", "j", "j")
        await seen.until(f"▌{head - 3:>6}")
        for number in range(30):
            author.apply([write("busy", f"{number}\n")], message=f"busy {number}")
        await seen.until(f"● {head + 30}")
        await seen.idle()
        assert f"▌{head - 3:>6}" in seen.text
        await seen.press("g")
        await seen.until(f"▌{head + 30:>6}")
        author.apply([write("busy", "last\n")], message="the last")
        await seen.until(f"▌{head + 31:>6}")
        await seen.press("b")
        await seen.until("busy, line by line")

    on_screen(place, (80, 24), steps)


# ── the agents ──


@sizes
def test_an_agent_leads_to_its_timeline_and_its_proposals(
    place: Workplace, author: Client, size: tuple[int, int]
) -> None:
    author.apply([write("by-agent", fresh())], message="by the agent")
    number = propose(author)

    async def steps(seen: Seen) -> None:
        await seen.press("3")
        await seen.until("by the agent")
        assert "agent" in seen.lines[1 if size[0] < 76 else 3 if size[0] > 100 else 2]
        await seen.press("enter")
        await seen.until("/session:=agent")
        await seen.press("3", "p")
        await seen.until(f"P{number}")
        assert "/session:=agent" in seen.text

    on_screen(place, size, steps)


async def select_agent(seen: Seen, name: str) -> None:
    await seen.until(name)
    while name not in next(line for line in seen.lines if "▌" in line):
        await seen.press("j")


def test_an_agent_with_missed_calls_shows_their_number(place: Workplace) -> None:
    with place.client() as agent:
        agent.session_open("late", actor="codex")
        place.write({"late": fresh()})
        agent.exec_end(key="never", status=0, command="make")

    async def steps(seen: Seen) -> None:
        await seen.press("3")
        await select_agent(seen, "late")
        await seen.until("1 call missed")

    on_screen(place, (80, 24), steps)


def test_a_session_is_rolled_back_its_leases_ended_and_closed(place: Workplace, author: Client) -> None:
    with place.client() as other:
        other.session_open("goner", actor="codex")
        other.apply([write("goner1", "1\n"), write("goner2", "1\n")], message="goner's")
        other.lease_acquire(["goner/**"], 60)

    async def steps(seen: Seen) -> None:
        await seen.press("3")
        await select_agent(seen, "goner")
        await seen.until("lease goner/**")
        await seen.press("L")
        await seen.until("End the leases of goner?")
        await seen.press("L")
        await seen.until("have ended")
        await seen.gone("lease goner/**")
        await seen.press("R")
        await seen.until("Roll back all the work of goner?")
        await seen.press("u")
        await seen.until("is made")
        assert "goner1" not in place.files()
        await seen.press("K")
        await seen.until("Close the session goner?")
        await seen.press("K")
        await seen.until("goner is closed")

    on_screen(place, (80, 24), steps)
    assert [lease.session for lease in author.lease_list().leases if lease.session == "goner"] == []


def test_an_agent_is_paused_is_refused_with_the_reason_and_goes_on(place: Workplace, author: Client) -> None:
    author.apply([write("paused", fresh())], message="before the pause")
    name = author.log(limit=1).transactions[0].session
    author.lease_acquire(["paused/**"], 60)

    async def steps(seen: Seen) -> None:
        await seen.press("3")
        await seen.until("before the pause")
        await seen.press("P")
        await seen.until(f"Pause {name}?")
        await seen.press("e")
        await seen.until("Reason")
        await seen.type("wait for the release")
        await seen.until("paused: wait for the release")
        assert author.lease_list().leases == []
        with pytest.raises(EditdError, match="wait for the release"):
            author.apply([write("paused", fresh())])
        await seen.until(f"Refused to {name}, about paused: permission_denied")
        await seen.press("!")
        await seen.until("Refused edits of")
        await seen.press("esc")
        await seen.gone("Refused edits of")
        await seen.press("P")
        await seen.until("go on?")
        await seen.press("P")
        await seen.until(f"{name} goes on")
        await seen.gone("paused: wait")

    on_screen(place, (80, 24), steps)
    assert author.apply([write("paused", fresh())]).transaction is not None


def test_the_work_of_a_session_is_published_after_a_preview(place: Workplace, author: Client) -> None:
    author.apply([write("published.txt", "1\n")], message="to be published")
    name = author.log(limit=1).transactions[0].session

    async def steps(seen: Seen) -> None:
        await seen.press("3")
        await seen.until("to be published")
        await seen.press("m")
        await seen.type("One commit")
        await seen.until("On the branch")
        assert "published.txt" in seen.text
        await seen.press("m")
        await seen.until("Published as")

    on_screen(place, (80, 24), steps)
    assert place.git("log", "--format=%s", "-1", "--all").strip().endswith("One commit"), name


# ── the mouse, the terminal, the daemon ──


def test_the_mouse_does_it_too(place: Workplace, author: Client) -> None:
    first, second = propose(author, message="first"), propose(author, write("z", fresh()), message="second")

    async def steps(seen: Seen) -> None:
        await seen.until(f"▌P{second}")
        await seen.pilot.click("#proposals", offset=(10, 1))
        await seen.until(f"▌P{first}")
        await seen.until("[x] 2")
        row = next(number for number, line in enumerate(seen.lines) if "[x] 1" in line)
        await seen.pilot.click(offset=(2, row))
        await seen.until("[-] 1")
        await seen.pilot.click("#header", offset=(seen.lines[0].index("Timeline"), 0))
        await seen.until("[2 Timeline]")
        await seen.pilot.click("#footer", offset=(seen.lines[-2].index("undo"), 0))
        await seen.until("Nothing is changed yet")
        await seen.pilot.click("#answers", offset=(seen.lines[-1].index("leave"), 0))
        await seen.until("[2 Timeline]")

    on_screen(place, (80, 24), steps)


def test_a_terminal_without_colours_and_utf8_has_signs_of_ascii(place: Workplace, author: Client) -> None:
    from editd_client.screen.panes import Terminal

    propose(author, write("straße", "é\n"), message="plain")

    async def steps(seen: Seen) -> None:
        assert ">P" in seen.text
        assert "* " in seen.lines[0]
        for sign in "▌●─│…·":
            assert sign not in seen.text.replace("straße", "").replace("é", "")
        styles = {
            part.style.color
            for strip in seen.app.screen._compositor.render_strips()
            for part in strip
            if part.style
        }
        assert {None if color is None or color.is_default else color.name for color in styles} <= {None}

    on_screen(place, (80, 24), steps, terminal=Terminal(has_colours=False, is_ascii=True))


def test_text_of_others_cannot_control_the_terminal(place: Workplace, author: Client) -> None:
    propose(author, write("x", "a\x1b[2Jb\u202ec\td\n"), message="evil \x1b]0;title\x07 message")

    async def steps(seen: Seen) -> None:
        await seen.until("evil")
        assert "\x1b" not in seen.text
        assert "\x07" not in seen.text
        assert "\u202e" not in seen.text
        await seen.until("a\\x1b[2Jb\\u202ec")

    on_screen(place, (80, 24), steps)


def test_a_resize_keeps_the_cursor(place: Workplace, author: Client) -> None:
    head = author.status().head

    async def steps(seen: Seen) -> None:
        await seen.press("2", "ctrl+d", "ctrl+d", "ctrl+d", "ctrl+d")
        await seen.idle()
        cursor = next(line for line in seen.lines if line.startswith("▌"))[:8]
        for size in ((140, 40), (110, 20), (30, 8), (80, 24)):
            await seen.pilot.resize_terminal(*size)
            await seen.until(cursor)

    assert head > 40
    on_screen(place, (80, 24), steps)


def test_a_sentence_is_wrapped_after_a_word_and_code_at_the_edge() -> None:
    text = (TextSpan("one two three four"),)
    sentence = ["".join(span.text for span in row) for row in wrap(text, 10, 2, has_words=True)]
    assert sentence == ["one two ", "  three ", "  four"]
    code = ["".join(span.text for span in row) for row in wrap(text, 10, 2)]
    assert code == ["one two th", "  ree four"]
    long = [row[-1].text for row in wrap((TextSpan("x" * 12),), 5, 0, has_words=True)]
    assert long == ["xxxxx", "xxxxx", "xx"]


def test_the_screen_opens_on_the_timeline_if_nothing_waits_and_on_what_waits_otherwise(
    place: Workplace, author: Client
) -> None:
    async def nothing(seen: Seen) -> None:
        await seen.until("[2 Timeline]")
        await seen.press("1")
        await seen.until("when an agent's edit needs approval:")
        assert not [line for line in seen.lines if len(line) > 40], "the words are wrapped"

    async def something(seen: Seen) -> None:
        await seen.until(f"P{number}")
        assert "[1 P" in seen.lines[0]

    on_screen(place, (40, 24), nothing)
    number = propose(author)
    on_screen(place, (80, 24), something)
