--- Differences between lists of lines: applied to a buffer, followed line by line, merged three ways.
local M = {}

local diff = vim.text and vim.text.diff or vim.diff

local function joined(lines)
  return table.concat(lines, '\n') .. '\n'
end

--- Return the changes from `before` to `after`: lines `from` up to, not including, `to` become
--- `first` up to, not including, `last` of `after`.
function M.between(before, after)
  local found = {}
  for _, hunk in ipairs(diff(joined(before), joined(after), { result_type = 'indices' })) do
    local from, count, first, added = unpack(hunk)
    from = count == 0 and from + 1 or from
    first = added == 0 and first + 1 or first
    found[#found + 1] = { from = from, to = from + count, first = first, last = first + added }
  end
  return found
end

--- Make `buf` hold `lines`, with the smallest changes: cursors, marks and folds in other places stay.
function M.put(buf, lines)
  local changes = M.between(vim.api.nvim_buf_get_lines(buf, 0, -1, false), lines)
  local modifiable = vim.bo[buf].modifiable
  vim.bo[buf].modifiable = true
  for index = #changes, 1, -1 do
    local change = changes[index]
    local new = vim.list_slice(lines, change.first, change.last - 1)
    vim.api.nvim_buf_set_lines(buf, change.from - 1, change.to - 1, false, new)
  end
  vim.bo[buf].modifiable = modifiable
end

--- Return for each line of `after` the number of the same line of `before`, or false.
function M.origins(before, after)
  local origins, old, new = {}, 1, 1
  for _, change in ipairs(M.between(before, after)) do
    while new < change.first do
      origins[new], old, new = old, old + 1, new + 1
    end
    while new < change.last do
      origins[new], new = false, new + 1
    end
    old = change.to
  end
  while new <= #after do
    origins[new], old, new = old, old + 1, new + 1
  end
  return origins
end

--- Return the changes from `base` to `side`, with their new lines. A change that keeps the number of lines
--- is split into single lines, unless one of `others` inserts lines inside it.
local function changes_of(base, side, others)
  local found = {}
  for _, change in ipairs(M.between(base, side)) do
    local lines = vim.list_slice(side, change.first, change.last - 1)
    local is_whole = #lines ~= change.to - change.from
    for _, other in ipairs(others) do
      is_whole = is_whole or (other.from == other.to and change.from < other.from and other.from < change.to)
    end
    if is_whole then
      found[#found + 1] = { from = change.from, to = change.to, lines = lines }
    else
      for index, line in ipairs(lines) do
        found[#found + 1] = { from = change.from + index - 1, to = change.from + index, lines = { line } }
      end
    end
  end
  return found
end

--- Return whether two changes change the same line, or insert lines at the same point.
local function collide(one, other)
  if one.from == one.to and other.from == other.to then
    return one.from == other.from
  end
  return one.from < other.to and other.from < one.to
end

local function collides_with_any(change, others)
  for _, other in ipairs(others) do
    if collide(change, other) then
      return true
    end
  end
  return false
end

--- Return both sides' changes in the order of their lines: `{side, change}`.
local function in_order(mine, theirs)
  local both = {}
  for side, changes in ipairs({ mine, theirs }) do
    for _, change in ipairs(changes) do
      both[#both + 1] = { side = side, change = change }
    end
  end
  table.sort(both, function(one, other)
    if one.change.from ~= other.change.from then
      return one.change.from < other.change.from
    elseif one.change.to ~= other.change.to then
      return one.change.to < other.change.to
    end
    return one.side < other.side
  end)
  return both
end

--- Return lines `from` up to `to` of the base with `changes` of them made.
local function changed(base, changes, from, to)
  local lines = {}
  for _, change in ipairs(changes) do
    vim.list_extend(lines, base, from, change.from - 1)
    vim.list_extend(lines, change.lines)
    from = change.to
  end
  return vim.list_extend(lines, base, from, to - 1)
end

--- Return the merge of `mine` and `theirs`, both made from `base`, and the number of marked conflicts.
--- `names` are those of the two sides. As in the daemon's trial, only changes of the same line conflict.
function M.merge(base, mine, theirs, names)
  local others = changes_of(base, theirs, {})
  local both = in_order(changes_of(base, mine, others), others)
  local out, conflicts, copied, index = {}, 0, 1, 1
  while both[index] do
    local sides, from, to = { {}, {} }, both[index].change.from, 0
    repeat
      local one = both[index]
      table.insert(sides[one.side], one.change)
      to, index = math.max(to, one.change.to), index + 1
    until not both[index] or not collides_with_any(both[index].change, sides[3 - both[index].side])
    vim.list_extend(out, base, copied, from - 1)
    local ours, yours = changed(base, sides[1], from, to), changed(base, sides[2], from, to)
    if #sides[2] == 0 or vim.deep_equal(ours, yours) then
      vim.list_extend(out, ours)
    elseif #sides[1] == 0 then
      vim.list_extend(out, yours)
    else
      conflicts = conflicts + 1
      out[#out + 1] = '<<<<<<< ' .. names.mine
      vim.list_extend(out, ours)
      out[#out + 1] = '||||||| as it was read'
      vim.list_extend(out, base, from, to - 1)
      out[#out + 1] = '======='
      vim.list_extend(out, yours)
      out[#out + 1] = '>>>>>>> ' .. names.theirs
    end
    copied = to
  end
  return vim.list_extend(out, base, copied, #base), conflicts
end

return M
