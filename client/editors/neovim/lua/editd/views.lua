--- Views in buffers of their own: the log, a transaction, a diff, the authors of lines.
local connection = require('editd.connection')
local hunks = require('editd.hunks')
local tell = require('editd.tell')

local M = {}

local api = vim.api
local present = connection.present
local live = {} -- buffer number -> the log that it shows: daemon, limit, only

--- Return a time of the wire in local time, to the minute.
function M.clock(time)
  local seconds = M.seconds(time)
  return seconds and os.date('%Y-%m-%d %H:%M', seconds) or '                '
end

--- Return a time of the wire in seconds since the epoch, or nil.
function M.seconds(time)
  local year, month, day, hour, minute, second = (present(time) or ''):match('^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)')
  if not year then
    return nil
  end
  -- Days since the epoch in the civil calendar, because os.time expects local time.
  local y, m = tonumber(year), tonumber(month)
  y = m <= 2 and y - 1 or y
  local era = math.floor(y / 400)
  local of_era = y - era * 400
  local of_year = math.floor((153 * (m + (m > 2 and -3 or 9)) + 2) / 5) + tonumber(day) - 1
  local days = era * 146097 + of_era * 365 + math.floor(of_era / 4) - math.floor(of_era / 100) + of_year - 719468
  return days * 86400 + hour * 3600 + minute * 60 + second
end

--- Show `lines` in a buffer called `name`, new or filled again; return its number.
function M.show(name, lines, filetype, how)
  local full = 'editd://' .. name
  local buf = vim.fn.bufnr('^' .. vim.fn.escape(full, '[]*?{}\\,') .. '$')
  if buf == -1 then
    buf = api.nvim_create_buf(false, true)
    api.nvim_buf_set_name(buf, full)
  end
  local bo = vim.bo[buf]
  bo.buftype, bo.bufhidden, bo.swapfile, bo.modifiable = 'nofile', 'wipe', false, true
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  bo.modifiable, bo.modified, bo.filetype = false, false, filetype or ''
  local window = vim.fn.bufwinid(buf)
  if window ~= -1 then
    api.nvim_set_current_win(window)
  else
    vim.cmd((how or 'botright') .. ' split')
    api.nvim_win_set_buf(0, buf)
  end
  vim.keymap.set('n', 'q', '<cmd>close<CR>', { buffer = buf, desc = 'Close' })
  return buf
end

