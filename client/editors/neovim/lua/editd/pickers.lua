--- Pickers: choose a transaction, a session or a proposal, with a preview, and show it.
---
--- They are those of telescope.nvim or of fzf-lua. Without both, vim.ui.select() lists the same without a preview.
local config = require('editd.config')
local connection = require('editd.connection')
local review = require('editd.review')
local tell = require('editd.tell')
local views = require('editd.views')

local M = {}

local api = vim.api
local present = connection.present
local LIMIT = 200

local pickers = {}

pickers.log = {
  prompt = 'Transactions',
  fetch = function(daemon, path, callback)
    daemon:request('log', { limit = LIMIT, path = path }, function(err, result)
      callback(err, result and result.transactions)
    end)
  end,
  label = views.log_line,
  preview = function(daemon, transaction, callback)
    daemon:request('show', { tx = transaction.seq }, function(err, result)
      callback(err, result and present(result.diff))
    end)
  end,
  choose = function(daemon, transaction)
    views.transaction(daemon, transaction.seq)
  end,
}

pickers.sessions = {
  prompt = 'Sessions',
  fetch = function(daemon, _, callback)
    daemon:request('session.list', { all = true, stat = true }, function(err, result)
      callback(err, result and result.sessions)
    end)
  end,
  label = function(session)
    local lines = present(session.added) and string.format(', +%d -%d', session.added, session.removed) or ''
    return string.format('%-24s %-9s %d edits in %d files%s', session.session, session.state, session.edits, session.files, lines)
  end,
  preview = function(daemon, session, callback)
    daemon:request('log', { limit = 50, session = session.session }, function(err, result)
      callback(err, result and table.concat(vim.tbl_map(views.log_line, result.transactions), '\n'))
    end)
  end,
  choose = function(daemon, session)
    views.log(daemon, LIMIT, { session = session.session })
  end,
}

pickers.proposals = {
  prompt = 'Proposals',
  fetch = function(daemon, _, callback)
    review.open_proposals(daemon, callback)
  end,
  label = review.summary,
  preview = function(daemon, proposal, callback)
    daemon:request('proposal.get', { proposal = proposal.proposal }, function(err, result)
      callback(err, result and result.diff)
    end)
  end,
  choose = function(daemon, proposal)
    review.open(daemon, proposal.proposal)
  end,
}

--- Fill a buffer with a preview once it has come.
local function fill(picker, daemon, item, buf)
  picker.preview(daemon, item, function(err, text)
    if api.nvim_buf_is_valid(buf) then
      api.nvim_buf_set_lines(buf, 0, -1, false, vim.split(err and err.message or text or '', '\n', { plain = true }))
      vim.bo[buf].filetype = 'diff'
    end
  end)
end

local finders = {}

function finders.telescope(picker, daemon, items)
  local actions = require('telescope.actions')
  local options = {
    prompt_title = picker.prompt,
    finder = require('telescope.finders').new_table({
      results = items,
      entry_maker = function(item)
        local label = picker.label(item)
        return { value = item, display = label, ordinal = label }
      end,
    }),
    sorter = require('telescope.config').values.generic_sorter({}),
    previewer = require('telescope.previewers').new_buffer_previewer({
      define_preview = function(self, entry)
        fill(picker, daemon, entry.value, self.state.bufnr)
      end,
    }),
    attach_mappings = function(prompt)
      actions.select_default:replace(function()
        local entry = require('telescope.actions.state').get_selected_entry()
        actions.close(prompt)
        if entry then
          picker.choose(daemon, entry.value)
        end
      end)
      return true -- the other keys stay
    end,
  }
  require('telescope.pickers').new({}, options):find()
end

finders['fzf-lua'] = function(picker, daemon, items)
  local lines = {}
  for index, item in ipairs(items) do
    lines[index] = index .. '\t' .. picker.label(item)
  end
  local function item_of(line)
    return items[tonumber((line or ''):match('^%s*(%d+)'))]
  end
  local previewer = require('fzf-lua.previewer.builtin').base:extend()
  function previewer:new(...)
    previewer.super.new(self, ...)
    return setmetatable(self, previewer)
  end
  function previewer:populate_preview_buf(line)
    local buf = self:get_tmp_buffer()
    self:set_preview_buf(buf)
    if item_of(line) then
      fill(picker, daemon, item_of(line), buf)
    end
  end
  require('fzf-lua').fzf_exec(lines, {
    prompt = picker.prompt .. '> ',
    previewer = previewer,
    fzf_opts = { ['--delimiter'] = '\t', ['--with-nth'] = '2..' },
    actions = {
      ['default'] = function(selected)
        local item = item_of(selected and selected[1])
        if item then
          picker.choose(daemon, item)
        end
      end,
    },
  })
end

function finders.select(picker, daemon, items)
  local options = { prompt = picker.prompt .. ':', kind = 'editd_' .. picker.prompt:lower(), format_item = picker.label }
  vim.ui.select(items, options, function(item)
    if item then
      picker.choose(daemon, item)
    end
  end)
end

local needs = { telescope = 'telescope.pickers', ['fzf-lua'] = 'fzf-lua' }

--- Return the name of the finder: the user's, or the first that is installed.
local function installed()
  if config.values.picker ~= 'auto' then
    return config.values.picker
  end
  for _, name in ipairs({ 'telescope', 'fzf-lua' }) do
    if pcall(require, needs[name]) then
      return name
    end
  end
  return 'select'
end

--- Return the names of the lists.
function M.names()
  return vim.tbl_keys(pickers)
end

--- Let the user choose from the list `name`; transactions only of `path` if given.
function M.pick(daemon, name, path)
  local picker, finder = pickers[name], installed()
  if not picker or not finders[finder] then
    local wrong, right = picker and finder or name, picker and finders or pickers
    tell.say('there is no "' .. wrong .. '". Use one of ' .. table.concat(vim.fn.sort(vim.tbl_keys(right)), ', '), vim.log.levels.ERROR)
    return
  end
  picker.fetch(daemon, path, function(err, items)
    if err then
      tell.refusal(err)
    elseif #items == 0 then
      tell.say('there is nothing to choose from')
    else
      finders[finder](picker, daemon, items)
    end
  end)
end

return M
