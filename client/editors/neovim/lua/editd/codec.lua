--- A buffer's text as bytes, and bytes as a buffer's text, both made by Vim itself.
---
--- What Vim writes to another file is, by construction, what it would have written to this one: the
--- encoding, the line ends, the byte-order mark and the last line's end are all its own. The same
--- holds the other way round. So nothing here knows what an encoding is.
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

--- Return the bytes that `buf` stands for as it is, its last line with an end only if that has one.
function M.as_it_is(buf)
  local fixes = vim.bo[buf].fixendofline
  vim.bo[buf].fixendofline = false
  local bytes = M.encode(buf)
  vim.bo[buf].fixendofline = fixes
  return bytes
end

--- Return what `:write` would write of `buf`, with its `++opt` in `arguments`; else nil and why not.
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

--- Return what Vim makes of `bytes`: `lines`, and the options that go with them.
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
