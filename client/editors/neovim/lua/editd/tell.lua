--- Messages to the user.
local M = {}

local said = {}

--- The commands of this plugin for the parts of a hint that are for programs.
local HERE = {
  ['use on_conflict: force'] = 'use :Editd! with the same command',
  ['use on_stale: merge'] = 'merge it',
  ['Ask the user to save, edit other lines, or read it with `unsaved: true` and edit that'] = 'Save it there first',
  ['Use include_by_time'] = 'Run `editctl rollback --include-by-time`',
  ['Use include_published'] = 'Run `editctl rollback --include-published`',
}

--- Show `text`; `level` is one of vim.log.levels (default: INFO).
function M.say(text, level)
  vim.notify('editd: ' .. text, level or vim.log.levels.INFO, { title = 'editd' })
end

--- Show a message only once for each `key`.
function M.once(key, text, level)
  if not said[key] then
    said[key] = true
    M.say(text, level)
  end
end

--- Allow the message of `key` again.
function M.again(key)
  said[key] = nil
end

--- Show the daemon's refusal with its hint. The message ends with the hint.
function M.refusal(err)
  local hint = type(err.data) == 'table' and err.data.hint
  local text = err.message
  if type(hint) == 'string' and not text:find(hint, 1, true) then
    text = text .. ' ' .. hint
  end
  for spoken, here in pairs(HERE) do
    text = text:gsub(vim.pesc(spoken), here)
  end
  M.say(text, vim.log.levels.ERROR)
end

--- Return the author and the number of a transaction, in a few words.
function M.author(transaction)
  local text = transaction.seq .. ' by ' .. transaction.actor
  if transaction.session and transaction.session ~= vim.NIL then
    text = text .. ' in ' .. transaction.session
  end
  return text
end

return M
