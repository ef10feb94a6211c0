"""Reviewing in Neovim: proposals side by side, unreviewed lines, hunks, and the log as it grows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from editd.config.paths import review_socket_path
from support.neovim import PLUGIN, PROGRAM, TEN, Neovim, neovim, opened
from support.reviewers import PIN, configure, set_pin
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from editd.wire import messages
    from editd_client.client import Client
    from support.workplace import Workplace

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no nvim here (Debian's package: neovim)"),
    pytest.mark.usefixtures("defaults"),
]
AUTHOR = {
    f"GIT_{who}_{what}": "ann@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
SIGNS = "vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('editd_unreviewed'), 0, -1, {})"


@pytest.fixture
def agent(shared: Workplace) -> Iterator[Client]:
    """An author in a session, whose process is kin of the editor's."""
    set_pin(shared)
    with shared.client() as client:
        client.session_open("agent", actor="claude")
        yield client
        client.session_close("agent")


def proposed(agent: Client, edits: Sequence[Any], message: str = "Slow networks") -> int:
    made = agent.apply(edits, propose=True, message=message).proposal
    assert not isinstance(made, int)
    assert made
    number: int | None = made.proposal
    assert number is not None
    return number


def shown(vim: Neovim, number: int, path: str) -> None:
    """Press <CR> on the entry of the quickfix list, and wait for both sides."""
    vim.command("Editd proposals")
    vim.until("vim.bo.buftype == 'quickfix'")
    vim.command(f"call search('{path}')")
    vim.call("nvim_input", "<CR>")
    vim.until(f"vim.fn.expand('%') == 'editd://proposal/{number}/{path}'")


def state_of(agent: Client, number: int) -> messages.ProposalGetResult:
    found: messages.ProposalGetResult = agent.proposal_get(number)
    return found


def test_a_proposal_is_shown_side_by_side_and_lands_with_the_reviewers_text(
    vim: Neovim, shared: Workplace, agent: Client
) -> None:
    file = opened(vim, shared, "landed.txt")
    edits = [replace("landed.txt", "line 2\n", "two\n"), replace("landed.txt", "line 9\n", "nine\n")]
    number = proposed(agent, edits)
    vim.until("require('editd').statusline():find('1 proposal', 1, true)")
    vim.command("Editd proposals")
    vim.until("vim.bo.buftype == 'quickfix'")
    assert f"{number} by claude/agent: Slow networks (+2 -2)" in vim.lines[0]
    vim.command("cclose")
    vim.command("call setline(1, 'typed')")
    shown(vim, number, "landed.txt")
    assert "landed.txt has changes here that are not saved" in vim.said()[-1]
    assert vim.lua("#vim.api.nvim_list_tabpages()") == 2
    assert vim.lua("vim.wo.diff")
    assert vim.lines == TEN.replace("line 2\n", "two\n").replace("line 9\n", "nine\n").splitlines()
    vim.command("2\ndiffget\ncall setline(9, 'neun')")
    assert vim.lines[1] == "line 2"
    vim.lua("_G.pin = ... return true", PIN)
    vim.command("Editd approve Only the ninth")
    vim.until("#vim.api.nvim_list_tabpages() == 1")
    assert file.read_text() == TEN.replace("line 9", "neun")
    landed = agent.log(limit=1).transactions[0]
    assert f"editd: proposal {number} has landed as {landed.seq}" in vim.said()[-2:]  # the event may be later
    assert (landed.actor, landed.modified) == ("claude", True)
    assert state_of(agent, number).decisions[-1].comment == "Only the ninth"
    vim.command("cclose")
    vim.until("not require('editd').statusline():find('proposal')")
    vim.until("vim.fn.getline(9) == 'neun'")
    assert vim.lines[0] == "typed"


def test_all_files_are_shown_before_a_proposal_lands_unasked_and_a_rejection_says_why(
    vim: Neovim, shared: Workplace, agent: Client
) -> None:
    opened(vim, shared, "first.txt")
    number = proposed(agent, [replace("first.txt", "line 1\n", "1\n"), write("second.txt", "new\n")])
    vim.lua("_G.pin = ... return true", PIN)
    vim.command("Editd next")
    vim.until(f"vim.fn.expand('%') == 'editd://proposal/{number}/first.txt'")
    vim.command("Editd approve")
    assert vim.lua("_G.asked")[-1]["prompt"] == "1 file has not been shown:"
    assert state_of(agent, number).state == "open"
    vim.command("Editd next")
    assert vim.lua("vim.fn.expand('%')") == f"editd://proposal/{number}/second.txt"
    assert vim.lines == ["new"]
    vim.command("Editd reject Use the helper")
    vim.until("#vim.api.nvim_list_tabpages() == 1")
    rejected = state_of(agent, number)
    assert (rejected.state, rejected.decisions[-1].comment) == ("rejected", "Use the helper")
    assert "second.txt" not in shared.files()
    vim.command("Editd approve")
    assert "this tab shows no proposal" in vim.said()[-1]


