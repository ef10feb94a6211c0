--- The place of a file: its workspace, its path in there, and the daemon's socket.
local uv = vim.uv or vim.loop

local M = {}

local roots = {} -- folder -> root, or false; searched once for each folder

--- Return the real path of `path`; for a missing file, the real path of its folder with its name.
function M.real(path)
  local real = uv.fs_realpath(path)
  if real then
    return real
  end
  if uv.fs_lstat(path) then
    return nil -- a dangling link
  end
  local folder = uv.fs_realpath(vim.fn.fnamemodify(path, ':h'))
  return folder and (folder == '/' and '' or folder) .. '/' .. vim.fn.fnamemodify(path, ':t')
end

--- Return the folder with the history of the workspace `root`, whether or not it exists.
local function state_of(root)
  local state = vim.env.XDG_STATE_HOME
  if not state or state:sub(1, 1) ~= '/' then
    state = (vim.env.HOME or '') .. '/.local/state'
  end
  return state .. '/editd/' .. vim.fn.sha256(root):sub(1, 16)
end

--- Return whether the `.git` file of `folder` is that of a linked worktree.
local function is_linked_worktree(folder)
  local stat = uv.fs_lstat(folder .. '/.git')
  local file = stat and stat.type == 'file' and io.open(folder .. '/.git', 'rb')
  if not file then
    return false
  end
  local git = (file:read('*a') or ''):match('^gitdir: ([^\r\n]+)')
  file:close()
  if not git or not git:match('/worktrees/[^/]+/?$') then
    return false
  end
  git = git:sub(1, 1) == '/' and git or folder .. '/' .. git
  return uv.fs_stat(git .. '/commondir') ~= nil or uv.fs_stat(git) == nil
end

--- Return whether `folder` is a workspace already, or a linked worktree, which is always a separate one.
local function is_served(folder)
  local given = vim.env.EDITD_SOCKET
  if uv.fs_stat(state_of(folder) .. '/nested') or ((not given or given == '') and uv.fs_stat(M.socket(folder))) then
    return true
  end
  if not uv.fs_lstat(folder .. '/.git') then
    return false
  end
  return uv.fs_stat(state_of(folder) .. '/store.git') ~= nil or is_linked_worktree(folder)
end

--- Return the workspace that serves `folder`: the nearest one upwards, otherwise the nearest git top level.
local function serving_root(folder)
  local top
  while folder ~= '/' and folder ~= '' do
    if is_served(folder) then
      return folder
    end
    if not top and uv.fs_lstat(folder .. '/.git') then
      top = folder
    end
    folder = vim.fn.fnamemodify(folder, ':h')
  end
  return top
end

local function root_of(folder)
  local named = vim.env.EDITD_WORKSPACE
  named = named and named ~= '' and uv.fs_realpath(named)
  if named and (folder .. '/'):sub(1, #named + 1) == named .. '/' then
    return named
  end
  local root = serving_root(folder)
  local home = uv.fs_realpath(vim.env.HOME or '/')
  return root ~= home and root or nil -- editd owns neither / nor a home
end

--- Return the root of the workspace of `folder`, a real path, or nil.
function M.around(folder)
  if roots[folder] == nil then
    roots[folder] = root_of(folder) or false
  end
  return roots[folder] or nil
end

--- Return the root and the path in it of the file `name`, or nil if no workspace holds it.
function M.locate(name)
  if name == '' or name:match('^%a[%w+.-]*://') then
    return nil
  end
  local path = M.real(name)
  if not path or path:match('/%.git/') then
    return nil
  end
  local root = M.around(vim.fn.fnamemodify(path, ':h'))
  if not root then
    return nil
  end
  return root, path:sub(#root + 2)
end

--- Forget the cached roots, as after a `git init`.
function M.forget()
  roots = {}
end

--- Return the socket of the daemon of `root`, by the protocol's order.
function M.socket(root)
  local given = vim.env.EDITD_SOCKET
  if given and given ~= '' then
    return vim.fn.fnamemodify(given, ':p')
  end
  local folder
  local runtime = vim.env.XDG_RUNTIME_DIR
  if runtime and runtime:sub(1, 1) == '/' then -- the XDG specification ignores a relative one
    folder = runtime .. '/editd'
  elseif uv.fs_stat('/run/user/' .. uv.getuid()) then
    folder = '/run/user/' .. uv.getuid() .. '/editd'
  else
    local temporary = vim.env.TMPDIR
    folder = (temporary and temporary ~= '' and temporary or '/tmp') .. '/editd-' .. uv.getuid()
  end
  return folder .. '/' .. vim.fn.sha256(root):sub(1, 16) .. '.sock'
end

--- Return the reviewers' own socket beside `socket`, that of the daemon.
function M.review_socket(socket)
  return (socket:gsub('%.sock$', '')) .. '.review.sock'
end

--- Return whether `served`, the folder of a daemon, is not `root`: EDITD_SOCKET may be set for another
--- workspace. A folder that does not exist here belongs to a daemon in a container.
function M.is_elsewhere(served, root)
  local there, here = uv.fs_stat(served), uv.fs_stat(root)
  return there ~= nil and here ~= nil and (there.dev ~= here.dev or there.ino ~= here.ino)
end

--- Return whether the socket exists and is ours. One of another user in a shared folder is not used.
function M.is_ours(socket)
  local stat = uv.fs_stat(socket)
  return stat ~= nil and stat.type == 'socket' and stat.uid == uv.getuid()
end

return M
