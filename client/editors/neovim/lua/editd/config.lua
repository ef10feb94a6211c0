--- What the user may set, with what holds where nothing is said. `:help editd-setup` explains each.
local M = {}

M.defaults = {
  enabled = true, -- a boolean, or a function of (path) that says whether a file is editd's
  actor = 'nvim', -- whose edits these are, in the history
  session = nil, -- the session that they are made in; none if nil
  editctl = { 'editctl' }, -- the command that starts a daemon
  start = true, -- start a daemon where none answers
  fallback = true, -- where there is none, let Vim write by itself
  reload = true, -- buffers without changes follow their files
  wait_milliseconds = 1000, -- so long does a :write wait for its answer; then it goes on behind
  bytes_max = 4 * 1024 * 1024, -- larger files are left to Vim
  annotate = {
    enabled = false, -- who changed what, at the ends of lines
    others_only = true, -- not what this actor wrote
    recent_hours = 24, -- nor what is older
  },
  icons = { stale = '!', virtual = '▎' },
}

M.values = vim.deepcopy(M.defaults)

--- Take the user's settings over the defaults; a name that is none of ours is told.
function M.set(given)
  for name in pairs(given or {}) do
    if M.defaults[name] == nil and name ~= 'session' then
      vim.notify('editd: there is no setting "' .. tostring(name) .. '" (:help editd-setup)', vim.log.levels.WARN)
    end
  end
  M.values = vim.tbl_deep_extend('force', vim.deepcopy(M.defaults), given or {})
end

return M
