--- What is said to the user.
local M = {}

local said = {}

--- The commands here for what a hint tells a program to send.
local HERE = {
  ['use on_conflict: force'] = 'use :Editd! with the same command',
  ['ask for on_stale: merge'] = 'merge it',
  ['Use include_published'] = 'Run `editctl rollback --include-published`',
}

--- Say `text`; `level` is one of vim.log.levels, INFO where it is left out.
function M.say(text, level)
  vim.notify('editd: ' .. text, level or vim.log.levels.INFO, { title = 'editd' })
end

--- Say a thing that is to be known but not to be repeated: once for each `key`.
function M.once(key, text, level)
  if not said[key] then
    said[key] = true
    M.say(text, level)
  end
end

--- Allow `key` to be said again.
function M.again(key)
  said[key] = nil
end

--- Say what the daemon refused, with its hint. The message holds the hint already, as its last part.
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

--- Return who made a transaction, and which it is, in a few words.
function M.author(transaction)
  local text = transaction.seq .. ' by ' .. transaction.actor
  if transaction.session and transaction.session ~= vim.NIL then
    text = text .. ' in ' .. transaction.session
  end
  return text
end

return M
