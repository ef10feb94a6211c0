--- The command `:Editd`, its verbs and their completion.
local buffers = require('editd.buffers')
local connection = require('editd.connection')
local hunks = require('editd.hunks')
local pickers = require('editd.pickers')
local review = require('editd.review')
local tell = require('editd.tell')
local unreviewed = require('editd.unreviewed')
local views = require('editd.views')
local workspace = require('editd.workspace')

local M = {}

local api = vim.api

--- Return the connection of the workspace of the current buffer or folder; or nil, after a message.
function M.daemon()
  local state = buffers.get(0)
  local root = state and state.root or vim.b.editd_root or workspace.around(workspace.real(vim.fn.getcwd()))
  if not root then
    tell.say('neither this buffer nor the current folder is in a workspace', vim.log.levels.ERROR)
    return nil
  end
  return connection.of(root)
end

local function state_here()
  local state = buffers.get(0)
  if not state then
    tell.say('this buffer has no file in a workspace', vim.log.levels.ERROR)
  end
  return state
end

local function number_of(text)
  if text and not text:match('^%x+$') then
    tell.say('"' .. text .. '" is not a transaction', vim.log.levels.ERROR)
    return nil, false
  end
  return tonumber(text) or text, true
end

--- Print the result of an undo, a redo or a rollback.
local function said(what)
  return function(err, result)
    if err then
      tell.refusal(err)
      return
    end
    local paths = {}
    for _, file in ipairs(result.files) do
      paths[#paths + 1] = file.path
    end
    local transaction, proposal = connection.present(result.transaction), connection.present(result.proposal)
    if transaction then
      tell.say(what .. ' as ' .. transaction.seq .. ': ' .. table.concat(paths, ' '))
    elseif type(proposal) == 'table' then
      tell.say(what .. ' waits as proposal ' .. proposal.proposal)
    else
      tell.say('nothing to change')
    end
  end
end

local function id(what)
  return table.concat({ 'nvim', what, (vim.uv or vim.loop).hrtime(), vim.fn.getpid(), os.time() }, '-')
end

--- Call the daemon's undo, redo or rollback; `params` are those of the method.
function M.undo(daemon, params)
  params.request_id = id('undo')
  daemon:request('undo', params, said('undone' .. (params.tx and ' ' .. params.tx or '')))
end

local verbs = {}

function verbs.log(daemon, words)
  local limit, path
  for _, word in ipairs(words) do
    if word == '%' then
      local state = state_here()
      path = state and state.path
    else
      limit = tonumber(word)
    end
  end
  views.log(daemon, limit or 50, path and { path = path })
end

function verbs.show(daemon, words)
  local tx, is_one = number_of(words[1])
  if is_one then
    views.transaction(daemon, tx or daemon.head)
  end
end

function verbs.undo(daemon, words, bang)
  local tx, is_one = number_of(words[1])
  if is_one then
    M.undo(daemon, { tx = tx, on_conflict = bang and 'force' or nil })
  end
end

function verbs.redo(daemon, _, bang)
  daemon:request('redo', { on_conflict = bang and 'force' or nil, request_id = id('redo') }, said('redone'))
end

function verbs.rollback(daemon, words, bang)
  if not words[1] then
    tell.say('which session? :Editd rollback SESSION', vim.log.levels.ERROR)
    return
  end
  local params = { session = words[1], on_conflict = bang and 'force' or nil, request_id = id('rollback') }
  daemon:request('rollback', params, said('session ' .. words[1] .. ' rolled back'))
end

function verbs.blame(daemon)
  local state, buf = state_here(), api.nvim_get_current_buf()
  if state then
    views.blame(daemon, buf, state.path, function()
      return hunks.origins(state.base_lines, api.nvim_buf_get_lines(buf, 0, -1, false))
    end)
  end
end

function verbs.annotate()
  if state_here() then
    require('editd.annotate').toggle(api.nvim_get_current_buf())
  end
end

function verbs.diff(daemon, words, bang)
  local from, is_one = number_of(words[1])
  local state = buffers.get(0)
  if is_one then
    views.diff(daemon, from, not bang and state and state.path or nil)
  end
end

function verbs.merge()
  if state_here() then
    require('editd.saving').merge(api.nvim_get_current_buf())
  end
end

function verbs.reload()
  if state_here() then
    require('editd.saving').reload(api.nvim_get_current_buf())
  end
end

function verbs.proposals(daemon)
  review.list(daemon)
end

verbs['next'] = function(daemon)
  review.next(daemon)
end

local function comment_of(words)
  return #words > 0 and table.concat(words, ' ') or nil
end

function verbs.approve(_, words)
  review.approve(comment_of(words))
end

function verbs.reject(_, words)
  review.reject(comment_of(words))
end

function verbs.reviewed(daemon)
  if state_here() then
    unreviewed.mark(daemon)
  end
end

verbs['undo-hunk'] = function(daemon, _, bang)
  local state = state_here()
  if state then
    unreviewed.undo_hunk(daemon, state, function(err, params)
      if err then
        tell.refusal(err)
      else
        params.on_conflict = bang and 'force' or nil
        M.undo(daemon, params)
      end
    end)
  end
end

--- Let the user choose a transaction, a session or a proposal, and show it.
function verbs.pick(daemon, words)
  local name, state = 'log', nil
  for _, word in ipairs(words) do
    if word ~= '%' then
      name = word
    else
      state = state_here()
      if not state then
        return
      end
    end
  end
  pickers.pick(daemon, name, state and state.path)
end

function verbs.status(daemon)
  daemon:request('status', {}, function(err, status)
    if err then
      tell.refusal(err)
      return
    end
    local state = buffers.get(0)
    local lines = {
      string.format('%s is at transaction %d; editd %s (pid %d) is %s', status.root, status.head, status.version, status.pid, status.state),
    }
    if state then
      local version = state.base == vim.NIL and 'a new file' or 'at ' .. state.base:sub(1, 12)
      lines[2] = state.path .. ' is ' .. version .. (state.stale and ', and ' .. state.stale.what or '')
    end
    tell.say(table.concat(lines, '\n'))
  end)
end

local function sessions(daemon)
  local names = {}
  for _, transaction in pairs(daemon.recent) do
    local name = connection.present(transaction.session)
    if name then
      names[name] = true
    end
  end
  return vim.fn.sort(vim.tbl_keys(names))
end

local function seqs(daemon)
  local found = vim.tbl_keys(daemon.recent)
  table.sort(found, function(one, other)
    return one > other
  end)
  return vim.tbl_map(tostring, found)
end

local arguments = { undo = seqs, show = seqs, diff = seqs, rollback = sessions, pick = pickers.names }

--- Return the completions of the word under the cursor, from cached values, without a request.
function M.complete(lead, line)
  local words = vim.split(line:gsub('^.-Editd!?%s*', ''), '%s+')
  local choices
  if #words <= 1 then
    choices = vim.fn.sort(vim.tbl_keys(verbs))
  elseif #words == 2 and arguments[words[1]] then
    local state = buffers.get(0)
    local root = state and state.root or vim.b.editd_root
    choices = root and arguments[words[1]](connection.of(root)) or {}
  end
  return vim.tbl_filter(function(choice)
    return vim.startswith(choice, lead)
  end, choices or {})
end

--- Run `:Editd VERB …`; without a verb, `status`.
function M.run(given)
  local words = vim.list_extend({}, given.fargs)
  local name = table.remove(words, 1) or 'status'
  if not verbs[name] then
    tell.say('there is no :Editd ' .. name .. '. Use one of ' .. table.concat(vim.fn.sort(vim.tbl_keys(verbs)), ', '), vim.log.levels.ERROR)
    return
  end
  local daemon = M.daemon()
  if daemon then
    verbs[name](daemon, words, given.bang)
  end
end

return M