local function summary(transaction)
  if transaction.message ~= '' then
    return (transaction.message:gsub('\n.*', ''))
  end
  local paths = {}
  for _, change in ipairs(transaction.files) do
    paths[#paths + 1] = change.path
  end
  return table.concat(paths, ' ', 1, math.min(#paths, 3)) .. (#paths > 3 and ' …' or '')
end

--- Return a transaction in one line.
function M.log_line(transaction)
  local undone = present(transaction.undone_by)
  local who = transaction.actor .. (present(transaction.session) and '/' .. transaction.session or '')
  local line = string.format('%5d  %s  %-8s %-20s %s', transaction.seq, M.clock(transaction.time), transaction.kind, who, summary(transaction))
  return undone and line .. '  (undone by ' .. undone .. ')' or line
end

local function wrap(daemon, callback)
  return function(err, result)
    if err then
      tell.refusal(err)
    else
      callback(result, daemon)
    end
  end
end

local function log_lines(result, limit)
  local lines = vim.tbl_map(M.log_line, result.transactions)
  if result.more then
    lines[#lines + 1] = '       … older ones: :Editd log ' .. limit * 4
  end
  return #lines > 0 and lines or { 'No transactions yet.' }
end

--- Return the parameters of a log of the newest `limit` transactions, filtered by the parameters `only`.
local function log_params(limit, only)
  return vim.tbl_extend('force', { limit = limit }, only or {})
end

--- Show the newest `limit` transactions, filtered by the parameters `only`. <CR> shows one, u undoes it.
function M.log(daemon, limit, only)
  daemon:request('log', log_params(limit, only), wrap(daemon, function(result)
    local buf = M.show('log', log_lines(result, limit), 'editdlog')
    live[buf] = { daemon = daemon, limit = limit, only = only }
    local function under_cursor(act)
      return function()
        local seq = tonumber(api.nvim_get_current_line():match('^%s*(%d+)'))
        if seq then
          act(seq)
        end
      end
    end
    vim.keymap.set('n', '<CR>', under_cursor(function(seq)
      M.transaction(daemon, seq)
    end), { buffer = buf, desc = 'Show this transaction' })
    vim.keymap.set('n', 'u', under_cursor(function(seq)
      require('editd.command').undo(daemon, { tx = seq })
    end), { buffer = buf, desc = 'Undo this transaction' })
    vim.b[buf].editd_root = daemon.root
  end))
end

--- Fill the log in `buf` again; the cursor stays on its transaction.
local function follow(buf, log)
  log.daemon:request('log', log_params(log.limit, log.only), function(err, result)
    if err or not api.nvim_buf_is_loaded(buf) or live[buf] ~= log then
      return
    end
    vim.bo[buf].modifiable = true
    hunks.put(buf, log_lines(result, log.limit))
    vim.bo[buf].modifiable, vim.bo[buf].modified = false, false
  end)
end

connection.on_event(function(daemon, event)
  if event.event ~= 'transaction' and event.event ~= 'connected' and event.event ~= 'resync' then
    return
  end
  for buf, log in pairs(live) do
    if not api.nvim_buf_is_valid(buf) then
      live[buf] = nil
    elseif log.daemon == daemon then
      follow(buf, log)
    end
  end
end)

--- Show one transaction with its changes.
function M.transaction(daemon, tx)
  daemon:request('show', { tx = tx }, wrap(daemon, function(result)
    local transaction = result.transaction
    local lines = { M.log_line(transaction), '' }
    vim.list_extend(lines, vim.split(present(result.diff) or '', '\n'))
    local buf = M.show('show/' .. transaction.seq, lines, 'diff')
    vim.b[buf].editd_root = daemon.root
  end))
end

--- Show the changes since transaction `from` (the baseline), only of `path` if given.
function M.diff(daemon, from, path)
  local params = { from = from, paths = path and { path } or nil }
  daemon:request('diff', params, wrap(daemon, function(result)
    if result.diff == '' then
      tell.say('nothing has changed ' .. (from and 'since ' .. from or 'since the baseline'))
      return
    end
    local buf = M.show('diff/' .. (from or 0), vim.split(result.diff, '\n'), 'diff')
    vim.b[buf].editd_root = daemon.root
  end))
end

--- Show beside `buf` the transaction of each line of the file. <CR> shows that transaction.
function M.blame(daemon, buf, path, origins)
  local window = vim.fn.bufwinid(buf)
  daemon:request('blame', { path = path }, wrap(daemon, function(result)
    local lines, origin_of = {}, origins()
    for number, origin in ipairs(origin_of) do
      local line = origin and result.lines[origin]
      if not line then
        lines[number] = '       not saved'
      elseif line.seq == 0 then
        lines[number] = '    0  baseline'
      else
        lines[number] = string.format('%5d  %s  %s', line.seq, M.clock(line.time), line.actor)
      end
    end
    if window ~= -1 and api.nvim_win_is_valid(window) then
      api.nvim_set_current_win(window)
    end
    local top, cursor = vim.fn.line('w0'), api.nvim_win_get_cursor(0)[1]
    vim.wo.scrollbind = true
    local source = api.nvim_get_current_win()
    local view = M.show('blame/' .. path, lines, 'editdblame', 'leftabove vertical 40')
    vim.b[view].editd_root = daemon.root
    vim.wo.wrap, vim.wo.number, vim.wo.winfixwidth, vim.wo.scrollbind = false, false, true, true
    vim.fn.winrestview({ topline = top, lnum = math.min(cursor, #lines), col = 0 })
    vim.cmd('syncbind')
    vim.keymap.set('n', '<CR>', function()
      local seq = tonumber(api.nvim_get_current_line():match('^%s*(%d+)'))
      if seq and seq > 0 then
        M.transaction(daemon, seq)
      end
    end, { buffer = view, desc = 'Show this transaction' })
    api.nvim_create_autocmd('BufWipeout', {
      buffer = view,
      once = true,
      callback = function()
        if api.nvim_win_is_valid(source) then
          vim.wo[source].scrollbind = false
        end
      end,
    })
  end))
end

return M
