--- `:checkhealth editd`.
local config = require('editd.config')
local workspace = require('editd.workspace')

local M = {}

local ANSWER_MILLISECONDS = 3000

local health = vim.health or require('health') -- 0.8 and later; before 0.8

local function reporter(new, old)
  return function(...)
    return (health[new] or health[old])(...)
  end
end

-- The names of 0.9 and later, and before them those of earlier versions.
local start, ok = reporter('start', 'report_start'), reporter('ok', 'report_ok')
local warn, fail, info = reporter('warn', 'report_warn'), reporter('error', 'report_error'), reporter('info', 'report_info')

local function check_programs()
  start('editd: requirements')
  if vim.fn.has('nvim-0.7') == 1 then
    ok('Neovim is 0.7 or later')
  else
    fail('Neovim is older than 0.7')
  end
  local command = config.values.editctl[1]
  if vim.fn.executable(command) == 1 then
    ok('`' .. command .. '` is ' .. vim.fn.exepath(command))
  else
    warn('`' .. command .. '` was not found, so Neovim cannot start a daemon', {
      'Install editd (`pipx install editd`), or name the command: require("editd").setup{editctl = {"/path/to/editctl"}}',
    })
  end
end

local function check_status(status)
  if status.state == 'ready' then
    ok('editd ' .. status.version .. ' (pid ' .. status.pid .. ') is ready, at transaction ' .. status.head)
  else
    warn('editd is ' .. status.state .. ': ' .. tostring(status.reason))
  end
  local watcher = status.watcher
  if watcher.state == 'ready' then
    ok('the watcher watches ' .. watcher.directories .. ' directories')
  else
    warn('the watcher is ' .. watcher.state)
  end
  for _, weaker in ipairs(status.weaker) do
    info('weaker on this file system: ' .. tostring(weaker))
  end
  if status.history.is_full then
    fail('the history has reached its quota: edits are refused', { 'Run `editctl gc`, or raise history.quota.' })
  end
end

local function check_daemon(root)
  start('editd: ' .. root)
  info('socket: ' .. workspace.socket(root))
  local connection = require('editd.connection')
  local err, status
  connection.of(root):request('status', {}, function(...)
    err, status = ...
  end)
  vim.wait(ANSWER_MILLISECONDS, function()
    return err or status
  end, 10)
  if status then
    check_status(status)
  elseif err then
    fail(err.message, { tostring(err.data.hint) })
  else
    fail('editd has not answered within three seconds', { 'Run `editctl status`, or read its log in $XDG_STATE_HOME/editd.' })
  end
end

local function check_buffers(root)
  local buffers = require('editd.buffers')
  for _, buf in ipairs(buffers.all(root)) do
    local state = buffers.get(buf)
    if state.stale then
      warn(state.path .. ' ' .. state.stale.what, { 'Run :Editd merge in that buffer' })
    else
      ok(state.path .. ' is saved through editd')
    end
  end
end

--- Report on the programs, and on the workspace of each buffer and of the current folder.
function M.check()
  check_programs()
  local roots = {}
  local here = workspace.around(workspace.real(vim.fn.getcwd()))
  if here then
    roots[here] = true
  end
  for _, connection in ipairs(require('editd.connection').all()) do
    roots[connection.root] = true
  end
  if next(roots) == nil then
    start('editd: workspaces')
    info('neither a buffer nor the current folder is in a workspace (a folder with .git, or $EDITD_WORKSPACE)')
  end
  for _, root in ipairs(vim.fn.sort(vim.tbl_keys(roots))) do
    check_daemon(root)
    check_buffers(root)
  end
end

return M
