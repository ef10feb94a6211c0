--- Messages to the user.
local words = require('editd.words')

local M = {}

local said = {}

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

--- Return the words of this plugin for a term of an advice; those of the protocol for an unknown term.
local function in_words(term)
  local name = term.kind == 'option' and term.option or term.method or term.argument or ''
  local exact = words[('%s %s %s'):format(term.kind, name, term.argument or '')]
  local own = exact or words[('%s %s'):format(term.kind, name)]
  if own == '' then
    return ''
  end
  if own and not exact and term.argument and (term.kind == 'method' or term.kind == 'option') then
    own = term.kind == 'method' and own:gsub('`$', ' ' .. term.argument .. '`') or own .. ' ' .. term.argument
  end
  return (term.lead or '') .. (own or term.words or '') .. (term.purpose or '')
end

--- Return the next step after a refusal in the words of this plugin, or nil if it has none.
local function next_step(data)
  if type(data.advice) ~= 'table' then
    return type(data.hint) == 'string' and data.hint or nil
  end
  local parts = vim.tbl_map(function(part)
    return type(part) == 'table' and in_words(part) or part
  end, data.advice)
  return table.concat(parts)
end

--- Show the daemon's refusal with its next step. The message ends with that step in the protocol's words.
function M.refusal(err)
  local data = type(err.data) == 'table' and err.data or {}
  local fact = err.message
  if type(data.hint) == 'string' and vim.endswith(fact, data.hint) then
    fact = vim.trim(fact:sub(1, #fact - #data.hint))
  end
  local step = next_step(data)
  M.say(step and fact .. ' ' .. step or fact, vim.log.levels.ERROR)
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
