--- The unsaved text of buffers, held at the daemon: edits by others are tried on it before they take effect.
---
--- The whole text is sent again after a change. A hold ends if the buffer agrees with its file or is left,
--- and the daemon ends it with the connection.
local buffers = require('editd.buffers')
local codec = require('editd.codec')
local config = require('editd.config')
local connection = require('editd.connection')

local uv = vim.uv or vim.loop

local M = {}

local api = vim.api
local PAUSE_MILLISECONDS = 300
local PAUSE_FACTOR = 20 -- a pause is at least this many times as long as the last hold has taken
local PAUSE_MILLISECONDS_MAX = 5000
local BYTES_MAX = 1024 * 1024 -- of a text that is shared

local held = {} -- buffer number -> what the daemon holds of it: root, path, base, tick
local watched = {} -- buffer number -> true: its changes are noticed
local waiting = {} -- buffer number -> true: a hold comes after the pause
local last_milliseconds = 0 -- the time that the last hold has taken

--- Return what others may learn of the unsaved text of a file: 'text', 'flag' or 'off'.
local function shared(path)
  if config.values.share_unsaved == 'text' then
    for _, glob in ipairs(config.values.private) do
      local pattern = vim.fn.glob2regpat(glob)
      if vim.fn.match(path, pattern) >= 0 or vim.fn.match(vim.fn.fnamemodify(path, ':t'), pattern) >= 0 then
        return 'flag'
      end
    end
  end
  return config.values.share_unsaved
end

--- Return the text to be shared, or nil.
local function content_of(buf, state)
  if shared(state.path) ~= 'text' or api.nvim_buf_get_offset(buf, api.nvim_buf_line_count(buf)) > BYTES_MAX then
    return nil
  end
  return codec.unsaved(buf)
end

local function release(buf)
  local before = held[buf]
  held[buf] = nil
  local daemon = connection.of(before.root)
  if daemon.state == 'ready' then -- otherwise the daemon has ended the hold
    daemon:request('document.release', { path = before.path }, function() end)
  end
end

--- Hold the text that a buffer has now.
local function hold(buf, state)
  local began = uv.hrtime()
  held[buf] = { root = state.root, path = state.path, base = state.base, tick = api.nvim_buf_get_changedtick(buf) }
  local params = { path = state.path, base = state.base, content = content_of(buf, state) }
  connection.of(state.root):request('document.hold', params, function(err)
    if err and err.name == 'too_large' then
      connection.of(state.root):request('document.hold', { path = state.path, base = state.base }, function() end)
    end
  end)
  last_milliseconds = (uv.hrtime() - began) / 1e6
end

local function is_unsaved(buf, state)
  return api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified and shared(state.path) ~= 'off'
end

--- Let the daemon hold what the buffer has now, or end its hold.
function M.update(buf)
  local state, before = buffers.get(buf), held[buf]
  local is_held = state ~= nil and is_unsaved(buf, state)
  if before and not (is_held and state.root == before.root and state.path == before.path) then
    release(buf)
    before = nil
  end
  if not is_held or connection.of(state.root).state ~= 'ready' then
    return
  end
  if not before or before.base ~= state.base or before.tick ~= api.nvim_buf_get_changedtick(buf) then
    hold(buf, state)
  end
end

--- Update the buffer after a pause.
local function update_later(buf)
  if waiting[buf] then
    return
  end
  waiting[buf] = true
  vim.defer_fn(function()
    waiting[buf] = nil
    M.update(buf)
  end, math.min(math.max(PAUSE_MILLISECONDS, PAUSE_FACTOR * last_milliseconds), PAUSE_MILLISECONDS_MAX))
end

--- Notice the changes of a buffer, as long as editd follows it.
local function watch(buf)
  local function changed()
    if not buffers.get(buf) then
      watched[buf] = nil
      return true -- ends the notices
    end
    update_later(buf)
  end
  watched[buf] = api.nvim_buf_attach(buf, false, {
    on_lines = changed,
    on_reload = changed,
    on_detach = function()
      watched[buf] = nil
    end,
  })
end

buffers.on_settled(function(buf)
  if buffers.get(buf) and not watched[buf] then
    watch(buf)
  end
  M.update(buf)
end)

connection.on_event(function(daemon, event)
  if event.event == 'lost' then
    for buf, one in pairs(held) do
      if one.root == daemon.root then
        held[buf] = nil
      end
    end
  end
end)
buffers.on_connected(M.update)

api.nvim_create_autocmd('OptionSet', {
  group = api.nvim_create_augroup('editd_holds', { clear = true }),
  pattern = 'modified',
  callback = function()
    update_later(api.nvim_get_current_buf())
  end,
})

return M
