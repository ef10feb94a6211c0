--- The buffers that editd follows: the version that each was read at, and the changes of its file since.
---
--- One state for each such buffer:
---   root, path    the workspace, and the path in it
---   base          the version that the buffer was read at, or last saved as; vim.NIL: no file
---   base_lines    the lines of that version, the base of a merge
---   is_new        Vim has not read this file, and takes it for a new one
---   stale         the change of the file since, if the buffer could not follow
---   saving        the save that waits for its answer, see `saving`
local blob = require('editd.blob')
local codec = require('editd.codec')
local config = require('editd.config')
local connection = require('editd.connection')
local hunks = require('editd.hunks')
local tell = require('editd.tell')
local workspace = require('editd.workspace')

local M = {}

local api = vim.api
local present = connection.present
local marks = api.nvim_create_namespace('editd')
local group = api.nvim_create_augroup('editd_buffers', { clear = true })
local states = {} -- buffer number -> state
local listeners = {}

--- Return the state of `buf` (0: the current one), or nil if editd does not follow it.
function M.get(buf)
  return states[buf == 0 and api.nvim_get_current_buf() or buf]
end

--- Return the numbers of the buffers of the workspace `root` (nil: of all) that hold `path` (nil: any).
function M.all(root, path)
  local found = {}
  for buf, state in pairs(states) do
    if (not root or state.root == root) and (not path or state.path == path) then
      found[#found + 1] = buf
    end
  end
  table.sort(found)
  return found
end

--- Call `listener(buf)` whenever the buffer has another base, or is not followed any more.
function M.on_settled(listener)
  listeners[#listeners + 1] = listener
end

--- Call `listener(buf)` for each buffer of a workspace whose daemon is connected, or connected again.
function M.on_connected(listener)
  connection.on_event(function(daemon, event)
    if event.event == 'connected' then
      for _, buf in ipairs(M.all(daemon.root)) do
        listener(buf)
      end
    end
  end)
end

local function notify(buf)
  for _, listener in ipairs(listeners) do
    listener(buf)
  end
end

local function lines_of(buf)
  return api.nvim_buf_get_lines(buf, 0, -1, false)
end

local function is_wanted(buf, name)
  local enabled = config.values.enabled
  if type(enabled) == 'function' then
    enabled = enabled(name)
  end
  local ok, own = pcall(api.nvim_buf_get_var, buf, 'editd_enabled')
  if ok then
    enabled = own ~= false and own ~= 0
  end
  return enabled and vim.g.editd_enabled ~= false and vim.g.editd_enabled ~= 0
end

local function watch(buf)
  api.nvim_clear_autocmds({ group = group, buffer = buf })
  local function on(event, callback, nested)
    api.nvim_create_autocmd(event, { group = group, buffer = buf, callback = callback, nested = nested or false })
  end
  on('BufWriteCmd', function(args)
    require('editd.saving').on_write(buf, args.match)
  end, true)
  on('FileChangedShell', function()
    M.on_file_changed(buf)
  end)
  vim.bo[buf].autoread = false -- this module follows the file, with smaller changes
end

--- Leave `buf` to Vim from now on.
function M.detach(buf)
  if not states[buf] then
    return
  end
  states[buf] = nil
  if api.nvim_buf_is_valid(buf) then
    api.nvim_clear_autocmds({ group = group, buffer = buf })
    M.unmark(buf)
    pcall(api.nvim_buf_call, buf, function()
      vim.cmd('setlocal autoread<')
    end)
  end
  notify(buf)
end

--- Return the version that `buf` was read at, and its lines. Return nil if its bytes cannot be
--- reproduced, so that a save would change more than the user typed.
local function what_was_read(buf, name, is_renamed)
  local disk = codec.read(name)
  if not disk then
    return vim.NIL, { '' }
  end
  if is_renamed or vim.bo[buf].modified then -- for example recovered from a swap file
    return blob.version(disk), codec.decode(disk).lines
  end
  local bytes = codec.as_it_is(buf)
  if bytes ~= disk then
    return nil
  end
  return blob.version(bytes), lines_of(buf)
end

--- Follow a buffer that was just read or renamed, if it is a file of a workspace.
function M.attach(buf, is_renamed)
  local name = api.nvim_buf_get_name(buf)
  M.detach(buf)
  if vim.bo[buf].buftype ~= '' or vim.b[buf].editd_ignored or not is_wanted(buf, name) then
    return
  end
  local root, path = workspace.locate(name)
  if not root or vim.fn.getfsize(name) > config.values.bytes_max then
    return
  end
  local base, base_lines = what_was_read(buf, name, is_renamed)
  if base == nil then
    tell.once('inexact' .. buf, path .. ' is left to Vim, because Vim cannot reproduce its bytes', vim.log.levels.DEBUG)
    return
  end
  local is_new = is_renamed or base == vim.NIL
  states[buf] = { root = root, path = path, base = base, base_lines = base_lines, is_new = is_new }
  watch(buf)
  local daemon = connection.of(root)
  if daemon.state == 'ready' then
    M.look(buf)
  else
    daemon:open(true)
  end
  notify(buf)
end

--- Handle Vim's notice of a changed file; ignore it if editd reports the change.
function M.on_file_changed(buf)
  local state = states[buf]
  if state and connection.of(state.root).state == 'ready' then
    vim.v.fcs_choice = ''
  else
    vim.v.fcs_choice = (vim.bo[buf].modified or vim.v.fcs_reason == 'deleted') and 'ask' or 'reload'
  end
end

--- Update the time that Vim remembers for the file, so that it does not warn of a known change.
local function note_time(buf)
  vim.schedule(function()
    if states[buf] and api.nvim_buf_is_loaded(buf) and not states[buf].is_new then
      pcall(vim.cmd, 'silent! checktime ' .. buf)
    end
  end)
end

function M.unmark(buf)
  api.nvim_buf_clear_namespace(buf, marks, 0, -1)
  vim.b[buf].editd_stale = nil
end

--- Mark the buffer as stale; `why` is `what` in words, and the `version` (nil: deleted).
function M.mark(buf, why)
  local state = states[buf]
  local is_news = not state.stale or state.stale.what ~= why.what
  state.stale = why
  vim.b[buf].editd_stale = why.what
  api.nvim_buf_clear_namespace(buf, marks, 0, -1)
  api.nvim_buf_set_extmark(buf, marks, 0, 0, {
    virt_text = { { config.values.icons.stale .. ' ' .. why.what, 'WarningMsg' } },
    sign_text = config.values.icons.stale:sub(1, 2),
    sign_hl_group = 'WarningMsg',
  })
  if is_news then
    tell.say(state.path .. ' ' .. why.what .. '. ' .. why.hint, vim.log.levels.WARN)
  end
end

--- Mark `buf` as unmodified. Vim learns only from a write that the older undo states differ from the
--- file. So make a write, which our BufWriteCmd answers at once.
function M.unmodify(buf)
  local state = states[buf]
  vim.bo[buf].modified = true
  state.is_adopting = true
  pcall(api.nvim_buf_call, buf, function()
    vim.cmd('silent keepalt keepjumps write!')
  end)
  state.is_adopting = nil
  vim.bo[buf].modified = false
end

--- Let Vim know that a file exists that it takes for a new one, so that it does not warn: Vim knows only
--- files that it has read. Nothing is lost: the buffer agrees with the file, and undo stays.
local function adopt_new(buf)
  api.nvim_buf_call(buf, function()
    local view = vim.fn.winsaveview()
    vim.cmd('silent! noautocmd keepalt keepjumps edit')
    vim.fn.winrestview(view)
  end)
end

--- Set the buffer's base to `version` with `lines`; the buffer may have changed further since.
function M.settle(buf, version, lines)
  local state = states[buf]
  if state.is_new and version ~= vim.NIL and not vim.bo[buf].modified then
    state.is_new = false
    adopt_new(buf)
  end
  state.base, state.base_lines, state.stale = version, lines, nil
  M.unmark(buf)
  note_time(buf)
  notify(buf)
  vim.cmd('redrawstatus!')
end

local function set_format(buf, options)
  for name, value in pairs(options) do
    if vim.bo[buf][name] ~= value then
      vim.bo[buf][name] = value
    end
  end
end

--- Put the file's content, `bytes` of that `version`, into the buffer. Undo brings the old text back.
function M.take(buf, bytes, version)
  local state = states[buf]
  local read = codec.decode(bytes)
  if bytes == '' then
    api.nvim_buf_set_lines(buf, 0, -1, false, {}) -- no line at all, not an empty one
  else
    hunks.put(buf, read.lines)
  end
  if codec.as_it_is(buf) ~= bytes then
    set_format(buf, read.options)
  end
  M.unmodify(buf)
  M.settle(buf, version, read.lines)
  api.nvim_exec_autocmds('FileChangedShellPost', { buffer = buf, modeline = false })
  if codec.as_it_is(buf) ~= bytes then
    M.detach(buf)
    tell.say(state.path .. ' is left to Vim, because Vim cannot reproduce its bytes', vim.log.levels.WARN)
  end
end

--- Merge the file's content, `bytes` of `version`, into a changed buffer; return the number of conflicts.
function M.merge_into(buf, bytes, version, theirs)
  local state = states[buf]
  local read = codec.decode(bytes)
  local merged, conflicts = hunks.merge(state.base_lines, lines_of(buf), read.lines, { mine = 'this buffer', theirs = theirs })
  hunks.put(buf, merged)
  M.settle(buf, version, read.lines)
  vim.bo[buf].modified = true
  state.is_marked = conflicts > 0
  if conflicts > 0 then
    vim.fn.setreg('/', '^<<<<<<< ')
  end
  return conflicts
end

--- End the block of changes that one `undo` takes back.
local function end_undo_block(buf)
  api.nvim_buf_call(buf, function()
    vim.cmd('let &l:undolevels = &l:undolevels')
  end)
end

--- Take the file's change into a changed buffer if both merge; return whether they do. One `undo` takes it
--- out again. A change of the encoding or of the line ends does not merge.
local function rebase(buf, file, transaction)
  local state = states[buf]
  local read = codec.decode(file.content)
  for _, option in ipairs({ 'fileformat', 'fileencoding', 'bomb' }) do
    if read.options[option] ~= vim.bo[buf][option] then
      return false
    end
  end
  local lines, conflicts = hunks.merge(state.base_lines, lines_of(buf), read.lines, { mine = '', theirs = '' })
  if conflicts > 0 then
    return false
  end
  end_undo_block(buf)
  hunks.put(buf, lines)
  end_undo_block(buf)
  M.settle(buf, file.version, read.lines)
  tell.say(state.path .. ' has taken in ' .. (transaction and tell.author(transaction) or 'the change of its file'))
  return true
end

--- Return whether the buffer still has conflicts that a merge has marked.
function M.has_markers(buf)
  local state = states[buf]
  if state.is_marked then
    state.is_marked = false
    for _, line in ipairs(lines_of(buf)) do
      if vim.startswith(line, '<<<<<<< this buffer') then
        state.is_marked = true
      end
    end
  end
  return state.is_marked
end

--- Read the file: `callback(err, file)`, if the buffer still exists.
function M.read(buf, callback)
  local state = states[buf]
  connection.of(state.root):request('read', { path = state.path }, function(err, file)
    if states[buf] == state and api.nvim_buf_is_loaded(buf) then
      callback(err, file)
    end
  end)
end

local function gone(buf, transaction)
  local state = states[buf]
  if state.base == vim.NIL then
    return
  end
  local what = 'was deleted'
  for _, change in ipairs(transaction and transaction.files or {}) do
    if change.change == 'renamed' and change.from == state.path then
      what = 'was moved to ' .. change.path
    end
  end
  if transaction then
    what = what .. ' (' .. tell.author(transaction) .. ')'
  end
  M.mark(buf, { what = what, hint = ':write creates it again.' })
end

--- Follow the file, or mark the buffer; `transaction` is the one that changed it, if known.
function M.refresh(buf, transaction)
  M.read(buf, function(err, file)
    local state = states[buf]
    if state.saving then
      state.again = true
    elseif err then
      if err.name == 'file_missing' then
        gone(buf, transaction)
      elseif err.name ~= 'unreachable' then
        tell.refusal(err)
      end
    elseif file.version == state.base then
      if state.stale then
        M.settle(buf, file.version, state.base_lines)
      end
    elseif not vim.bo[buf].modified and config.values.reload and state.base ~= vim.NIL then
      M.take(buf, file.content, file.version)
    elseif codec.as_it_is(buf) == file.content then
      M.unmodify(buf)
      M.settle(buf, file.version, lines_of(buf))
    elseif config.values.merge ~= 'auto' or state.base == vim.NIL or not vim.bo[buf].modified or not rebase(buf, file, transaction) then
      local by = transaction and ' (' .. tell.author(transaction) .. ')' or ''
      M.mark(buf, { what = 'has changed' .. by, version = file.version, hint = ':Editd merge merges it, :Editd reload drops your changes.' })
    end
  end)
end

--- Compare the version of the buffer with that of its file, and follow the file if they differ.
function M.look(buf)
  local state = states[buf]
  connection.of(state.root):request('stat', { paths = { state.path } }, function(err, result)
    if err or states[buf] ~= state then
      return
    end
    if state.saving then
      state.again = true
    elseif result.files[1].version ~= state.base or state.stale then
      M.refresh(buf)
    end
  end)
end

local function on_transaction(daemon, transaction)
  for _, change in ipairs(transaction.files) do
    for _, path in ipairs({ change.path, present(change.from) }) do
      for _, buf in ipairs(M.all(daemon.root, path)) do
        local state = states[buf]
        if state.saving then
          state.again = true
        elseif path ~= change.path or change.version ~= state.base or state.stale then
          M.refresh(buf, transaction)
        end
      end
    end
  end
end

connection.on_event(function(daemon, event)
  if event.event == 'transaction' then
    on_transaction(daemon, event.transaction)
    local about = { pattern = 'EditdTransaction', modeline = false }
    about.data = vim.fn.has('nvim-0.8') == 1 and event.transaction or nil
    api.nvim_exec_autocmds('User', about)
  elseif event.event == 'connected' or event.event == 'resync' then
    for _, buf in ipairs(M.all(daemon.root)) do
      M.look(buf)
    end
  end
  if not vim.tbl_contains({ 'session', 'lease', 'document' }, event.event) then
    vim.cmd('redrawstatus!')
  end
end)

--- Follow the open buffers, and those that will be read.
function M.start()
  for _, listener in ipairs({ 'holds', 'review', 'unreviewed' }) do
    require('editd.' .. listener)
  end
  local readers = api.nvim_create_augroup('editd', { clear = true })
  api.nvim_create_autocmd({ 'BufReadPost', 'BufNewFile', 'BufFilePost' }, {
    group = readers,
    callback = function(args)
      M.attach(args.buf, args.event == 'BufFilePost')
    end,
  })
  api.nvim_create_autocmd({ 'BufUnload', 'BufWipeout' }, {
    group = readers,
    callback = function(args)
      M.detach(args.buf)
    end,
  })
  api.nvim_create_autocmd('VimLeave', {
    group = readers,
    callback = function()
      for _, daemon in ipairs(connection.all()) do
        daemon:close()
      end
    end,
  })
  for _, buf in ipairs(api.nvim_list_bufs()) do
    if api.nvim_buf_is_loaded(buf) and not states[buf] then
      M.attach(buf)
    end
  end
end

return M