def test_a_proposal_that_has_changed_since_it_was_shown_does_not_land(
    vim: Neovim, shared: Workplace, agent: Client, other: Client
) -> None:
    file = opened(vim, shared, "moved-on.txt")
    number = proposed(agent, [replace("moved-on.txt", "line 5\n", "five\n")])
    shown(vim, number, "moved-on.txt")
    other.apply([replace("moved-on.txt", "line 5\n", "theirs\n")])
    vim.lua("_G.pin = ... return true", PIN)
    vim.command("Editd approve")
    vim.until("#_G.said > 0")
    assert file.read_text() == TEN.replace("line 5", "theirs")
    vim.until(
        "vim.fn.getbufline('editd://proposal/' .. ... .. '/now/moved-on.txt', 5)[1] == 'theirs'", number
    )
    vim.command("Editd reject")
    vim.until("#vim.api.nvim_list_tabpages() == 1")


def test_decisions_use_the_reviewers_own_socket(place: Workplace) -> None:
    place.git("init", "-q")
    place.write({"text.txt": TEN})
    set_pin(place)
    configure(place, '[review]\nsocket = "own"\ndefault = "ask"\n')
    with place.start() as client, neovim(place, "require('editd').setup{start = false}") as editor:
        client.session_open("agent", actor="claude")
        number = proposed(client, [replace("text.txt", "line 1\n", "one\n")])
        editor.edit("text.txt")
        editor.until("require('editd').info().connection == 'ready'")
        shown(editor, number, "text.txt")
        editor.lua("_G.pin = ... return true", PIN)
        editor.command("Editd approve")
        editor.until("#vim.api.nvim_list_tabpages() == 1")
        assert (place.root / "text.txt").read_text() == TEN.replace("line 1\n", "one\n")
        landed = client.log(limit=1).transactions[0]
        assert landed.approved_by
        editor.said()
        editor.command(f"Editd undo {landed.seq}")
        editor.until("#_G.said > 0")
        assert editor.said() == [f"editd: undone {landed.seq} waits as proposal 2"]
        editor.end()
    place.stop()


def test_what_only_the_owner_may_take_back_goes_to_the_reviewers_socket(place: Workplace) -> None:
    place.git("init", "-q")
    place.write({"text.txt": TEN})
    configure(place, '[review]\nsocket = "own"\n')
    with place.start() as client, neovim(place, "require('editd').setup{start = false}") as editor:
        client.session_open("agent", actor="claude")
        made = client.apply([replace("text.txt", "line 1\n", "one\n")]).transaction
        client.apply([replace("text.txt", "line 2\n", "two\n")])
        assert made is not None
        editor.edit("text.txt")
        editor.until("require('editd').info().connection == 'ready'")
        editor.command(f"Editd undo {made.seq}")
        editor.until("vim.fn.getline(1) == 'line 1'")
        assert editor.said()[-1].startswith(f"editd: undone {made.seq} as ")
        editor.command("Editd rollback agent")
        editor.until("vim.fn.getline(2) == 'line 2'")
        assert (place.root / "text.txt").read_text() == TEN
        editor.end()
    place.stop()


def test_without_the_reviewers_socket_in_reach_the_refusal_is_told(place: Workplace) -> None:
    place.git("init", "-q")
    place.write({"text.txt": TEN})
    configure(place, '[review]\nsocket = "own"\n')
    with place.start() as client, neovim(place, "require('editd').setup{start = false}") as editor:
        client.session_open("agent", actor="claude")
        made = client.apply([replace("text.txt", "line 1\n", "one\n")]).transaction
        assert made is not None
        os.rename(review_socket_path(place.socket), f"{place.socket}.away")
        editor.edit("text.txt")
        editor.until("require('editd').info().connection == 'ready'")
        editor.command(f"Editd undo {made.seq}")
        editor.until("table.concat(_G.said):find('Only the owner may take back', 1, true) ~= nil")
        assert (place.root / "text.txt").read_text() == TEN.replace("line 1\n", "one\n")
        editor.end()
    place.stop()


