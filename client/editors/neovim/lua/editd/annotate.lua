--- Authors of lines, as virtual text at their ends, from the daemon's `blame`.
local buffers = require('editd.buffers')
local config = require('editd.config')
local connection = require('editd.connection')
local hunks = require('editd.hunks')
local views = require('editd.views')

local M = {}

local api = vim.api
local space = api.nvim_create_namespace('editd_annotate')
local shown = {} -- buffer number -> true or false, if the user has set it

local function is_on(buf)
  if shown[buf] == nil then
    return config.values.annotate.enabled
  end
  return shown[buf]
end

--- Return the age in one short word.
local function age(seconds)
  local minutes = math.floor((os.time() - seconds) / 60)
  if minutes < 1 then
    return 'now'
  elseif minutes < 60 then
    return minutes .. 'm'
  elseif minutes < 48 * 60 then
    return math.floor(minutes / 60) .. 'h'
  end
  return math.floor(minutes / 1440) .. 'd'
end

local function is_told(line)
  local settings = config.values.annotate
  local seconds = views.seconds(line.time)
  if line.seq == 0 or not seconds then
    return false
  end
  if settings.others_only and line.actor == config.values.actor then
    return false
  end
  return os.time() - seconds <= settings.recent_hours * 3600
end

local function draw(buf, state, lines)
  api.nvim_buf_clear_namespace(buf, space, 0, -1)
  local origins = hunks.origins(state.base_lines, api.nvim_buf_get_lines(buf, 0, -1, false))
  local before
  for number, origin in ipairs(origins) do
    local line = origin and lines[origin]
    local seq = line and is_told(line) and line.seq or nil
    if seq and seq ~= before then
      local session = connection.present(line.session)
      local text = string.format('%s %s%s %s · %d', config.values.icons.virtual, line.actor, session and '/' .. session or '', age(views.seconds(line.time)), seq)
      api.nvim_buf_set_extmark(buf, space, number - 1, 0, { virt_text = { { text, 'Comment' } }, hl_mode = 'combine' })
    end
    before = seq
  end
end

--- Draw the buffer's annotations again, when the authors of its lines are known.
function M.refresh(buf)
  local state = buffers.get(buf)
  local daemon = state and connection.of(state.root)
  if not state or not is_on(buf) or daemon.state ~= 'ready' or state.base == vim.NIL then
    return
  end
  daemon:request('blame', { path = state.path }, function(err, result)
    if not err and buffers.get(buf) == state and is_on(buf) and result.version == state.base then
      draw(buf, state, result.lines)
    end
  end)
end

--- Toggle the annotations; `on` sets them to that.
function M.toggle(buf, on)
  if on == nil then
    on = not is_on(buf)
  end
  shown[buf] = on
  if on then
    M.refresh(buf)
  else
    api.nvim_buf_clear_namespace(buf, space, 0, -1)
  end
end

buffers.on_settled(M.refresh)
buffers.on_connected(M.refresh)

return M
