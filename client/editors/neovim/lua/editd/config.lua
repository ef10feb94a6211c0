--- The user's settings, with their defaults. `:help editd-setup` explains each.
local M = {}

M.defaults = {
  enabled = true, -- a boolean, or a function of (path) that returns whether editd follows the file
  actor = 'nvim', -- the author of your edits in the history
  session = nil, -- the session of your edits; none if nil
  editctl = { 'editctl' }, -- the command that starts a daemon
  start = true, -- start a daemon if none answers
  fallback = true, -- without a daemon, let Vim write
  reload = true, -- buffers without changes follow their files
  merge = 'auto', -- buffers with changes take in a change of the file that merges; 'ask' marks them
  share_unsaved = 'text', -- what others learn of unsaved text: 'text', 'flag' (only that there is some) or 'off'
  private = { '.env*', '*.pem', '*.key', 'id_*', '*.kdbx' }, -- globs of names whose text is never shared
  wait_milliseconds = 1000, -- the longest wait of a :write for its answer, which may come later
  bytes_max = 4 * 1024 * 1024, -- larger files are left to Vim
  picker = 'auto', -- 'telescope', 'fzf-lua' or 'select'; 'auto': the first that is installed
  annotate = {
    enabled = false, -- show the authors of recent changes, at the ends of lines
    others_only = true, -- no lines by this actor
    recent_hours = 24, -- no older lines
  },
  signs = {
    enabled = true, -- signs beside lines that sessions have written and no person has reviewed
    mappings = true, -- ]e and [e go to them, if nothing else is mapped to these keys
  },
  icons = { stale = '!', virtual = '▎', unreviewed = '┃' },
}

M.values = vim.deepcopy(M.defaults)

--- Override the defaults with the user's settings; warn about unknown names.
function M.set(given)
  for name in pairs(given or {}) do
    if M.defaults[name] == nil and name ~= 'session' then
      vim.notify('editd: there is no setting "' .. tostring(name) .. '" (:help editd-setup)', vim.log.levels.WARN)
    end
  end
  M.values = vim.tbl_deep_extend('force', vim.deepcopy(M.defaults), given or {})
end

return M