def test_unreviewed_lines_have_signs_until_a_person_has_seen_them(
    vim: Neovim, shared: Workplace, agent: Client
) -> None:
    opened(vim, shared, "signs.txt")
    edits = [
        replace("signs.txt", "line 2\nline 3\n", "two\nthree\n"),
        replace("signs.txt", "line 8\n", "8\n"),
    ]
    made = agent.apply(edits).transaction
    assert made is not None
    vim.until(f"#{SIGNS} == 3")
    assert [mark[1] for mark in vim.lua(SIGNS)] == [1, 2, 7]
    vim.command("normal gg]e")
    assert vim.lua("vim.fn.line('.')") == 2
    vim.command("normal ]e")
    assert vim.lua("vim.fn.line('.')") == 8
    vim.command("normal [e")
    assert vim.lua("vim.fn.line('.')") == 2
    vim.lua("_G.pin = ... return true", PIN)
    vim.command("Editd reviewed")
    vim.until(f"#{SIGNS} == 0")
    assert vim.said() == [f"editd: reviewed: {made.seq}"]
    assert agent.log(path="signs.txt", unreviewed=True).transactions == []
    vim.command("call setline(1, 'mine')\nwrite\nEditd reviewed")
    assert vim.said() == ["editd: no line of this buffer is unreviewed"]


def test_one_hunk_is_undone_at_the_cursor(vim: Neovim, shared: Workplace, agent: Client) -> None:
    file = opened(vim, shared, "hunk.txt")
    first = agent.log(path="hunk.txt", limit=1).transactions[0].seq
    agent.apply([replace("hunk.txt", "line 2\n", "two\n"), replace("hunk.txt", "line 8\n", "eight\n")])
    vim.until("vim.fn.getline(8) == 'eight'")
    vim.command("8\nEditd undo-hunk")
    vim.until("vim.fn.getline(8) == 'line 8'")
    assert file.read_text() == TEN.replace("line 2\n", "two\n")
    vim.said()
    vim.command("5\nEditd undo-hunk")
    vim.until("#_G.said > 0")
    assert vim.said() == [
        f"editd: Transaction {first} has made the whole file. :Editd undo {first} undoes it."
    ]


def test_the_log_grows_a_transaction_can_be_picked_and_an_autocommand_runs(
    vim: Neovim, shared: Workplace, agent: Client
) -> None:
    opened(vim, shared, "grows.txt")
    vim.command("let g:told = 0\naugroup told\nautocmd User EditdTransaction let g:told += 1\naugroup END")
    vim.command("Editd log")
    vim.until("vim.bo.filetype == 'editdlog'")
    made = agent.apply([replace("grows.txt", "line 1\n", "one\n")], message="It grows").transaction
    assert made is not None
    vim.until("vim.fn.getline(1):find('It grows')")
    assert not vim.lua("vim.bo.modifiable")
    assert vim.lua("vim.g.told") == 1
    vim.command("autocmd! told\nclose")
    vim.lua("_G.choose_first = true return true")
    vim.command("Editd pick %")
    vim.until("vim.bo.filetype == 'diff'")
    vim.lua("_G.choose_first = nil return true")
    assert {"-line 1", "+one"} <= set(vim.lines)


