--- Conversion of a buffer's text to bytes and back, both done by Vim itself.
---
--- Vim writes to another file exactly the bytes that it would write to this one: with its encoding, line
--- ends, byte-order mark and last line's end. The same is true for reading. So this module needs no
--- knowledge of encodings.
local M = {}

local function read(name)
  local file = io.open(name, 'rb')
  if not file then
    return nil
  end
  local bytes = file:read('*a')
  file:close()
  return bytes
end

--- Return the bytes of the file `name`, or nil.
M.read = read

local function with_options(options, body)
  local before = {}
  for name, value in pairs(options) do
    before[name] = vim.go[name]
    vim.go[name] = value
  end
  local ok, result = pcall(body)
  for name, value in pairs(before) do
    vim.go[name] = value
  end
  if not ok then
    error(result, 0)
  end
  return result
end

--- Return the bytes that `:write` would write of `buf`, and leave the marks of the last change as they are.
function M.unsaved(buf)
  local marks = {}
  for _, name in ipairs({ '[', ']' }) do
    marks[name] = vim.api.nvim_buf_get_mark(buf, name)
  end
  local bytes = M.encode(buf)
  for name, position in pairs(marks) do
    if position[1] > 0 then
      pcall(vim.api.nvim_buf_set_mark, buf, name, position[1], position[2], {})
    end
  end
  return bytes
end

--- Return the unchanged bytes of `buf`, its last line with an end only if it has one.
function M.as_it_is(buf)
  local fixes = vim.bo[buf].fixendofline
  vim.bo[buf].fixendofline = false
  local bytes = M.unsaved(buf)
  vim.bo[buf].fixendofline = fixes
  return bytes
end

--- Return the bytes that `:write` would write of `buf`, with `++opt` in `arguments`; or nil and the error.
function M.encode(buf, arguments)
  local name = vim.fn.tempname()
  local ok, why = pcall(with_options, { fsync = false, patchmode = '', cpoptions = 'aABceFs' }, function()
    vim.api.nvim_buf_call(buf, function()
      vim.cmd('silent noautocmd keepalt write! ' .. (arguments or '') .. ' ' .. vim.fn.fnameescape(name))
    end)
  end)
  local bytes = ok and read(name) or nil
  os.remove(name)
  if not bytes then
    return nil, tostring(why):gsub('^.-(E%d+)', '%1')
  end
  return bytes
end

--- Return Vim's reading of `bytes`: the `lines`, and their options.
function M.decode(bytes)
  local name = vim.fn.tempname()
  local file = assert(io.open(name, 'wb'))
  file:write(bytes)
  file:close()
  local scratch
  local ok, result = pcall(with_options, { eventignore = 'all', modeline = false, swapfile = false }, function()
    scratch = vim.fn.bufadd(name)
    vim.cmd('silent noautocmd keepalt noswapfile call bufload(' .. scratch .. ')')
    local options = {}
    for _, option in ipairs({ 'fileformat', 'fileencoding', 'bomb', 'endofline' }) do
      options[option] = vim.bo[scratch][option]
    end
    return { lines = vim.api.nvim_buf_get_lines(scratch, 0, -1, false), options = options }
  end)
  if scratch then
    with_options({ eventignore = 'all' }, function()
      vim.cmd('silent! noautocmd bwipeout! ' .. scratch)
    end)
  end
  os.remove(name)
  if not ok then
    error(result, 0)
  end
  return result
end

return M
