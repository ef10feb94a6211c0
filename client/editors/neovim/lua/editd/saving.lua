--- Saving a buffer through the daemon, against the version that it was read at.
---
--- Vim must know whether a write succeeded before the write ends (`:wq`). So a write waits for its answer,
--- up to `wait_milliseconds`, while timers and channels run. Without an answer the buffer stays 'modified'
--- until it comes. No text is given up before its bytes are safe.
local blob = require('editd.blob')
local buffers = require('editd.buffers')
local codec = require('editd.codec')
local config = require('editd.config')
local connection = require('editd.connection')
local tell = require('editd.tell')

local uv = vim.uv or vim.loop

local M = {}

local api = vim.api
local present = connection.present
local STALE = { stale = true, file_exists = true, base_required = true }
local NOT_EDITDS = { unreachable = true, path_protected = true, path_outside = true, not_a_file = true, too_large = true }
local CHOICES = { reload = 'Reload: drop your changes', merge = 'Merge: keep both', overwrite = 'Overwrite: keep your text' }
local CANCEL = 'Cancel'

local count = 0

--- Return an id for a request that no other has, of this editor or another, now or later.
local function request_id()
  count = count + 1
  return table.concat({ 'nvim', uv.os_gethostname(), uv.os_getpid(), uv.hrtime(), os.time(), count }, '-')
end

local function lines_of(buf)
  return api.nvim_buf_get_lines(buf, 0, -1, false)
end

--- Run Vim's own write of `buf` with the modifiers `how`. Return whether it succeeded.
local function run_write(buf, how, target, arguments)
  local ok, why = pcall(api.nvim_buf_call, buf, function()
    vim.cmd(how .. ' write! ' .. arguments .. ' ' .. (target and vim.fn.fnameescape(target) or ''))
  end)
  if not ok then
    tell.say(tostring(why):gsub('^.-(E%d+)', '%1'), vim.log.levels.ERROR)
  end
  return ok
end

--- Let Vim write to another file, with the autocommands for that, without editd.
local function write_elsewhere(buf, target, arguments)
  local before = vim.go.eventignore
  vim.go.eventignore = before == '' and 'BufWriteCmd' or before .. ',BufWriteCmd'
  run_write(buf, 'keepalt', target, arguments)
  vim.go.eventignore = before
end

