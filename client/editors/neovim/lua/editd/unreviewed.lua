--- Lines that sessions have written and no person has reviewed: a sign beside each, and what can be done.
local buffers = require('editd.buffers')
local config = require('editd.config')
local connection = require('editd.connection')
local hunks = require('editd.hunks')
local tell = require('editd.tell')

local M = {}

local api = vim.api
local space = api.nvim_create_namespace('editd_unreviewed')
local pending = {} -- buffer number -> the seqs of its signs

--- Return the numbers, from 1, of the first lines of the runs of signs.
local function runs(buf)
  local starts, before = {}, -1
  for _, mark in ipairs(api.nvim_buf_get_extmarks(buf, space, 0, -1, {})) do
    if mark[2] > before + 1 then
      starts[#starts + 1] = mark[2] + 1
    end
    before = mark[2]
  end
  return starts
end

--- Go to the next run of signs (`step` is 1), or to the previous one (-1).
function M.jump(step)
  local starts, line = runs(0), vim.fn.line('.')
  local from, to = 1, #starts
  if step < 0 then
    from, to = to, from
  end
  local left = vim.v.count1
  for index = from, to, step do
    if (starts[index] - line) * step > 0 then
      left = left - 1
      if left == 0 then
        vim.cmd("normal! m'")
        api.nvim_win_set_cursor(0, { starts[index], 0 })
        return
      end
    end
  end
  tell.say('there is no further unreviewed line ' .. (step > 0 and 'below' or 'above'))
end

local function map(buf)
  for keys, step in pairs({ [']e'] = 1, ['[e'] = -1 }) do
    if config.values.signs.mappings and api.nvim_buf_call(buf, function() return vim.fn.maparg(keys, 'n') end) == '' then
      vim.keymap.set('n', keys, function() M.jump(step) end, { buffer = buf, desc = 'Go to an unreviewed line' })
    end
  end
end

local function draw(buf, state, lines, seqs)
  api.nvim_buf_clear_namespace(buf, space, 0, -1)
  local drawn = {}
  for number, origin in ipairs(hunks.origins(state.base_lines, api.nvim_buf_get_lines(buf, 0, -1, false))) do
    local seq = origin and lines[origin] and lines[origin].seq
    if seq and seqs[seq] then
      drawn[seq] = true
      api.nvim_buf_set_extmark(buf, space, number - 1, 0, {
        sign_text = config.values.icons.unreviewed, sign_hl_group = 'EditdUnreviewed', priority = 5,
      })
    end
  end
  pending[buf] = drawn
  if next(drawn) then
    map(buf)
  end
end

local function clear(buf)
  if pending[buf] then
    pending[buf] = nil
    if api.nvim_buf_is_valid(buf) then
      api.nvim_buf_clear_namespace(buf, space, 0, -1)
    end
  end
end

--- Draw the signs of a buffer, when the daemon has told which lines are not reviewed.
function M.refresh(buf)
  local state = buffers.get(buf)
  local daemon = state and connection.of(state.root)
  if not state or not config.values.signs.enabled or state.base == vim.NIL then
    clear(buf)
    return
  elseif daemon.state ~= 'ready' then
    return
  end
  local function is_current()
    return buffers.get(buf) == state and api.nvim_buf_is_loaded(buf)
  end
  daemon:request('log', { path = state.path, unreviewed = true, brief = true, limit = 1000 }, function(err, result)
    if err or not is_current() then
      return
    elseif #result.transactions == 0 then
      clear(buf)
      return
    end
    local seqs = {}
    for _, transaction in ipairs(result.transactions) do
      seqs[transaction.seq] = true
    end
    daemon:request('blame', { path = state.path }, function(failure, blame)
      if not failure and is_current() and blame.version == state.base then
        draw(buf, state, blame.lines, seqs)
      end
    end)
  end)
end

--- Mark the transactions of this buffer's signs as reviewed.
function M.mark(daemon)
  local seqs = vim.tbl_keys(pending[api.nvim_get_current_buf()] or {})
  if #seqs == 0 then
    tell.say('no line of this buffer is unreviewed')
    return
  end
  table.sort(seqs)
  daemon:request('review.mark', { transactions = seqs }, function(err)
    if err then
      tell.refusal(err)
      return
    end
    tell.say('reviewed: ' .. table.concat(seqs, ', '))
    for _, buf in ipairs(buffers.all(daemon.root)) do
      M.refresh(buf)
    end
  end)
end

--- Return the numbers of the hunks of `path` that add `line`, in the transaction that `shown` describes.
local function hunks_with(shown, path, line)
  local numbers = {}
  for _, hunk in ipairs(shown.hunks) do
    if hunk.path == path and ('\n' .. hunk.diff):find('\n+' .. line .. '\n', 1, true) then
      numbers[#numbers + 1] = hunk.hunk
    end
  end
  return numbers
end

--- Undo the hunk that has written the line under the cursor, and no other of its transaction.
function M.undo_hunk(daemon, state, callback)
  local line, buf = vim.fn.line('.'), api.nvim_get_current_buf()
  local lines = api.nvim_buf_get_lines(buf, 0, -1, false)
  local origin = hunks.origins(state.base_lines, lines)[line]
  daemon:request('blame', { path = state.path }, function(err, blame)
    local written = not err and origin and blame.lines[origin]
    if err or not written or written.seq == 0 then
      callback(err or { message = 'This line is not from a transaction.' })
      return
    end
    daemon:request('show', { tx = written.seq, diff = false, hunks = true }, function(failure, shown)
      local numbers = failure and {} or hunks_with(shown, state.path, lines[line])
      if failure or #numbers == 0 then
        callback(failure or { message = string.format('Transaction %d has made the whole file. :Editd undo %d undoes it.', written.seq, written.seq) })
        return
      elseif #numbers > 1 then
        callback({ message = string.format('%d hunks of transaction %d have such a line. `editctl undo -i %d` asks for each.', #numbers, written.seq, written.seq) })
        return
      end
      callback(nil, { tx = written.seq, hunks = { { path = state.path, hunks = numbers } } })
    end)
  end)
end

api.nvim_set_hl(0, 'EditdUnreviewed', { default = true, link = 'DiffChange' })
buffers.on_settled(M.refresh)
buffers.on_connected(M.refresh)

return M
