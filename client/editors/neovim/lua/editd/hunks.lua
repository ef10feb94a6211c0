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

--- Return the changes of a list that touch each other from `index` on, within one region.
local function reach(changes, index, to)
  while changes[index] and changes[index].from <= to do
    to = math.max(to, changes[index].to)
    index = index + 1
  end
  return index, to
end

--- Return the lines of `side` for lines `from` up to `to` of the base, with its changes `low` to `high`.
local function part(side, changes, low, high, from, to)
  local before, after = changes[low - 1], changes[high - 1]
  local first = from + (before and before.last - before.to or 0)
  local last = to + (after and after.last - after.to or 0)
  return vim.list_slice(side, first, last - 1)
end

--- Return the merge of `mine` and `theirs`, both made from `base`, and the number of marked conflicts.
--- `names` are those of the two sides.
function M.merge(base, mine, theirs, names)
  local a, b = M.between(base, mine), M.between(base, theirs)
  local out, conflicts, copied, i, j = {}, 0, 1, 1, 1
  local function add(lines)
    vim.list_extend(out, lines)
  end
  while a[i] or b[j] do
    local from = math.min(a[i] and a[i].from or math.huge, b[j] and b[j].from or math.huge)
    local to, i_end, j_end = from, i, j
    repeat
      local reached = to
      i_end, to = reach(a, i_end, to)
      j_end, to = reach(b, j_end, to)
    until to == reached
    add(vim.list_slice(base, copied, from - 1))
    local ours, others = part(mine, a, i, i_end, from, to), part(theirs, b, j, j_end, from, to)
    if j_end == j or vim.deep_equal(ours, others) then
      add(ours)
    elseif i_end == i then
      add(others)
    else
      conflicts = conflicts + 1
      add({ '<<<<<<< ' .. names.mine })
      add(ours)
      add({ '||||||| as it was read' })
      add(vim.list_slice(base, from, to - 1))
      add({ '=======' })
      add(others)
      add({ '>>>>>>> ' .. names.theirs })
    end
    copied, i, j = to, i_end, j_end
  end
  add(vim.list_slice(base, copied, #base))
  return out, conflicts
end

return M
