"""What Neovim holds unsaved, and the edits by others of the same files."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from editd.values.content import version_of
from editd_client.errors import Unsaved
from support.crash_checks import wait_until
from support.neovim import PROGRAM, TEN, Neovim, neovim, opened
from support.workplace import replace

if TYPE_CHECKING:
    from editd.wire import messages
    from editd_client.client import Client
    from support.workplace import Workplace

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no nvim here (Debian's package: neovim)"),
    pytest.mark.usefixtures("defaults"),
]


def held(other: Client, path: str) -> list[messages.DocumentEntry]:
    return [document for document in other.document_list().documents if document.path == path]


def typed(vim: Neovim, other: Client, name: str, line: int, text: str = "mine") -> messages.DocumentEntry:
    """Change a line, and wait for the hold of the buffer."""
    vim.command(f"call setline({line}, '{text}')")
    version = version_of(("\n".join(vim.lines) + "\n").encode())
    wait_until(lambda: [one.version for one in held(other, name)] == [version], f"a hold of {name}")
    return held(other, name)[0]


def test_an_edit_of_other_lines_is_made_and_comes_into_the_buffer(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = opened(vim, shared, "other-lines.txt")
    document = typed(vim, other, "other-lines.txt", 9)
    assert (document.client, document.base) == ("nvim", version_of(TEN.encode()))
    made = other.apply([replace("other-lines.txt", "line 8\n", "theirs\n")], actor="claude")
    assert made.transaction is not None
    assert made.files[0].unsaved == "merged"
    vim.until("vim.fn.getline(8) == 'theirs'")
    both = TEN.replace("line 8\n", "theirs\n").replace("line 9", "mine")
    assert vim.lines == both.splitlines()
    assert vim.is_modified
    assert vim.said() == [f"editd: other-lines.txt has taken in {made.transaction.seq} by claude"]
    wait_until(
        lambda: (
            [(one.base, one.version) for one in held(other, "other-lines.txt")]
            == [(made.files[0].version, version_of(both.encode()))]
        ),
        "the hold on the new base",
    )
    vim.command("undo")
    assert vim.lines == TEN.replace("line 9", "mine").splitlines(), "one undo takes theirs out"
    vim.command("redo\nwrite")
    assert file.read_text() == both
    assert vim.lua("_G.asked") == []
    assert held(other, "other-lines.txt") == []


def test_an_edit_of_the_same_line_is_refused_with_the_lines_and_who_holds_them(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = opened(vim, shared, "same-line.txt")
    typed(vim, other, "same-line.txt", 5)
    with pytest.raises(Unsaved) as refused:
        other.apply([replace("same-line.txt", "line 5\n", "theirs\n")], actor="claude")
    assert "unsaved changes in nvim, in line 5," in refused.value.message
    assert refused.value.data["lines"] == [{"start_line": 5, "end_line": 5}]
    assert [one["client"] for one in refused.value.data["held_by"]] == ["nvim"]
    assert file.read_text() == TEN
    assert other.read("same-line.txt", unsaved=True).content == TEN.replace("line 5", "mine")


def test_changes_of_the_same_line_that_no_trial_has_stopped_mark_the_buffer(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = opened(vim, shared, "shell.txt")
    vim.command("call setline(5, 'mine')")
    file.write_text(TEN.replace("line 5", "theirs"))
    other.settle()
    # A look at the file may come before the event that names the author.
    said = vim.until("(vim.b.editd_stale or ''):find('(', 1, true) and vim.b.editd_stale")
    assert said.startswith("has changed (")
    assert vim.lines == TEN.replace("line 5", "mine").splitlines()
    file = opened(vim, shared, "ends.txt")
    vim.command("call setline(5, 'mine')")
    file.write_text(TEN.replace("\n", "\r\n"))
    other.settle()
    vim.until("vim.b.editd_stale")
    assert vim.lines == TEN.replace("line 5", "mine").splitlines(), "the line ends would be lost"


def test_a_hold_ends_when_the_buffer_is_as_its_file_or_is_left(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    endings = ("undo", "write", "edit!", "set nomodified", "bwipeout!", "saveas ended-elsewhere.txt")
    for number, ending in enumerate(endings):
        name = f"ended-{number}.txt"
        opened(vim, shared, name)
        typed(vim, other, name, 2)
        vim.command(ending)
        wait_until(lambda name=name: held(other, name) == [], f"the end by {ending}")  # type: ignore[misc]


def test_a_killed_editor_holds_nothing_and_two_editors_hold_one_file(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    opened(vim, shared, "two.txt")
    typed(vim, other, "two.txt", 2)
    with neovim(shared) as second:
        second.edit("two.txt")
        second.command("call setline(9, 'hers')")
        wait_until(lambda: len(held(other, "two.txt")) == 2, "both holds")
        for line in (2, 9):
            with pytest.raises(Unsaved):
                other.apply([replace("two.txt", f"line {line}\n", "theirs\n")])
        assert other.apply([replace("two.txt", "line 5\n", "theirs\n")]).files[0].unsaved == "merged"
        for editor in (vim, second):
            editor.until("vim.fn.getline(5) == 'theirs'")
        second.process.kill()
    wait_until(lambda: len(held(other, "two.txt")) == 1, "the end of the killed editor's hold")
    assert other.apply([replace("two.txt", "line 9\n", "theirs\n")]).transaction is not None


def test_the_user_decides_what_is_shared(vim: Neovim, shared: Workplace, other: Client) -> None:
    opened(vim, shared, ".env.local", "TOKEN=1\n")
    vim.command("call setline(1, 'TOKEN=secret')")
    wait_until(lambda: held(other, ".env.local") != [], "a hold without text")
    assert held(other, ".env.local")[0].version is None
    made = other.apply([replace(".env.local", "TOKEN=1\n", "TOKEN=2\n")])
    assert any("unsaved changes in nvim" in warning for warning in made.warnings)
    vim.command("silent! bwipeout!\nlua require('editd').setup{share_unsaved = 'flag'}")
    opened(vim, shared, "flagged.txt")
    vim.command("call setline(1, 'mine')")
    wait_until(lambda: [one.version for one in held(other, "flagged.txt")] == [None], "the flag alone")
    vim.command("lua require('editd').setup{share_unsaved = 'off'}")
    opened(vim, shared, "off.txt")
    vim.command("call setline(1, 'mine')\nlua require('editd.holds').update(vim.fn.bufnr())")
    assert held(other, "off.txt") == []


def test_twenty_changes_a_second_in_a_text_of_one_mebibyte_hold_up_nobody(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    opened(vim, shared, "big.txt", "".join(f"{number:063}\n" for number in range(1 << 14)))
    vim.command("call setline(1, '')")  # stays below the limit of a text that is shared
    longest, changes = 0.0, 30
    for number in range(changes):
        began = time.monotonic()
        vim.command(f"call setline({100 + number}, 'typed {number}')")
        longest = max(longest, time.monotonic() - began)
        time.sleep(max(0.0, 0.05 - (time.monotonic() - began)))
    assert longest < 1
    whole = version_of(("\n".join(vim.lines) + "\n").encode())
    wait_until(lambda: [one.version for one in held(other, "big.txt")] == [whole], "the newest text")
    edit = [replace("big.txt", f"{9999:063}\n", "theirs\n")]
    assert other.apply(edit).files[0].unsaved == "merged"
    vim.until("vim.fn.search('^theirs$', 'nw') > 0")


def test_typing_and_edits_by_another_meet_without_a_loss(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    """Each line that was typed is in the buffer, each edit that was made is in the file, and both merge."""
    random, lines = Random(3), 40
    file = opened(vim, shared, "meeting.txt", "".join(f"line {number}\n" for number in range(1, lines + 1)))
    mine: dict[int, str] = {}
    theirs: dict[int, str] = {}
    for step in range(40):
        line = random.randint(1, lines)
        if random.random() < 0.5:
            if line not in theirs:
                mine[line] = f"mine {step}"
                vim.command(f"call setline({line}, 'mine {step}')")
            continue
        old = file.read_text().splitlines()[line - 1]
        try:
            other.apply([replace("meeting.txt", f"{old}\n", f"theirs {step}\n")])
        except Unsaved:
            assert line in mine
        else:
            if line in mine:  # the edit was before the hold
                vim.until("vim.b.editd_stale")
                vim.command(f"call setline({line}, 'theirs {step}')\nEditd merge")
                vim.until("not vim.b.editd_stale")
                del mine[line]
            theirs[line] = f"theirs {step}"
    wanted = [mine.get(line, theirs.get(line, f"line {line}")) for line in range(1, lines + 1)]
    vim.until("not vim.b.editd_stale")
    wait_until(lambda: vim.lines == wanted, f"both sides' lines, not {vim.lines}")
    vim.command("write")
    assert file.read_text().splitlines() == wanted
