"""The Neovim plugin, in a real headless Neovim with a real daemon."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from editd_client.locate import Workspace
from support.neovim import PLUGIN, PROGRAM, TEN, Neovim, NeovimError, environment, neovim, opened
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no nvim here (Debian's package: neovim)")


def marks_of(space: str) -> str:
    """Lua for the marks in the current buffer that are of one name space."""
    number = f"vim.api.nvim_create_namespace('{space}')"
    return f"vim.api.nvim_buf_get_extmarks(0, {number}, 0, -1, {{details = true}})"


def test_a_save_is_a_transaction_against_the_version_that_was_read(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = opened(vim, shared, "save.txt")
    read = vim.info["version"]
    assert read == shared.git("hash-object", "--no-filters", "save.txt").strip()
    vim.lines = ["changed", *vim.lines[1:]]
    vim.command("write")
    assert file.read_text() == TEN.replace("line 1\n", "changed\n")
    newest = other.log(limit=1).transactions[0]
    assert (newest.kind, newest.actor, newest.message) == ("edit", "nvim", "Save save.txt")
    assert (newest.files[0].base, newest.files[0].version) == (read, vim.info["version"])
    assert not vim.is_modified
    assert vim.lua("require('editd').statusline()") == f"editd:{newest.seq}"
    assert vim.said() == []


def test_what_others_write_comes_into_a_buffer_without_changes_and_the_cursor_stays(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    opened(vim, shared, "clean.txt")
    vim.command("normal! 8G3|\nnormal! 9Gma8G3|\nsplit\nnormal! 6G\nwincmd p")
    other.apply([replace("clean.txt", "line 2\n", "two\nand a half\n")], actor="claude")
    vim.until("vim.fn.getline(3) == 'and a half'")
    assert vim.lua("vim.api.nvim_win_get_cursor(0)") == [9, 2]
    assert vim.lua('vim.fn.line("\'a")') == 10
    assert vim.lua("vim.fn.getline('.')") == "line 8"
    assert vim.lua("vim.fn.getline(vim.fn.line('.', vim.fn.win_getid(1)))") == "line 6"
    assert not vim.is_modified
    shared.write({"clean.txt": TEN})  # a shell, without editd
    other.settle()
    vim.until("vim.fn.getline(2) == 'line 2'")
    vim.command("undo")
    assert vim.lines[1:3] == ["two", "and a half"]
    assert vim.is_modified
    vim.command("redo\nchecktime")
    assert vim.said() == []


def test_a_buffer_with_changes_is_marked_and_merges_what_has_come(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = opened(vim, shared, "dirty.txt")
    vim.command("call setline(9, 'mine')")
    seq = other.apply([replace("dirty.txt", "line 1\n", "theirs\n")], actor="claude").transaction
    assert seq is not None
    assert vim.until("vim.b.editd_stale") == f"has changed ({seq.seq} by claude)"
    assert vim.lines == TEN.replace("line 9", "mine").splitlines()
    assert vim.lua("require('editd').statusline()").endswith("!stale")
    marks = vim.lua(marks_of("editd"))
    assert marks[0][3]["virt_text"][0][0] == f"! has changed ({seq.seq} by claude)"
    assert ":Editd merge" in vim.said()[0]
    vim.command("Editd merge")
    vim.until("not vim.b.editd_stale")
    assert vim.lines == TEN.replace("line 1\n", "theirs\n").replace("line 9", "mine").splitlines()
    assert vim.is_modified
    vim.command("write")
    assert file.read_text() == "\n".join(vim.lines) + "\n"
    assert vim.lua("_G.asked") == []


def stale(vim: Neovim, place: Workplace, other: Client, name: str, theirs: str, mine: int) -> Path:
    """A buffer whose line `mine` is changed, of a file in which somebody changed the line `theirs`."""
    file = opened(vim, place, name)
    vim.command(f"call setline({mine}, 'mine')")
    other.apply([replace(name, theirs + "\n", "theirs\n")], actor="claude")
    vim.until("vim.b.editd_stale")
    vim.said()
    return file


def test_a_stale_save_is_refused_and_turning_away_leaves_everything_as_it_is(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = stale(vim, shared, other, "cancel.txt", "line 1", mine=5)
    before = vim.lines
    vim.command("write")
    asked = vim.lua("_G.asked")
    assert asked[0]["items"] == ["reload", "merge", "overwrite", "cancel"]
    assert asked[0]["shown"][0] == "Reload: drop your changes"
    assert "cancel.txt has changed since it was read (" in asked[0]["prompt"]
    assert " by claude)" in asked[0]["prompt"]
    assert vim.lines == before
    assert vim.is_modified
    assert file.read_text() == TEN.replace("line 1\n", "theirs\n")


def test_reload_drops_what_was_typed_and_undo_brings_it_back(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = stale(vim, shared, other, "reload.txt", "line 1", mine=5)
    vim.choose("reload")
    vim.command("write")
    vim.until("not vim.bo.modified")
    assert vim.lines == file.read_text().splitlines() == TEN.replace("line 1\n", "theirs\n").splitlines()
    vim.command("undo")
    assert vim.lines[4] == "mine"


def test_overwrite_saves_what_is_here_and_what_was_there_is_in_the_history(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = stale(vim, shared, other, "overwrite.txt", "line 1", mine=5)
    theirs = other.log(limit=1).transactions[0].seq
    vim.choose("overwrite")
    vim.command("write")
    assert not vim.is_modified
    assert file.read_text() == TEN.replace("line 5", "mine")
    assert other.read("overwrite.txt", at=theirs).content == TEN.replace("line 1\n", "theirs\n")


def test_a_write_with_a_bang_overwrites_without_asking(vim: Neovim, shared: Workplace, other: Client) -> None:
    file = stale(vim, shared, other, "bang.txt", "line 1", mine=5)
    vim.command("write!")
    assert not vim.is_modified
    assert file.read_text() == TEN.replace("line 5", "mine")
    assert vim.lua("_G.asked") == []


def test_a_merge_that_is_clean_is_saved_and_seen_in_the_buffer(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = stale(vim, shared, other, "merge.txt", "line 1", mine=5)
    vim.choose("merge")
    vim.command("write")
    both = TEN.replace("line 1\n", "theirs\n").replace("line 5", "mine")
    assert file.read_text() == both
    assert vim.lines == both.splitlines()
    assert not vim.is_modified
    assert vim.info["version"] == other.read("merge.txt").version


def test_a_merge_in_conflict_saves_nothing_and_marks_the_conflict_in_the_buffer(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = stale(vim, shared, other, "conflict.txt", "line 5", mine=5)
    vim.choose("merge")
    vim.command("write")
    vim.until("vim.fn.search('^=======$', 'n') > 0")
    marked = "<<<<<<< this buffer|mine|||||||| as it was read|line 5|=======|theirs|>>>>>>> the file"
    assert "|".join(vim.lines[4:11]) == marked
    assert vim.is_modified
    assert file.read_text() == TEN.replace("line 5", "theirs")
    assert "1 conflict is marked" in " ".join(vim.said())
    vim.command("5,11delete\ncall append(4, 'solved')\nwrite")
    assert file.read_text() == TEN.replace("line 5", "solved")
    assert vim.lua("#_G.asked") == 1


def test_a_write_with_unresolved_conflict_markers_asks_once(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = stale(vim, shared, other, "markers.txt", "line 5", mine=5)
    vim.choose("merge")
    vim.command("write")
    vim.until("vim.fn.search('^=======$', 'n') > 0")
    vim.choose(None)
    vim.command("write")
    asked = vim.lua("_G.asked")
    assert asked[-1]["items"] == ["save", "cancel"]
    assert "markers.txt has unresolved conflict markers" in asked[-1]["prompt"]
    assert file.read_text() == TEN.replace("line 5", "theirs")
    assert vim.is_modified
    vim.choose("save")
    vim.command("write")
    assert "<<<<<<< this buffer\n" in file.read_text()
    count = vim.lua("#_G.asked")
    vim.command("call append(0, 'more')\nwrite")
    assert file.read_text().startswith("more\n")
    assert vim.lua("#_G.asked") == count, "it asked twice"


def test_a_file_that_was_deleted_or_moved_is_told_and_can_be_written_anew(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = opened(vim, shared, "gone.txt")
    other.apply([{"op": "move", "path": "gone.txt", "to": "moved.txt"}], actor="claude")  # type: ignore[list-item]
    assert "was moved to moved.txt" in vim.until("vim.b.editd_stale")
    vim.command("write")
    assert vim.lua("_G.asked[1].items") == ["overwrite", "cancel"]
    assert not file.exists()
    vim.choose("overwrite")
    vim.command("write")
    assert file.read_text() == TEN
    file.unlink()
    other.settle()
    assert vim.until("vim.b.editd_stale").startswith("was deleted (")


def test_a_new_file_is_added_and_one_that_came_meanwhile_is_not_overwritten(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    vim.edit("new.txt")
    vim.lines = ["new"]
    vim.command("write")
    assert (shared.root / "new.txt").read_text() == "new\n"
    assert other.log(limit=1).transactions[0].files[0].change == "added"
    vim.command("call append(1, 'newer')\nwrite\nundo")
    assert (shared.root / "new.txt").read_text() == "new\nnewer\n"
    assert vim.lines == ["new"]
    assert vim.is_modified
    vim.command("write\nchecktime")
    vim.edit("newer.txt")
    vim.lines = ["mine"]
    other.apply([write("newer.txt", "theirs\n")])
    vim.until("vim.b.editd_stale")
    with pytest.raises(NeovimError, match="E13"):
        vim.command("write")
    assert (shared.root / "newer.txt").read_text() == "theirs\n"
    vim.command("write!")
    assert (shared.root / "newer.txt").read_text() == "mine\n"


BYTES = {
    "dos": b"one\r\ntwo\r\n",
    "dos-noeol": b"one\r\ntwo",
    "mixed": b"one\r\ntwo\n",
    "mac": b"one\rtwo\r",
    "noeol": b"one\ntwo",
    "latin1": b"caf\xe9\nna\xefve\n",
    "bom": b"\xef\xbb\xbfone\n",
    "utf16": "﻿einß\nzwei\n".encode("utf-16-le"),
    "nul": b"a\0b\n\0\n",
    "empty": b"",
    "newline": b"\n",
    "utf8": "grüß 漢字 🙂\n".encode(),
}


@pytest.mark.parametrize("name", BYTES)
def test_the_bytes_of_a_save_are_those_that_vim_itself_would_write(
    vim: Neovim, shared: Workplace, other: Client, name: str
) -> None:
    file = opened(vim, shared, f"format-{name}.txt", BYTES[name])
    vim.command("setlocal nofixendofline")
    assert vim.info["version"], vim.said()
    vim.command("write")
    assert file.read_bytes() == BYTES[name], "a save that changes nothing"
    vim.command(f"call append(0, 'added')\nsilent noautocmd write! {shared.folder}/vims-own\nwrite")
    assert file.read_bytes() == (shared.folder / "vims-own").read_bytes()
    assert other.log(limit=1).transactions[0].actor == "nvim"
    file.write_bytes(BYTES[name])
    other.settle()
    vim.until("vim.fn.getline(1) ~= 'added'")
    assert not vim.is_modified
    vim.command("write")
    assert file.read_bytes() == BYTES[name], "after it was read in again"


def test_bytes_that_vim_does_not_hold_are_left_to_vim(vim: Neovim, shared: Workplace) -> None:
    shared.write({"odd.txt": b"caf\xe9\n"})
    vim.command("edit ++enc=utf-8 ++bad=? odd.txt")
    assert vim.info == {}
    assert vim.lua("require('editd').statusline()") == ""


def test_every_way_to_write_does_what_it_does_without_editd(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    file = opened(vim, shared, "ways.txt")
    vim.command("call setline(1, 'a')")
    vim.command(f"write {shared.folder}/elsewhere\nwrite beside.txt")
    assert (shared.folder / "elsewhere").read_text() == (shared.root / "beside.txt").read_text()
    assert vim.is_modified
    assert file.read_text() == TEN
    with pytest.raises(NeovimError, match="E13"):
        vim.command("write beside.txt")
    vim.command("2,3write part.txt\n4write >> part.txt\n1write !cat > piped.txt")
    assert (shared.root / "part.txt").read_text() == "line 2\nline 3\nline 4\n"
    assert (shared.root / "piped.txt").read_text() == "a\n"
    vim.command("write ++ff=dos")
    assert file.read_bytes().startswith(b"a\r\nline 2\r\n")
    vim.command("saveas ways2.txt\ncall setline(1, 'b')\nwrite")
    assert (shared.root / "ways2.txt").read_text() == TEN.replace("line 1\n", "b\n")
    assert other.log(limit=1, actor="nvim").transactions[0].files[0].path == "ways2.txt"
    vim.command("saveas! beside.txt\ncall setline(2, 'b2')\nwrite\ncall setline(2, 'b3')\nwrite")
    assert (shared.root / "beside.txt").read_text().startswith("b\nb3\nline 3\n")
    assert other.log(limit=1, actor="nvim").transactions[0].files[0].path == "beside.txt"
    (shared.root / "link.txt").symlink_to("beside.txt")
    vim.command("edit link.txt\ncall setline(2, 'b4')\nwrite")
    assert (shared.root / "link.txt").is_symlink()
    assert (shared.root / "beside.txt").read_text().startswith("b\nb4\nline 3\n")
    vim.command("edit ways2.txt\nsplit\ncall setline(1, 'c')\nwq")
    assert (shared.root / "ways2.txt").read_text().startswith("c\n")
    assert vim.lua("#vim.api.nvim_list_wins()") == 1
    vim.command("edit all1.txt\ncall setline(1, 'x')\nedit all2.txt\ncall setline(1, 'y')\nwall")
    assert [(shared.root / f"all{n}.txt").read_text() for n in (1, 2)] == ["x\n", "y\n"]
    made = [t.files[0].path for t in other.log(limit=2, actor="nvim").transactions]
    assert sorted(made) == ["all1.txt", "all2.txt"]
    vim.command("split\nupdate\ncall setline(1, 'z')\nx")
    assert (shared.root / "all2.txt").read_text() == "z\n"


def test_autocommands_of_a_write_run_and_may_change_the_text(vim: Neovim, shared: Workplace) -> None:
    file = opened(vim, shared, "auto.txt")
    vim.command(
        "augroup test\n"
        "autocmd BufWritePre *.txt let g:before = expand('<afile>:t') | call setline(2, 'formatted')\n"
        "autocmd BufWritePost *.txt let g:after = expand('<afile>:t')\naugroup END"
    )
    vim.command("call setline(1, 'x')\nwrite")
    vim.command("autocmd! test")
    assert file.read_text().startswith("x\nformatted\n")
    assert vim.lua("{vim.g.before, vim.g.after}") == ["auto.txt", "auto.txt"]
    assert not vim.is_modified
    vim.command("undo")
    assert vim.is_modified, "what is older than the save counts as changed"


def test_wq_of_a_stale_buffer_does_not_lose_it(vim: Neovim, shared: Workplace, other: Client) -> None:
    stale(vim, shared, other, "quit.txt", "line 1", mine=5)
    for hidden in ("hidden", "nohidden"):
        vim.command(f"set {hidden}\nsplit")
        vim.command("silent! wq")
        assert vim.lua("vim.api.nvim_buf_get_lines(vim.fn.bufnr('quit.txt'), 4, 5, false)[1]") == "mine"
        assert vim.lua("vim.bo[vim.fn.bufnr('quit.txt')].modified")
        vim.command("only!")
    vim.command("edit! README\nset nohidden\nsplit quit.txt\ncall setline(5, 'mine')")
    vim.until("vim.bo.modified")
    vim.command("set hidden")


def test_undo_redo_and_rollback_come_from_the_daemon_into_the_buffer(
    vim: Neovim, shared: Workplace, other: Client
) -> None:
    opened(vim, shared, "undone.txt")
    made = other.apply(
        [replace("undone.txt", "line 1\n", "theirs\n")], actor="claude", session="agent"
    ).transaction
    assert made is not None
    vim.until("vim.fn.getline(1) == 'theirs'")
    vim.command("call setline(9, 'mine')\nwrite")
    vim.command(f"Editd undo {made.seq}")
    vim.until("vim.fn.getline(1) == 'line 1'")
    assert vim.lines[8] == "mine", "what came later stays"
    vim.command("Editd redo")
    vim.until("vim.fn.getline(1) == 'theirs'")
    assert "agent" in vim.lua("vim.fn.getcompletion('Editd rollback ', 'cmdline')")
    vim.command("Editd rollback agent")
    vim.until("vim.fn.getline(1) == 'line 1'")
    vim.until("#_G.said == 3")
    undone, redone, back = vim.said()
    assert undone.startswith(f"editd: undone {made.seq} as ")
    assert undone.endswith(": undone.txt")
    assert redone.startswith("editd: redone as ")
    assert back.startswith("editd: session agent rolled back as ")
    over = other.apply([replace("undone.txt", "line 1\n", "L1\n")]).transaction
    assert over is not None
    other.apply([replace("undone.txt", "L1\n", "last\n")])
    vim.command(f"Editd undo {over.seq}")
    vim.until("#_G.said > 0")
    (refused,) = vim.said()
    assert "use :Editd! with the same command" in refused
    assert "on_conflict" not in refused
    vim.command("Editd undo 999999")
    vim.until("#_G.said > 0")
    assert "999999" in vim.said()[0]
    vim.command("Editd nonsense\nEditd undo what")
    assert ["there is no :Editd nonsense" in said for said in vim.said()] == [True, False]


def test_log_show_diff_and_blame_are_shown_in_buffers(vim: Neovim, shared: Workplace, other: Client) -> None:
    opened(vim, shared, "seen.txt")
    made = other.apply(
        [replace("seen.txt", "line 2\n", "two\n")], actor="claude", message="Say two"
    ).transaction
    assert made is not None
    vim.until("vim.fn.getline(2) == 'two'")
    vim.command("Editd log")
    vim.until("vim.bo.filetype == 'editdlog'")
    assert vim.lines[0].split()[0] == str(made.seq)
    assert "claude" in vim.lines[0]
    assert vim.lines[0].endswith("Say two")
    assert not vim.lua("vim.bo.modifiable")
    vim.call("nvim_input", "<CR>")
    vim.until("vim.bo.filetype == 'diff'")
    assert {"-line 2", "+two"} <= set(vim.lines)
    vim.command("only\nedit seen.txt\ncall setline(4, 'typed')\nEditd blame")
    vim.until("vim.bo.filetype == 'editdblame'")
    assert vim.lines[1].split()[0] == str(made.seq)
    assert vim.lines[1].endswith("claude")
    assert vim.lines[3].strip() == "not saved"
    assert len(vim.lines) == 10
    vim.command(f"only\nedit! seen.txt\nEditd diff {made.seq - 1}")
    vim.until("vim.bo.filetype == 'diff'")
    assert "+two" in vim.lines
    vim.command("Editd status")
    vim.until("#_G.said > 0")
    assert f"is at transaction {made.seq}" in vim.said()[0]
    assert vim.lua("vim.fn.getcompletion('Editd b', 'cmdline')") == ["blame"]
    assert vim.lua("vim.fn.getcompletion('Editd undo ', 'cmdline')")[0] == str(made.seq)


def test_who_changed_what_stands_at_the_ends_of_lines(vim: Neovim, shared: Workplace, other: Client) -> None:
    opened(vim, shared, "annotated.txt")
    vim.command("call setline(8, 'mine')\nwrite\nEditd annotate")
    made = other.apply(
        [replace("annotated.txt", "line 2\nline 3\n", "two\nthree\n")], actor="claude", session="agent"
    ).transaction
    assert made is not None
    marks = marks_of("editd_annotate")
    vim.until(f"vim.inspect({marks}):find('claude')")
    told = {mark[1]: mark[3]["virt_text"][0][0] for mark in vim.lua(marks)}
    assert told[1] == f"▎ claude/agent now · {made.seq}"
    assert {2, 7}.isdisjoint(told), "each run once, and not what we wrote ourselves"
    vim.command("Editd annotate")
    assert vim.lua(marks) == []


def test_checkhealth_says_how_things_are(vim: Neovim, shared: Workplace) -> None:
    opened(vim, shared, "healthy.txt")
    vim.command("silent checkhealth editd")
    report = "\n".join(vim.lines)
    assert "is ready, at transaction" in report
    assert "healthy.txt is saved through editd" in report
    assert "ERROR" not in report


def test_the_help_file_has_the_tags_that_are_spoken_of(vim: Neovim, tmp_path: Path) -> None:
    copy = tmp_path / "doc"
    shutil.copytree(PLUGIN / "doc", copy)
    vim.command(f"helptags {copy}\nset runtimepath^={tmp_path}\nhelp editd")
    assert vim.lua("vim.fn.expand('%:t')") == "editd.txt"
    page = "\n".join(vim.lines)
    tags = {line.split("\t")[0] for line in (copy / "tags").read_text().splitlines()}
    known = "vim.tbl_contains(vim.fn.getcompletion(..., 'help'), (...)) and 'known'"
    for tag in set(re.findall(r"\|(\S+)\|", page)):
        assert vim.lua(known, tag) == "known", tag
    verbs = vim.lua("vim.fn.getcompletion('Editd ', 'cmdline')")
    assert {f":Editd-{verb}" for verb in verbs} <= tags
    settings = vim.lua("vim.tbl_keys(require('editd.config').defaults)")
    assert all(f"    {name} = " in page for name in [*settings, "session"])


def test_what_a_formatter_of_the_workspace_made_of_it_is_in_the_buffer_and_a_check_refuses(
    vim: Neovim, shared: Workplace
) -> None:
    # A hook is a process, or two.
    vim.command("lua require('editd').setup{merge = 'ask', wait_milliseconds = 15000}")
    file = opened(vim, shared, "text.loud")
    vim.command("call setline(1, 'mine')\nwrite")
    assert file.read_text() == TEN.replace("line 1\n", "mine\n").upper()
    assert vim.lines == file.read_text().splitlines()
    assert not vim.is_modified
    vim.command("call setline(2, 'more')\nwrite")
    assert vim.lines[1] == "MORE"
    file = opened(vim, shared, "text.never")
    vim.said()
    vim.command("call setline(1, 'mine')\nwrite")
    assert vim.is_modified
    assert file.read_text() == TEN
    assert "text.never is not saved" in vim.said()[1]


def test_what_is_not_editds_is_written_by_vim(vim: Neovim, shared: Workplace, other: Client) -> None:
    head = other.status().head
    vim.edit(shared.folder / "outside.txt")
    vim.lines = ["outside"]
    vim.command("write")
    assert (shared.folder / "outside.txt").read_text() == "outside\n"
    assert vim.info == {}
    vim.edit(shared.root / ".git" / "COMMIT_EDITMSG")
    vim.lines = ["a message"]
    vim.command("write")
    assert vim.info == {}
    assert other.status().head == head
    vim.command("let g:editd_enabled = 0")
    vim.edit("optout.txt")
    assert vim.info == {}
    vim.command("unlet g:editd_enabled")
    assert vim.said() == []


LONELY = "require('editd').setup{start = false, wait_milliseconds = 200}"


@pytest.fixture
def alone(place: Workplace) -> Iterator[Neovim]:
    """An editor whose daemon is there to be stopped and killed, and that starts none itself."""
    place.git("init", "-q")
    place.write({"text.txt": TEN})
    place.start().close()
    with neovim(place, LONELY) as editor:
        editor.edit("text.txt")
        editor.until("require('editd').info().connection == 'ready'")
        yield editor
    place.end()


def signalled(place: Workplace, what: signal.Signals) -> None:
    assert place.process is not None
    place.process.send_signal(what)


def test_a_daemon_that_stands_still_stops_neither_typing_nor_timers_and_no_text_is_lost(
    alone: Neovim, place: Workplace
) -> None:
    file = place.root / "text.txt"
    alone.command("let g:ticks = 0 | call timer_start(10, {-> execute('let g:ticks += 1')}, {'repeat': -1})")
    signalled(place, signal.SIGSTOP)
    alone.command("call setline(1, 'first')")
    alone.command("let g:ticks = 0")
    began = time.monotonic()
    alone.command("write")
    assert time.monotonic() - began < 5
    assert alone.lua("vim.g.ticks") > 5, "timers went on while the write waited"
    assert "is not saved yet" in alone.said()[0]
    assert alone.is_modified
    assert alone.lua("require('editd').statusline()").endswith(" saving")
    alone.command("silent! wq")
    assert alone.is_modified, "it is still there"
    assert "is not answered yet" in alone.said()[0]
    alone.call("nvim_input", "Gotyped<Esc>")
    alone.until("vim.fn.getline('$') == 'typed'")
    signalled(place, signal.SIGCONT)
    alone.until("not require('editd').info().saving")
    assert file.read_text() == TEN.replace("line 1\n", "first\n")
    assert alone.is_modified, "what was typed since is not saved"
    assert not alone.info.get("stale")
    alone.command("write")
    alone.until("not vim.bo.modified")
    assert file.read_text() == TEN.replace("line 1\n", "first\n") + "typed\n"

    signalled(place, signal.SIGSTOP)
    alone.command("call setline(2, 'second')\nwrite\nwrite!")
    assert "second" in file.read_text(), "Vim wrote it"
    assert not alone.is_modified
    signalled(place, signal.SIGCONT)
    with place.client() as client:
        client.settle()
        assert client.log(limit=1).transactions[0].kind in {"outside", "edit"}
    assert file.read_text() == "\n".join(alone.lines) + "\n"


def test_without_a_daemon_vim_writes_asks_before_it_overwrites_and_is_back_with_the_next(
    alone: Neovim, place: Workplace
) -> None:
    file = place.root / "text.txt"
    signalled(place, signal.SIGSTOP)
    alone.command("call setline(1, 'cut')\nwrite")
    assert alone.is_modified
    alone.said()
    place.kill()
    alone.until("#_G.said > 0")
    assert "text.txt is not saved: No editd answers" in alone.said()[0]
    assert alone.is_modified
    assert alone.lua("require('editd').statusline()") == "editd:off"
    alone.command("call setline(1, 'one')\nwrite\ncall setline(2, 'two')\nwrite")
    assert file.read_text() == TEN.replace("line 1\n", "one\n").replace("line 2\n", "two\n")
    assert not alone.is_modified
    assert [
        said.startswith("editd: Vim writes without editd: No editd answers") for said in alone.said()
    ] == [True]
    file.write_text("theirs\n")
    alone.command("call setline(3, 'three')\nwrite")
    assert alone.lua("_G.asked[1].items") == ["reload", "overwrite", "cancel"]
    assert file.read_text() == "theirs\n"
    assert alone.is_modified
    alone.choose("overwrite")
    alone.command("write")
    ours = "\n".join(alone.lines) + "\n"
    assert file.read_text() == ours
    alone.command(
        "call setline(4, 'four')\nlua require('editd').setup{start = false, fallback = false}\nwrite"
    )
    assert alone.is_modified, "where Vim is not to write, it does not"
    assert file.read_text() == ours
    with place.start() as client:
        alone.command("write")
        alone.until("not vim.bo.modified")
        assert client.log(limit=1).transactions[0].actor == "nvim"
        client.apply([replace("text.txt", "one\n", "after\n")])
        alone.until("vim.fn.getline(1) == 'after'")


def test_however_saves_and_others_meet_nothing_that_was_saved_is_lost(
    alone: Neovim, place: Workplace, is_long: bool
) -> None:
    """What a save has answered for is in the history, and a buffer without changes is what its file is."""
    random, file, written = Random(1), place.root / "text.txt", ["typed0"]
    alone.command("call setline(1, 'typed0')\nwrite")
    alone.until("not require('editd').info().saving")
    for step in range(1, 401 if is_long else 13):
        theirs, mine, line = f"theirs{step}", f"typed{step}", random.randint(1, 10)
        is_killed = is_long and random.random() < 0.04
        if is_killed:
            place.kill()
        if random.random() < 0.3:  # a shell
            lines = file.read_text().splitlines()
            file.write_text("\n".join([*lines[: line - 1], theirs, *lines[line:]]) + "\n")
            written.append(theirs)
        if is_killed:
            place.start().close()
        if random.random() < 0.7:
            alone.call("nvim_buf_set_lines", 0, line, line + 1, False, [mine])
        with place.client() as client:
            if random.random() < 0.6:
                now = client.read("text.txt")
                lines = [*str(now.content).splitlines(), theirs + "!"]
                del lines[random.randrange(len(lines) - 1)]
                client.apply([write("text.txt", "\n".join(lines) + "\n", base=now.version, force=False)])
                written.append(theirs + "!")
            if random.random() < 0.3:
                alone.command("sleep 5m")  # what the others did is noticed, or not yet
            choice = random.choice(["merge", "overwrite", "reload", None])
            alone.choose(choice)
            alone.command("write!" if random.random() < 0.1 else "write")
            alone.until("not require('editd').info().saving")
            if alone.lua("vim.fn.search('^<<<<<<< ', 'n') > 0") or random.random() < 0.2:
                alone.command("Editd reload")
                alone.until("not vim.bo.modified")
            client.settle()
        if not alone.is_modified:
            same = f"require('editd.codec').read('{file}')"
            alone.until(f"table.concat(vim.fn.getline(1, '$'), '\\n') .. '\\n' == {same}")
            written.extend(line for line in alone.lines if line.startswith("typed"))
    place.stop()
    history = place.git("log", "-p", "-U0", "--all", store=True)
    assert [token for token in set(written) if f"\n+{token}\n" not in history] == []
    assert len(set(written)) > (400 if is_long else 10)


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "EDITD_SOCKET"])
@pytest.mark.parametrize("value", ["", "run", "/run/elsewhere"])
def test_the_socket_is_looked_for_where_editctl_looks(
    vim: Neovim, shared: Workplace, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shared.root)
    for name in ("EDITD_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    found = vim.lua(
        "local name, value = ...; local runtime = vim.env.XDG_RUNTIME_DIR; vim.env.XDG_RUNTIME_DIR = nil\n"
        "vim.env[name] = value; local socket = require('editd.workspace').socket('/w')\n"
        "vim.env.EDITD_SOCKET, vim.env.XDG_RUNTIME_DIR = nil, runtime; return socket",
        variable, value,
    )  # fmt: skip
    assert found == Workspace("/w", "named").socket_path


@pytest.mark.parametrize("tree", ["submodule", "linked worktree"])
def test_a_save_in_a_tree_inside_goes_to_the_daemon_that_owns_the_file(place: Workplace, tree: str) -> None:
    place.git("init", "-q")
    place.write({"inner/text.txt": TEN})
    kind = "modules" if tree == "submodule" else "worktrees"
    git = place.root / ".git" / kind / "inner"
    git.mkdir(parents=True)
    (place.root / "inner/.git").write_text(f"gitdir: {git}\n")
    if tree != "submodule":
        (git / "commondir").write_text("../..\n")
    try:
        with (
            place.start() as client,
            neovim(place, "require('editd').setup{wait_milliseconds = 15000}") as editor,
        ):
            editor.edit("inner/text.txt")
            editor.command("call setline(1, 'x')\nwrite")
            client.settle()
            made = [one.files[0].path for one in client.log(actor="nvim").transactions]
            assert made == (["inner/text.txt"] if tree == "submodule" else [])
        if tree != "submodule":
            done = place.editctl("log", "--actor", "nvim", "--json", folder="inner")
            assert [one["files"][0]["path"] for one in json.loads(done.stdout)["transactions"]] == [
                "text.txt"
            ]
    finally:
        if tree != "submodule":
            place.editctl("stop", folder="inner")


def test_a_daemon_is_started_where_none_answers(place: Workplace) -> None:
    place.git("init", "-q")
    place.write({"text.txt": TEN})
    try:
        with neovim(place, "require('editd').setup{wait_milliseconds = 15000}") as editor:
            editor.edit("text.txt")
            editor.command("call setline(1, 'x')\nwrite")
            assert not editor.is_modified
            with place.client() as client:
                assert client.log(limit=1).transactions[0].actor == "nvim"
                pid = client.status().pid
            os.kill(pid, signal.SIGSTOP)
            editor.command("lua require('editd').setup{wait_milliseconds = 50}")
            editor.command("call setline(1, 'z')\nwrite")
            assert editor.is_modified
            os.kill(pid, signal.SIGKILL)
            editor.until("not vim.bo.modified")  # the same request, to the next daemon
            editor.end()
        with place.client() as client:
            made = [t.files[0].path for t in client.log(actor="nvim").transactions]
            assert made == ["text.txt"] * 2, "each once, and the daemon outlives the editor"
        assert (place.root / "text.txt").read_text() == TEN.replace("line 1\n", "z\n")
    finally:
        subprocess.run(["editctl", "-C", str(place.root), "stop"], env=environment(place), check=True)


def test_a_socket_of_another_workspace_leads_no_save_there(place: Workplace) -> None:
    place.write({"text.txt": TEN})
    another = place.folder / "another"
    (another / ".git").mkdir(parents=True)
    (another / "text.txt").write_text("theirs\n")
    setup = f"vim.env.EDITD_SOCKET = '{place.socket}'"
    with place.start() as client, neovim(place, setup) as editor:
        editor.edit(another / "text.txt")
        editor.command("call setline(1, 'mine')\nwrite")
        assert (another / "text.txt").read_text() == "mine\n"
        why = f"No editd answers: the daemon at EDITD_SOCKET serves {place.root}, not {another}"
        assert [said.startswith(f"editd: Vim writes without editd: {why}") for said in editor.said()] == [
            True
        ]
        assert client.log(actor="nvim").transactions == []
        editor.end()
    assert place.files()["text.txt"] == TEN.encode()