# Neither plugin can be installed here. These stand-ins have the documented functions that pickers.lua calls.
# They answer as a user who previews the first entry and takes it. What the real plugins do is not tested.
TELESCOPE = """
local chosen
local default = { replace = function(self, act) self.act = act end }
local actions = { close = function() end, select_default = default }
package.loaded['telescope.actions'] = actions
package.loaded['telescope.actions.state'] = { get_selected_entry = function() return chosen end }
package.loaded['telescope.config'] = { values = { generic_sorter = function() return {} end } }
package.loaded['telescope.finders'] = { new_table = function(given) return given end }
package.loaded['telescope.previewers'] = { new_buffer_previewer = function(given) return given end }
package.loaded['telescope.pickers'] = { new = function(_, options)
  return { find = function()
    _G.title, _G.preview = options.prompt_title, vim.api.nvim_create_buf(false, true)
    chosen = options.finder.entry_maker(options.finder.results[1])
    _G.display = chosen.display
    options.previewer.define_preview({ state = { bufnr = _G.preview } }, chosen)
    assert(options.attach_mappings(1))
    _G.take = default.act
  end }
end }
return true
"""
FZF_LUA = """
local base = {}
base.__index = base
function base:extend()
  local class = setmetatable({ super = base }, base)
  class.__index = class
  return class
end
function base:new() return self end
function base:get_tmp_buffer() return vim.api.nvim_create_buf(false, true) end
function base:set_preview_buf(buf) _G.preview = buf end
package.loaded['fzf-lua.previewer.builtin'] = { base = base }
package.loaded['fzf-lua'] = { fzf_exec = function(lines, options)
  _G.title, _G.display = options.prompt:gsub('> ', ''), lines[1]:match('\t(.*)')
  options.previewer.new(setmetatable({}, options.previewer)):populate_preview_buf(lines[1])
  _G.take = function() options.actions.default({ lines[1] }) end
end }
return true
"""
FORGET = """
for name in pairs(package.loaded) do
  if name:match('^telescope') or name:match('^fzf') then package.loaded[name] = nil end
end
return true
"""


@pytest.mark.parametrize("finder", ["telescope", "fzf-lua"])
def test_transactions_sessions_and_proposals_are_picked_in_telescope_and_fzf_lua(
    vim: Neovim, shared: Workplace, agent: Client, finder: str
) -> None:
    name = f"picked-{finder}.txt"
    opened(vim, shared, name)
    agent.apply([replace(name, "line 1\n", "one\n")], message="To be picked")
    number = proposed(agent, [replace(name, "line 3\n", "three\n")])
    vim.lua(TELESCOPE if finder == "telescope" else FZF_LUA)
    try:
        for pick, title, label, preview in (
            ("log %", "Transactions", r"^ *\d+ .*claude/agent +To be picked$", "+one"),
            ("proposals", "Proposals", r"^\d+ by claude/agent: Slow networks", "+three"),
            ("sessions", "Sessions", r"^agent +connected +\d+ edits", "To be picked"),
        ):
            vim.lua("_G.take, _G.preview = nil, nil return true")
            vim.command(f"Editd pick {pick}")
            vim.until("_G.take ~= nil")
            assert vim.lua("_G.title") == title
            assert re.search(label, vim.lua("_G.display"))
            seen = "table.concat(vim.api.nvim_buf_get_lines(_G.preview, 0, -1, false), '\\n')"
            vim.until(f"{seen}:find(..., 1, true)", preview)
            vim.lua("_G.take() return true")
            if pick == "proposals":
                vim.until(f"vim.fn.bufname() == 'editd://proposal/{number}/{name}'")
                vim.command("tabclose")
            else:
                vim.until(f"vim.bo.filetype == '{'diff' if pick == 'log %' else 'editdlog'}'")
                vim.command("close")
    finally:
        vim.lua(FORGET)
        agent.proposal_withdraw(number)


def test_a_wrong_list_is_refused_with_the_right_ones(vim: Neovim, shared: Workplace) -> None:
    opened(vim, shared, "wrong.txt")
    vim.command("Editd pick nothing")
    assert vim.said() == ['editd: there is no "nothing". Use one of log, proposals, sessions']


def test_the_mirror_is_a_repository_that_plugin_managers_take(tmp_path: Path) -> None:
    source, remote = tmp_path / "source", tmp_path / "mirror.git"

    def git(*argv: str, of: Path = source) -> str:
        done = subprocess.run(
            ["git", "-C", str(of), *argv], check=True, capture_output=True, text=True, env=AUTHOR | os.environ
        )
        return done.stdout.strip()

    folder = source / "client/editors/neovim"
    shutil.copytree(PLUGIN, folder)
    git("init", "-q")
    git("init", "-q", "--bare", str(remote))
    for message in ("one", "two", "two"):
        (folder / "README.md").write_text(f"{message}\n")
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", message)
        subprocess.run(
            [folder / "mirror.sh", str(remote), f"v-{message}"], check=True, env=AUTHOR | os.environ
        )
    assert git("log", "--format=%s", "main", of=remote).splitlines() == ["editd v-two", "editd v-one"]
    assert git("tag", of=remote).splitlines() == ["v-one", "v-two"]
    names = set(git("ls-tree", "--name-only", "main", of=remote).splitlines())
    assert names >= {"doc", "lua", "plugin", "README.md", "editd.nvim-scm-1.rockspec"}
