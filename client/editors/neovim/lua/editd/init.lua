--- editd for Neovim: saves go through the daemon, and buffers follow changes by others. See |editd.txt|.
local buffers = require('editd.buffers')
local config = require('editd.config')
local connection = require('editd.connection')

local M = {}

--- Set the user's settings; without this call the defaults are used. |editd-setup|
function M.setup(given)
  config.set(given)
  if config.values.annotate.enabled then
    require('editd.annotate')
  end
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_loaded(buf) then
      if not buffers.get(buf) or not config.values.enabled then
        buffers.attach(buf)
      end
    end
  end
end

--- Return the text for a status line of `buf` (the current one): '' if editd does not follow it.
function M.statusline(buf)
  local state = buffers.get(buf or 0)
  if not state then
    return ''
  end
  local daemon = connection.of(state.root)
  local text = 'editd:' .. (daemon.state == 'ready' and tostring(daemon.head) or daemon.state == 'connecting' and '…' or 'off')
  if state.saving then
    text = text .. ' saving'
  end
  local proposals = require('editd.review').count(state.root)
  if proposals > 0 then
    text = text .. ' ' .. proposals .. (proposals == 1 and ' proposal' or ' proposals')
  end
  if state.stale then
    text = text .. ' ' .. config.values.icons.stale .. 'stale'
  end
  return text
end

--- Return the state of `buf` (the current one) for scripts: nil if editd does not follow it.
function M.info(buf)
  local state = buffers.get(buf or 0)
  if not state then
    return nil
  end
  return {
    root = state.root,
    path = state.path,
    version = connection.present(state.base),
    stale = state.stale and state.stale.what,
    saving = state.saving ~= nil,
    connection = connection.of(state.root).state,
    head = connection.of(state.root).head,
  }
end

--- Send any request of the protocol to the daemon of the current buffer's workspace, without waiting:
--- `callback(error, result)`.
function M.request(method, params, callback)
  local daemon = require('editd.command').daemon()
  if daemon then
    daemon:request(method, params or {}, callback or function() end)
  end
end

return M