--- Print Vim's message of a write.
local function announce(buf, save, result)
  local transaction = present(result.transaction)
  local text = string.format('"%s" %dL, %dB written', vim.fn.fnamemodify(api.nvim_buf_get_name(buf), ':~:.'), #save.lines, #save.bytes)
  if transaction then
    text = text .. ' [editd ' .. transaction.seq .. ']'
  end
  vim.cmd('redraw')
  api.nvim_echo({ { text } }, true, {})
end

local function keep_undo(buf)
  if vim.bo[buf].undofile then
    api.nvim_buf_call(buf, function()
      vim.cmd('silent! wundo! ' .. vim.fn.fnameescape(vim.fn.undofile(api.nvim_buf_get_name(buf))))
    end)
  end
end

--- Handle a save whose bytes are in the file and in the history.
local function saved(buf, save, result)
  local file = result.files[1]
  if api.nvim_buf_get_changedtick(buf) == save.tick then
    buffers.unmodify(buf)
  end
  local content = present(file.content)
  if content and content ~= save.bytes then
    -- The sent text is the base of the text typed since; the file is the other side.
    if vim.bo[buf].modified then
      buffers.get(buf).base_lines = save.lines
      buffers.merge_into(buf, content, file.version, 'the file')
    else
      buffers.take(buf, content, file.version)
    end
  else
    buffers.settle(buf, file.version, save.lines)
  end
  announce(buf, save, result)
  if not vim.bo[buf].modified then
    keep_undo(buf)
  end
  api.nvim_exec_autocmds('BufWritePost', { buffer = buf, modeline = false })
end

local submit

--- Merge the file into the buffer, for the user to check and to write.
local function merge_here(buf, message)
  buffers.read(buf, function(err, file)
    if err then
      tell.refusal(err)
      return
    end
    local conflicts = buffers.merge_into(buf, file.content, file.version, 'the file')
    if conflicts > 0 then
      tell.say(message .. (conflicts == 1 and '1 conflict is' or conflicts .. ' conflicts are') .. ' marked in the buffer (n goes to the next). Solve them, and :write.', vim.log.levels.WARN)
    else
      tell.say(message .. 'The buffer holds both now. :write saves it.')
    end
  end)
end

local function reload(buf)
  buffers.read(buf, function(err, file)
    if err then
      tell.refusal(err)
    else
      buffers.take(buf, file.content, file.version)
    end
  end)
end

local function who_changed(err)
  local by = type(err.data) == 'table' and present(err.data.changed_by) or {}
  local authors = {}
  for _, transaction in ipairs(by) do
    authors[#authors + 1] = tell.author(transaction)
  end
  return #authors > 0 and ' (' .. table.concat(authors, '; ', math.max(1, #authors - 2)) .. ')' or ''
end

--- Handle a file that has changed since it was read: let the user choose.
local function choose(buf, save, err)
  local state = buffers.get(buf)
  local current = type(err.data) == 'table' and err.data.current
  local is_gone = err.name == 'stale' and current == vim.NIL
  local what = (is_gone and 'was deleted' or 'has changed since it was read') .. who_changed(err)
  buffers.mark(buf, { what = what, version = present(current), hint = 'It was not saved.' })
  local offered = is_gone and { 'overwrite' } or { 'reload', 'merge', 'overwrite' }
  if save.offline then
    offered = { 'reload', 'overwrite' }
  end
  local items = vim.list_extend(vim.list_extend({}, offered), { 'cancel' })
  vim.ui.select(items, {
    prompt = state.path .. ' ' .. what .. ':',
    kind = 'editd_stale',
    format_item = function(item)
      return CHOICES[item] or CANCEL
    end,
  }, function(choice)
    if not api.nvim_buf_is_loaded(buf) or buffers.get(buf) ~= state then
      return
    end
    if choice == 'overwrite' and save.offline then
      M.by_vim(buf, save)
    elseif choice == 'overwrite' then
      -- Save over the present version: a further change in between is not overwritten either.
      submit(buf, { arguments = save.arguments, base = err.name == 'stale' and current or nil, force = err.name ~= 'stale' })
    elseif choice == 'merge' then
      submit(buf, { arguments = save.arguments, merge = true })
    elseif choice == 'reload' and save.offline then
      api.nvim_buf_call(buf, function()
        vim.cmd('edit!')
      end)
    elseif choice == 'reload' then
      reload(buf)
    end
  end)
end

--- Let Vim write without a daemon, but ask before it overwrites a change that was not read.
function M.by_vim(buf, save)
  if not run_write(buf, 'noautocmd keepalt', nil, save.arguments) then
    return
  end
  local state = buffers.get(buf)
  local bytes = codec.read(api.nvim_buf_get_name(buf))
  if state and bytes then
    buffers.settle(buf, blob.version(bytes), lines_of(buf))
  end
  api.nvim_exec_autocmds('BufWritePost', { buffer = buf, modeline = false })
end

local function fall_back(buf, save, err)
  if not config.values.fallback then
    tell.refusal(err)
    return
  end
  local state = buffers.get(buf)
  if save.late then
    tell.say(state.path .. ' is not saved: ' .. err.message .. ' Use :write again to let Vim write it.', vim.log.levels.ERROR)
    return
  end
  tell.once('fallback' .. state.root, 'Vim writes without editd: ' .. err.message, vim.log.levels.WARN)
  local disk = codec.read(api.nvim_buf_get_name(buf))
  local version = disk and blob.version(disk) or vim.NIL
  if version ~= state.base and not save.force and blob.version(save.bytes) ~= version then
    save.offline = true
    choose(buf, save, { name = 'stale', data = { current = version } })
  else
    M.by_vim(buf, save)
  end
end

local function refused(buf, save, err)
  if STALE[err.name] and not save.merge then
    choose(buf, save, err)
  elseif save.merge and (err.name == 'conflict' or STALE[err.name]) then
    merge_here(buf, 'Not saved: it does not merge by itself. ')
  elseif NOT_EDITDS[err.name] then
    fall_back(buf, save, err)
  else
    tell.refusal(err)
    tell.say(buffers.get(buf).path .. ' is not saved. Use :noautocmd write to write it without editd.', vim.log.levels.WARN)
  end
end

local function answered(buf, save, err, result)
  local state = buffers.get(buf)
  save.done = true
  if not state or state.saving ~= save or not api.nvim_buf_is_loaded(buf) then
    return -- cancelled, or the buffer is gone
  end
  state.saving = nil
  if err then
    refused(buf, save, err)
  else
    tell.again('fallback' .. state.root)
    saved(buf, save, result)
  end
  local now = buffers.get(buf)
  if now and now.again and not now.saving then
    now.again = nil
    buffers.look(buf)
  end
end

local function edit_of(state, save)
  local edit = { op = 'write', path = state.path, content = save.bytes }
  if save.force then
    edit.force = true
  elseif save.base ~= nil then
    edit.base = save.base
  else
    edit.base = state.base
  end
  return edit
end

--- Send the buffer's bytes, and wait a little for the answer. `save` has the options: `force`, `merge`,
--- or another `base` than the buffer's.
function submit(buf, save)
  local state = buffers.get(buf)
  local bytes, why = codec.encode(buf, save.arguments)
  if not bytes then
    tell.say(why, vim.log.levels.ERROR)
    return
  end
  save.bytes, save.lines, save.tick = bytes, lines_of(buf), api.nvim_buf_get_changedtick(buf)
  state.saving = save
  local params = { edits = { edit_of(state, save) }, request_id = request_id(), message = 'Save ' .. state.path }
  params.on_stale = save.merge and 'merge' or 'reject'
  params.on_unsaved = 'ignore' -- the user decides about a save
  params.return_content = true -- a merge or a formatter of the workspace may have changed it
  connection.of(state.root):request('apply', params, function(err, result)
    answered(buf, save, err, result)
  end)
  vim.wait(config.values.wait_milliseconds, function()
    return save.done
  end, 2)
  if not save.done then
    save.late = true
    tell.say(state.path .. ' is not saved yet: editd has not answered. The save continues. Use :write! to let Vim write it now.', vim.log.levels.WARN)
  end
end

--- Write `buf` for `:write` (BufWriteCmd); `target` is the file's full name.
function M.on_write(buf, target)
  local arguments = vim.v.cmdarg
  local is_forced = vim.v.cmdbang == 1
  local state = buffers.get(buf)
  if not state or target ~= api.nvim_buf_get_name(buf) then
    write_elsewhere(buf, target, arguments)
    return
  end
  if state.is_adopting then
    vim.bo[buf].modified = false
    return
  end
  if state.saving then
    if not is_forced then
      tell.say('an earlier save of ' .. state.path .. ' is not answered yet. Use :write! to let Vim write it now.', vim.log.levels.ERROR)
      return
    end
    -- The earlier save will be refused as stale when it arrives, because its base is outdated.
    state.saving = nil
    api.nvim_exec_autocmds('BufWritePre', { buffer = buf, modeline = false })
    M.by_vim(buf, { arguments = arguments })
    return
  end
  local function save()
    api.nvim_exec_autocmds('BufWritePre', { buffer = buf, modeline = false })
    if buffers.get(buf) == state then
      submit(buf, { arguments = arguments, force = is_forced })
    end
  end
  if is_forced or not buffers.has_markers(buf) then
    save()
    return
  end
  vim.ui.select({ 'save', 'cancel' }, {
    prompt = state.path .. ' has unresolved conflict markers:',
    kind = 'editd_markers',
    format_item = function(item)
      return item == 'save' and 'Save: with the markers' or CANCEL
    end,
  }, function(choice)
    if choice == 'save' and api.nvim_buf_is_loaded(buf) and buffers.get(buf) == state then
      state.is_marked = false
      save()
    end
  end)
end

--- Run `:Editd merge`: merge the file into the buffer.
function M.merge(buf)
  merge_here(buf, '')
end

--- Run `:Editd reload`: drop the changes of the buffer; undo brings them back.
M.reload = reload

return M
